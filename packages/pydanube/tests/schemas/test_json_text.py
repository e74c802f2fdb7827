"""Tests of Arrow columns as JSON."""

import json
import math
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig
from pydanube.schemas.pure.json_text import is_writable, texts

TEXT = st.text(max_size=8)
LEAVES = st.sampled_from(["string", "int64", "bool", "double", "binary"])
VALUES = {
    "string": TEXT,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "double": st.floats(),
    "binary": st.binary(max_size=4),
}
TYPES = {
    "string": pa.string(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
    "double": pa.float64(),
    "binary": pa.binary(),
}


@st.composite
def kinds(draw, depth=2):
    """A type, values of it, and a function that gives what JSON makes of one."""
    if depth == 0 or draw(st.booleans()):
        name = draw(LEAVES)
        return TYPES[name], st.none() | VALUES[name], of_leaf
    kind, values, wanted = draw(kinds(depth=depth - 1))
    match draw(st.sampled_from(["list", "map", "struct"])):
        case "list":
            return (
                pa.list_(kind),
                st.none() | st.lists(values, max_size=3),
                lambda value: value and [wanted(each) for each in value],
            )
        case "map":
            return (
                pa.map_(pa.string(), kind),
                st.none() | st.dictionaries(TEXT, values, max_size=3),
                lambda value: value and {k: wanted(v) for k, v in value.items()},
            )
    return (
        pa.struct([("a b", kind), ('q"', kind)]),
        st.none() | st.fixed_dictionaries({"a b": values, 'q"': values}),
        lambda value: value and {k: wanted(v) for k, v in value.items()},
    )


def of_leaf(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return b64encode(value).decode() if isinstance(value, bytes) else value


@settings(deadline=None)
@given(st.data(), kinds(), st.integers(0, 3))
def test_values_round_trip_through_json(data, kind, base):
    type_, values, wanted = kind
    rows = data.draw(st.lists(values, max_size=6))
    column = pa.array([pairs_for(row, type_) for row in rows], type_).slice(base)
    found = [text and json.loads(text) for text in texts(column).to_pylist()]
    assert found == [wanted(row) for row in rows[base:]]


def pairs_for(value, kind):
    """*value* as Arrow takes it: dictionaries are pairs wherever *kind* is a map."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [pairs_for(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(k, pairs_for(v, kind.item_type)) for k, v in value.items()]
    if pa.types.is_struct(kind):
        return {field.name: pairs_for(value[field.name], field.type) for field in kind}
    return value


def test_times_decimals_and_numbers_have_standard_json_forms():
    at = datetime(2024, 2, 29, 12, 0, 0, 5, UTC)
    row = pa.record_batch(
        {
            "utc": pa.array([at], pa.timestamp("us", "UTC")),
            "local": pa.array([at.replace(tzinfo=None)], pa.timestamp("us")),
            "day": pa.array([date(2024, 2, 29)]),
            "sum": pa.array([Decimal("1.50")]),
            "ratio": pa.array([1.5], pa.float32()),
            "nothing": pa.nulls(1),
            "by_day": pa.array(
                [[(date(2024, 2, 29), 1)]], pa.map_(pa.date32(), pa.int8())
            ),
            "by_number": pa.array([[(7, 1)]], pa.map_(pa.int64(), pa.int8())),
        }
    )
    assert texts(row.to_struct_array())[0].as_py() == (
        '{"utc":"2024-02-29T12:00:00.000005Z","local":"2024-02-29T12:00:00.000005",'
        '"day":"2024-02-29","sum":1.50,"ratio":1.5,"nothing":null,'
        '"by_day":{"2024-02-29":1},"by_number":{"7":1}}'
    )


def test_unsupported_type_is_found_before_writing():
    kind = pa.list_(pa.struct([("x", pa.duration("us"))]))
    assert not is_writable(kind)
    assert not is_writable(pa.map_(pa.string(), pa.duration("us")))
    with pytest.raises(InvalidConfig, match="duration"):
        texts(pa.array([[{"x": 1}]], kind))
