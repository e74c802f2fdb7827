"""Connectors that run are seen, paused, resumed, restarted and stopped by commands."""

from __future__ import annotations

import json
import urllib.request

import pytest

from support.drivers.commands import danube
from support.drivers.connectors import ConnectProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e]

FILE = """
connectors:
  numbers: {kind: generator-source, topic: /default/numbers, options: {rate: 500}}
  few: {kind: generator-source, topic: /default/few, options: {count: 3}}
"""
ASKED_MAX = 20_000


def test_connectors_are_operated_by_commands(tmp_path):
    own = {"DANUBE_STATE": str(tmp_path / "state")}
    file = tmp_path / "connectors.yaml"
    file.write_text(FILE)

    def connect(*arguments):
        return danube("connect", *arguments, **own)

    def shown(name):
        done = connect("status", "--format", "json")
        found = json.loads(done.stdout)
        return next((each for each in found if each["connector"] == name), {})

    def until(name, **facts):
        for _ in range(ASKED_MAX):
            found = shown(name)
            if facts.items() <= found.items():
                return found
        raise AssertionError(found)

    assert json.loads(connect("status", "--format", "json").stdout) == []
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as process,
    ):
        numbers = until("numbers", state="running")
        done = connect("pause", "numbers")
        assert (done.returncode, done.stdout) == (0, "numbers will pause\n")
        paused = until("numbers", state="paused")
        assert paused["messages"] >= numbers["messages"]
        with urllib.request.urlopen(f"{paused['url']}/health") as answer:
            assert json.load(answer)["numbers"] == "paused"
        assert connect("resume", "numbers").stdout == "numbers runs again\n"
        until("numbers", state="running")
        until("few", state="finished", messages=3)
        refused = connect("pause", "few")
        assert refused.returncode != 0
        assert "few has finished; 'danube connect restart few'" in refused.stderr
        assert connect("restart", "few").stdout == "few starts again\n"
        unknown = connect("pause", "none")
        assert "no process runs a connector none" in unknown.stderr
        assert "numbers" in connect("status").stdout
        lines = connect("logs", "few", "--format", "json").stdout.splitlines()
        states = [json.loads(each)["text"].partition(",")[0] for each in lines]
        assert states[:2] == ["running", "finished"]
        last = connect("logs", "few", "--lines", "1").stdout
        assert len(last.splitlines()) == 1
        assert "finished, 3 messages" in last
        assert process.terminate() == 143
    assert json.loads(connect("status", "--format", "json").stdout) == []
