"""A stream and a native table while a cluster changes below them."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pydanube_spark
from pydanube import sync
from pydanube.model.errors import PermissionDenied
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
]

SOURCE, TARGET = "/default/orders", "/default/copies"
PARTITIONS = 4
BATCH = 400
DEADLINE_S = 240
BINDING = "reader"
LOGGER = "pydanube_spark.topic_table"


@pytest.fixture
def brokers(tmp_path):
    """Three brokers of a cluster with security."""
    with etcd_member(tmp_path / "etcd") as etcd, ExitStack() as running:
        settings = cluster_settings(etcd.url, tmp_path)
        settings["security"] = {
            "enabled": True,
            "bootstrap_key_file": str(tmp_path / "bootstrap.key"),
        }
        yield [
            running.enter_context(cluster_broker(tmp_path, settings, name))
            for name in ("a", "b", "c")
        ]


class Numbers:
    """Publishes 0, 1, … to the source."""

    def __init__(self, client):
        self._client = client
        self.count = 0

    def publish(self):
        rng = random.Random(self.count)
        numbers = range(self.count, self.count + BATCH)
        rows = {
            "key": [b"%d" % (number % 50) for number in numbers],
            "payload": [
                b"%d %s" % (n, rng.randbytes(40).hex().encode()) for n in numbers
            ],
        }
        with self._client.producer(SOURCE) as producer:
            producer.send_batch(pa.record_batch(rows))
        self.count += BATCH

    def found_in(self, topic):
        return Counter(
            int(payload.split()[0])
            for batch in self._client.read(topic)
            for payload in batch.payloads
        )


def partitions(topic):
    return [f"{topic}-part-{number}" for number in range(PARTITIONS)]


def wait_until(is_done, told):
    give_up_at = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < give_up_at, told()
        time.sleep(0.1)


def test_a_stream_and_a_table_go_on_while_topics_move_and_permissions_change(
    spark, tmp_path, brokers, caplog
):
    """
    Topics move, a broker dies, and a permission is revoked and granted again.

    The table has the same rows all the time, or none; the stream ends, and goes on from
    its checkpoint without losing or repeating a message.
    """
    caplog.set_level("INFO", logger=LOGGER)
    url = ",".join(each.url for each in brokers)
    bootstrap = (tmp_path / "bootstrap.key").read_text().strip()
    with sync.connect(url, api_key=bootstrap) as client:
        for topic in (SOURCE, TARGET):
            client.topics.create(topic, partitions=PARTITIONS)
        key = tmp_path / "reader.key"
        key.write_text(client.security.create_api_key("reader").key)
        roles = ["developer"]
        client.security.add_binding(
            "user:reader", roles, ["/default/*"], binding_id=BINDING
        )
        options = {"auth.apiKeyFile": str(key), "url": url}
        numbers = Numbers(client)
        numbers.publish()
        wait_until(
            lambda: all(
                client.topics.describe(each).segment_count
                for each in partitions(SOURCE)
            ),
            lambda: "no segment was sealed",
        )

        def start():
            return (
                spark.readStream.format("danube")
                .options(**options, subscribe=SOURCE, startingOffsets="earliest")
                .load()
                .select("key", "payload")
                .writeStream.format("danube")
                .options(**options, topic=TARGET)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )

        query = start()

        def is_copied():
            nonlocal query
            if not query.isActive:
                query = start()
            found = sum(numbers.found_in(TARGET).values())
            return found >= numbers.count

        def told():
            return f"{numbers.found_in(TARGET).total()} of {numbers.count}"

        try:
            wait_until(is_copied, told)
            rows = pydanube_spark.table(spark, SOURCE, options=options)
            expected = rows.orderBy("partition", "offset").collect()
            assert len(expected) == numbers.count

            def is_same():
                return rows.orderBy("partition", "offset").collect() == expected

            for topic in [*partitions(SOURCE), *partitions(TARGET)[:2]]:
                client.cluster.move_topic(topic)
                numbers.publish()
            assert is_same()
            brokers[0].kill()
            numbers.publish()
            wait_until(is_copied, told)
            assert is_same()
            brokers[0].start()

            client.security.remove_binding(BINDING)
            numbers.publish()
            wait_until(lambda: not query.isActive, lambda: "the stream goes on")
            assert "not allowed" in str(query.exception())
            with pytest.raises(PermissionDenied):
                pydanube_spark.table(spark, SOURCE, options=options)
            brokers[1].kill()
            client.security.add_binding(
                "user:reader", roles, ["/default/*"], binding_id=BINDING
            )
            wait_until(is_copied, told)
            assert is_same()
        finally:
            query.stop()
        assert numbers.found_in(TARGET) == Counter(range(numbers.count))
    assert not [each for each in caplog.messages if "in Python" in each]
