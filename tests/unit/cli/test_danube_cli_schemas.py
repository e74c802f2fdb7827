"""Schemas in `danube-cli`: their commands, producing with them, printing by them."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from typer.testing import CliRunner

from pydanube.cli.danube_cli import app
from pydanube.cli.grpc_calls import CallFailed
from pydanube.cli.payload_texts import PayloadTexts
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2 as registry_pb
from support.danube_server import danube_server

NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "Schema not found for subject: orders")


@pytest.fixture(scope="module")
def server():
    with danube_server(pb.DESCRIPTOR, registry_pb.DESCRIPTOR) as told:
        yield told


def version(number, type_="json_schema", definition=b"{}"):
    return registry_pb.GetSchemaResponse(
        schema_id=7,
        version=number,
        subject="orders",
        schema_type=type_,
        schema_definition=definition,
        fingerprint="sha256:f",
        compatibility_mode="backward",
    )


@pytest.fixture
def broker(server):
    server.requests.clear()
    server.answers = {
        "TopicLookup": (grpc.StatusCode.NOT_FOUND, "no topic"),
        "TopicPartitions": pb.TopicPartitionsResponse(),
        "CreateProducer": pb.ProducerResponse(producer_id=4711),
        "SendMessage": pb.MessageResponse(),
        "RegisterSchema": registry_pb.RegisterSchemaResponse(
            schema_id=7, version=1, is_new_version=True, fingerprint="sha256:f"
        ),
        "GetLatestSchema": version(3),
        "GetSchema": version(2),
    }
    return server


def produce(broker, *arguments):
    command = ["produce", "-s", broker.url, "-t", "/default/orders", "-m", "{}"]
    return CliRunner().invoke(app, [*command, *arguments])


def schema(broker, *arguments):
    return CliRunner().invoke(app, ["schema", "-s", broker.url, *arguments])


def lines(result):
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


# Producing.


@pytest.mark.parametrize(
    ("options", "reference", "number"),
    [
        ((), {"use_latest": True}, 3),
        (("--schema-version", "2"), {"pinned_version": 2}, 2),
        (("--schema-min-version", "2"), {"min_version": 2}, 3),
    ],
    ids=["latest", "pinned", "minimum"],
)
def test_messages_have_the_version_that_is_wanted(broker, options, reference, number):
    lines(produce(broker, "--schema-subject", "orders", *options))
    [request] = broker.asked("CreateProducer")
    assert request.schema_ref == pb.SchemaReference(subject="orders", **reference)
    [message] = broker.asked("SendMessage")
    assert (message.schema_id, message.schema_version) == (7, number)


def test_messages_without_a_schema_name_none(broker):
    lines(produce(broker))
    [request] = broker.asked("CreateProducer")
    assert not request.HasField("schema_ref")
    [message] = broker.asked("SendMessage")
    assert not message.HasField("schema_id")


def test_a_schema_may_be_registered_on_the_way(broker, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    options = ("--schema-file", str(file), "--schema-type", "json_schema")
    assert lines(produce(broker, *options))[:2] == [
        "Auto-registering schema for subject 'default-orders'",
        "Schema registered with ID: 7",
    ]
    [request] = broker.asked("RegisterSchema")
    assert request.subject == "default-orders"
    assert request.schema_definition == b'{"type": "object"}'
    [request] = broker.asked("CreateProducer")
    assert request.schema_ref.subject == "default-orders"
    lines(produce(broker, *options, "--schema-subject", "mine"))
    assert broker.asked("RegisterSchema")[1].subject == "mine"


@pytest.mark.parametrize(
    "options",
    [
        ("--schema-version", "1"),
        ("--schema-min-version", "1"),
        ("--schema-subject", "s", "--schema-version", "1", "--schema-min-version", "1"),
        ("--schema-file", "f"),
        ("--schema-type", "avro"),
        (
            *("--schema-file", "f", "--schema-type", "avro"),
            *("--schema-subject", "s", "--schema-version", "1"),
        ),
        ("--schema-file", "nothing", "--schema-type", "avro"),
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_together_are_refused(broker, options):
    assert produce(broker, *options).exit_code == 2
    assert broker.asked("CreateProducer") == []


def test_a_version_that_is_not_there_is_an_error(broker):
    result = produce(broker, "--schema-subject", "orders", "--schema-min-version", "4")
    assert "the latest version of orders is 3, older than 4" in result.stderr
    broker.answers["GetLatestSchema"] = NOT_FOUND
    result = produce(broker, "--schema-subject", "orders")
    assert "not found" in result.stderr
    assert broker.asked("CreateProducer") == []


# Printing.


def text_of(payload, found, number=1):
    """How a payload is printed if the registry answers *found*."""
    asked = []

    async def fetch(request):
        asked.append(request)
        if isinstance(found, Exception):
            raise found
        return found

    async def main():
        texts = PayloadTexts(fetch)
        message = pb.StreamMessage(payload=payload, schema_id=7, schema_version=number)
        said = [await texts.of(message) for _ in range(2)]
        assert said[0] == said[1]
        assert len(asked) == 1
        return said[0]

    return asyncio.run(main())


def test_json_is_laid_out(broker):
    assert text_of(b'{"a":[1,"\xc3\xb6"]}', version(1)) == (
        '{\n  "a": [\n    1,\n    "ö"\n  ]\n}'
    )


AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
)
BLOB = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "bytes"}]}
)


def test_other_languages_become_json():
    [avro] = parse_schema(SchemaType.AVRO, AVRO).encoder()([{"a": 7}])
    assert json.loads(text_of(avro, version(1, "avro", AVRO.encode()))) == {"a": 7}
    [blob] = parse_schema(SchemaType.AVRO, BLOB).encoder()([{"a": b"x"}])
    assert json.loads(text_of(blob, version(1, "avro", BLOB.encode()))) == {"a": "x"}
    number = (7).to_bytes(8, "little")
    assert text_of(number, version(1, "number", b"")) == "7"
    assert text_of("für\x1b".encode(), version(1, "string", b"")) == "für\\x1b"


@pytest.mark.parametrize(
    "found",
    [
        version(1),
        version(1, "bytes", b""),
        version(1, "klingon"),
        version(1, "avro", b"{"),
        CallFailed(*NOT_FOUND),
    ],
    ids=["other payload", "bytes", "unknown type", "unusable", "not found"],
)
def test_what_has_no_meaning_is_printed_as_it_is(found):
    assert text_of(b"no JSON", found) is None


def test_a_message_without_a_schema_is_printed_as_it_is():
    async def main():
        texts = PayloadTexts(None)
        assert await texts.of(pb.StreamMessage(payload=b"{}")) is None

    asyncio.run(main())


# The commands.


def test_a_schema_is_registered(broker, tmp_path):
    file = tmp_path / "schema.avsc"
    file.write_text('"int"')
    register = ("register", "orders", "-t", "avro", "-f", str(file))
    assert lines(schema(broker, *register)) == [
        "✅ Schema registered successfully!",
        "Subject: orders",
        "Schema ID: 7",
        "Version: 1",
        "Fingerprint: sha256:f",
    ]
    said = lines(schema(broker, *register, "-o", "json"))
    assert json.loads("\n".join(said))["schema_id"] == 7
    broker.answers["RegisterSchema"] = registry_pb.RegisterSchemaResponse(version=1)
    assert "already" in lines(schema(broker, *register))[-1]


def test_a_schema_is_shown(broker):
    said = lines(schema(broker, "get", "orders"))
    assert "Version: 3" in said
    assert said[-2:] == ["Definition:", "{}"]
    said = lines(schema(broker, "get", "orders", "-v", "2", "-o", "json"))
    assert json.loads("\n".join(said))["version"] == 2
    [request] = broker.asked("GetSchema")
    assert (request.schema_id, request.version) == (7, 2)


def test_versions_are_listed(broker):
    infos = [registry_pb.SchemaVersionInfo(version=number) for number in (1, 3)]
    broker.answers["ListVersions"] = registry_pb.ListVersionsResponse(versions=infos)
    said = lines(schema(broker, "versions", "orders"))
    assert said[1:] == ["   • v1", "   • v3"]
    said = lines(schema(broker, "versions", "orders", "-o", "json"))
    assert json.loads("\n".join(said)) == {"subject": "orders", "versions": [1, 3]}


def test_compatibility_is_said_and_is_the_exit_code(broker):
    check = ("check", "orders", "-t", "string")
    yes = registry_pb.CheckCompatibilityResponse(is_compatible=True)
    broker.answers["CheckCompatibility"] = yes
    assert lines(schema(broker, *check)) == ["✅ Schema is COMPATIBLE"]
    no = registry_pb.CheckCompatibilityResponse(errors=["why"])
    broker.answers["CheckCompatibility"] = no
    result = schema(broker, *check)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["❌ Schema is NOT COMPATIBLE", "   • why"]
    result = schema(broker, *check, "-o", "json")
    assert json.loads(result.stdout) == {"is_compatible": False, "errors": ["why"]}


def test_subjects_are_listed(broker):
    subject = registry_pb.SubjectSummary(subject="orders", schema_type="avro")
    answer = registry_pb.ListSubjectsResponse(subjects=[subject])
    broker.answers["ListSubjects"] = answer
    assert "orders" in lines(schema(broker, "list"))[-1]
    [document] = json.loads("\n".join(lines(schema(broker, "list", "-o", "json"))))
    assert document["subject"] == "orders"


def test_a_version_is_deleted(broker):
    broker.answers["DeleteSchemaVersion"] = registry_pb.DeleteSchemaVersionResponse(
        success=True, message="Deleted version 2 for subject orders"
    )
    assert lines(schema(broker, "delete", "orders", "-v", "2")) == [
        "✅ Deleted version 2 for subject orders"
    ]
