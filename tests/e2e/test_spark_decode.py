"""Typed columns in Spark, with a real broker, real Spark and changing schemas."""

import json
import uuid

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import (  # noqa: E402
    AnalysisException,
    PythonException,
    StreamingQueryException,
)

from pydanube import Schema  # noqa: E402
from pydanube.model.schemas import TopicSchema  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]


def record(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def objects(**properties):
    named = {name: {"type": type_} for name, type_ in properties.items()}
    return json.dumps({"type": "object", "properties": named})


ID, AMOUNT = {"name": "id", "type": "int"}, {"name": "amount", "type": "double"}
LONG_ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}

EVOLUTIONS = {
    "json_schema": (
        Schema.json_schema(objects(id="integer", amount="integer", old="string")),
        Schema.json_schema(objects(id="integer", amount="number", note="string")),
    ),
    "avro": (
        Schema.avro(record(ID, {"name": "amount", "type": "float"})),
        Schema.avro(record(LONG_ID, AMOUNT, NOTE)),
    ),
    "protobuf": (
        Schema.protobuf(
            'syntax = "proto3"; message Order { int32 id = 1; double amount = 2; }'
        ),
        Schema.protobuf(
            'syntax = "proto3"; message Order '
            "{ int64 id = 1; double amount = 2; string note = 3; }"
        ),
    ),
}
"""By language: a schema, and a later version of it."""


class Topic:
    """A topic that is bound to its own subject."""

    def __init__(self, client, name=None, subject=None):
        self.client = client
        self.name = name or f"/default/t-{uuid.uuid4().hex[:12]}"
        self.subject = subject or self.name.rpartition("/")[2]
        self.client.topics.create(self.name, reliable=True)

    def register(self, schema):
        self.client.schemas.register(self.subject, schema)
        self.client.schemas.set_compatibility(self.subject, "none")
        self.client.topics.configure(
            self.name, schema=TopicSchema(subject=self.subject)
        )

    def publish(self, schema, values):
        """Publish values of *schema*, which is registered if it is new."""
        self.register(schema)
        with self.client.producer(
            self.name, reliable=True, schema=schema, subject=self.subject
        ) as producer:
            producer.send_batch(values)

    def publish_raw(self, payloads):
        with self.client.producer(self.name, reliable=True) as producer:
            producer.send_batch(payloads)


@pytest.fixture
def topic(client):
    return Topic(client)


def table(spark, url, topics, schema=None, **options):
    reader = spark.read if schema is None else spark.read.schema(schema)
    return (
        reader.format("danube")
        .options(url=url, subscribe=topics, decode="true")
        .options(**options)
        .load()
    )


class Query:
    """A stream of values that is run to its end several times."""

    def __init__(self, spark, url, topic, checkpoint):
        self._spark, self._checkpoint = spark, checkpoint
        self._options = {"url": url, "subscribe": topic, "decode": "true"}
        self.values = []

    def run(self, **options):
        query = (
            self._spark.readStream.format("danube")
            .options(startingOffsets="earliest", **self._options)
            .options(**options)
            .load()
            .writeStream.foreachBatch(self._sink)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive

    def _sink(self, batch, _batch_id):
        rows = batch.orderBy("offset").collect()
        self.values += [row.value.asDict() for row in rows]

    def recorded(self):
        """The versions in the checkpoint, micro-batch by micro-batch."""
        files = sorted(
            (self._checkpoint / "offsets").glob("[0-9]*"),
            key=lambda file: int(file.name),
        )
        offsets = [json.loads(file.read_text().splitlines()[2]) for file in files]
        return [each["values"]["version"] for each in offsets]


@pytest.mark.parametrize("language", EVOLUTIONS)
def test_batch_has_the_columns_of_the_latest_version(
    spark, broker_url, topic, language
):
    first, second = EVOLUTIONS[language]
    old = {"old": "x"} if language == "json_schema" else {}
    topic.publish(first, [{"id": each, "amount": each, **old} for each in range(3)])
    topic.publish(second, [{"id": 3, "amount": 3.5, "note": "new"}])
    topic.publish(first, [{"id": 4, "amount": 4, **old}])
    rows = table(spark, broker_url, topic.name)
    assert rows.select("value.*").dtypes == [
        ("id", "bigint"),
        ("amount", "double"),
        ("note", "string"),
    ]
    found = rows.orderBy("offset").collect()
    assert [tuple(row.value) for row in found] == [
        (0, 0.0, None),
        (1, 1.0, None),
        (2, 2.0, None),
        (3, 3.5, "new"),
        (4, 4.0, None),
    ]
    assert [row.schema_version for row in found] == [1, 1, 1, 2, 1]
    assert all(row.payload for row in found[1:])


def test_an_older_version_may_be_chosen_and_columns_left_out(spark, broker_url, topic):
    first, second = EVOLUTIONS["avro"]
    topic.publish(first, [{"id": 1, "amount": 1.0}])
    topic.publish(second, [{"id": 2, "amount": 2.0, "note": "new"}])
    older = table(spark, broker_url, topic.name, schemaVersion="1")
    assert older.schema["value"].dataType.names == ["id", "amount"]
    assert older.schema["value"].metadata["danube"]["version"] == 1
    assert [row.value.id for row in older.orderBy("offset").collect()] == [1, 2]
    pruned = table(
        spark, broker_url, topic.name, "offset bigint, value struct<note: string>"
    )
    assert [tuple(row.value) for row in pruned.orderBy("offset").collect()] == [
        (None,),
        ("new",),
    ]


def test_primitive_values_are_decoded(spark, broker_url, topic, client):
    topic.publish(Schema.number("float64"), [1.5, -2.0])
    texts = Topic(client)
    texts.publish(Schema.string(), ["é", ""])
    for name, expected in ((topic.name, [1.5, -2.0]), (texts.name, ["é", ""])):
        rows = table(spark, broker_url, name).orderBy("offset").collect()
        assert [row.value for row in rows] == expected


def test_segments_the_tail_and_several_topics_give_the_same_columns(
    spark, broker_url, topic, client
):
    schema = EVOLUTIONS["json_schema"][1]
    other = Topic(client, subject=topic.subject)
    values = [{"id": each, "amount": 1.5, "note": "n" * 200} for each in range(1500)]
    for each in (topic, other):
        each.publish(schema, values)
    found = (
        table(spark, broker_url, f"{topic.name},{other.name}", minPartitions="4")
        .selectExpr("topic", "value.id = offset is_right", "value.amount a")
        .groupBy("topic", "is_right", "a")
        .count()
        .collect()
    )
    assert sorted(tuple(row) for row in found) == [
        (name, True, 1.5, 1500) for name in sorted((topic.name, other.name))
    ]


def test_stream_keeps_its_version_until_another_is_set(
    spark, broker_url, topic, tmp_path
):
    first, second = EVOLUTIONS["avro"]
    topic.publish(first, [{"id": 1, "amount": 1.0}])
    query = Query(spark, broker_url, topic.name, tmp_path)
    query.run()
    assert query.values == [{"id": 1, "amount": 1.0}]

    topic.publish(second, [{"id": 2, "amount": 2.0, "note": "new"}])
    query.run(schemaVersion="1")
    assert query.values[1:] == [{"id": 2, "amount": 2.0}]

    topic.publish(second, [{"id": 3, "amount": 3.0, "note": "new"}])
    query.run()
    assert query.values[2:] == [{"id": 3, "amount": 3.0, "note": None}]

    topic.publish(second, [{"id": 4, "amount": 4.0, "note": "new"}])
    topic.publish(first, [{"id": 5, "amount": 5.0}])
    query.run(schemaVersion="latest")
    assert query.values[3:] == [
        {"id": 4, "amount": 4.0, "note": "new"},
        {"id": 5, "amount": 5.0, "note": None},
    ]
    assert query.recorded() == [1, 1, 1, 2]

    query.run()
    assert len(query.values) == 5


def undecodable(topic):
    """One good message, at offset 3, after three that cannot be decoded."""
    schema, later = EVOLUTIONS["json_schema"]
    topic.publish(schema, [{"id": 0}])
    topic.publish_raw([b'{"id": 1}'])
    topic.register(later)
    topic.publish(schema, [{"id": 2}])
    topic.publish(later, [{"id": 3}])
    topic.client.schemas.delete(topic.subject, 1, force=True)


def test_undecodable_messages_are_null_with_the_reason(spark, broker_url, topic):
    undecodable(topic)
    rows = table(spark, broker_url, topic.name, onUndecodable="null")
    assert rows.columns[-2:] == ["value", "_error"]
    found = rows.orderBy("offset").collect()
    assert [row.value and row.value.id for row in found] == [None, None, None, 3]
    reasons = [row._error for row in found]
    assert "no version 1" in reasons[0]
    assert "without a schema" in reasons[1]
    assert reasons[3] is None


def test_undecodable_message_fails_the_query(spark, broker_url, topic, tmp_path):
    schema = EVOLUTIONS["avro"][0]
    topic.publish(schema, [{"id": 0, "amount": 1.0}])
    topic.publish_raw([b"plain"])
    expected = f"{topic.name}: message 1 cannot be decoded: it was written without"
    rows = table(spark, broker_url, topic.name)
    assert "_error" not in rows.columns
    with pytest.raises(PythonException, match=expected):
        rows.collect()
    with pytest.raises(StreamingQueryException, match=expected):
        Query(spark, broker_url, topic.name, tmp_path).run()


def test_a_topic_that_is_not_bound_is_refused_with_what_to_do(spark, broker_url, topic):
    with pytest.raises(AnalysisException, match=r"client.topics.configure\("):
        table(spark, broker_url, topic.name)


def test_topics_of_different_subjects_are_refused(spark, broker_url, topic, client):
    other = Topic(client)
    for each, schema in zip((topic, other), EVOLUTIONS["avro"], strict=True):
        each.register(schema)
    with pytest.raises(AnalysisException, match="different subjects"):
        table(spark, broker_url, f"{topic.name},{other.name}")


def test_a_version_that_is_not_there_is_refused(spark, broker_url, topic):
    topic.register(EVOLUTIONS["avro"][0])
    with pytest.raises(AnalysisException, match="has no version 7; it has 1"):
        table(spark, broker_url, topic.name, schemaVersion="7")


def test_topics_of_several_subjects_are_read_as_json(
    spark, client, broker_url, tmp_path
):
    prefix = f"/default/t-{uuid.uuid4().hex[:12]}"
    orders = Topic(client, f"{prefix}-orders")
    orders.publish(EVOLUTIONS["json_schema"][0], [{"id": 1, "amount": 2, "old": "x"}])
    orders.publish(EVOLUTIONS["json_schema"][1], [{"id": 2, "amount": 2.5}])
    Topic(client, f"{prefix}-avro").publish(
        EVOLUTIONS["avro"][1], [{"id": 3, "amount": 4.5, "note": None}]
    )
    with pytest.raises(AnalysisException, match="or as JSON with decode=json"):
        table(spark, broker_url, f"{prefix}-orders,{prefix}-avro")

    options = {"url": broker_url, "subscribePattern": f"{prefix}-.*", "decode": "json"}
    stream = (
        spark.readStream.format("danube")
        .options(**options, startingOffsets="earliest")
        .load()
    )

    def run():
        found = []
        query = (
            stream.selectExpr(
                "value", "variant_get(parse_json(value), '$.id', 'int') AS id"
            )
            .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted((row.id, json.loads(row.value)) for row in found)

    assert run() == [
        (1, {"id": 1, "amount": 2, "old": "x"}),
        (2, {"id": 2, "amount": 2.5}),
        (3, {"id": 3, "amount": 4.5, "note": None}),
    ]
    # A topic with a subject of its own that appears while the query runs.
    Topic(client, f"{prefix}-later").publish(
        EVOLUTIONS["protobuf"][1], [{"id": 5, "amount": 1.0, "note": "n"}]
    )
    [(_, later)] = run()
    assert later == {"id": 5, "amount": 1.0, "note": "n"}
    batch = spark.read.format("danube").options(**options).load()
    assert batch.count() == 4
    assert batch.schema["value"].dataType.simpleString() == "string"
