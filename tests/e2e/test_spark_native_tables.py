"""Tables whose segments Spark reads itself, while the broker and permissions change."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pydanube_spark
from pydanube import sync
from pydanube.model.errors import PermissionDenied
from pydanube_spark.topic_table import read_topics
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

SEALED, COUNT = 2_800, 3_000
TOPIC = "/default/orders"
SETTINGS = {
    "storage": {"seal_bytes": 64 * 1024, "seal_interval_s": 0.05, "merge_bytes": 0}
}
LOGGER = "pydanube_spark.topic_table"


@contextmanager
def broker(tmp_path, settings, *options):
    file = tmp_path / "broker.yaml"
    file.write_text(json.dumps(SETTINGS | settings))
    given = ("--config", str(file), *options)
    log_file = tmp_path / "log"
    with BrokerProcess(tmp_path / "data", *given, log_file=log_file) as process:
        yield process


def publish(client, topic, base, end):
    rng = random.Random(base)
    with client.producer(topic) as producer:
        for at in range(base, end, 500):
            numbers = range(at, min(end, at + 500))
            payloads = [rng.randbytes(100) for _ in numbers]
            producer.send_batch(pa.record_batch({"payload": pa.array(payloads)}))


def sealed_and_tail(client, topic):
    publish(client, topic, 0, SEALED)
    give_up_at = time.monotonic() + 120
    while not client.topics.describe(topic).segment_count:
        assert time.monotonic() < give_up_at, "no segment was sealed"
        time.sleep(0.02)
    publish(client, topic, SEALED, COUNT)


def offsets(rows):
    return sorted(row.offset for row in rows.select("offset").collect())


def test_a_native_table_outlives_the_process_that_serves_its_topics(
    spark, tmp_path, caplog
):
    caplog.set_level("INFO", logger=LOGGER)
    options = ("--processes", "2")
    with (
        broker(tmp_path, {"cluster": {"shards": 8}}, *options) as process,
        sync.connect(process.url) as client,
    ):
        client.topics.create(TOPIC, partitions=4)
        for number in range(4):
            sealed_and_tail(client, f"{TOPIC}-part-{number}")
        rows = pydanube_spark.table(spark, TOPIC, process.url)
        expected = rows.orderBy("partition", "offset").collect()
        assert len(expected) == 4 * COUNT
        for victim in process.children():
            os.kill(victim, signal.SIGKILL)
            assert rows.orderBy("partition", "offset").collect() == expected
        # Holds belong to topics, not to the processes that serve them.
        holds = client.topics.describe(f"{TOPIC}-part-0").holds
        assert [each.reason for each in holds] == ["read by Spark"]
        again = pydanube_spark.table(spark, TOPIC, process.url)
        assert again.orderBy("partition", "offset").collect() == expected
    assert not [each for each in caplog.messages if "in Python" in each]


@contextmanager
def starting_later(process):
    """The broker was killed, and starts again while the body runs."""
    process.kill()
    # Much longer than a request takes, and longer than a client waits by default.
    starting = threading.Timer(40.0, process.start)
    starting.start()
    try:
        yield
    finally:
        starting.join()


def test_tables_are_planned_and_read_while_the_broker_restarts(spark, tmp_path, caplog):
    caplog.set_level("INFO", logger=LOGGER)
    with broker(tmp_path, {}) as process:
        with sync.connect(process.url) as client:
            client.topics.create(TOPIC)
            sealed_and_tail(client, TOPIC)
        rows = pydanube_spark.table(spark, TOPIC, process.url)
        reader = spark.read.format("danube").option("url", process.url)
        planned = reader.option("subscribe", TOPIC).load()
        assert offsets(rows) == offsets(planned) == list(range(COUNT))
        with starting_later(process):
            # The tasks read the tail.
            assert offsets(rows) == list(range(COUNT))
        with starting_later(process):
            assert offsets(planned) == list(range(COUNT))
        with starting_later(process):
            again = pydanube_spark.table(spark, TOPIC, process.url)
            assert offsets(again) == list(range(COUNT))
    assert not [each for each in caplog.messages if "in Python" in each]


def test_a_native_table_ends_with_the_permission_to_read_its_topic(
    spark, tmp_path, caplog
):
    """A table has all of its rows, or none: the tail is refused."""
    security = {
        "enabled": True,
        "bootstrap_key_file": str(tmp_path / "bootstrap.key"),
    }
    caplog.set_level("INFO", logger=LOGGER)
    with broker(tmp_path, {"security": security}) as process:
        key = (tmp_path / "bootstrap.key").read_text().strip()
        with sync.connect(process.url, api_key=key) as client:
            client.topics.create(TOPIC)
            sealed_and_tail(client, TOPIC)
            binding = client.security.add_binding(
                "user:reader", ["consumer"], ["/default/*"]
            )
            file = tmp_path / "reader.key"
            file.write_text(client.security.create_api_key("reader").key)
            options = {"auth.apiKeyFile": str(file)}
            rows = pydanube_spark.table(spark, TOPIC, process.url, options=options)
            assert offsets(rows) == list(range(COUNT))
            assert client.topics.describe(TOPIC).holds == ()
            # A pipeline needs the hold, which only managers of the topic take.
            given = {"url": process.url, "subscribe": TOPIC, **options}
            held = read_topics(spark, given, is_held=True)
            assert offsets(held) == list(range(COUNT))
            [reason] = [each for each in caplog.messages if "in Python" in each]
            assert "segments cannot be held" in reason
            client.security.remove_binding(binding)
            for each in (rows, held):
                with pytest.raises(Exception, match=f"not allowed.*{TOPIC}"):
                    each.collect()
            with pytest.raises(PermissionDenied):
                pydanube_spark.table(spark, TOPIC, process.url, options=options)
