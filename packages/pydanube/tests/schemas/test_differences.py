"""The differences between two schemas, place by place."""

from dataclasses import make_dataclass

import pytest

from pydanube.client.messages.schema import Schema
from pydanube.schemas.differences import Difference, find_differences


def between(old, new):
    return [(d.path, d.old, d.new) for d in find_differences(old.parse(), new.parse())]


def test_equal_schemas_do_not_differ_whatever_their_layout():
    one = Schema.json_schema('{"type":"object","required":["a","b"]}')
    other = Schema.json_schema('{ "required" : ["a","b"], "type" : "object" }')
    assert between(one, other) == []


def test_keywords_of_json_are_compared_where_they_are():
    old = Schema.json_schema(
        '{"properties":{"a":{"type":"integer"},"b":{}},"required":["a"],'
        '"anyOf":[{"minProperties":1},{"minProperties":2}]}'
    )
    new = Schema.json_schema(
        '{"properties":{"a":{"type":"string"},"c":true},"required":["a","c"],'
        '"anyOf":[{"minProperties":1},{"minProperties":3}]}'
    )
    assert between(old, new) == [
        ("/properties/a/type", "integer", "string"),
        ("/properties/b", "{}", None),
        ("/properties/c", None, "true"),
        ("/required", '["a"]', '["a","c"]'),
        ("/anyOf/1/minProperties", "2", "3"),
    ]


def test_renamed_class_is_compared():
    one = make_dataclass("One", [("a", int)])
    two = make_dataclass("Two", [("a", int), ("b", int, 0)])
    assert between(Schema.of(one), Schema.of(two)) == [
        ("/title", "One", "Two"),
        ("/properties/b", None, '{"type":"integer","default":0}'),
    ]
    recursive = Schema.json_schema('{"$ref":"#/$defs/A","$defs":{"A":{},"B":{}}}')
    flat = Schema.json_schema('{"$defs":{"B":true}}')
    assert between(recursive, flat) == [("/$defs/B", "{}", "true")]


def test_fields_of_avro_are_compared_by_name():
    old = Schema.avro(
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
        '{"name":"b","type":{"type":"record","name":"I","fields":[]}}]}'
    )
    new = Schema.avro(
        '{"type":"record","name":"R","fields":[{"name":"b","type":{"type":"record",'
        '"name":"I","fields":[{"name":"x","type":"long","default":0}]}},'
        '{"name":"a","type":"long"}]}'
    )
    assert between(old, new) == [
        ("/fields/a/type", "int", "long"),
        ("/fields/b/type/fields/x", None, '{"type":"long","default":0}'),
    ]
    assert between(Schema.avro("int"), Schema.avro('"long"')) == [("/", "int", "long")]


def test_another_language_is_the_only_difference():
    assert find_differences(Schema.string().parse(), Schema.number().parse()) == [
        Difference(path="/", old="string", new="number")
    ]
    assert between(Schema.number(), Schema.number("float64")) == [
        ("/", "number", "number/float64")
    ]


@pytest.mark.slow
def test_fields_of_protobuf_are_compared_by_name():
    old = Schema.protobuf(
        'syntax = "proto3"; message A { int32 x = 1; B b = 2; } message B { E e = 1; } '
        "enum E { ZERO = 0; }"
    )
    new = Schema.protobuf(
        'syntax = "proto3"; message A { repeated int64 x = 1; B b = 2; } message B { '
        "E e = 1; oneof o { string s = 2; } } enum E { ZERO = 0; ONE = 1; }"
    )
    assert between(old, new) == [
        ("/A/x", "int32 = 1", "repeated int64 = 1"),
        ("/B/s", None, "string = 2 in o"),
        ("/E/ONE", None, "1"),
    ]
