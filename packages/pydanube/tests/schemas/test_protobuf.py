"""Protobuf: accepted definitions, compatibility, and decoded payloads."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import Compatibility
from pydanube.schemas.compatibility import find_violations
from pydanube.schemas.protobuf import ProtobufSchema
from support.fakes.corpora import pairs_of

PAIRS = pairs_of("protobuf")

# Parsing starts the compiler as a process, twice for every pair.
pytestmark = pytest.mark.slow


def schema_of(text, message=None):
    if "syntax" not in text:
        text = f'syntax = "proto3"; message M {{ {text} }}'
    return ProtobufSchema(text, message)


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";

enum Kind { NONE = 0; SOLD = 1; }

message Order {
  int64 id = 1;
  string who = 2;
  optional double price = 3;
  repeated Item items = 4;
  map<string, int32> counts = 5;
  Kind kind = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue note = 8;
  google.protobuf.Struct free = 9;
  Order previous = 10;
  bytes raw = 11;
}

message Item { string name = 1; }
"""


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_corpus_of_comparison(pair):
    old, new = schema_of(pair.old), schema_of(pair.new)
    for mode, expected in (
        (Compatibility.BACKWARD, pair.backward),
        (Compatibility.FORWARD, pair.forward),
    ):
        violations = find_violations(mode, new, 1, old)
        rules = {each.incompatibility.rule for each in violations}
        if expected == "ok":
            assert rules == set()
        else:
            assert expected in rules
    assert old.incompatibilities(schema_of(pair.old)) == []


def test_corpus_is_large_enough():
    assert len(PAIRS) >= 60
    assert len({pair.what for pair in PAIRS}) == len(PAIRS)


def test_an_incompatibility_names_the_path_and_the_rule():
    old = schema_of("message S { int32 x = 1; } S a = 1;")
    new = schema_of("message S { string x = 1; } S a = 1;")
    [found] = new.incompatibilities(old)
    assert (found.path, found.rule) == ("M.a.x", "type_changed")
    assert "int32" in found.text
    assert "string" in found.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "declares no message"),
        ("message M {", "refused: schema.proto:1"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "refused"),
        ('syntax = "proto3"; message M { Unknown a = 1; }', "Unknown"),
        ('import "other.proto";', "can be imported"),
        ('import "/etc/passwd";', "can be imported"),
        ('import "google/protobuf/../../x.proto";', "refused"),
        ('syntax = "proto3"; enum E { A = 0; }', "declares no message"),
        ("message M {} \0", "zero byte"),
    ],
)
def test_invalid_schema_is_refused_with_the_compiler_error(text, words):
    with pytest.raises(InvalidSchema, match=words):
        ProtobufSchema(text)


def test_depth_and_count_are_bounded():
    deep = "message M { " * 200 + "}" * 200
    with pytest.raises(InvalidSchema):
        ProtobufSchema(f'syntax = "proto3"; {deep}')
    fields = " ".join(f"int32 f{n} = {n};" for n in range(1, 11_000))
    with pytest.raises(InvalidSchema, match="parts"):
        schema_of(fields)


def test_a_message_is_chosen_by_name_and_else_the_first():
    assert ProtobufSchema(ORDER).message.full_name == "shop.Order"
    for name in ("Item", "shop.Item"):
        assert ProtobufSchema(ORDER, name).message.full_name == "shop.Item"
    with pytest.raises(InvalidSchema, match=r"it has shop\.Order, shop\.Item"):
        ProtobufSchema(ORDER, "Nothing")


def test_equal_schemas_have_the_same_fingerprint():
    one, other = schema_of("int32 a = 1;"), schema_of("\n  int32   a = 1; // note\n")
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != schema_of("int32 b = 1;").fingerprint
    order = ProtobufSchema(ORDER)
    assert order.fingerprint != ProtobufSchema(ORDER, "Item").fingerprint


def test_dicts_and_messages_round_trip_as_dicts():
    schema = ProtobufSchema(ORDER)
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    cls = message_factory.GetMessageClass(schema.message)
    message = cls(
        id=1,
        who="me",
        items=[{"name": "a"}, {"name": "b"}],
        counts={"x": 3},
        kind="SOLD",
        note={"value": "n"},
        previous={"id": 7},
        raw=b"\0\xff",
    )
    message.at.FromDatetime(at)
    message.free.update({"k": [1, "two"]})
    [value] = schema.decoder()(schema.encoder()([message]))
    assert value["id"] == 1
    assert value["price"] is None
    assert value["items"] == [{"name": "a"}, {"name": "b"}]
    assert value["counts"] == {"x": 3}
    assert value["kind"] == "SOLD"
    assert value["at"] == at
    assert value["note"] == "n"
    assert value["free"] == {"k": [1.0, "two"]}
    assert value["previous"]["id"] == 7
    assert value["previous"]["previous"] is None
    assert value["raw"] == b"\0\xff"
    payloads = schema.encoder()([{"id": 2, "items": [{"name": "c"}]}])
    assert schema.decoder()(payloads)[0]["items"] == [{"name": "c"}]


def test_bad_payloads_and_values_are_named():
    schema = schema_of("int32 a = 1; string s = 2;")
    [(index, reason)] = schema.validator()([b"", b"\x08\x01", b"\x08"])
    assert index == 2
    assert "not a valid M" in reason
    with pytest.raises(InvalidPayload, match="message 1 of the batch"):
        schema.decoder()([b"", b"\xff"])
    with pytest.raises(InvalidPayload, match=r"message 1 .*does not fit"):
        schema.encoder()([{"a": 1}, {"b": 1}])
    other = schema_of("int32 a = 1; string x = 3;", None)
    item = message_factory.GetMessageClass(ProtobufSchema(ORDER, "Item").message)()
    with pytest.raises(InvalidPayload, match=r"it is a shop\.Item"):
        other.encoder()([item])


def test_a_column_has_arrows_types():
    schema = ProtobufSchema(ORDER)
    [payload] = schema.encoder()(
        [{"id": 1, "counts": {"x": 3}, "kind": "SOLD", "previous": {"id": 7}}]
    )
    column = schema.column_decoder()(pa.array([payload, None]))
    assert column.type == schema.arrow_type()
    assert column.type.field("at").type == pa.timestamp("us", tz="UTC")
    first, second = column.to_pylist()
    assert second is None
    assert first["counts"] == [("x", 3)]
    assert first["kind"] == "SOLD"
    assert json.loads(first["previous"]) == {"id": "7"}


def test_endlessly_expanding_names_are_a_column_of_json():
    messages = ["message M0 { int32 v = 1; }"]
    for level in range(1, 12):
        fields = " ".join(f"M{level - 1} f{n} = {n};" for n in range(1, 9))
        messages.append(f"message M{level} {{ {fields} }}")
    schema = ProtobufSchema('syntax = "proto3"; ' + " ".join(messages), "M11")
    assert schema.arrow_type() == pa.string()
