"""Every row is written once although executors are lost after they have staged it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from support.drivers.lake_tables import catalog_of, read, table_in
from support.drivers.pipelines import unique_topic
from support.servers.spark_processes import standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
]

SCRIPT = Path(__file__).parents[1] / "support" / "drivers" / "spark_lost_executors.py"
MESSAGES, KEYS = 2_000, 10
WRITES = 6
"""To a topic, Delta and Iceberg, as a batch and as a stream."""
MERGED = {("delta", "batch"), ("iceberg", "stream")}


def test_rows_that_a_lost_executor_has_staged_are_written_once(
    broker_url, client, tmp_path
):
    source, topic = unique_topic(client), unique_topic(client)
    with client.producer(source) as producer:
        producer.send_batch([b"%d" % number for number in range(MESSAGES)])
    words = [broker_url, source, str(tmp_path), topic, json.dumps(catalog_of(tmp_path))]
    with standalone_cluster(tmp_path, workers=1) as master:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), master, *words],
            env=os.environ
            | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(SCRIPT.parents[2])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=3300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    lost = [each.name.removeprefix("lost-") for each in tmp_path.glob("lost-*")]
    assert len(lost) >= WRITES, "an executor was not lost"
    every = list(range(MESSAGES))
    found = [int(each) for batch in client.read(topic) for each in batch.payloads]
    assert sorted(found) == sorted(2 * every)
    # The commits have removed what the lost executors had staged.
    for write in lost:
        app, _, number = write.rpartition(":")
        assert client.staging(app, int(number)).describe().part_count == 0
    for kind in ("delta", "iceberg"):
        for write in ("batch", "stream"):
            table = table_in(tmp_path, kind, write)
            rows = read(table).sort_by("n")
            expected = every[-KEYS:] if (kind, write) in MERGED else every
            assert rows.column("n").to_pylist() == expected
            now = time.time_ns() / 1e9
            assert table.clean(older_than_s=0, now=now), "nothing was left"
            assert not table.clean(older_than_s=0, now=now)
            assert read(table).sort_by("n") == rows
