"""The serializers of Kafka's clients use the registry of a broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import confluent_kafka
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

import pydanube
from pydanube import sync
from pydanube.model.schemas import SchemaType
from pydanube.objects.directory import DirectoryObjects
from pydanube.schemas.parsing import parse_schema
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from pydanube_broker.storage.config import NamedStoreConfig
from support.fakes.secured import bootstrap_key, secured
from support.servers.certificates import tls_settings, write_certificates
from support.servers.ports import free_port
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


def shipment_class():
    """Return the class of a Protobuf message whose file imports another one."""
    address = FileDescriptorProto(
        name="acme/address.proto", package="acme", syntax="proto3"
    )
    message = address.message_type.add(name="Address")
    message.field.add(name="city", number=1, type=9, label=1)
    file = FileDescriptorProto(
        name="shop/shipment.proto",
        package="shop",
        syntax="proto3",
        dependency=[address.name],
    )
    message = file.message_type.add(name="Shipment")
    message.field.add(name="to", number=1, type=11, label=1, type_name=".acme.Address")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(address)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Shipment"))


def send(address, topic, payload, key=b"k", options=None):
    """Publish with librdkafka."""
    settings = {"bootstrap.servers": address, "log_level": 0, **(options or {})}
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, payload, key)
    assert producer.flush(20) == 0


def fetch(address, topic, number, options=None):
    """Read with librdkafka, and return the values."""
    settings = {"bootstrap.servers": address, "group.id": "g", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | (options or {}))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = consumer.consume(number, 20)
    consumer.close()
    return [each.value() for each in found]


def run_danube(*arguments):
    command = [sys.executable, "-m", "pydanube_cli.main", *arguments]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return ran.stdout


@pytest.mark.soak
def test_values_of_serializers_are_values_of_all_clients(tmp_path):
    port = str(free_port())
    with (
        BrokerProcess(tmp_path / "data", "--kafka-port", port) as broker,
        SchemaRegistryClient({"url": broker.http_url}) as registry,
        sync.connect(broker.url) as client,
    ):
        address = f"127.0.0.1:{port}"
        text, cls = json.dumps(JSON), order_class()
        serialized = {
            "avro": AvroSerializer(registry, json.dumps(AVRO))(ORDER, context("avro")),
            "json": JSONSerializer(text, registry)({"id": 7}, context("json")),
            "protobuf": ProtobufSerializer(cls, registry)(
                cls(id=7, name="ada"), context("protobuf")
            ),
        }
        deserializers = {
            "avro": AvroDeserializer(registry),
            "json": JSONDeserializer(text, schema_registry_client=registry),
            "protobuf": ProtobufDeserializer(cls, schema_registry_client=registry),
        }
        expected = {
            "avro": ORDER,
            "json": {"id": 7},
            "protobuf": {"id": 7, "name": "ada"},
        }
        for topic, payload in serialized.items():
            send(address, topic, payload)
            send(address, topic, None)
            with client.producer(
                f"/default/{topic}", subject=f"{topic}-value"
            ) as native:
                native.send(expected[topic], key="k")
            batches = client.read(f"/default/{topic}")
            first, _, third = [each for batch in batches for each in batch]
            assert first.value == third.value == expected[topic]
            kafka, tombstone, own = fetch(address, topic, 3)
            assert (kafka, tombstone) == (payload, None)
            read = deserializers[topic]
            assert read(own, context(topic)) == read(payload, context(topic))
        shown = run_danube(
            *("read", "/default/avro", "-n", "1", "--decode", "-o", "json"),
            *("--url", broker.url),
        )
        assert json.loads(shown)["value"] == ORDER


@pytest.mark.soak
def test_values_keep_their_schemas_in_transactions_and_dead_letters(tmp_path):
    port, topic = str(free_port()), "/default/orders"
    newer = AVRO | {"fields": [*AVRO["fields"], {"name": "n", "type": "int"}]}
    newer["fields"][-1]["default"] = 0
    with (
        BrokerProcess(tmp_path / "data", "--kafka-port", port) as broker,
        SchemaRegistryClient({"url": broker.http_url}) as registry,
        sync.connect(broker.url) as client,
    ):
        address = f"127.0.0.1:{port}"
        values = [ORDER, ORDER | {"n": 3}, ORDER]
        old, new = (
            AvroSerializer(registry, json.dumps(schema))(value, context("orders"))
            for schema, value in ((AVRO, values[0]), (newer, values[1]))
        )
        client.topics.create(topic)
        policy = pydanube.SchemaPolicy.ENFORCE
        client.topics.configure(
            topic,
            schema=pydanube.TopicSchema(
                subject="orders-value", policy=policy, validates_payload=True
            ),
        )
        client.subscriptions.create(topic, "s", type="shared", start="earliest")
        client.subscriptions.configure(
            topic,
            "s",
            failure_policy=pydanube.FailurePolicy(
                redeliveries_max=0,
                poison=pydanube.PoisonPolicy.DEAD_LETTER,
                dead_letter_topic="/default/dead",
            ),
        )
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": "orders",
                "log_level": 0,
            }
        )
        producer.init_transactions()
        for payloads, is_valid in (([old, new, old], True), ([new + b"x"], False)):
            producer.begin_transaction()
            for each in payloads:
                producer.produce("orders", each, b"k")
            if is_valid:
                producer.commit_transaction(20)
                continue
            with pytest.raises(confluent_kafka.KafkaException):
                producer.commit_transaction(20)
            producer.abort_transaction(20)
        with client.consumer(topic, subscription="s", type="shared") as consumer:
            for value in values:
                message = consumer.receive()
                assert message.value == value
                consumer.nack(message)
        assert fetch(address, "dead", 3) == [old, new, old]
        dead = client.dead_letters(topic, "s")
        letters = list(dead.messages())
        assert [each.message.value for each in letters] == values
        assert dead.replay(letters) == 3
        assert fetch(address, "orders", 6) == [old, new, old] * 2


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
        cls = shipment_class()
        payload = ProtobufSerializer(cls, registry)(
            cls(to={"city": "Rome"}), context("shipments")
        )
        read = ProtobufDeserializer(cls, schema_registry_client=registry)
        assert read(payload, context("shipments")).to.city == "Rome"
        (used,) = registry.get_latest_version("shipments-value").schema.references
        assert (used.name, used.version) == ("acme/address.proto", 1)
        with pytest.raises(SchemaRegistryError, match="refer to version 1"):
            registry.delete_subject(used.subject)
        with sync.connect(broker.url) as client:
            definition = client.schemas.latest("shipments-value").definition
            schema = parse_schema(SchemaType.PROTOBUF, definition)
            assert schema.decoder()([payload[6:]]) == [{"to": {"city": "Rome"}}]
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


def ship(registry, address, options):
    """Publish a message whose schema refers to another one; return its value."""
    cls = shipment_class()
    write = ProtobufSerializer(cls, registry)
    payload = write(cls(to={"city": "Rome"}), context("shipments"))
    send(address, "shipments", payload, options=options)
    return payload


async def test_registry_is_used_over_tls_and_restored_from_a_backup(tmp_path):
    files = write_certificates(tmp_path)
    authority, (certificate, key) = str(files["ca"][0]), map(str, files["client"])
    trust = {"ssl.ca.location": authority}
    proof = {"ssl.certificate.location": certificate, "ssl.key.location": key}
    options = {"security.protocol": "SSL", **trust, **proof}
    audit_file = tmp_path / "audit.jsonl"
    settings = {
        "tls": tls_settings(files),
        "kafka": {"port": 0},
        "stores": {"backups": NamedStoreConfig(url=f"fs://{tmp_path}/backups")},
        "audit_file": str(audit_file),
    }
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    async with secured(before, **settings) as broker:
        address = broker.listener_urls["kafka"].partition("://")[2]
        with SchemaRegistryClient({"url": broker.http_url, **trust, **proof}) as known:
            payload = await asyncio.to_thread(ship, known, address, options)
            versions = await asyncio.to_thread(known.get_versions, "acme/address.proto")
        assert versions == [1]
        made = [
            each
            for each in map(json.loads, audit_file.read_text().splitlines())
            if each["operation"] == "register_schema"
        ]
        assert [each["resource"] for each in made] == [
            "subject:acme%2Faddress.proto",
            "subject:shipments-value",
        ]
        assert {each["principal"] for each in made} == {"localhost"}
        assert "acme%2Faddress.proto" in made[1]["details"]
        async with pydanube.connect(
            broker.stream_url, ca_file=authority, api_key=bootstrap_key(before)
        ) as admin:
            bob = await admin.security.create_api_key("bob")
            await admin.security.set_role("reader", ["schema_read"], ["subject:*"])
            bound = await admin.security.add_binding(
                "user:bob", ["reader"], ["subject:shipments-value"]
            )
            found = {"basic.auth.user.info": f"bob:{bob.key}"}
            with SchemaRegistryClient(
                {"url": broker.http_url, **trust, **found}
            ) as other:
                ask = partial(asyncio.to_thread, other.get_versions)
                assert await ask("shipments-value") == [1]
                with pytest.raises(SchemaRegistryError, match="not allowed"):
                    await ask("acme/address.proto")
                await admin.security.remove_binding(bound)
                with pytest.raises(SchemaRegistryError, match="not allowed"):
                    await ask("shipments-value")
            await admin.storage.create_backup("backups")
            while (progress := await admin.storage.describe_backup()).is_running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not progress.error
    objects = DirectoryObjects(tmp_path / "backups")
    chosen = await choose_backup(objects, progress.id)
    await restore_backup(objects, chosen, after / "data")
    async with secured(after, **settings) as broker:
        address = broker.listener_urls["kafka"].partition("://")[2]
        fetched = fetch, address, "shipments", 1, options
        assert await asyncio.to_thread(*fetched) == [payload]
        with SchemaRegistryClient({"url": broker.http_url, **trust, **proof}) as again:
            same = await asyncio.to_thread(ship, again, address, options)
            assert same == payload
            with pytest.raises(SchemaRegistryError, match="refer to version 1"):
                await asyncio.to_thread(again.delete_subject, "acme/address.proto")


@pytest.mark.soak
def test_any_process_answers_and_understands_the_ids(tmp_path):
    port = str(free_port())
    options = ("--processes", "2", "--kafka-port", port)
    with BrokerProcess(tmp_path / "data", *options) as broker:
        address = f"127.0.0.1:{port}"
        for number in range(6):
            # Each client has connections of its own, to one of the processes.
            with SchemaRegistryClient({"url": broker.http_url}) as registry:
                topic = f"t{number}"
                write = AvroSerializer(registry, json.dumps(AVRO))
                payload = write(ORDER, context(topic))
                send(address, topic, payload)
            with SchemaRegistryClient({"url": broker.http_url}) as registry:
                assert registry.get_latest_version(f"{topic}-value").version == 1
                (found,) = fetch(address, topic, 1)
                assert found == payload
                assert AvroDeserializer(registry)(found, context(topic)) == ORDER
        with sync.connect(broker.url) as client:
            for number in range(6):
                (batch,) = client.read(f"/default/t{number}")
                assert [each.value for each in batch] == [ORDER]
