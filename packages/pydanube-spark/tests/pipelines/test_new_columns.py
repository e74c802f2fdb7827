"""The types of new columns: by the schema in an event, or by its first value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.pure.new_columns import (
    columns_of_event,
    declared_names,
    with_new_columns,
)
from pydanube_spark.pipelines.pure.spec import SchemaChanges, Source, Spec


def types(row, names=None, **more):
    payload = json.dumps({"after": row, "op": "c", "ts_ms": 1} | more).encode()
    return columns_of_event(payload, list(row) if names is None else names)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, "BIGINT"),
        (2**63, "STRING"),
        ([1, 2**63], "ARRAY<STRING>"),
        (1.5, "DOUBLE"),
        (True, "BOOLEAN"),
        ("x", "STRING"),
        ({"a": 1}, "STRING"),
        ([1, None, 2], "ARRAY<BIGINT>"),
        ([1, 2.5], "ARRAY<DOUBLE>"),
        ([1, "x"], "ARRAY<STRING>"),
        ([[1]], "ARRAY<STRING>"),
        ([], "ARRAY<STRING>"),
    ],
)
def test_a_value_has_a_type(value, expected):
    assert types({"c": value}) == {"c": expected}


def test_only_named_columns_with_values_are_new():
    assert types({"id": 1, "a": 2, "b": None}, ["a", "b", "gone"]) == {"a": "BIGINT"}


def test_a_deletion_has_its_columns_before():
    assert types({"a": 1}, ["b"], op="d", before={"b": "x"}) == {"b": "STRING"}


def test_the_schema_of_an_event_decides():
    fields = [
        {"type": "int32", "field": "i"},
        {"type": "double", "field": "d"},
        {
            "type": "bytes",
            "field": "n",
            "name": "org.apache.kafka.connect.data.Decimal",
        },
        {"type": "bytes", "field": "raw"},
        {"type": "array", "items": {"type": "int64"}, "field": "list"},
        {
            "type": "map",
            "keys": {"type": "string"},
            "values": {"type": "boolean"},
            "field": "map",
        },
        {"type": "struct", "fields": [], "field": "point"},
    ]
    row = {"i": 1, "d": 3, "n": "AQ==", "raw": "AQ==", "list": [1], "map": {"a": True}}
    row |= {"point": {"x": 1}, "unknown": 4}
    event = {"after": row, "op": "u", "ts_ms": 1}
    schema = {"type": "struct", "fields": [{"field": "after", "fields": fields}]}
    payload = json.dumps({"schema": schema, "payload": event}).encode()
    assert columns_of_event(payload, list(row)) == {
        "i": "INT",
        "d": "DOUBLE",
        "n": "STRING",
        "raw": "BINARY",
        "list": "ARRAY<BIGINT>",
        "map": "MAP<STRING, BOOLEAN>",
        "point": "STRING",
        "unknown": "BIGINT",
    }


def test_documents_of_mongodb_have_plain_values():
    document = {
        "_id": {"$oid": "6abc"},
        "at": {"$date": 5},
        "n": {"$numberLong": "7"},
        "price": {"$numberDecimal": "1.50"},
    }
    payload = json.dumps({"after": json.dumps(document), "op": "c"}).encode()
    assert columns_of_event(payload, ["_id", "at", "n", "price"]) == {
        "_id": "STRING",
        "at": "BIGINT",
        "n": "BIGINT",
        "price": "STRING",
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["op", "after", "payload", "schema"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_what_is_no_event_is_refused(value):
    payload = json.dumps(value).encode()
    try:
        assert columns_of_event(payload, ["a"]) == {}
    except InvalidRequest:
        return


def test_bytes_that_are_no_json_are_refused():
    with pytest.raises(InvalidRequest):
        columns_of_event(b"\xff\x00", ["a"])


def test_deeply_nested_values_are_json_or_refused():
    def nested(depth):
        row = '{"a": ' + "[" * depth + "1" + "]" * depth + "}"
        payload = f'{{"op": "c", "after": {row}}}'
        return columns_of_event(payload.encode(), ["a"])

    assert nested(500) == {"a": "ARRAY<STRING>"}
    with pytest.raises(InvalidRequest):
        nested(1_000_000)


def test_names_of_fields_are_no_columns():
    schema = (
        "Id BIGINT, `a``b, c` STRUCT<x: INT, note: ARRAY<STRING>> COMMENT 'x, (y', "
        "`a<` INT,at: DECIMAL(10, 2), `b>` INT"
    )
    assert declared_names(schema) == {"id", "a`b, c", "a<", "at", "b>"}
    source = Source(schema=schema, schema_changes=SchemaChanges.EVOLVE)
    spec = Spec(name="p", sources={"a": source})
    found = with_new_columns(spec, {"a": {"note": "INT", "c": "INT", "B>": "INT"}})
    assert found.sources["a"].schema == f"{schema}, `note` INT, `c` INT"


def test_columns_join_the_schema_of_sources_that_evolve():
    source = Source(
        topic="/default/t",
        schema="id BIGINT, `age` INT",
        optional_columns=["dropped"],
        schema_changes=SchemaChanges.EVOLVE,
    )
    fixed = Source(topic="/default/t", schema="id BIGINT")
    spec = Spec(name="p", sources={"a": source, "b": fixed})
    new = {"note": "STRING", "age": "BIGINT", "dropped": "INT", "a`b": "INT"}
    found = with_new_columns(spec, {"a": new, "b": new, "gone": new})
    expected = "id BIGINT, `age` INT, `note` STRING, `a``b` INT"
    assert found.sources["a"].schema == expected
    assert found.sources["b"] == fixed
    assert with_new_columns(found, {"a": new}) == found
