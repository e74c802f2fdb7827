"""The column reader returns the same values as reading JSON objects one by one."""

import json

import msgspec
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.json_schema import AT_ONCE_MIN, JsonSchema
from pydanube.schemas.json_schema.column_reader import read_objects
from pydanube.schemas.json_schema.columns import column_of

DOCUMENT = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "f": {"type": "number"},
        "s": {"type": ["string", "null"]},
        "b": {"type": "boolean"},
        "n": {"type": "null"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"x": {"type": "string"}}},
    },
}
SCHEMA = JsonSchema(json.dumps(DOCUMENT))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.just("NaN: Inf")
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("afsbnloxz"), inner, max_size=4)
    ),
    max_leaves=6,
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "s": st.none() | st.text(max_size=5),
        "b": st.booleans() | st.none(),
        "n": st.none(),
        "l": st.lists(st.integers(-5, 5) | st.none(), max_size=3),
        "o": st.fixed_dictionaries({}, optional={"x": st.text(max_size=3)}),
        "z": values,
    },
)
finite = st.fixed_dictionaries(
    {}, optional={"a": st.integers(-(2**63), 2**63 - 1), "s": st.text(max_size=5)}
)
written = st.builds(
    lambda value, plain: json.dumps(value, ensure_ascii=plain).encode(
        errors="surrogatepass"
    ),
    fitting | values,
    st.booleans(),
)
fragments = st.sampled_from(
    [b"{", b"}", b"[", b",", b":", b'"a"', b'"', b"\n", b" ", b"1", b"NaN", b"\\", b"e"]
)
broken = st.lists(fragments, max_size=12).map(b"".join)
wrapped = broken.map(lambda inner: b"{" + inner + b"}")


def one_by_one(payloads):
    convert = column_of(DOCUMENT).convert
    try:
        found = [msgspec.json.decode(each) for each in payloads]
        rows = [None if each is None else convert(each) for each in found]
        return pa.array(rows, SCHEMA.arrow_type()).to_pylist()
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidPayload, OverflowError):
        return None


@given(st.lists(written | broken | wrapped, max_size=5))
@example([b'{"a":1', b'}\n{"a":2}'])
@example([b'{"a":1}\n{"a":2}', b'{"a":3', b"}"])
@example([b'{"f":1e400}'])
@example([b'{"f":-0}'])
def test_both_readers_return_the_same_values(payloads):
    payloads *= AT_ONCE_MIN
    try:
        found = SCHEMA.column_decoder()(pa.array(payloads, pa.binary())).to_pylist()
    except (InvalidPayload, OverflowError):
        found = None
    assert found == one_by_one(payloads)


@given(st.lists(finite, min_size=1, max_size=5))
def test_objects_that_fit_are_read(rows):
    payloads = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    found = read_objects(payloads, SCHEMA.arrow_type()).to_pylist()
    assert [row["a"] for row in found] == [row.get("a") for row in rows]
