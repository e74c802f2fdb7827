"""Messages of Danube's schema registry are converted to and from the model."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import (
    Compatibility,
    SchemaReference,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
)
from pydanube.wire.pb import danube_api_pb2, schema_registry_pb2
from pydanube_broker.wire.grpc.danube_schema_api import (
    definition_from_wire,
    reference_from_wire,
    subject_to_wire,
    version_info_to_wire,
    version_to_wire,
)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"use_latest": True}, {}),
        ({}, {}),
        ({"pinned_version": 3}, {"version": 3}),
        ({"min_version": 3}, {"version_min": 3}),
        ({"min_version": 0}, {}),
    ],
    ids=str,
)
def test_producer_names_a_pinned_minimum_or_latest_version(said, meant):
    reference = danube_api_pb2.SchemaReference(subject="orders", **said)
    request = danube_api_pb2.ProducerRequest(schema_ref=reference)
    assert reference_from_wire(request) == SchemaReference(subject="orders", **meant)


def test_producer_may_name_no_schema():
    assert reference_from_wire(danube_api_pb2.ProducerRequest()) is None


def test_pinned_version_0_is_refused():
    reference = danube_api_pb2.SchemaReference(subject="orders", pinned_version=0)
    with pytest.raises(InvalidRequest):
        reference_from_wire(danube_api_pb2.ProducerRequest(schema_ref=reference))


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("avro", b'"int"', b'"int"'),
        ("string", b"whatever", b""),
        ("bytes", b"whatever", b""),
        ("number", b"", b""),
        ("number", b"float64", b"float64"),
        ("int64", b"{}", b""),
        ("Double", b"", b"float64"),
        ("float", b"{}", b"float64"),
    ],
)
def test_type_without_definition_drops_the_text(name, text, meant):
    request = schema_registry_pb2.RegisterSchemaRequest(
        schema_type=name, schema_definition=text
    )
    assert definition_from_wire(request, SchemaType.parse(name)) == meant


def test_versions_have_times_in_seconds_and_lower_case_names():
    version = SchemaVersion(
        subject="orders",
        schema_id=7,
        version=2,
        type=SchemaType.JSON_SCHEMA,
        definition="{}",
        fingerprint="sha256:f",
        created_at=1_700_000_000_999_999,
        tags=("a", "b"),
    )
    message = version_to_wire(version, Compatibility.FULL_TRANSITIVE)
    assert message.created_at == 1_700_000_000
    assert message.schema_type == "json_schema"
    assert message.compatibility_mode == "full_transitive"
    assert message.schema_definition == b"{}"
    assert list(message.tags) == ["a", "b"]
    assert version_info_to_wire(version).created_at == 1_700_000_000


def test_a_subject_without_versions_has_none_as_its_latest():
    subject = SubjectDescription(
        subject="orders",
        schema_id=7,
        type=SchemaType.AVRO,
        compatibility=Compatibility.BACKWARD,
        versions=(),
    )
    assert subject_to_wire(subject).latest_version == 0
