"""The serializers of Kafka's clients use the registry of a broker."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pydanube import sync
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ORDER = {"id": 7, "to": {"city": "Rome"}}
ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "acme",
    "fields": [{"name": "city", "type": "string"}],
}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "acme",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ADDRESS}],
}
JSON = {
    "title": "Order",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}},
}


def context(topic):
    return SerializationContext(topic, MessageField.VALUE)


def order_class():
    """Return the class of a Protobuf message, as protoc would generate it."""
    file = FileDescriptorProto(name="order.proto", package="acme", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="name", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Order"))


def test_serializers_register_schemas_and_read_them(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as held:
        registry = held.enter_context(SchemaRegistryClient({"url": broker.http_url}))
        write, read = (
            AvroSerializer(registry, json.dumps(AVRO)),
            AvroDeserializer(registry),
        )
        payload = write(ORDER, context("avro"))
        assert payload[0] == 0
        assert read(payload, context("avro")) == ORDER
        text = json.dumps(JSON)
        write = JSONSerializer(text, registry)
        read = JSONDeserializer(text, schema_registry_client=registry)
        payload = write({"id": 7}, context("json"))
        assert read(payload, context("json")) == {"id": 7}
        cls = order_class()
        write, read = (
            ProtobufSerializer(cls, registry),
            ProtobufDeserializer(cls, schema_registry_client=registry),
        )
        payload = write(cls(id=7, name="ada"), context("protobuf"))
        assert read(payload, context("protobuf")).name == "ada"
        assert registry.get_subjects() == ["avro-value", "json-value", "protobuf-value"]
        found = registry.get_latest_version("avro-value")
        assert registry.get_schema(found.schema_id) == found.schema
        assert registry.lookup_schema("avro-value", found.schema).version == 1
        assert registry.test_compatibility("avro-value", found.schema)
        with pytest.raises(SchemaRegistryError, match="not found"):
            registry.get_latest_version("none")
        # It is the registry of all other clients, and outlives a restart.
        with sync.connect(broker.url) as client:
            assert client.schemas.latest("avro-value").definition
        broker.stop()
        broker.start()
        registry = held.enter_context(SchemaRegistryClient({"url": broker.http_url}))
        assert (
            AvroDeserializer(registry)(
                AvroSerializer(registry, json.dumps(AVRO))(ORDER, context("avro")),
                context("avro"),
            )
            == ORDER
        )
        assert registry.delete_subject("json-value") == [1]
