"""Values are written as the topic says, and name the schema that they are of."""

import json

import pyarrow as pa
import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import (
    InvalidPayload,
    InvalidRequest,
    SchemaNotFound,
    TopicNotFound,
)
from pydanube.model.schemas import SchemaReference, TopicSchema
from pydanube_spark.pure.write_options import Encode, WriteOptions
from pydanube_spark.topic_encoding import TopicEncodings, require_topic
from support.drivers.memory_clients import memory_client

TOPIC = "/default/orders"
ORDER = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])
JSON = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["id"],
    }
)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
)


@pytest.fixture
def client():
    with memory_client() as client:
        client.topics.create(TOPIC)
        yield client


def bind(client, schema, **options):
    version = client.schemas.register("orders", schema)
    client.topics.configure(TOPIC, schema=TopicSchema(subject="orders", **options))
    return version


def payloads(encoding, values, has=ORDER):
    rows = pa.record_batch(
        {"key": pa.array([b"k"] * len(values)), "value": pa.array(values, has)}
    )
    messages = encoding.messages(rows, TOPIC)
    assert messages.schema.names == ["key", "payload"]
    return messages.column("payload").to_pylist()


def test_values_for_a_topic_without_a_schema_are_json(client):
    encoding = TopicEncodings(client, WriteOptions(), ORDER).of(TOPIC)
    assert encoding.reference is None
    assert payloads(encoding, [{"id": 1, "name": None}]) == [b'{"id":1}']


def test_values_are_of_the_latest_version_of_the_topics_subject(client):
    bind(client, Schema.json_schema(JSON))
    encoding = TopicEncodings(client, WriteOptions(), ORDER).of(TOPIC)
    assert encoding.reference == SchemaReference(subject="orders", version=1)
    assert payloads(encoding, [{"id": 1, "name": "a"}]) == [b'{"id":1,"name":"a"}']


def test_the_version_is_the_one_of_the_option_or_of_the_topic(client):
    bind(client, Schema.avro(AVRO))
    client.schemas.register("orders", Schema.avro(AVRO.replace('"long"', '"double"')))
    of_option = WriteOptions(version=1)
    assert TopicEncodings(client, of_option, ORDER).of(TOPIC).reference.version == 1
    assert (
        TopicEncodings(client, WriteOptions(), ORDER).of(TOPIC).reference.version == 2
    )
    client.topics.configure(TOPIC, schema=TopicSchema(subject="orders", version=1))
    assert (
        TopicEncodings(client, WriteOptions(), ORDER).of(TOPIC).reference.version == 1
    )


def test_partition_has_the_schema_of_its_topic(client):
    client.topics.create("/default/spread", partitions=2)
    client.schemas.register("spread", Schema.avro(AVRO))
    client.topics.configure("/default/spread", schema=TopicSchema(subject="spread"))
    encodings = TopicEncodings(client, WriteOptions(), ORDER)
    found = encodings.of("/default/spread-part-1")
    assert found.reference.subject == "spread"
    assert encodings.of("/default/spread") is found


def test_payloads_are_labelled_with_the_schema(client):
    bind(client, Schema.avro(AVRO))
    encoding = TopicEncodings(client, WriteOptions(), None).of(TOPIC)
    rows = pa.record_batch({"payload": [b"\x02\x00"]})
    assert encoding.messages(rows, TOPIC) is rows
    assert encoding.reference == SchemaReference(subject="orders", version=1)
    plain = WriteOptions(encode=Encode.PAYLOAD)
    assert TopicEncodings(client, plain, None).of(TOPIC).reference is None


def test_column_that_does_not_fit_the_schema_is_named(client):
    bind(client, Schema.avro(AVRO))
    other = pa.struct([pa.field("id", pa.int64()), pa.field("colour", pa.string())])
    with pytest.raises(InvalidRequest, match=r"version 1 of orders.*no value\.colour"):
        TopicEncodings(client, WriteOptions(), other).of(TOPIC)


def test_invalid_value_is_refused_with_its_topic(client):
    bind(client, Schema.json_schema(JSON))
    encoding = TopicEncodings(client, WriteOptions(), ORDER).of(TOPIC)
    with pytest.raises(InvalidPayload, match="/default/orders: message 1"):
        payloads(encoding, [{"id": 1}, {"id": None}])


def test_missing_schema_version_is_refused(client):
    bind(client, Schema.avro(AVRO))
    with pytest.raises(SchemaNotFound):
        TopicEncodings(client, WriteOptions(version=9), ORDER).of(TOPIC)


def test_missing_or_non_reliable_topic_is_refused(client):
    client.topics.create("/default/live", reliable=False)
    client.topics.create("/default/spread", partitions=2)
    with pytest.raises(TopicNotFound, match="danube topics create /default/nowhere"):
        require_topic(client, "/default/nowhere")
    with pytest.raises(InvalidRequest, match="non-reliable"):
        require_topic(client, "/default/live")
    require_topic(client, "/default/spread")
    require_topic(client, TOPIC)
