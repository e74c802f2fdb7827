"""The examples of the guide to sinks run as one script, against the real servers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.servers.clickhouse import ClickHouseProcess
from support.servers.postgres import PostgresProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

PAGE = Path(__file__).parents[2] / "docs/guide/sinks.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 280


def test_the_examples_of_the_guide_to_sinks_run(tmp_path):
    script = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    with (
        BrokerProcess(tmp_path / "data") as broker,
        PostgresProcess() as postgres,
        ClickHouseProcess(tmp_path / "clickhouse") as clickhouse,
    ):
        addresses = {
            "danube://127.0.0.1:6651": broker.url,
            "sync.connect()": f"sync.connect({broker.url!r})",
            "postgresql://ada@127.0.0.1:5432/shop": postgres.uri,
            "http://127.0.0.1:8123": clickhouse.url,
        }
        for usual, own in addresses.items():
            assert usual in script
            script = script.replace(usual, own)
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PYTHONWARNINGS": "default"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert postgres.query('SELECT count(*), max("offset") FROM last_order') == [
            (10, 99)
        ]
        assert postgres.query("SELECT sum(total) FROM totals") == [(4950.0,)]
        assert postgres.query("SELECT count(*) FROM payments") == [(2,)]
        assert clickhouse.query("SELECT count(), sum(amount) FROM orders") == [
            ["100", "4950"]
        ]
