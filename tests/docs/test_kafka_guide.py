"""The guide to Kafka clients works, and the format page names what is served."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pydanube_kafka.wire.apis import VERSIONS, Api
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+) \S (\d+) \|$", re.MULTILINE)


def test_the_format_page_names_all_requests_and_versions():
    page = (ROOT / "docs/format/kafka.md").read_text()
    found = {
        (int(key), name.lower()): (int(first), int(last))
        for key, name, first, last in ROW.findall(page)
    }
    assert found == {
        (api, Api(api).name.replace("_", "").lower()): versions
        for api, versions in VERSIONS.items()
    }


@pytest.mark.e2e
@pytest.mark.slow
def test_the_guide_works(tmp_path):
    page = (ROOT / "docs/guide/kafka.md").read_text()
    port = str(free_port())
    blocks = BLOCK.findall(page)
    program = next(code for language, code in blocks if language == "python")
    printed = next(code for language, code in blocks if language == "text")
    with BrokerProcess(tmp_path, "--kafka-port", port) as broker:
        code = program.replace("9092", port).replace(
            "connect()", f'connect("danube://127.0.0.1:{broker.stream_port}")'
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
    assert ran.stdout.strip() == printed.strip()
