"""Every row is written once although tasks fail, and copies of tasks run."""

import json
import os
import subprocess
import sys
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
    pytest.mark.timeout(900),
]

SCRIPT = Path(__file__).parents[1] / "support" / "drivers" / "spark_speculation.py"
MESSAGES = 4_000


def numbers(client, topic):
    return sorted(int(each) for batch in client.read(topic) for each in batch.payloads)


def test_rows_of_failing_and_speculative_tasks_are_written_once(
    broker_url, client, tmp_path
):
    source, topic, stream = (unique_topic(client) for _ in range(3))
    with client.producer(source) as producer:
        producer.send_batch([b"%d" % number for number in range(MESSAGES)])
    catalog = json.dumps(catalog_of(tmp_path))
    words = [broker_url, source, topic, stream, str(tmp_path), catalog]
    # A copy never runs on the host of the original.
    with standalone_cluster(tmp_path, hosts=("127.0.0.2", "127.0.0.3")) as master:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), master, *words],
            env=os.environ
            | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(SCRIPT.parents[2])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    every = list(range(MESSAGES))
    assert numbers(client, topic) == every
    assert numbers(client, stream) == every
    for kind, name in (("delta", "table"), ("delta", "delta"), ("iceberg", "iceberg")):
        table = read(table_in(tmp_path, kind, name))
        assert sorted(map(int, table.column("payload").to_pylist())) == every
    for job in ("topic", "table", "stream", "delta", "iceberg"):
        assert (tmp_path / f"{job}-1-1").exists(), "no task has failed"
        assert (tmp_path / f"{job}-2-1").exists(), "no copy of a task ran"
