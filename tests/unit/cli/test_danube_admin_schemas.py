"""`danube-admin schemas` asks what the original asks, and prints what it prints."""

from __future__ import annotations

import json

import grpc
import pytest
from typer.testing import CliRunner

from pydanube.cli.danube_admin import app
from pydanube.wire.pb import schema_registry_pb2 as pb
from support.danube_server import danube_server

SCHEMA = pb.GetSchemaResponse(
    schema_id=7,
    version=2,
    subject="orders",
    schema_type="json_schema",
    schema_definition=b'{"a":\n1}',
    description="of the shop",
    created_at=1_700_000_000,
    created_by="anna",
    tags=["a", "b"],
    fingerprint="sha256:f",
    compatibility_mode="backward",
)
DONE = {"success": True, "message": "done"}


@pytest.fixture(scope="module")
def server():
    with danube_server(pb.DESCRIPTOR) as told:
        yield told


@pytest.fixture
def broker(server):
    server.requests.clear()
    server.answers = {
        "RegisterSchema": pb.RegisterSchemaResponse(
            schema_id=7, version=2, is_new_version=True, fingerprint="sha256:f"
        ),
        "GetSchema": SCHEMA,
        "GetLatestSchema": SCHEMA,
        "SetCompatibilityMode": pb.SetCompatibilityModeResponse(**DONE),
        "DeleteSchemaVersion": pb.DeleteSchemaVersionResponse(**DONE),
        "ConfigureTopicSchema": pb.ConfigureTopicSchemaResponse(**DONE),
        "UpdateTopicValidationPolicy": pb.UpdateTopicValidationPolicyResponse(**DONE),
    }
    return server


def run(broker, *arguments, **environment):
    return CliRunner().invoke(
        app, ["--endpoint", broker.url, *arguments], env=environment
    )


def lines(broker, *arguments, **environment):
    result = run(broker, *arguments, **environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def told(broker, *arguments):
    return json.loads("\n".join(lines(broker, *arguments, "--output", "json")))


# Subjects and versions.


def test_a_schema_is_registered_from_a_file_or_the_command_line(broker, tmp_path):
    file = tmp_path / "orders.json"
    file.write_text("{}")
    register = ("schemas", "register", "orders", "--schema-type", "json_schema")
    labels = ("--tags", "a", "--tags", "b", "--description", "words")
    assert lines(broker, *register, "--file", str(file), *labels, USER="anna") == [
        "✅ Registered new schema version",
        "Subject: orders",
        "Schema ID: 7",
        "Version: 2",
        "Fingerprint: sha256:f",
    ]
    assert told(broker, *register, "--schema", "[]") == {
        "subject": "orders",
        "schema_id": 7,
        "version": 2,
        "is_new_version": True,
        "fingerprint": "sha256:f",
    }
    first, second = broker.asked("RegisterSchema")
    assert first == pb.RegisterSchemaRequest(
        subject="orders",
        schema_type="json_schema",
        schema_definition=b"{}",
        description="words",
        created_by="anna",
        tags=["a", "b"],
    )
    assert second.schema_definition == b"[]"
    broker.answers["RegisterSchema"] = pb.RegisterSchemaResponse(schema_id=7, version=1)
    assert lines(broker, *register, "--schema", "{}")[0] == "✅ Schema already exists"
    both = run(broker, *register, "--schema", "{}", "--file", str(file))
    assert both.exit_code == 2
    missing = run(broker, *register, "--file", str(tmp_path / "nothing"))
    assert "nothing cannot be read" in missing.stderr


def test_whoever_has_no_name_registers_as_admin(broker):
    lines(broker, "schemas", "register", "s", "--schema-type", "string", USER="")
    assert broker.asked("RegisterSchema")[0].created_by == "admin"


def test_a_schema_is_shown_by_id_or_subject(broker):
    document = {
        "schema_id": 7,
        "version": 2,
        "subject": "orders",
        "schema_type": "json_schema",
        "schema_definition": '{"a":\n1}',
        "description": "of the shop",
        "created_at": 1_700_000_000,
        "created_by": "anna",
        "tags": ["a", "b"],
        "fingerprint": "sha256:f",
        "compatibility_mode": "BACKWARD",
    }
    assert told(broker, "schemas", "get", "--id", "7", "--version", "2") == document
    assert told(broker, "schemas", "get", "--id", "7") == document
    assert broker.asked("GetSchema") == [
        pb.GetSchemaRequest(schema_id=7, version=2),
        pb.GetSchemaRequest(schema_id=7),
    ]
    said = lines(broker, "schemas", "get", "--subject", "orders")
    assert "Schema ID: 7" in said
    assert "Compatibility Mode: BACKWARD" in said
    assert said[-3:] == ["Schema Definition:", '{"a":', "1}"]
    pinned = ("schemas", "get", "--subject", "orders", "--version", "1")
    lines(broker, *pinned)
    assert broker.asked("GetSchema")[-1].version == 1
    assert run(broker, "schemas", "get").exit_code == 2
    both = ("schemas", "get", "--id", "7", "--subject", "orders")
    assert run(broker, *both).exit_code == 2


def test_versions_and_subjects_are_lines_or_json(broker):
    info = {"version": 1, "schema_id": 7, "fingerprint": "sha256:f", "created_at": 5}
    version = pb.SchemaVersionInfo(**info)
    broker.answers["ListVersions"] = pb.ListVersionsResponse(versions=[version])
    said = lines(broker, "schemas", "versions", "orders")
    assert "  Version 1: schema_id=7, fingerprint=sha256:f" in said
    [document] = told(broker, "schemas", "versions", "orders")
    assert document == info | {"created_by": "", "description": ""}
    summary = pb.SubjectSummary(
        subject="orders",
        schema_type="avro",
        latest_version=2,
        compatibility_mode="full",
        schema_id=7,
        tags=["a"],
    )
    broker.answers["ListSubjects"] = pb.ListSubjectsResponse(subjects=[summary])
    [line] = lines(broker, "schemas", "list-subjects")
    assert line.startswith("Subject: orders (type: avro, latest version: 2")
    assert told(broker, "schemas", "list-subjects") == [
        {
            "subject": "orders",
            "schema_type": "avro",
            "latest_version": 2,
            "schema_id": 7,
            "compatibility_mode": "FULL",
            "tags": ["a"],
        }
    ]


def test_a_schema_is_compatible_or_not_and_the_exit_code_says_so(broker):
    check = ("schemas", "check", "orders", "--schema-type", "avro", "--schema", "{}")
    yes = pb.CheckCompatibilityResponse(is_compatible=True)
    broker.answers["CheckCompatibility"] = yes
    assert lines(broker, *check, "--mode", "full") == [
        "✅ Schema is compatible with subject 'orders'"
    ]
    no = pb.CheckCompatibilityResponse(errors=["/a: why (rule)"])
    broker.answers["CheckCompatibility"] = no
    result = run(broker, *check)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "❌ Schema is NOT compatible with subject 'orders'",
        "  - /a: why (rule)",
    ]
    first, second = broker.asked("CheckCompatibility")
    assert first.compatibility_mode == "full"
    assert not second.HasField("compatibility_mode")


def test_the_mode_is_shown_and_set(broker):
    shown = lines(broker, "schemas", "get-compatibility", "orders")
    assert "Compatibility Mode: BACKWARD" in shown
    assert told(broker, "schemas", "get-compatibility", "orders") == {
        "subject": "orders",
        "compatibility_mode": "BACKWARD",
    }
    change = ("schemas", "set-compatibility", "orders", "--mode", "full")
    assert lines(broker, *change) == [
        "✅ Compatibility mode set for subject 'orders'",
        "Mode: FULL",
    ]
    assert broker.asked("SetCompatibilityMode")[0].compatibility_mode == "full"


def test_a_version_is_deleted_only_if_that_is_meant(broker):
    delete = ("schemas", "delete", "orders", "--version", "2")
    refused = run(broker, *delete)
    assert refused.exit_code == 2
    assert "--confirm" in refused.stderr
    assert broker.requests == []
    assert lines(broker, *delete, "--confirm") == [
        "✅ Deleted version 2 of subject 'orders'"
    ]
    answer = (grpc.StatusCode.NOT_FOUND, "Failed to delete schema version: none")
    broker.answers["DeleteSchemaVersion"] = answer
    assert "Failed to delete" in run(broker, *delete, "--confirm").stderr


# Schemas of topics.


def test_a_topic_is_bound_to_a_subject(broker):
    configure = ("topics", "configure-schema", "b", "--namespace", "a")
    bound = (*configure, "--subject", "orders", "--validation-policy", "enforce")
    assert lines(broker, *bound, "--enable-payload-validation") == [
        "✅ Schema configuration set for topic '/a/b'",
        "   Schema Subject: orders",
        "   Validation Policy: ENFORCE",
        "   Payload Validation: ENABLED",
    ]
    assert lines(broker, *configure, "--subject", "orders")[2:] == [
        "   Validation Policy: NONE",
        "   Payload Validation: DISABLED",
    ]
    assert broker.asked("ConfigureTopicSchema")[0] == pb.ConfigureTopicSchemaRequest(
        topic_name="/a/b",
        schema_subject="orders",
        validation_policy="ENFORCE",
        enable_payload_validation=True,
    )


def test_the_policy_of_a_topic_is_changed(broker):
    change = ("topics", "set-validation-policy", "/a/b", "--policy", "warn")
    assert lines(broker, *change) == [
        "✅ Validation policy updated for topic '/a/b'",
        "   Policy: WARN",
        "   Payload Validation: DISABLED",
    ]
    [request] = broker.asked("UpdateTopicValidationPolicy")
    assert (request.topic_name, request.validation_policy) == ("/a/b", "WARN")


def test_what_a_topic_keeps_to_is_shown(broker):
    answer = pb.GetTopicSchemaConfigResponse(
        schema_subject="orders",
        validation_policy="enforce",
        enable_payload_validation=True,
        schema_id=7,
    )
    broker.answers["GetTopicSchemaConfig"] = answer
    show = ("topics", "get-schema-config", "/a/b")
    assert told(broker, *show) == {
        "topic": "/a/b",
        "schema_subject": "orders",
        "validation_policy": "ENFORCE",
        "enable_payload_validation": True,
        "schema_id": 7,
    }
    assert "Schema Subject: orders" in lines(broker, *show)
    broker.answers["GetTopicSchemaConfig"] = pb.GetTopicSchemaConfigResponse()
    assert lines(broker, *show) == ["No schema configured for this topic"]
