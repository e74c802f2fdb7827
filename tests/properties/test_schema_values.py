"""Values round-trip; arbitrary text is parsed as a schema or refused."""

import json
import string
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from typing import Literal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.schemas.value_codecs import value_decoder, value_encoder

TEXTUAL = [each for each in SchemaType if each is not SchemaType.PROTOBUF]
LANGUAGES = ["json_schema", "avro"]

# Kill a worker that hangs on a text.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Location:
    name: str
    heights: tuple[int, ...] = ()


@dataclass
class Tree:
    value: int
    left: "Tree | None" = None
    others: "list[Tree]" = field(default_factory=list)


texts = st.text(max_size=5)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
instants = st.datetimes(
    datetime(1900, 1, 1),  # noqa: DTZ001  # Hypothesis adds the time zone.
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3).map(
    lambda value: value + Decimal(0)
)
durations = st.timedeltas(timedelta(days=-1000), timedelta(days=1000))
places = st.builds(Location, texts, st.lists(integers, max_size=2).map(tuple))
trees = st.recursive(
    st.builds(Tree, integers),
    lambda inner: st.builds(
        Tree, integers, st.none() | inner, st.lists(inner, max_size=2)
    ),
    max_leaves=4,
)

KINDS = {
    "integer": (int, integers),
    "number": (float, floats),
    "text": (str, texts),
    "truth": (bool, st.booleans()),
    "raw": (bytes, st.binary(max_size=5)),
    "instant": (datetime, instants),
    "day": (date, st.dates(date(1600, 1, 1))),
    "hour": (clock_time, st.times()),
    "duration": (timedelta, durations),
    "identity": (UUID, st.uuids()),
    "cost": (Decimal, decimals),
    "colour": (Colour, st.sampled_from(Colour)),
    "way": (Literal["in", "out"], st.sampled_from(["in", "out"])),
    "rank": (Literal[1, 2], st.sampled_from([1, 2])),
    "maybe": (int | None, st.none() | integers),
    "either": (int | str, integers | texts),
    "list": (list[str], st.lists(texts, max_size=3)),
    "pair": (tuple[int, int], st.tuples(integers, integers)),
    "set": (set[int], st.sets(integers, max_size=3)),
    "map": (dict[str, float], st.dictionaries(texts, floats, max_size=3)),
    "place": (Location, places),
    "places": (list[Location | None], st.lists(st.none() | places, max_size=2)),
    "tree": (Tree, trees),
}


@st.composite
def classes_and_values(draw):
    """Return a dataclass of some of the fields, and values of it."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    made = make_dataclass("Made", [(name, KINDS[name][0]) for name in names])
    values = st.builds(made, *(KINDS[name][1] for name in names))
    return made, draw(st.lists(values, max_size=3))


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=60, deadline=None)
@given(classes_and_values())
def test_values_of_a_dataclass_round_trip(language, given):
    made, values = given
    schema = Schema.from_dataclass(made, type=language).parse()
    payloads = value_encoder(schema, made)(values)
    assert value_decoder(schema, made)(payloads) == values
    # The payloads are valid, and can be decoded without the class.
    assert schema.validator()(payloads) == []
    assert len(value_decoder(schema)(payloads)) == len(values)
    assert schema.incompatibilities(schema) == []


# Parsing.

words = st.sampled_from(
    [
        *("type", "fields", "name", "record", "enum", "symbols", "items", "values"),
        *("array", "map", "fixed", "size", "null", "long", "int", "string", "union"),
        *("$ref", "#", "#/$defs/a", "$defs", "a", "properties", "anyOf", "allOf"),
        *("pattern", "(a+)+$", "const", "required", "if", "then", "not", "default"),
        *("object", "integer", "minimum", "logicalType", "decimal", "precision"),
        *("$id", "http://x/", "$schema", "$anchor", "$dynamicRef", "aliases"),
    ]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | words | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(words | texts, inner, max_size=4)
    ),
    max_leaves=20,
)
proto_words = st.lists(
    st.sampled_from(
        [
            *('syntax = "proto3";', 'syntax="proto2";', "message", "enum", "A", "B"),
            *("{", "}", "{", "}", "=", "1", "2", "0", "-1", ";", ";", ";", "int32"),
            *("optional", "repeated", "required", "oneof", "map<string, A>", "group"),
            *("import", '"google/protobuf/any.proto";', '"x.proto";', "reserved"),
            *("package", "a.b", "option", "extend", "[packed=true]", "to", "max"),
            *("service", "rpc", "//", "/*", "*/", '"', "\\", "\n", "é", "\0"),
        ]
    ),
    max_size=40,
).map(" ".join)


def is_schema_or_refused(type_, definition, message=None):
    try:
        schema = parse_schema(type_, definition, message=message)
    except InvalidSchema:
        schema = None
    else:
        assert schema.fingerprint == schema.fingerprint
        assert isinstance(schema.incompatibilities(schema), list)
    return schema


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTUAL), st.binary() | st.text())
def test_arbitrary_text_is_parsed_or_refused(type_, definition):
    if isinstance(definition, str):
        definition = definition.encode(errors="surrogatepass")
    is_schema_or_refused(type_, definition)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.sampled_from([SchemaType.AVRO, SchemaType.JSON_SCHEMA]), documents)
@example(SchemaType.JSON_SCHEMA, {"$ref": "#"})
@example(SchemaType.JSON_SCHEMA, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]})
@example(SchemaType.JSON_SCHEMA, {"pattern": "(a+)+$", "type": "string"})
@example(SchemaType.AVRO, {"type": "record", "name": "a", "fields": 3})
@example(SchemaType.AVRO, {"type": {"type": {"type": "int"}}})
def test_arbitrary_document_is_parsed_or_refused(type_, document):
    is_schema_or_refused(type_, json.dumps(document))


@pytest.mark.parametrize("type_", [SchemaType.AVRO, SchemaType.JSON_SCHEMA])
@pytest.mark.parametrize("opening", ["[", '{"items":', '{"type":', '{"not":'])
def test_a_deep_document_is_refused(type_, opening):
    closing = "]" if opening == "[" else "}"
    for depth in (65, 1000, 100_000):
        text = opening * depth + "1" + closing * depth
        assert is_schema_or_refused(type_, text[: 1024 * 1024]) is None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    proto_words | st.text(string.printable, max_size=60),
    st.none() | st.sampled_from(["A", "a.b.A", "", "\0", "-x"]),
)
def test_arbitrary_protobuf_text_is_parsed_or_refused(text, message):
    is_schema_or_refused(SchemaType.PROTOBUF, text, message)
