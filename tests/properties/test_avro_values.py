"""Avro: what is encoded is read as it was, also by Apache's library, or is refused."""

import io
import json
import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import count
from uuid import UUID

import avro.io
import avro.schema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.schemas.value_codecs import (
    json_value_encoder,
    value_decoder,
    value_encoder,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def fixed(size, **more):
    return {"type": "fixed", "name": "F", "size": size, **more}


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def is_whole(value):
    return value.microsecond % 1000 == 0


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
local_times = st.datetimes()
instants = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001  # Hypothesis adds the time zone.
    datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))]),
)


def decimals(precision, scale):
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale))


LEAVES = {
    "null": ("null", st.none()),
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary(max_size=4)),
    "string": ("string", texts),
    "fixed": (fixed(2), st.binary(min_size=2, max_size=2)),
    "enum": (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        st.sampled_from("AB"),
    ),
    "date": (logical("int", "date"), st.dates()),
    "time-millis": (logical("int", "time-millis"), st.times().filter(is_whole)),
    "time-micros": (logical("long", "time-micros"), st.times()),
    "timestamp-millis": (
        logical("long", "timestamp-millis"),
        instants.filter(is_whole),
    ),
    "timestamp-micros": (logical("long", "timestamp-micros"), instants),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), st.integers(0, 2**63 - 1)),
    "local-timestamp-millis": (
        logical("long", "local-timestamp-millis"),
        local_times.filter(is_whole),
    ),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), local_times),
    "uuid": (logical("string", "uuid"), st.uuids()),
    "uuid in fixed": (fixed(16, logicalType="uuid"), st.uuids()),
    "decimal": (logical("bytes", "decimal", precision=9, scale=2), decimals(9, 2)),
    "long decimal": (logical("bytes", "decimal", precision=60), decimals(60, 0)),
    "decimal in fixed": (
        fixed(5, logicalType="decimal", precision=9, scale=2),
        decimals(9, 2),
    ),
    "duration": (
        fixed(12, logicalType="duration"),
        st.binary(min_size=12, max_size=12),
    ),
}

UNKNOWN_TO_APACHE = {
    *("local-timestamp-millis", "local-timestamp-micros", "uuid in fixed"),
    *("timestamp-nanos", "duration"),
}


def named(schema, number):
    """Return *schema* with another name, if it has one."""
    if isinstance(schema, dict) and "name" in schema:
        return {**schema, "name": f"{schema['name']}{number}"}
    return schema


@st.composite
def schemas_and_values(draw, leaves, depth=2, numbers=None):
    """Return a schema, and a strategy for its values."""
    numbers = numbers or count()
    kind = draw(st.sampled_from(["leaf", "array", "map", "record", "union"]))
    if depth == 0 or kind == "leaf":
        schema, values = LEAVES[draw(st.sampled_from(leaves))]
        return named(schema, next(numbers)), values

    def inner():
        return draw(schemas_and_values(leaves, depth - 1, numbers))

    match kind:
        case "array":
            items, values = inner()
            return {"type": "array", "items": items}, st.lists(values, max_size=3)
        case "map":
            items, values = inner()
            found = st.dictionaries(texts, values, max_size=3)
            return {"type": "map", "values": items}, found
        case "record":
            parts = {f"f{n}": inner() for n in range(draw(st.integers(0, 3)))}
            schema = {
                "type": "record",
                "name": f"R{next(numbers)}",
                "fields": [
                    {"name": name, "type": each[0]} for name, each in parts.items()
                ],
            }
            return schema, st.fixed_dictionaries(
                {name: each[1] for name, each in parts.items()}
            )
    branches = {}
    for schema, values in (inner() for _ in range(draw(st.integers(1, 3)))):
        if isinstance(schema, list):
            continue
        name = schema if isinstance(schema, str) else schema.get("name")
        branches.setdefault(name or schema["type"], (schema, values))
    if not branches:
        return "null", st.none()
    return [schema for schema, _ in branches.values()], st.one_of(
        *(values for _, values in branches.values())
    )


@st.composite
def schemas_with_a_value(draw, leaves):
    schema, values = draw(schemas_and_values(leaves))
    return schema, draw(values)


def parsed(schema):
    return parse_schema(SchemaType.AVRO, json.dumps(schema).encode())


def is_same(sent, received):  # noqa: PLR0911  # One for each type.
    """Return whether a reader has the value that was sent."""
    if isinstance(sent, dict):
        return sent.keys() == received.keys() and all(
            is_same(value, received[key]) for key, value in sent.items()
        )
    if isinstance(sent, list | tuple):
        return len(sent) == len(received) and all(map(is_same, sent, received))
    if UUID in (type(sent), type(received)):
        # A text may stand for a UUID.
        return str(received) == str(sent).lower()
    if isinstance(sent, float) and math.isnan(sent):
        return math.isnan(received)
    if isinstance(sent, bool) or isinstance(received, bool):
        return sent is received
    if isinstance(sent, Enum):
        return sent.value == received
    return sent == received


@settings(deadline=None)
@given(schemas_with_a_value(sorted(LEAVES)))
def test_values_of_nested_types_are_read_as_they_were(given):
    type_, value = given
    schema = parsed(type_)
    payloads = value_encoder(schema)([value])
    [found] = value_decoder(schema)(payloads)
    assert is_same(value, found)
    assert schema.validator()(payloads) == []


@settings(deadline=None)
@given(schemas_with_a_value(sorted(LEAVES.keys() - UNKNOWN_TO_APACHE)))
def test_apaches_library_reads_what_we_write_and_writes_what_we_read(given):
    type_, value = given
    schema, other = parsed(type_), avro.schema.parse(json.dumps(type_))
    [payload] = value_encoder(schema)([value])
    source = io.BytesIO(payload)
    found = avro.io.DatumReader(other).read(avro.io.BinaryDecoder(source))
    assert is_same(value, found)
    assert source.read() == b""
    sink = io.BytesIO()
    avro.io.DatumWriter(other).write(found, avro.io.BinaryEncoder(sink))
    assert is_same(found, value_decoder(schema)([sink.getvalue()])[0])


class Colour(Enum):
    RED = "A"


VALUES = [
    *(None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63),
    *(10**100, 0.0, -0.0, 1.0, 1.5, 0.1, 16777217, 1e300, math.inf, math.nan),
    *("", "A", "C", "abc", "1", "no", "nope", "2025-01-01", "\ud800", "\0"),
    *("00000000-0000-0000-0000-00000000000A", "0" * 32, "A" * 36),
    *(b"", b"A", b"ab", bytes(12), bytes(16), bytearray(b"ab"), memoryview(b"ab")),
    *([], [1], ["a"], [1.5], (), (1,), {1}, {}, {"a": 1}, {"a": 1.9}, {1: 2}, {"b": 1}),
    *({"a": 1, "b": 2}, {"a": True}, {"a": None}),
    *(Decimal(0), Decimal("-0"), Decimal("1.10"), Decimal("1E3"), Decimal("1E-3")),
    *(Decimal("NaN"), Decimal("Infinity"), Decimal("1E+999999"), Decimal(10) ** 9),
    *(UUID(int=1), Colour.RED, date(1, 1, 1), date(9999, 12, 31), time(), time.max),
    *(time(1, tzinfo=UTC), timedelta(1), datetime(2025, 1, 1)),  # noqa: DTZ001
    *(datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    *(datetime(2025, 1, 1, 15, tzinfo=timezone(timedelta(hours=5))), object(), 1j),
]
RECORDS = [
    {"type": "record", "name": "R1", "fields": [{"name": "a", "type": "int"}]},
    {
        "type": "record",
        "name": "R2",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
    },
]
TYPES = [
    *(schema for schema, _ in LEAVES.values()),
    {"type": "array", "items": "long"},
    {"type": "array", "items": "string"},
    {"type": "map", "values": "long"},
    *RECORDS,
    *(["null", schema] for schema, _ in LEAVES.values() if schema != "null"),
    ["string", "int", "boolean", "null"],
    ["int", "double"],
    ["float", "double"],
    ["double", "long"],
    [logical("int", "date"), logical("long", "timestamp-micros")],
    [logical("long", "timestamp-micros"), "string"],
    [logical("string", "uuid"), "bytes"],
    [logical("bytes", "decimal", precision=4, scale=2), "double", "long"],
    ["bytes", "string"],
    [{"type": "map", "values": "int"}, *RECORDS],
    [*RECORDS],
    {"type": "array", "items": ["null", {"type": "map", "values": ["int", "string"]}]},
]


@pytest.mark.parametrize("schema", TYPES, ids=json.dumps)
def test_a_value_of_any_type_is_read_as_it_was_or_refused(schema):
    schema = parsed(schema)
    encode, decode = value_encoder(schema), value_decoder(schema)
    is_float = schema.text in {'"float"', '["null", "float"]'}
    accepted = 0
    for value in VALUES:
        try:
            payloads = encode([value])
        except InvalidPayload:
            continue
        accepted += 1
        [found] = decode(payloads)
        sent = list(value) if isinstance(value, set) else value
        if is_float and isinstance(sent, float):
            sent = float32(sent)
        assert is_same(sent, found), (value, found)
    assert accepted


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ("long", 1.5, "1.5 (float) is not a long"),
        ("int", 2**31, "an int, which has 32 bits"),
        ("int", True, "True (bool) is not an int"),
        ("boolean", "no", "'no' (str) is not a boolean"),
        ("boolean", 1, "is not a boolean"),
        ("float", 1e300, "a float, which has 32 bits"),
        ("double", 2**53 + 1, "which would round it"),
        ({"type": "array", "items": "string"}, "abc", "is not an array"),
        ({"type": "array", "items": "long"}, [1, 1.9], "[1]: 1.9 (float)"),
        ({"type": "map", "values": "long"}, {"a": 1.9}, "['a']: 1.9 (float)"),
        ({"type": "map", "values": "long"}, {1: 1}, "the keys of a map"),
        (logical("string", "uuid"), "nope", "is not a UUID"),
        (logical("int", "date"), 5, "is not a date"),
        (
            logical("long", "timestamp-millis"),
            datetime(2025, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "not a number of whole milliseconds",
        ),
        (logical("long", "timestamp-micros"), 5, "a datetime with a time zone"),
        (
            logical("long", "local-timestamp-micros"),
            datetime(2025, 1, 1, tzinfo=UTC),
            "has a time zone",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), 1.5, "decimal(4, 2)"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            Decimal("1.234"),
            "more than 2 decimal places",
        ),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            Decimal("123.45"),
            "more than 4 digits",
        ),
        (RECORDS[0], {"a": 1, "typo": 2}, "has no field 'typo'"),
        (RECORDS[0], {}, "the field a is missing"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "C",
            "a symbol of the enum E",
        ),
        (["int", "string"], 1.5, "is not of a branch of the union [int, string]"),
    ],
)
def test_a_value_that_does_not_match_is_refused_with_the_reason(schema, value, words):
    with pytest.raises(InvalidPayload) as refused:
        value_encoder(parsed(schema))([value])
    assert words in str(refused.value)


def test_unions_that_need_many_attempts_are_refused():
    def record(name):
        fields = [{"name": "next", "type": ["null", "int", "A", "B"], "default": None}]
        return {"type": "record", "name": name, "fields": fields}

    first = record("A")
    first["fields"][0]["type"] = ["null", "int", "A", record("B")]
    schema = parsed(first)
    value = {"next": "text"}
    for _ in range(40):
        value = {"next": value}
    with pytest.raises(InvalidPayload, match="branches of unions"):
        value_encoder(schema)([value])


DEFAULTS = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -5, -5),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 3, 3.0),
    ("double", "NaN", math.nan),
    ("bytes", "\u00ff\0", b"\xff\0"),
    ("string", "ü", "ü"),
    (fixed(2), "\u0001\u00ff", b"\x01\xff"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
    (logical("int", "date"), 1, date(1970, 1, 2)),
    (logical("int", "time-millis"), 1500, time(0, 0, 1, 500000)),
    (logical("long", "time-micros"), 1, time(0, 0, 0, 1)),
    (
        logical("long", "timestamp-micros"),
        -1,
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    (
        logical("long", "local-timestamp-millis"),
        1000,
        datetime(1970, 1, 1, 0, 0, 1),  # noqa: DTZ001
    ),
    (logical("string", "uuid"), str(UUID(int=7)), UUID(int=7)),
    (fixed(16, logicalType="uuid"), "\0" * 15 + "\x07", UUID(int=7)),
    (
        logical("bytes", "decimal", precision=4, scale=2),
        "\u00ff",
        Decimal("-0.01"),
    ),
    (["null", "int"], 3, 3),
    (
        {**RECORDS[0], "fields": [{"name": "a", "type": "int", "default": 3}]},
        {},
        {"a": 3},
    ),
]


def holder(*fields):
    return {"type": "record", "name": "H", "fields": list(fields)}


@pytest.mark.parametrize(("type_", "default", "value"), DEFAULTS)
def test_a_default_of_any_type_has_the_value_of_its_type(type_, default, value):
    part = {"name": "v", "type": type_, "default": default}
    schema = parsed(holder({"name": "n", "type": "int"}, part))
    [written] = value_encoder(schema)([{"n": 1}])
    assert is_same({"n": 1, "v": value}, value_decoder(schema)([written])[0])
    # A reader of a message without the field, as Spark reads it.
    older = parsed(holder({"name": "n", "type": "int"}))
    payloads = pa.array(value_encoder(older)([{"n": 1}]), pa.binary())
    by_default = schema.column_decoder(older)(payloads)
    explicit = schema.column_decoder()(pa.array([written], pa.binary()))
    assert str(by_default) == str(explicit)


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int", 1.0),
        ("int", 2**31),
        ("int", True),
        ("boolean", 1),
        ("float", 1e300),
        ("double", 2**53 + 1),
        ("bytes", "\u0100"),
        (fixed(2), "a"),
        (logical("string", "uuid"), "nope"),
        (logical("int", "date"), 2**31 - 1),
        (logical("int", "time-millis"), -1),
        (logical("bytes", "decimal", precision=2), "\u007f\u00ff"),
        ({"type": "array", "items": "long"}, [1.5]),
    ],
)
def test_a_default_that_does_not_match_its_type_is_refused(type_, default):
    with pytest.raises(InvalidSchema, match="the default does not match the type"):
        parsed(holder({"name": "v", "type": type_, "default": default}))


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("int", b"\x80\x80\x80\x80\x10"),
        (logical("int", "time-millis"), b"\x01"),
        (logical("bytes", "decimal", precision=2), b"\x04\x7f\xff"),
    ],
)
def test_payloads_outside_of_their_type_are_invalid(type_, payload):
    schema = parsed(type_)
    assert len(schema.validator()([payload])) == 1
    with pytest.raises(InvalidPayload):
        value_decoder(schema)([payload])


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        ("bytes", "/w==", b"\xff"),
        (logical("int", "date"), "2025-01-02", date(2025, 1, 2)),
        (logical("int", "date"), 1, date(1970, 1, 2)),
        (logical("int", "time-millis"), "01:02:03", time(1, 2, 3)),
        (
            logical("long", "timestamp-millis"),
            "2025-01-01T00:00:00Z",
            datetime(2025, 1, 1, tzinfo=UTC),
        ),
        (
            logical("long", "timestamp-millis"),
            1500,
            datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC),
        ),
        (logical("bytes", "decimal", precision=4, scale=2), "1.10", Decimal("1.1")),
        (logical("bytes", "decimal", precision=4, scale=2), 1.1, Decimal("1.1")),
        (["null", logical("long", "timestamp-micros")], 1, None),
    ],
)
def test_json_has_texts_and_numbers_for_other_types(type_, given, value):
    schema = parsed(type_)
    [found] = value_decoder(schema)(json_value_encoder(schema)([given]))
    expected = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC) if value is None else value
    assert found == expected
    with pytest.raises(InvalidPayload):
        json_value_encoder(schema)([{"an": "object"}])
