"""Columns of arbitrary values, written as JSON at once, keep their values."""

import json

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.json_schema.column_writer import write_texts

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
]


def nullable(values):
    return st.none() | values


def lists(inner):
    has, values = inner
    return pa.list_(has), st.lists(nullable(values), max_size=3)


def maps(inner):
    has, values = inner
    pairs = st.dictionaries(TEXT, nullable(values), max_size=3)
    return pa.map_(pa.string(), has), pairs.map(lambda found: list(found.items()))


def structs(fields):
    has = pa.struct([pa.field(name, of[0]) for name, of in fields.items()])
    values = st.fixed_dictionaries(
        {name: nullable(of[1]) for name, of in fields.items()}
    )
    return has, values


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lists),
        inner.map(maps),
        st.dictionaries(TEXT, inner, max_size=3).map(structs),
    ),
    max_leaves=5,
)
COLUMNS = KINDS.flatmap(
    lambda kind: st.tuples(
        st.just(kind[0]), st.lists(nullable(kind[1]), max_size=5), st.integers(0, 2)
    )
)


def as_json(value, has):
    """Return *value* in JSON, converted by the rules for one value."""
    if value is None:
        return None
    if pa.types.is_struct(has):
        return {
            field.name: as_json(value[field.name], field.type)
            for field in has
            if value[field.name] is not None
        }
    if pa.types.is_list(has):
        return [as_json(each, has.value_type) for each in value]
    if pa.types.is_map(has):
        return {key: as_json(each, has.item_type) for key, each in value}
    return value


@settings(deadline=None)
@given(COLUMNS)
def test_texts_of_a_slice_are_its_values(column):
    has, values, begin = column
    array = pa.array(values, has)[begin:]
    found = write_texts(array)[0].to_pylist()
    assert [None if text is None else json.loads(text) for text in found] == [
        as_json(value, has) for value in array.to_pylist()
    ]


@settings(deadline=None)
@given(COLUMNS)
def test_written_schema_allows_the_texts(column):
    has, values, begin = column
    array = pa.array(values, has)[begin:].drop_null()
    texts, written = write_texts(array)
    said = JsonSchema(msgspec.json.encode(written))
    assert said.validator()([text.encode() for text in texts.to_pylist()]) == []
