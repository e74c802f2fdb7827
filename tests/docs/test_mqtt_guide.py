"""The guide to MQTT works from top to bottom, as it stands."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from pydanube_broker.servers.settings.config import load_config
from support.drivers.commands import danube
from support.drivers.guides import BLOCK
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_the_guide_works(tmp_path):
    settings, port = tmp_path / "broker.yaml", str(free_port())
    broker = BrokerProcess(tmp_path / "data", "--config", str(settings))
    page = (ROOT / "docs/guide/mqtt.md").read_text()
    (_, declared), *blocks = BLOCK.findall(page)
    settings.write_text(declared.replace("1883", port))
    with broker:
        ran = []
        for language, code in blocks:
            local = code.replace("1883", port).replace("6651", str(broker.stream_port))
            if language == "python":
                subprocess.run([sys.executable, "-c", local], check=True)
                ran.append(language)
            elif language == "yaml":
                settings.write_text(code)
                assert load_config(settings, {}, {}).mqtt.rules
            elif not code.startswith("danube broker"):
                ran += [run(line, broker) for line in local.splitlines()]
    assert ran == ["mosquitto_pub", "danube", "python"]


def run(line, broker):
    """Run a command of the page, and return the program."""
    program, *arguments = shlex.split(line)
    if program == "danube":
        done = danube(*arguments, DANUBE_URL=broker.url)
        assert done.returncode == 0, done.stderr
        assert "21.5" in done.stdout
    else:
        subprocess.run([program, *arguments], check=True)
    return program
