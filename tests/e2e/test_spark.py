"""Topics in Spark: a real broker, real Spark."""

import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]


@pytest.fixture
def topic(client):
    name = f"/default/t-{uuid.uuid4().hex[:12]}"
    client.topics.create(name, reliable=True)
    return name


def publish(client, topic, base, end, payload_bytes=100):
    offsets = range(base, end)
    batch = pa.record_batch(
        {
            "key": pa.array([b"k%d" % (each % 3) for each in offsets]),
            "payload": pa.array(
                [(b"m%d" % each).ljust(payload_bytes) for each in offsets]
            ),
            "attributes": pa.array(
                [[("n", str(each))] for each in offsets],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )
    with client.producer(topic, reliable=True) as producer:
        for at in range(0, len(offsets), 500):
            assert producer.send_batch(batch.slice(at, 500))


def eventually(question, timeout_s=120.0):
    """Call *question* until its result is true, and return that."""
    give_up_at = time.monotonic() + timeout_s
    while not (answer := question()):
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.02)
    return answer


def publish_sealed_and_tail(client, topic):
    """Messages 0 … 5,000 of which some are in segments and some in the tail."""
    publish(client, topic, 0, 4_800)
    eventually(lambda: client.topics.describe(topic).segment_count)
    publish(client, topic, 4_800, 5_000)


def table(spark, url, topic, **options):
    return (
        spark.read.format("danube")
        .options(url=url, subscribe=topic)
        .options(**options)
        .load()
    )


def test_batch_of_many_small_messages_is_divided_among_the_cores(
    spark, client, broker_url, topic
):
    with client.producer(topic) as producer:
        # Sealed messages and those of the tail are never in one partition.
        client.topics.configure(topic, seal_bytes=64 * 1024 * 1024, seal_age_s=3600)
        producer.send_batch(pa.table({"payload": [b"x"] * 270_000}))
    rows = table(spark, broker_url, topic)
    assert rows.rdd.getNumPartitions() == 2
    whole = table(spark, broker_url, topic, minPartitions=1)
    assert whole.rdd.getNumPartitions() == 1
    assert rows.count() == 270_000


class Query:
    """A stream with one checkpoint that is run to its end several times."""

    def __init__(self, spark, url, topic, checkpoint, **options):
        self.batches = []
        self.fail_at = None
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self._options = {
            "url": url,
            "subscribe": topic,
            "startingOffsets": "earliest",
        } | options

    def start(self, **trigger):
        stream = self._spark.readStream.format("danube").options(**self._options).load()
        return (
            stream.select("offset")
            .writeStream.foreachBatch(self._sink)
            .option("checkpointLocation", self._checkpoint)
            .trigger(**trigger)
            .start()
        )

    def run(self):
        query = self.start(availableNow=True)
        query.awaitTermination(120)
        assert not query.isActive
        return query

    def _sink(self, batch, batch_id):
        found = sorted(row.offset for row in batch.collect())
        self.batches.append((batch_id, found))
        if batch_id == self.fail_at:
            raise RuntimeError("the sink is out of order")

    @property
    def offsets(self):
        return [offset for _, found in self.batches for offset in found]


def test_workers_use_the_python_of_the_settings(spark, python):
    assert spark.sparkContext.pythonExec == str(python)
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == str(python)


def test_workers_import_pyspark_from_files(spark):
    # The archive of the real home would be compiled in every process.
    home = Path(spark.sparkContext._jvm.System.getenv("SPARK_HOME"))
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark").is_dir()


def test_batch_reads_every_message_of_segments_and_tail_once(
    spark, broker_url, client, topic
):
    publish_sealed_and_tail(client, topic)
    for partitions in (1, 5):
        rows = table(spark, broker_url, topic, minPartitions=partitions)
        found = rows.selectExpr(
            "count(*) n", "count(distinct offset) d", "min(offset) a", "max(offset) b"
        ).first()
        assert (found.n, found.d, found.a, found.b) == (5_000, 5_000, 0, 4_999)


@pytest.mark.parametrize("offset", [17, 4_990])
def test_every_column_comes_back_as_it_was_sent(
    spark, broker_url, client, topic, offset
):
    publish_sealed_and_tail(client, topic)
    row = table(
        spark,
        broker_url,
        topic,
        startingOffsets=json.dumps({topic: offset}),
        endingOffsets=json.dumps({topic: offset + 1}),
        includeAttributes="true",
    ).first()
    assert (row.topic, row.offset) == (topic, offset)
    assert bytes(row.key) == b"k%d" % (offset % 3)
    assert bytes(row.payload).rstrip() == b"m%d" % offset
    assert row.attributes == {"n": str(offset)}
    assert row.producer
    assert (row.schema_id, row.schema_version) == (0, 0)


def test_publish_times_are_in_utc(spark, broker_url, client, topic):
    publish(client, topic, 0, 1)
    row = (
        table(spark, broker_url, topic)
        .selectExpr("unix_micros(publish_time) t")
        .first()
    )
    age = datetime.now(UTC) - datetime.fromtimestamp(row.t / 1e6, UTC)  # noqa: TID251
    assert timedelta(0) <= age < timedelta(minutes=5)


def test_schema_selects_columns_and_reads_text(spark, broker_url, client, topic):
    publish(client, topic, 0, 3, payload_bytes=0)
    rows = (
        spark.read.schema("payload string, offset bigint")
        .format("danube")
        .options(url=broker_url, subscribe=topic)
        .load()
        .collect()
    )
    assert [tuple(row) for row in rows] == [("m0", 0), ("m1", 1), ("m2", 2)]


def test_sql_finds_the_source_without_registration(spark, broker_url, client, topic):
    publish(client, topic, 0, 30)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING danube "
        f"OPTIONS (url '{broker_url}', subscribe '{topic}')"
    )
    found = spark.sql(
        "SELECT CAST(key AS STRING) k, count(*) n FROM orders GROUP BY 1 ORDER BY 1"
    ).collect()
    assert [tuple(row) for row in found] == [("k0", 10), ("k1", 10), ("k2", 10)]


def test_an_empty_topic_is_an_empty_table(spark, broker_url, topic):
    assert table(spark, broker_url, topic).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "/default/nowhere"}, "no such topic: /default/nowhere"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
    ],
)
def test_wrong_option_fails_the_planning(spark, broker_url, topic, options, message):
    with pytest.raises(AnalysisException, match=message):
        table(spark, broker_url, topic, **options).count()


def test_available_now_keeps_the_limit_and_continues_after_a_restart(
    spark, broker_url, client, topic, tmp_path
):
    publish_sealed_and_tail(client, topic)
    query = Query(spark, broker_url, topic, tmp_path, maxOffsetsPerTrigger=2_000)
    query.run()
    assert [len(found) for _, found in query.batches] == [2_000, 2_000, 1_000]
    publish(client, topic, 5_000, 5_010)
    query.run()
    assert query.offsets == list(range(5_010))
    query.run()
    assert query.offsets == list(range(5_010))


def test_progress_shows_as_lag_on_the_broker(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 100)
    Query(spark, broker_url, topic, tmp_path, subscription="billing").run()
    found = client.subscriptions.describe(topic, "billing")
    assert (found.cursor, found.backlog) == (100, 0)
    publish(client, topic, 100, 107)
    assert client.subscriptions.describe(topic, "billing").backlog == 7


def test_failed_batch_is_repeated_with_the_same_messages(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 300)
    query = Query(spark, broker_url, topic, tmp_path, maxOffsetsPerTrigger=100)
    query.fail_at = 1
    with pytest.raises(StreamingQueryException, match="out of order"):
        query.run()
    publish(client, topic, 300, 350)
    query.fail_at = None
    query.run()
    (first, failed, again, *_) = query.batches
    assert first == (0, list(range(100)))
    assert failed == again == (1, list(range(100, 200)))
    assert query.offsets == [*range(200), *range(100, 350)]


def test_a_live_stream_gets_what_is_published_while_it_runs(
    spark, broker_url, client, topic, tmp_path
):
    query = Query(spark, broker_url, topic, tmp_path)
    running = query.start(processingTime="0 seconds")
    try:
        for base in (0, 10, 20):
            publish(client, topic, base, base + 10)
            eventually(lambda end=base + 10: len(query.offsets) >= end)
    finally:
        running.stop()
    assert query.offsets == list(range(30))


def test_several_topics_are_one_stream(spark, broker_url, client, topic, tmp_path):
    other = f"{topic}-more"
    client.topics.create(other, reliable=True)
    publish(client, topic, 0, 30)
    publish(client, other, 0, 20)
    query = Query(
        spark, broker_url, f"{topic},{other}", tmp_path, maxOffsetsPerTrigger=25
    )
    query.run()
    assert [len(found) for _, found in query.batches] == [25, 25]
    assert sorted(query.offsets) == sorted([*range(30), *range(20)])


def test_recreated_topic_fails_the_query(spark, broker_url, client, topic, tmp_path):
    publish(client, topic, 0, 10)
    Query(spark, broker_url, topic, tmp_path).run()
    client.topics.delete(topic, force=True)
    client.topics.create(topic, reliable=True)
    publish(client, topic, 0, 4)
    with pytest.raises(StreamingQueryException, match="created again"):
        Query(spark, broker_url, topic, tmp_path).run()
    lenient = Query(spark, broker_url, topic, tmp_path, failOnDataLoss="false")
    lenient.run()
    assert lenient.offsets == [0, 1, 2, 3]


def test_non_reliable_topic_is_refused(spark, broker_url, client):
    name = f"/default/t-{uuid.uuid4().hex[:12]}"
    client.topics.create(name, reliable=False)
    with pytest.raises(AnalysisException, match="non-reliable"):
        table(spark, broker_url, name).count()
