"""Topics as a sink of Spark: a real broker, real Spark."""

import json
import uuid

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import (  # noqa: E402
    AnalysisException,
    PythonException,
    StreamingQueryException,
)
from pyspark.sql import functions as F  # noqa: E402, N812

from pydanube.client.messages.schema import Schema  # noqa: E402
from pydanube.client.pure.routing import fnv1a_64  # noqa: E402
from pydanube.model.schemas import SchemaPolicy, TopicSchema  # noqa: E402
from pydanube_spark.formats import check_sink  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]


class Site:
    """A broker, Spark, and topics of one test."""

    def __init__(self, spark, url, client):
        self.spark, self.url, self.client = spark, url, client
        self._marker = uuid.uuid4().hex[:12]

    def topic(self, name="t", **options):
        """Create a topic with a unique name that contains *name*."""
        topic = f"/default/{name}-{self._marker}"
        self.client.topics.create(topic, **options)
        return topic

    def bind(self, topic, schema, **options):
        subject = topic.strip("/").replace("/", "-")
        self.client.schemas.register(subject, schema)
        self.client.topics.configure(
            topic, schema=TopicSchema(subject=subject, **options)
        )

    def rows(self, count):
        """Numbered rows from which the columns of messages are made."""
        return self.spark.range(0, count, 1, 2)

    def write(self, rows, **options):
        options = {"url": self.url} | options
        rows.write.format("danube").options(**options).mode("append").save()

    def fill(self, topic, base, end):
        with self.client.producer(topic) as producer:
            producer.send_batch([b"%d" % number for number in range(base, end)])

    def stored(self, topic):
        return [message for batch in self.client.read(topic) for message in batch]

    def numbers(self, topic):
        return [int(message.payload) for message in self.stored(topic)]


@pytest.fixture
def site(spark, broker_url, client):
    return Site(spark, broker_url, client)


def messages(rows):
    return rows.select(
        F.concat(F.lit("k"), F.col("id") % 5).alias("key"),
        F.col("id").cast("string").alias("payload"),
        F.create_map(F.lit("n"), F.col("id").cast("string")).alias("attributes"),
    )


DELIVERIES = ["exactly-once", "at-least-once"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_table_is_written_with_keys_and_attributes(site, delivery):
    topic = site.topic()
    site.write(messages(site.rows(2_000)), topic=topic, delivery=delivery)
    found = site.stored(topic)
    assert sorted(int(each.payload) for each in found) == list(range(2_000))
    for each in found[:50]:
        number = int(each.payload)
        assert each.key == f"k{number % 5}"
        assert each.attributes == {"n": str(number)}


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_go_to_the_topics_that_they_name(site, delivery):
    topics = [site.topic(name) for name in "abc"]
    place = (F.col("id") % 3 + 1).cast("int")
    rows = site.rows(300).select(
        F.element_at(F.array(*map(F.lit, topics)), place).alias("topic"),
        F.col("id").cast("string").alias("payload"),
    )
    site.write(rows, delivery=delivery)
    for index, topic in enumerate(topics):
        assert sorted(site.numbers(topic)) == list(range(index, 300, 3))


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_keys_are_routed_to_partitions_as_by_clients(site, delivery):
    topic = site.topic(partitions=3)
    site.write(messages(site.rows(500)), topic=topic, delivery=delivery)
    total = 0
    for number, partition in enumerate(site.client.topics.partitions(topic)):
        for message in site.stored(partition):
            assert fnv1a_64(message.key.encode()) % 3 == number
            total += 1
    assert total == 500


def test_a_row_may_name_its_partition(site):
    topic = site.topic(partitions=3)
    rows = site.rows(90).selectExpr("id % 3 AS partition", "string(id) AS payload")
    site.write(rows, topic=topic)
    for number, partition in enumerate(site.client.topics.partitions(topic)):
        assert sorted(site.numbers(partition)) == list(range(number, 90, 3))


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
JSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(
    "schema", [Schema.avro(json.dumps(AVRO)), Schema.json_schema(json.dumps(JSON))]
)
def test_values_are_encoded_with_the_topics_schema_and_read_back(
    site, schema, delivery
):
    topic = site.topic()
    site.bind(topic, schema, policy=SchemaPolicy.ENFORCE, validates_payload=True)
    value = "struct(id, IF(id % 2 = 0, concat('n', id), NULL) AS name) AS value"
    site.write(site.rows(100).selectExpr(value), topic=topic, delivery=delivery)
    back = (
        site.spark.read.format("danube")
        .options(url=site.url, subscribe=topic, decode="true")
        .load()
        .selectExpr("value.id", "value.name", "schema_version")
        .orderBy("id")
        .collect()
    )
    assert [tuple(row) for row in back] == [
        (n, f"n{n}" if n % 2 == 0 else None, 1) for n in range(100)
    ]


def test_invalid_value_is_refused_and_nothing_is_written(site):
    topic = site.topic()
    small = '{"type": "object", "properties": {"id": {"maximum": 49}}}'
    site.bind(topic, Schema.json_schema(small))
    rows = site.rows(100).select(F.struct("id").alias("value"))
    with pytest.raises(PythonException, match="50 is greater than the maximum"):
        site.write(rows, topic=topic)
    assert site.stored(topic) == []


class Copy:
    """A stream between two topics that is run to its end several times."""

    def __init__(self, site, checkpoint, **options):
        self.source, self.target = site.topic("source"), site.topic("target")
        self._site, self._checkpoint, self._options = site, checkpoint, options

    def run(self):
        rows = (
            self._site.spark.readStream.format("danube")
            .options(url=self._site.url, subscribe=self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 100)
            .option("minPartitions", 2)
            .load()
        )
        query = (
            rows.writeStream.format("danube")
            .options(url=self._site.url, topic=self.target, **self._options)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive

    def forget_the_last_commit(self):
        """Make the query repeat its last batch, as after a crash."""
        logged = (self._checkpoint / "commits").glob("[0-9]*")
        path = max(logged, key=lambda each: int(each.name))
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def test_restarted_stream_continues_and_writes_no_batch_twice(site, tmp_path):
    copy = Copy(site, tmp_path)
    site.fill(copy.source, 0, 250)
    copy.run()
    assert sorted(site.numbers(copy.target)) == list(range(250))
    copy.forget_the_last_commit()
    copy.run()
    site.fill(copy.source, 250, 260)
    copy.run()
    assert sorted(site.numbers(copy.target)) == list(range(260))


def test_at_least_once_repeats_messages_of_a_repeated_batch(site, tmp_path):
    copy = Copy(site, tmp_path, delivery="at-least-once")
    site.fill(copy.source, 0, 250)
    copy.run()
    copy.forget_the_last_commit()
    copy.run()
    again = [*range(250), *range(200, 250)]
    assert sorted(site.numbers(copy.target)) == sorted(again)


def test_batch_in_foreach_batch_is_written_once_by_app_and_batch_id(site):
    topic = site.topic()
    for number in (0, 1, 0, 1):
        rows = site.rows(10).selectExpr(f"string({number} * 10 + id) AS payload")
        site.write(rows, topic=topic, appId=topic[9:], batchId=number)
    assert sorted(site.numbers(topic)) == list(range(20))


MISTAKES = [
    ("id AS payload", {}, "payload must be binary or string"),
    ("string(id) AS paylod", {}, "did you mean 'payload'"),
    ("string(id) AS payload", {"topic": "/default/nowhere"}, "no such topic"),
    ("string(id) AS payload", {"topc": "/default/a"}, "did you mean 'topic'"),
    ("INTERVAL 1 DAY AS value", {}, "which JSON cannot represent"),
]


@pytest.mark.parametrize(("column", "options", "said"), MISTAKES)
def test_wrong_column_or_option_fails_the_planning(site, column, options, said):
    rows = site.rows(3).selectExpr(column)
    options = {"url": site.url, "topic": site.topic()} | options
    assert said in "; ".join(check_sink("danube", options, rows.schema))
    with pytest.raises(AnalysisException, match=said):
        site.write(rows, **options)


def test_check_accepts_valid_rows(site):
    rows = site.rows(3).selectExpr("string(id) AS payload")
    options = {"url": site.url, "topic": site.topic()}
    assert check_sink("danube", options, rows.schema) == []


def test_a_topic_is_never_overwritten(site):
    rows = site.rows(3).selectExpr("string(id) AS payload")
    writer = rows.write.format("danube").options(url=site.url, topic=site.topic())
    with pytest.raises(AnalysisException, match="a topic is a log"):
        writer.mode("overwrite").save()


def test_non_reliable_topic_is_refused(site):
    topic = site.topic(reliable=False)
    with pytest.raises(AnalysisException, match="non-reliable"):
        site.write(messages(site.rows(3)), topic=topic)


def test_null_payload_fails_the_stream(site, tmp_path):
    source, target = site.topic("source"), site.topic("target")
    site.fill(source, 0, 10)
    rows = (
        site.spark.readStream.format("danube")
        .options(url=site.url, subscribe=source, startingOffsets="earliest")
        .load()
        .selectExpr("CASE WHEN offset = 7 THEN NULL ELSE payload END AS payload")
    )
    query = (
        rows.writeStream.format("danube")
        .options(url=site.url, topic=target, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="payload is null in 1 of"):
        query.awaitTermination(240)
    assert site.stored(target) == []


def test_a_message_that_is_too_large_is_refused_and_nothing_is_written(site):
    topic = site.topic()
    rows = site.rows(4).selectExpr("repeat('x', int(id) * 4000000) AS payload")
    with pytest.raises(PythonException, match="the broker accepts batches of at most"):
        site.write(rows, topic=topic)
    assert site.stored(topic) == []
