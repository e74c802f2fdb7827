"""A Python type becomes a schema that allows its values, or an error says why not."""

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest

from pydanube.model.errors import InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.class_schemas import avro_schema_of, json_schema_of
from pydanube.schemas.parsing import parse_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


class Mood(enum.Enum):
    FINE = "quite fine"


@dataclass
class Address:
    street: str
    zip: str = "00000"


@dataclass
class Node:
    value: int
    next: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)


class Point(TypedDict):
    x: float
    y: float


class Loose(TypedDict):
    x: int
    y: NotRequired[int]


class Pair(NamedTuple):
    a: int
    b: int


def fields_of(cls) -> dict[str, Any]:
    made = json.loads(avro_schema_of(cls))
    return {each["name"]: each for each in made["fields"]}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, "long"),
        (float, "double"),
        (bool, "boolean"),
        (str, "string"),
        (bytes, "bytes"),
        (Decimal, "string"),
        (timedelta, "string"),
        (datetime, {"type": "long", "logicalType": "timestamp-micros"}),
        (date, {"type": "int", "logicalType": "date"}),
        (time, {"type": "long", "logicalType": "time-micros"}),
        (UUID, {"type": "string", "logicalType": "uuid"}),
        (Colour, {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}),
        (Level, "long"),
        (Mood, "string"),
        (
            Literal["in", "out"],
            {"type": "enum", "name": "Made_field", "symbols": ["in", "out"]},
        ),
        (Literal["not a name"], "string"),
        (Literal[1, 2], "long"),
        (int | None, ["null", "long"]),
        (Literal[1, None], ["null", "long"]),
        (int | str, ["long", "string"]),
        (list[int], {"type": "array", "items": "long"}),
        (set[str], {"type": "array", "items": "string"}),
        (tuple[int, ...], {"type": "array", "items": "long"}),
        (tuple[int, int], {"type": "array", "items": "long"}),
        (dict[str, bool], {"type": "map", "values": "boolean"}),
    ],
)
def test_an_annotation_has_its_counterpart_in_avro(annotation, expected):
    made = dataclass(type("Made", (), {"__annotations__": {"field": annotation}}))
    assert fields_of(made)["field"] == {"name": "field", "type": expected}


def test_named_types_are_defined_once_and_may_be_recursive():
    @dataclass
    class Tree:
        node: Node
        other: Node
        home: Address
        colours: list[Colour]
        favourite: Colour = Colour.RED

    made = fields_of(Tree)
    assert made["node"]["type"]["name"] == "Node"
    assert made["other"]["type"] == "Node"
    assert made["node"]["type"]["fields"][1]["type"] == ["null", "Node"]
    assert made["favourite"] == {
        "name": "favourite",
        "type": "Colour",
        "default": "red",
    }
    document = json.loads(json_schema_of(Tree))
    assert set(document["$defs"]) == {"Tree", "Node", "Address", "Colour"}


def test_types_of_the_same_name_get_different_names():
    def make(number):
        return dataclass(type("Part", (), {"__annotations__": {f"f{number}": int}}))

    both = {"__annotations__": {"one": make(1), "two": make(2)}}
    made = fields_of(dataclass(type("Both", (), both)))
    assert [made[name]["type"]["name"] for name in ("one", "two")] == ["Part", "Part_2"]


def test_defaults_match_the_first_branch():
    @dataclass
    class Defaults:
        number: int | None = 3
        nothing: int | None = None
        raw: bytes = b"\xff"
        at: datetime = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        day: date = date(1970, 1, 3)
        hour: time = time(0, 0, 2)
        cost: Decimal = Decimal("1.50")
        home: Address | None = None
        office: Address = field(default_factory=lambda: Address("x"))
        tags: list[str] = field(default_factory=list)
        names: dict[str, str] = field(default_factory=dict)

    made = fields_of(Defaults)
    assert made["number"]["type"] == ["long", "null"]
    assert made["nothing"]["type"] == ["null", "long"]
    assert {name: each["default"] for name, each in made.items() if name != "office"}
    assert made["raw"]["default"] == "\xff"
    assert made["at"]["default"] == 1_000_000
    assert made["day"]["default"] == 2
    assert made["hour"]["default"] == 2_000_000
    assert made["cost"]["default"] == "1.50"
    # A default factory may return a different value each time.
    assert "default" not in made["office"]
    assert (made["tags"]["default"], made["names"]["default"]) == ([], {})
    parse_schema(SchemaType.AVRO, avro_schema_of(Defaults))


def test_namespace_applies_to_the_outermost_record():
    made = json.loads(avro_schema_of(Address, namespace="com.example"))
    assert (made["name"], made["namespace"]) == ("Address", "com.example")
    schema = parse_schema(
        SchemaType.AVRO, avro_schema_of(Address, namespace="com.example")
    )
    assert b"com.example.Address" in schema.canonical


def test_a_typed_dict_is_a_record_or_an_object():
    assert [each["name"] for each in fields_of(Point).values()] == ["x", "y"]
    document = json.loads(json_schema_of(Loose))
    assert document["$defs"]["Loose"]["required"] == ["x"]


def test_only_fields_without_a_default_are_required_in_json():
    document = json.loads(json_schema_of(Address))
    assert document["$defs"]["Address"]["required"] == ["street"]


def test_a_field_that_is_added_with_a_default_is_a_compatible_change():
    before = dataclass(type("Address", (), {"__annotations__": {"street": str}}))
    for language, make in (
        (SchemaType.JSON_SCHEMA, json_schema_of),
        (SchemaType.AVRO, avro_schema_of),
    ):
        old = parse_schema(language, make(before))
        new = parse_schema(language, make(Address))
        assert new.incompatibilities(old) == []
        assert old.incompatibilities(new) == []


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (object, "object"),
        (complex, "complex"),
        (Callable, "Callable"),
        (Address | Node, "more than one dataclass"),
    ],
)
def test_type_without_a_counterpart_is_refused(cls, said):
    for make in (json_schema_of, avro_schema_of):
        with pytest.raises(InvalidSchema, match=said):
            make(cls)


def in_class(annotation):
    return dataclass(type("Made", (), {"__annotations__": {"field": annotation}}))


class Tagged(msgspec.Struct, tag="t"):
    x: int


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (in_class(Any), r"Made\.field: Any has no counterpart"),
        (in_class(dict[int, str]), "keys of an Avro map must be text"),
        (in_class(tuple[int, str]), "tuple of several types"),
        (in_class(tuple[()]), "tuple of several types"),
        (in_class(Pair), "Pair is encoded without the names"),
        (in_class(Literal[1, "a"]), "neither all text nor all whole numbers"),
        (Loose, "no optional keys"),
        (Tagged, "encoded without the names"),
    ],
)
def test_type_without_a_counterpart_in_avro_is_refused_with_its_place(cls, said):
    json_schema_of(cls)
    with pytest.raises(InvalidSchema, match=said):
        avro_schema_of(cls)


def test_default_time_without_a_zone_is_refused():
    @dataclass
    class Naive:
        at: datetime = datetime(2020, 1, 1)  # noqa: DTZ001

    with pytest.raises(InvalidSchema, match=r"Naive\.at: the default has no time zone"):
        avro_schema_of(Naive)


def test_unknown_name_in_an_annotation_is_refused():
    made = in_class("NowhereToBeFound")
    with pytest.raises(InvalidSchema, match="NowhereToBeFound"):
        json_schema_of(made)


def test_durations_of_msgspec_are_valid():
    schema = parse_schema(SchemaType.JSON_SCHEMA, json_schema_of(in_class(timedelta)))
    payload = msgspec.json.encode({"field": timedelta(seconds=-1.5)})
    assert schema.validator()([payload]) == []
