"""The options of a read, with a real broker and real Spark."""

import json
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException  # noqa: E402

import pydanube_spark  # noqa: E402
from pydanube.model.policy import Retention  # noqa: E402
from pydanube_spark import lag  # noqa: E402
from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from pydanube_spark.topic_table import read_topics  # noqa: E402
from support.drivers.pipelines import PipelineDirectory  # noqa: E402
from support.fakes.awkward_messages import ATTRIBUTES, KEYS, PAYLOADS  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COLUMNS = (
    "topic,offset,publish_time,key,payload,producer,schema_id,schema_version,partition"
)
FIRST = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""The publish time of a topic's first message; the others follow each second."""


@pytest.fixture
def topic():
    return f"/default/t-{uuid.uuid4().hex[:12]}"


def publish(client, topic, base, end, **options):
    """Messages whose keys and publish times follow from their numbers."""
    numbers, rng = range(base, end), random.Random(base)
    batch = pa.record_batch(
        {
            "key": pa.array([b"k%d" % (each % 4) for each in numbers]),
            # Incompressible, so that sealing does not change the size.
            "payload": pa.array([rng.randbytes(100) for _ in numbers]),
            "publish_time": pa.array(
                [FIRST + timedelta(seconds=each) for each in numbers],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )
    with client.producer(topic, reliable=True, **options) as producer:
        for at in range(0, len(numbers), 500):
            assert producer.send_batch(batch.slice(at, 500))


def eventually(question, timeout_s=120.0):
    """Call *question* until its result is true, and return that."""
    give_up_at = time.monotonic() + timeout_s
    while not (answer := question()):
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.02)
    return answer


def sealed_and_tail(client, topic):
    """Messages 0 … 3,000 of which some are in segments and some in the tail."""
    publish(client, topic, 0, 2_800)
    eventually(lambda: client.topics.describe(topic).segment_count)
    publish(client, topic, 2_800, 3_000)


def table(spark, url, **options):
    return spark.read.format("danube").options(url=url, **options).load()


def offsets(rows):
    return sorted(row.offset for row in rows.select("offset").collect())


class Query:
    """A stream with one checkpoint that is run to its end several times."""

    def __init__(self, spark, checkpoint, **options):
        self.batches = []
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self._options = {"startingOffsets": "earliest"} | options

    def start(self, **trigger):
        options = {name: each for name, each in self._options.items() if each}
        stream = self._spark.readStream.format("danube").options(**options).load()
        return (
            stream.select("topic", "partition", "offset")
            .writeStream.foreachBatch(self._sink)
            .option("checkpointLocation", self._checkpoint)
            .trigger(**trigger)
            .start()
        )

    def run(self):
        query = self.start(availableNow=True)
        query.awaitTermination(180)
        assert not query.isActive
        return query

    def _sink(self, batch, _):
        self.batches.append(sorted(tuple(row) for row in batch.collect()))

    @property
    def messages(self):
        return [each for batch in self.batches for each in batch]


@pytest.mark.parametrize("handed_over", ["true", "false"])
def test_conditions_find_the_same_messages_with_and_without_pushdown(
    spark, broker_url, client, topic, handed_over
):
    sealed_and_tail(client, topic)
    late = (FIRST + timedelta(seconds=2_990)).isoformat()
    conditions = {
        "offset IN (5, 2900, 9999)": [5, 2900],
        f"publish_time >= timestamp'{late}' AND key = X'6B31'": [2_993, 2_997],
        f"topic = '{topic}' AND partition = 0 AND offset < 2": [0, 1],
        "partition > 0": [],
    }
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, handed_over)
    try:
        for condition, expected in conditions.items():
            rows = table(spark, broker_url, subscribe=topic, pushFilters="true")
            assert offsets(rows.where(condition)) == expected, condition
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_spark_reads_the_segments_of_a_table_itself(
    spark, broker_url, client, topic, caplog
):
    """Native tables have what the source in Python has, whatever the bounds are."""
    client.topics.create(topic, partitions=2)
    for number in range(2):
        sealed_and_tail(client, f"{topic}-part-{number}")
    caplog.set_level("INFO", logger="pydanube_spark.topic_table")

    def native(**options):
        return pydanube_spark.table(spark, topic, broker_url, options=options)

    def places(rows):
        return sorted(map(tuple, rows.select("partition", "offset").collect()))

    rows = native(endingOffsets=json.dumps({topic: {"0": 2_900, "1": 0}}))
    expected = table(spark, broker_url, subscribe=f"{topic}-part-0", columns=COLUMNS)
    assert rows.columns == COLUMNS.split(",")
    expected = expected.where("offset < 2900").orderBy("offset")
    assert rows.orderBy("offset").collect() == expected.collect()
    start = {"startingOffsets": json.dumps({topic: {"0": 1_005, "1": 2_998}})}
    assert places(native(**start)) == [
        *((0, at) for at in range(1_005, 3_000)),
        *((1, at) for at in range(2_998, 3_000)),
    ]
    # Neither is taken for the other, although they are cut from the same files.
    one, other = (
        native(tail="none", startingOffsets=json.dumps({topic: {"0": 2, "1": at}}))
        for at in (5, 9)
    )
    one.cache()
    assert one.count() - other.count() == 4
    one.unpersist()
    # The partitions are known without reading the files.
    counts = native(tail="none").groupBy("topic", "partition").count().collect()
    assert [row.topic for row in counts] == [topic, topic]
    only = native().where("partition = 1 AND offset < 7").select("offset", "partition")
    assert places(only) == [(1, at) for at in range(7)]
    nothing = json.dumps({topic: {"0": 0, "1": 0}})
    assert native(endingOffsets=nothing).count() == 0
    sealed = client.topics.describe(f"{topic}-part-1").sealed_offset
    only = {"tail": "none", "filter.partitions": "1"}
    assert native(**only).count() >= sealed
    assert not caplog.messages, "it was read in Python"


def test_a_native_table_is_a_snapshot_that_a_hold_protects(
    spark, broker_url, client, topic
):
    sealed_and_tail(client, topic)
    rows = pydanube_spark.table(spark, topic, broker_url, include_attributes=True)
    plan = rows._jdf.queryExecution().toString()
    assert "parquet" in plan.lower()
    publish(client, topic, 3_000, 3_010)
    [hold] = client.topics.describe(topic).holds
    assert hold.expires_at is not None
    # The tail may be sealed now; retention would drop what is sealed.
    client.topics.configure(topic, retention=Retention(bytes_max=1))
    client.topics.apply_retention(topic)
    assert offsets(rows) == list(range(3_000))
    assert rows.where("attributes IS NULL").count() == 3_000


SETTINGS = {
    "spark.sql.files.ignoreMissingFiles": "true",
    # Spark's own cache of files is turned off.
    "spark.sql.hive.manageFilesourcePartitions": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
}


def test_a_native_table_is_the_same_whatever_the_settings_of_the_session_are(
    spark, broker_url, client, topic, caplog
):
    sealed_and_tail(client, topic)
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    rows = pydanube_spark.table(session, topic, broker_url)
    assert rows.schema == pydanube_spark.table(spark, topic, broker_url).schema
    options = {"startingOffsets": json.dumps({topic: 7})}
    assert pydanube_spark.table(
        session, topic, broker_url, options=options
    ).count() == (2_993)
    assert not caplog.messages, "it was read in Python"
    segment = Path(
        unquote(urlsplit(client.storage.segments(topic).segments[0].url).path)
    )
    away = segment.rename(segment.with_suffix(".away"))
    rows.createOrReplaceTempView("snapshot")
    try:
        with pytest.raises(Exception, match=segment.name):
            rows.count()
        # Spark's error recommends that.
        session.sql("REFRESH TABLE snapshot")
        with pytest.raises(Exception, match=segment.name):
            session.table("snapshot").count()
    finally:
        away.rename(segment)
    assert rows.count() == 3_000


def test_a_topic_with_the_name_of_a_directory_of_spark_lacks_no_message(
    spark, broker_url, client, caplog
):
    """Spark reads no files below directories of that name."""
    caplog.set_level("INFO", logger="pydanube_spark.topic_table")
    name = "/default/_spark_metadata"
    sealed_and_tail(client, name)
    assert offsets(pydanube_spark.table(spark, name, broker_url)) == list(range(3_000))
    [message] = caplog.messages
    assert message.endswith("Spark does not read all of its segments")


AWKWARD_COLUMNS = "offset,publish_time,key,payload,attributes,deliver_at,expires_at"


def test_a_pipeline_of_tables_reads_awkward_messages_as_the_source_does(
    spark, broker_url, client, topic, tmp_path, caplog
):
    publish(client, topic, 0, 1_000)
    with client.producer(topic, reliable=True) as producer:
        for number, payload in enumerate([b"", *PAYLOADS.values()]):
            producer.send(
                payload,
                deliver_at=FIRST if number % 2 else None,
                ttl_s=3600 if number % 3 else None,
            )
        for key in KEYS.values():
            producer.send(b"", key=key)
        for attributes in ATTRIBUTES.values():
            producer.send(b"", attributes=attributes)
    publish(client, topic, 1_000, 2_000)
    eventually(lambda: client.topics.describe(topic).sealed_offset > 1_500)
    file = PipelineDirectory(tmp_path, broker_url)
    file.file.write_text(
        f"""name: native
sources:
  found:
    {{topic: {topic}, read: table, options: {{columns: "{AWKWARD_COLUMNS}"}}}}
sinks:
  out: {{input: found, format: parquet, path: out, mode: overwrite}}
"""
    )
    caplog.set_level("INFO", logger="pydanube_spark.topic_table")
    assert file.run(spark.newSession()) is RunState.DONE
    assert file.state.read_status().core_seconds > 0
    assert not caplog.messages, "it was read in Python"
    options = {"subscribe": topic, "columns": AWKWARD_COLUMNS, "readThrough": "always"}
    expected = table(spark, broker_url, **options).orderBy("offset").collect()
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("offset")
    assert found.collect() == expected
    text = {"url": broker_url, "subscribe": topic}
    for schema in ("payload string", "offset bigint, key string"):
        with pytest.raises(Exception, match=r"(?i)utf.?8"):
            read_topics(spark, text, schema).collect()
    rows = read_topics(spark, {**text, "endingOffsets": json.dumps({topic: 9})})
    named = read_topics(
        spark, {**text, "endingOffsets": json.dumps({topic: 9})}, "key string"
    )
    assert sorted(row.key for row in named.collect()) == sorted(
        bytes(row.key).decode() for row in rows.collect()
    )


def test_what_spark_cannot_read_itself_is_read_in_python(
    spark, broker_url, client, topic, caplog
):
    sealed_and_tail(client, topic)
    caplog.set_level("INFO", logger="pydanube_spark.topic_table")
    options = {"readThrough": "always", "endingOffsets": json.dumps({topic: 10})}
    rows = pydanube_spark.table(spark, topic, broker_url, options=options)
    assert offsets(rows) == list(range(10))
    [message] = caplog.messages
    assert message.endswith("is read in Python: the option readThrough is always")
    assert client.topics.describe(topic).holds == ()


def test_a_table_may_be_read_again_with_other_conditions(
    spark, broker_url, client, topic
):
    publish(client, topic, 0, 10)
    rows = table(spark, broker_url, subscribe=topic)
    late, early = rows.where("offset > 6"), rows.where("offset > 100 OR offset < 2")
    assert offsets(late.union(early)) == [0, 1, 7, 8, 9]
    assert offsets(rows) == list(range(10))


def test_a_read_is_bounded_by_times(spark, broker_url, client, topic, tmp_path):
    sealed_and_tail(client, topic)
    first, last = FIRST + timedelta(seconds=100), FIRST + timedelta(seconds=2_950)
    found = table(
        spark,
        broker_url,
        subscribe=topic,
        startingTimestamp=first.isoformat(),
        endingOffsetsByTimestamp=json.dumps({topic: int(last.timestamp() * 1000)}),
    )
    assert offsets(found) == list(range(100, 2_950))
    late = {"startingTimestamp": "2999-01-01T00:00:00Z"}
    with pytest.raises(AnalysisException, match="has no message"):
        table(spark, broker_url, subscribe=topic, **late).count()
    options = {"url": broker_url, "subscribe": topic, "startingOffsets": None}
    query = Query(spark, tmp_path, **options, startingTimestamp=last.isoformat())
    query.run()
    assert [offset for _, _, offset in query.messages] == list(range(2_950, 3_000))


def test_a_stream_finds_new_partitions_and_topics_while_it_runs(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 40, partitions=2)
    query = Query(spark, tmp_path, url=broker_url, subscribePattern=f"{topic}(-more)?")
    running = query.start(processingTime="0 seconds")
    try:
        eventually(lambda: len(query.messages) >= 40)
        assert {(name, part) for name, part, _ in query.messages} == {
            (topic, 0),
            (topic, 1),
        }
        client.topics.add_partitions(topic, 3)
        publish(client, f"{topic}-part-2", 0, 5)
        publish(client, f"{topic}-more", 0, 7)
        eventually(lambda: len(query.messages) >= 52)
    finally:
        running.stop()
    assert [each for each in query.messages if each[1] == 2] == [
        (topic, 2, at) for at in range(5)
    ]
    assert [each for each in query.messages if each[0] != topic] == [
        (f"{topic}-more", 0, at) for at in range(7)
    ]
    assert len(set(query.messages)) == len(query.messages) == 52


def test_offsets_and_partitions_are_set_for_each_partition(
    spark, broker_url, client, topic
):
    client.topics.create(topic, partitions=3)
    for number in range(3):
        publish(client, f"{topic}-part-{number}", 0, 10)
    found = table(
        spark,
        broker_url,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 8, "1": -2, "2": -1}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 1, "2": -1}}),
    )
    rows = sorted(tuple(row) for row in found.select("partition", "offset").collect())
    assert rows == [(0, 8), (0, 9), (1, 0)]
    one = table(spark, broker_url, assign=json.dumps({topic: [2]}))
    assert {row.partition for row in one.collect()} == {2}


def test_micro_batches_are_limited_in_messages_and_bytes(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 600)
    query = Query(
        spark,
        tmp_path,
        url=broker_url,
        subscribe=topic,
        maxOffsetsPerTrigger=200,
        maxBytesPerTrigger="1g",
        tail="broker",
    )
    ended = query.run()
    assert [len(batch) for batch in query.batches] == [200, 200, 200]
    assert [lag(each) for each in ended.recentProgress] == [
        {topic: 400},
        {topic: 200},
        {topic: 0},
    ]
    small = Query(
        spark,
        tmp_path / "small",
        url=broker_url,
        subscribe=topic,
        maxBytesPerTrigger="30k",
    )
    small.run()
    assert len(small.batches) > 1
    assert [offset for _, _, offset in small.messages] == list(range(600))


def test_a_micro_batch_waits_until_there_are_enough_messages(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 3)
    options = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    query = Query(spark, tmp_path, url=broker_url, subscribe=topic, **options)
    running = query.start(processingTime="0 seconds")
    try:
        eventually(lambda: query.batches)
        publish(client, topic, 3, 8)
        publish(client, topic, 8, 13)
        eventually(lambda: len(query.messages) >= 13)
    finally:
        running.stop()
    # The first micro-batch did not wait; now five messages are too few.
    assert [len(batch) for batch in query.batches] == [3, 10]


def test_columns_option_selects_delivery_times(spark, broker_url, client, topic):
    with client.producer(topic, reliable=True) as producer:
        producer.send(b"later", deliver_at=FIRST, ttl_s=3600)
    rows = table(
        spark, broker_url, subscribe=topic, columns="payload,deliver_at,expires_at"
    )
    assert rows.columns == ["payload", "deliver_at", "expires_at"]
    [row] = rows.selectExpr("payload", "unix_micros(deliver_at) d").collect()
    assert (bytes(row.payload), row.d) == (b"later", int(FIRST.timestamp()) * 10**6)
    bare = table(spark, broker_url, subscribe=topic)
    assert "attributes" not in bare.columns
    assert bare.columns[-1] == "partition"


def test_loss_fails_the_query_with_an_exact_report(
    spark, broker_url, client, topic, tmp_path
):
    publish(client, topic, 0, 10)
    options = {"url": broker_url, "subscribe": topic}
    Query(spark, tmp_path, **options).run()
    client.topics.delete(topic, force=True)
    publish(client, topic, 0, 4)
    with pytest.raises(StreamingQueryException) as raised:
        Query(spark, tmp_path, **options).run()
    text = str(raised.value)
    assert f"{topic}: messages from 10 on are gone" in text
    assert "created again (its id was" in text
    assert "Set failOnDataLoss=false" in text
