"""The modes: the pairs of versions that they compare, and the direction."""

from __future__ import annotations

import json

import pytest

from pydanube.model.schemas import Compatibility, SchemaType
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.compatibility import Direction, find_violations
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.parsing import parse_schema
from pydanube.schemas.primitives import PrimitiveSchema
from support.fakes.corpora import pairs_of

MODES = list(Compatibility)


def record(*fields):
    return AvroSchema(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": name, "type": "int"}
                    | ({"default": 0} if name.isupper() else {})
                    for name in fields
                ],
            }
        )
    )


def is_compatible(mode, new, old):
    return not find_violations(mode, new, 1, old)


def test_backward_is_the_new_version_reading_old_data():
    assert is_compatible(Compatibility.BACKWARD, record("a"), record("a", "b"))
    assert not is_compatible(Compatibility.BACKWARD, record("a", "b"), record("a"))


def test_forward_is_the_old_version_reading_new_data():
    assert is_compatible(Compatibility.FORWARD, record("a", "b"), record("a"))
    assert not is_compatible(Compatibility.FORWARD, record("a"), record("a", "b"))


def test_full_is_both():
    assert is_compatible(Compatibility.FULL, record("a", "B"), record("a"))
    assert not is_compatible(Compatibility.FULL, record("a", "b"), record("a"))
    assert not is_compatible(Compatibility.FULL, record("a"), record("a", "b"))


def test_violation_names_the_version_the_direction_and_the_place():
    [found] = find_violations(Compatibility.BACKWARD, record("a", "b"), 7, record("a"))
    assert found.version == 7
    assert found.direction is Direction.BACKWARD
    assert "version 7" in str(found)
    assert "/fields/b" in str(found)


def test_subject_changes_its_type_only_with_mode_none():
    old, new = record("a"), PrimitiveSchema(SchemaType.STRING)
    for mode in MODES:
        assert is_compatible(mode, new, old) is (mode is Compatibility.NONE)


def _schemas():
    avro = [(_avro(each.old), _avro(each.new)) for each in pairs_of("avro")]
    return avro + [
        (JsonSchema(json.dumps(each.old)), JsonSchema(json.dumps(each.new)))
        for each in pairs_of("json_schema")
    ]


def _avro(declared):
    if isinstance(declared, dict) and "type" not in declared:
        declared = {"type": "record", "name": "R", **declared}
    return AvroSchema(json.dumps(declared))


@pytest.mark.slow
def test_modes_are_consistent_for_all_pairs_of_the_corpora():
    for old, new in _schemas():
        verdict = {mode: is_compatible(mode, new, old) for mode in MODES}
        backward = verdict[Compatibility.BACKWARD]
        forward = verdict[Compatibility.FORWARD]
        assert verdict[Compatibility.NONE]
        assert verdict[Compatibility.FULL] is (backward and forward)
        for plain, transitive in (
            (Compatibility.BACKWARD, Compatibility.BACKWARD_TRANSITIVE),
            (Compatibility.FORWARD, Compatibility.FORWARD_TRANSITIVE),
            (Compatibility.FULL, Compatibility.FULL_TRANSITIVE),
        ):
            assert verdict[plain] is verdict[transitive]
        for mode in MODES:
            assert is_compatible(mode, new, new)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("avro", SchemaType.AVRO),
        ("JSON", SchemaType.JSON_SCHEMA),
        ("json_schema", SchemaType.JSON_SCHEMA),
        ("proto", SchemaType.PROTOBUF),
        ("int64", SchemaType.NUMBER),
        ("string", SchemaType.STRING),
    ],
)
def test_types_have_the_originals_names_and_aliases(name, type_):
    assert SchemaType.parse(name) is type_


def test_every_type_is_parsed():
    texts = {
        SchemaType.AVRO: '"int"',
        SchemaType.JSON_SCHEMA: "{}",
        SchemaType.PROTOBUF: 'syntax = "proto3"; message M {}',
    }
    for type_ in SchemaType:
        parsed = parse_schema(type_, texts.get(type_, "").encode())
        assert parsed.type is type_
        assert parse_schema(type_, parsed.text).fingerprint == parsed.fingerprint
