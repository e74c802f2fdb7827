"""Columns of payloads that were written with another version of the schema."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest

from pydanube.model.errors import IncompatibleSchema, InvalidPayload
from pydanube.model.schemas import SchemaType
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.json_schema.column_reader import read_objects
from pydanube.schemas.parsing import parse_schema
from pydanube.schemas.primitives import PrimitiveSchema
from pydanube.schemas.protobuf import ProtobufSchema


def read(reader, writer, values):
    payloads = pa.array([*writer.encoder()(values), None], pa.binary())
    found = reader.column_decoder(writer)(payloads)
    found.validate(full=True)
    assert found.type == reader.arrow_type()
    assert found[-1].as_py() is None
    return found.to_pylist()[:-1]


def record(*fields, **more):
    return AvroSchema(
        json.dumps({"type": "record", "name": "R", "fields": fields, **more})
    )


def field(name, type_, **more):
    return {"name": name, "type": type_, **more}


def message(fields, more=""):
    return ProtobufSchema(f'syntax = "proto3"; message M {{ {fields} }} {more}')


@pytest.mark.parametrize("schema_type", ["avro", "json_schema", "protobuf", "number"])
def test_data_of_another_language_is_refused(schema_type):
    texts = {
        "avro": '"string"',
        "json_schema": "{}",
        "protobuf": 'syntax = "proto3"; message M {}',
        "number": "",
    }
    reader = parse_schema(SchemaType(schema_type), texts[schema_type])
    writer = parse_schema(SchemaType.STRING, "")
    with pytest.raises(IncompatibleSchema, match=f"string cannot.* as {schema_type}"):
        reader.column_decoder(writer)


def test_an_avro_field_is_found_by_its_alias_and_otherwise_is_its_default_or_null():
    writer = record(field("a", "int"), field("gone", "string"))
    reader = record(
        field("b", "double", aliases=["a"]),
        field("with_default", "string", default="EUR"),
        field("without", "string"),
    )
    assert read(reader, writer, [{"a": 3, "gone": "x"}]) == [
        {"b": 3.0, "with_default": "EUR", "without": None}
    ]


def test_an_avro_field_may_be_missing_in_types_that_have_names():
    inner = {"type": "record", "name": "I", "fields": [field("x", "int")]}
    more = {**inner, "fields": [field("x", "long"), field("y", "string")]}
    writer = record(field("one", inner), field("many", {"type": "array", "items": "I"}))
    reader = record(field("one", more), field("many", {"type": "array", "items": "I"}))
    assert read(reader, writer, [{"one": {"x": 1}, "many": [{"x": 2}]}]) == [
        {"one": {"x": 1, "y": None}, "many": [{"x": 2, "y": None}]}
    ]


def test_a_wider_avro_number_is_read_where_it_fits():
    writer = record(field("a", "long"), field("b", "double"))
    reader = record(field("a", "int"), field("b", ["null", "float"]))
    assert read(reader, writer, [{"a": 7, "b": 0.5}]) == [{"a": 7, "b": 0.5}]
    with pytest.raises((InvalidPayload, ValueError)):
        read(reader, writer, [{"a": 2**40, "b": 0.5}])


def test_an_avro_union_that_became_one_of_several_is_json_text_for_old_values_too():
    writer = record(field("a", ["null", "string"]))
    reader = record(field("a", ["null", "string", "int"]))
    assert read(reader, writer, [{"a": "x"}, {"a": None}]) == [
        {"a": '"x"'},
        {"a": None},
    ]
    assert read(reader, reader, [{"a": "x"}, {"a": 5}]) == [{"a": '"x"'}, {"a": "5"}]


def test_a_protobuf_field_has_its_number_whatever_its_name():
    writer = message("int32 a = 1; string gone = 2; int32 c = 3;")
    reader = message("int64 renamed = 1; int32 c = 3;")
    assert read(reader, writer, [{"a": 5, "gone": "x"}]) == [{"renamed": 5, "c": 0}]


def test_a_protobuf_field_that_the_writer_did_not_know_is_null_however_deep():
    writer = message(
        "I one = 1; repeated I many = 2; map<string, I> named = 3;",
        "message I { int32 x = 1; }",
    )
    reader = message(
        "I one = 1; repeated I many = 2; map<string, I> named = 3; "
        "repeated int32 n = 4;",
        "message I { int32 x = 1; int32 y = 2; string z = 3; }",
    )
    old = {"x": 1, "y": None, "z": None}
    values = [{"one": {"x": 1}, "many": [{"x": 1}], "named": {"k": {"x": 1}}}]
    assert read(reader, writer, values) == [
        {"one": old, "many": [old], "named": [("k", old)], "n": None}
    ]


def test_a_protobuf_field_of_another_type_is_refused_rather_than_skipped():
    with pytest.raises(IncompatibleSchema, match=r"M\.a.*string"):
        message("int32 a = 1;").column_decoder(message("string a = 1;"))


def test_json_is_read_whatever_the_writer_schema():
    writer = JsonSchema('{"type": "object"}')
    reader = JsonSchema(
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "a": {"type": "number"},
                    "b": {"type": ["string", "integer"]},
                },
            }
        )
    )
    assert read(reader, writer, [{"a": 1, "b": 1, "c": 0}, {"b": "x"}]) == [
        {"a": 1.0, "b": "1"},
        {"a": None, "b": '"x"'},
    ]


def test_integers_are_read_as_floats_and_not_the_other_way_round():
    integers = PrimitiveSchema(SchemaType.NUMBER)
    floats = PrimitiveSchema(SchemaType.NUMBER, "float64")
    found = floats.column_decoder(integers)(pa.array([struct.pack("<q", 7)]))
    assert found.to_pylist() == [7.0]
    with pytest.raises(IncompatibleSchema):
        integers.column_decoder(floats)


ORDER_TYPE = pa.struct({"a": pa.int64(), "f": pa.float64(), "s": pa.string()})


def objects(*payloads):
    return read_objects(pa.array(payloads, pa.binary()), ORDER_TYPE)


def test_many_objects_are_read_at_once():
    found = objects(b'{"a": 1, "zz": [1, "x"]}', b'{"s": "Inf", "f": 2}', b"{}")
    assert found.type == ORDER_TYPE
    assert found.to_pylist() == [
        {"a": 1, "f": None, "s": None},
        {"a": None, "f": 2.0, "s": "Inf"},
        {"a": None, "f": None, "s": None},
    ]


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"a": 1}{"a": 2}'],
        [b'{"a": 1}\n{"a": 2}', b'{"a": 3'],
        [b'{"a": 1', b', "f": 2}'],
        [b'{"a": 1}', b""],
        [b'{"a": 1}', None],
        [b"[1]"],
        [b'{"f": NaN}'],
        [b'{"zz": -Infinity}'],
        [b'{"s": "\xff"}'],
        [b'{"a": 1.0}'],
        [b'{"a": 1, "a": 2}'],
        [b'{"a": true}'],
        [b'{"zz": ' + b"[" * 300 + b"]" * 300 + b"}"],
        [],
    ],
)
def test_values_that_arrow_reads_differently_are_read_one_by_one(payloads):
    assert objects(*payloads) is None
