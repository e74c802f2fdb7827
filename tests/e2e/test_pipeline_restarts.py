"""
Producers, a broker that dies twice, a pipeline, a table: every message once.

With DANUBE_TEST_MESSAGES in the environment it is that many messages, else a number
that fits into a run of all tests.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from pydanube import sync
from support.servers.processes import BrokerProcess

deltalake = pytest.importorskip("deltalake")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
]

MESSAGES = int(os.environ.get("DANUBE_TEST_MESSAGES", "500000"))
PRODUCERS = 2
BATCH = 2000
TOPIC = "/default/restarts"
DEADLINE_S = 120 + MESSAGES / 20_000

PIPELINE = """
name: restarts
broker: {url}
trigger: continuous
spark: {{master: "local[2]"}}
sources:
  messages:
    topic: {topic}
    start: earliest
    options: {{maxOffsetsPerTrigger: 500000}}
steps:
  numbered:
    sql: SELECT offset, producer, payload FROM messages
sinks:
  table: {{input: numbered, format: danube-delta, path: {table}}}
"""

NUMBERED = np.dtype([("producer", "<u4"), ("sequence", "<u8"), ("filler", "S88")])


def numbered(producer, base, count):
    """Payloads of 100 bytes that say whose they are and which."""
    rows = np.zeros(count, NUMBERED)
    rows["producer"] = producer
    rows["sequence"] = np.arange(base, base + count)
    rows["filler"] = b"x" * 87
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(NUMBERED.itemsize), count, [None, pa.py_buffer(rows)]
    )
    return pa.record_batch({"payload": fixed.cast(pa.binary())})


def publish(url, producer, published):
    share = MESSAGES // PRODUCERS
    with (
        sync.connect(url) as client,
        client.producer(TOPIC, name=f"producer-{producer}") as publisher,
    ):
        for base in range(0, share, BATCH):
            count = min(BATCH, share - base)
            publisher.send_batch(numbered(producer, base, count))
            published[producer] = base + count


def wait_until(is_done, process):
    deadline = time.monotonic() + DEADLINE_S
    while not is_done():
        assert process.poll() is None, "the pipeline has ended"
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def rows_of(path):
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return 0
    actions = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True))
    return sum(actions["num_records"].to_pylist())


def test_every_message_is_in_the_table_once(tmp_path):
    table, file = tmp_path / "table", tmp_path / "pipeline.yaml"
    published = [0] * PRODUCERS
    with BrokerProcess(tmp_path / "data") as broker:
        with sync.connect(broker.url) as client:
            client.topics.create(TOPIC)
        file.write_text(PIPELINE.format(url=broker.url, topic=TOPIC, table=table))
        with (tmp_path / "log").open("w") as log:
            run = [sys.executable, "-m", "pydanube_cli.main", "pipeline", "run", file]
            pipeline = subprocess.Popen(run, stdout=log, stderr=log)
        try:
            threads = [
                threading.Thread(target=publish, args=(broker.url, each, published))
                for each in range(PRODUCERS)
            ]
            for thread in threads:
                thread.start()
            for third in (1, 2):
                wait_until(
                    lambda t=third: sum(published) >= MESSAGES * t // 3, pipeline
                )
                broker.kill()
                broker.start()
            for thread in threads:
                thread.join()
            assert sum(published) == MESSAGES
            wait_until(lambda: rows_of(table) >= MESSAGES, pipeline)
            pipeline.send_signal(signal.SIGTERM)
            assert pipeline.wait(60) == 128 + signal.SIGTERM, (
                tmp_path / "log"
            ).read_text()
        finally:
            pipeline.kill()

    found = deltalake.DeltaTable(table).to_pyarrow_table(columns=["offset", "payload"])
    assert found.num_rows == MESSAGES
    offsets = np.sort(found["offset"].to_numpy())
    assert np.array_equal(offsets, np.arange(MESSAGES))
    payloads = found["payload"].combine_chunks()
    rows = np.concatenate(
        [
            np.frombuffer(
                each.cast(pa.binary(NUMBERED.itemsize)).buffers()[1], NUMBERED
            )[each.offset : each.offset + len(each)]
            for each in (
                payloads.chunks if isinstance(payloads, pa.ChunkedArray) else [payloads]
            )
        ]
    )
    for producer in range(PRODUCERS):
        sequences = np.sort(rows["sequence"][rows["producer"] == producer])
        assert np.array_equal(sequences, np.arange(MESSAGES // PRODUCERS))
