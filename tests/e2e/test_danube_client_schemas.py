"""The Python client of the original Danube uses the schema registry."""

from __future__ import annotations

import json
from itertools import count

import pytest

import pydanube.sync
from support.fakes.schemas import order_schema
from support.servers.danube_client import ClientFailed, DanubeClient, encoded, payloads
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

_numbers = count()

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
AVRO = json.dumps(RECORD)
PROTO = 'syntax = "proto3"; message Order { int32 id = 1; }'


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def client(broker):
    with DanubeClient(broker.grpc_url) as client:
        yield client


@pytest.fixture
def topic():
    return f"/default/typed{next(_numbers)}"


@pytest.fixture
def subject():
    return f"subject{next(_numbers)}"


def ask(client, method, *arguments):
    return client.registry(method=method, arguments=list(arguments))


def register(client, subject, text=None, type_="JSON_SCHEMA"):
    text = order_schema() if text is None else text
    return client.register(subject=subject, language=type_, text=text)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("JSON_SCHEMA", order_schema()),
        ("AVRO", AVRO),
        ("PROTOBUF", PROTO),
        ("STRING", "whatever"),
        ("NUMBER", "float64"),
        ("BYTES", "whatever"),
    ],
    ids=lambda value: value if value.isupper() else "",
)
def test_schemas_of_every_type_are_registered_and_read(client, subject, type_, text):
    # It requires a text for every type, even if the type has no definition.
    schema_id = register(client, subject, text, type_)
    assert schema_id > 0
    assert register(client, subject, text, type_) == schema_id
    found = ask(client, "get_latest_schema", subject)
    assert found["schema_definition"] == text.replace("whatever", "")
    assert (found["schema_id"], found["version"]) == (schema_id, 1)
    assert (found["subject"], found["schema_type"]) == (subject, type_.lower())
    assert found["fingerprint"]
    assert ask(client, "get_schema_by_id", schema_id) == found
    assert ask(client, "get_schema_version", schema_id, 1) == found
    assert ask(client, "list_versions", subject) == [1]


def test_incompatible_schema_is_refused_with_the_reason(client, subject):
    register(client, subject)
    other = order_schema(id={"type": "string"})
    question = (subject, f"bytes:{other}", "SchemaType.JSON_SCHEMA")
    is_compatible, errors = ask(client, "check_compatibility", *question)
    assert not is_compatible
    assert "$.properties.id" in errors[0]
    with pytest.raises(ClientFailed, match=r"Schema is not compatible with subject"):
        register(client, subject, other)
    lenient = (*question, "CompatibilityMode.NONE")
    assert ask(client, "check_compatibility", *lenient) == [True, []]
    done, _ = ask(client, "set_compatibility_mode", subject, "CompatibilityMode.NONE")
    assert done
    register(client, subject, other)
    assert ask(client, "list_versions", subject) == [1, 2]
    done, said = ask(client, "delete_schema_version", subject, 1)
    assert (done, said) == (True, f"Deleted version 1 for subject {subject}")
    assert ask(client, "list_versions", subject) == [2]
    with pytest.raises(ClientFailed, match="not found"):
        ask(client, "get_latest_schema", "nobody")


def test_messages_carry_the_schema_to_every_consumer(broker, client, topic, subject):
    schema_id = register(client, subject)
    register(client, subject, order_schema(note={"type": "string"}))
    for kind, number in (("subject", 0), ("version", 1), ("min_version", 2)):
        schema = [subject, kind, number]
        client.create_producer(name=kind, topic=topic, schema=schema)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    for kind in ("subject", "version", "min_version"):
        client.send(producer=kind, payload=encoded(f'{{"id": {len(kind)}}}'))
    received = client.receive(consumer="c", count=3)
    assert [message["schema"] for message in received] == [
        [schema_id, 2],
        [schema_id, 1],
        [schema_id, 2],
    ]
    with pydanube.sync.connect(broker.url) as native:  # noqa: SIM117
        with native.consumer(
            topic, subscription="n", type="shared", start="earliest"
        ) as consumer:
            messages = [consumer.receive(timeout_s=60) for _ in range(3)]
    assert [message.schema_version for message in messages] == [2, 1, 2]
    assert {message.schema_id for message in messages} == {schema_id}


def test_producer_of_an_unknown_or_other_subject_is_refused(client, topic, subject):
    with pytest.raises(ClientFailed, match="not found"):
        client.create_producer(name="p", topic=topic, schema=[subject, "subject", 0])
    register(client, subject)
    client.create_producer(name="p", topic=topic, schema=[subject, "subject", 0])
    other = f"other-{subject}"
    register(client, other)
    with pytest.raises(ClientFailed, match="Only admin can change topic schema"):
        client.create_producer(name="q", topic=topic, schema=[other, "subject", 0])


def test_strict_topic_refuses_invalid_payloads_and_the_producer_continues(
    client, topic, subject
):
    schema_id = register(client, subject)
    client.create_producer(name="p", topic=topic, schema=[subject, "subject", 0])
    client.create_producer(name="plain", topic=topic)
    client.subscribe(name="c", topic=topic, subscription="s", type="EXCLUSIVE")
    ask(client, "configure_topic_schema", topic, subject, "enforce", True)
    assert ask(client, "get_topic_schema_config", topic) == {
        "schema_subject": subject,
        "validation_policy": "enforce",
        "enable_payload_validation": True,
        "schema_id": schema_id,
    }
    with pytest.raises(ClientFailed, match="has no schema"):
        client.send(producer="plain", payload=encoded('{"id": 0}'))
    with pytest.raises(ClientFailed, match="INVALID_ARGUMENT"):
        client.send(producer="p", payload=encoded('{"id": "one"}'))
    client.send(producer="p", payload=encoded('{"id": 1}'))
    ask(client, "update_topic_validation_policy", topic, "none", False)
    client.send(producer="plain", payload=encoded("anything"))
    received = client.receive(consumer="c", count=2)
    assert payloads(received) == [b'{"id": 1}', b"anything"]


def test_partitions_share_the_schema(client, topic, subject):
    schema_id = register(client, subject)
    schema = [subject, "subject", 0]
    client.create_producer(name="p", topic=topic, partitions=3, schema=schema)
    client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
    for number in range(6):
        client.send(producer="p", payload=encoded(f'{{"id": {number}}}'))
    received = client.receive(consumer="c", count=6)
    assert {tuple(message["schema"]) for message in received} == {(schema_id, 1)}
    assert len({message["topic"] for message in received}) == 3


def test_schemas_and_bindings_survive_a_restart(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with DanubeClient(broker.grpc_url) as client:
            schema_id = register(client, "orders")
            schema = ["orders", "subject", 0]
            client.create_producer(name="p", topic="/default/orders", schema=schema)
            client.create_producer(name="p", topic="/default/strict")
            strict = ("/default/strict", "orders", "enforce", True)
            ask(client, "configure_topic_schema", *strict)
        assert broker.stop() == 0
        broker.start()
        with DanubeClient(broker.grpc_url) as client:
            assert register(client, "orders") == schema_id
            bound = ask(client, "get_topic_schema_config", "/default/orders")
            assert bound["schema_subject"] == "orders"
            assert bound["validation_policy"] == "warn"
            client.create_producer(name="p", topic="/default/strict")
            with pytest.raises(ClientFailed, match="has no schema"):
                client.send(producer="p", payload=encoded("{}"))
