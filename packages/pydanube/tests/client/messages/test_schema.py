"""Schemas on the client's side."""

from dataclasses import dataclass
from typing import TypedDict

import pytest

import pydanube
from pydanube import Schema
from pydanube.model.schemas import SchemaType
from pydanube.wire.pb import stream_pb2 as pb


@dataclass
class Order:
    number: int


class OrderDict(TypedDict):
    number: int


def test_kind_of_a_class_determines_its_schema_type():
    assert Schema.of(Order) == Schema.from_dataclass(Order)
    assert Schema.of(OrderDict) == Schema.from_typed_dict(OrderDict)
    assert Schema.of(str) == Schema.string()
    assert Schema.of(float).definition == "float64"
    assert Schema.of(pb.Ping) == Schema.from_protobuf(pb.Ping)
    assert Schema.of(pb.Ping).message == "pydanube.stream.Ping"
    assert Schema.of(Schema.bytes()) == Schema.bytes()


def test_class_is_converted_to_the_requested_language():
    assert Schema.from_dataclass(Order).type is SchemaType.JSON_SCHEMA
    assert Schema.from_dataclass(Order, type="avro").type is SchemaType.AVRO
    assert Schema.from_typed_dict(OrderDict, type="avro").type is SchemaType.AVRO
    with pytest.raises(pydanube.InvalidSchema, match="json_schema or avro"):
        Schema.from_dataclass(Order, type="protobuf")


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Schema.from_dataclass, OrderDict),
        (Schema.from_typed_dict, Order),
        (Schema.from_pydantic, Order),
        (Schema.from_protobuf, Order),
        (Schema.of, object),
    ],
)
def test_unsupported_class_is_refused(make, wrong):
    with pytest.raises(pydanube.InvalidSchema):
        make(wrong)


def test_union_that_avro_does_not_allow_is_refused_at_creation():
    @dataclass
    class Two:
        both: list[int] | dict[str, int]

    Schema.from_dataclass(Two, type="avro")

    @dataclass
    class Three:
        both: "bytes | list[int] | None"
        text: int | float | bool = 1

    Schema.from_dataclass(Three, type="avro")

    @dataclass
    class Bad:
        number: float = 1e400

    with pytest.raises(pydanube.InvalidSchema):
        Schema.from_dataclass(Bad, type="avro")


def test_text_is_parsed_on_demand():
    with pytest.raises(pydanube.InvalidSchema):
        Schema.avro("no schema").parse()
    assert Schema.json_schema("true").parse().type is SchemaType.JSON_SCHEMA
