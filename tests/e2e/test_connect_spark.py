"""A connector of a Spark format runs as a pipeline, and is operated as the others."""

from __future__ import annotations

import json
import re
import time

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from pydanube import sync
from pydanube_spark.pipelines.state import StateDirectory, kill, process_start_time
from support.drivers.commands import danube
from support.drivers.connectors import ConnectProcess
from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.soak]

PAGE = (ROOT / "docs/guide/connectors.md").read_text(encoding="utf-8")
"""The file of the test is the one of the guide, with faster triggers and retries."""
[FILE] = re.findall(r"^# lake.yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COUNT = 1000
POLL_S = 0.2


@pytest.mark.timeout(900)
def test_rows_are_written_once_although_everything_is_killed(tmp_path):
    own = {"DANUBE_STATE": str(tmp_path / "state")}
    file = tmp_path / "connectors.yaml"
    text = FILE.replace("trigger: 10s", "trigger: 100ms")
    assert text != FILE
    file.write_text(f"{text}    retries: {{backoff: 100ms}}\n")
    state = StateDirectory(tmp_path / ".danube/pipelines/orders-table")

    def connect(*arguments):
        return danube("connect", *arguments, **own)

    def until(**facts):
        """The status, when it has *facts*."""
        while True:
            shown = json.loads(connect("status", "--format", "json").stdout)
            for each in shown:
                if facts.items() <= each.items():
                    return each
            time.sleep(POLL_S)

    def until_written(count):
        while len(found := written()) < count:
            time.sleep(POLL_S)
        assert found == list(range(count))

    def written():
        path = tmp_path / "tables/orders"
        if not DeltaTable.is_deltatable(str(path)):
            return []
        return sorted(DeltaTable(path).to_pyarrow_table()["number"].to_pylist())

    with (
        BrokerProcess(tmp_path / "data") as broker,
        sync.connect(broker.url) as client,
        client.producer("/default/orders", reliable=True) as producer,
        ConnectProcess(file, broker.url) as process,
    ):

        def send(begin):
            producer.send_batch(
                [b'{"number": %d}' % each for each in range(begin, begin + COUNT)]
            )

        send(0)
        until_written(COUNT)
        until(state="running", kind="delta-sink", messages=COUNT)
        shown = danube("pipeline", "status", "orders-table", url=broker.url, **own)
        assert "running" in shown.stdout
        lines = connect("logs", "orders-table", "--format", "json").stdout
        assert "orders-table: starting Spark" in lines
        # The process with Spark is killed.
        run = state.read_status()
        assert kill((run.pid, run.mark))
        send(COUNT)
        until_written(2 * COUNT)
        assert until(state="running")["retries"] >= 1
        # The process of the connectors is killed, and the one with Spark notices it.
        run = state.read_status()
        process.kill()
        process.start()
        send(2 * COUNT)
        until_written(3 * COUNT)
        while process_start_time(run.pid) is not None:
            time.sleep(POLL_S)
        connect("pause", "orders-table")
        until(state="paused")
        assert not state.is_locked()
        send(3 * COUNT)
        connect("resume", "orders-table")
        until_written(4 * COUNT)
        assert process.terminate() == 143
        assert not state.is_locked()
