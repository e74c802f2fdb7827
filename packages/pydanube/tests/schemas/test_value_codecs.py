"""Values of Python classes become payloads, and values of any class again."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypedDict

import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidPayload
from pydanube.model.schemas import SchemaType
from pydanube.schemas.value_codecs import value_decoder, value_encoder
from pydanube.wire.pb import stream_pb2 as pb

LANGUAGES = ["json_schema", "avro"]
each_language = pytest.mark.parametrize("language", LANGUAGES)


@dataclass
class Order:
    number: int
    user: str
    amount: Decimal = Decimal(0)


@dataclass
class Bill:
    """The class of another reader."""

    number: int
    paid: bool = False


class OrderDict(TypedDict):
    number: int
    user: str


def made(language, cls=Order):
    return Schema.from_dataclass(cls, type=language).parse()


@each_language
def test_a_reader_with_another_class_gets_the_fields_that_it_knows(language):
    schema = made(language)
    payloads = value_encoder(schema, Order)([Order(7, "u", Decimal("1.50"))])
    assert value_decoder(schema, Order)(payloads) == [Order(7, "u", Decimal("1.50"))]
    assert value_decoder(schema, Bill)(payloads) == [Bill(7)]
    [plain] = value_decoder(schema)(payloads)
    assert plain == {"number": 7, "user": "u", "amount": "1.50"}


@each_language
def test_missing_field_gets_the_default_of_the_class(language):
    old = Schema.from_typed_dict(OrderDict, type=language).parse()
    payloads = value_encoder(old, OrderDict)([{"number": 1, "user": "u"}])
    assert value_decoder(old, Order)(payloads) == [Order(1, "u")]


@each_language
def test_missing_required_field_is_named(language):
    schema = made(language, Bill)
    payloads = value_encoder(schema, Bill)([Bill(1), Bill(2)])
    with pytest.raises(InvalidPayload, match=r"message 0 of the batch.*user"):
        value_decoder(schema, Order)(payloads)


@each_language
def test_invalid_value_is_refused_with_its_index(language):
    encode = value_encoder(made(language), Order)
    with pytest.raises(InvalidPayload, match="message 1 of the batch"):
        encode([Order(1, "u"), Order("one", "u")])
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        encode([object()])


def test_time_without_a_zone_is_refused():
    @dataclass
    class Event:
        at: datetime

    schema = made("avro", Event)
    encode = value_encoder(schema, Event)
    now = datetime(2020, 1, 1, tzinfo=UTC)
    assert value_decoder(schema, Event)(encode([Event(now)])) == [Event(now)]
    with pytest.raises(InvalidPayload, match="has no time zone"):
        encode([Event(datetime(2020, 1, 1))])  # noqa: DTZ001


def test_pydantic_model_round_trips():
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        number: int = pydantic.Field(gt=0, alias="no")
        at: datetime | None = None

    schema = Schema.from_pydantic(Model)
    parsed = schema.parse()
    encode, decode = value_encoder(parsed, Model), value_decoder(parsed, Model)
    values = [Model(no=3, at=datetime(2020, 1, 1, tzinfo=UTC)), Model(no=4)]
    payloads = encode(values)
    assert b'"no":3' in payloads[0]
    assert decode(payloads) == values
    with pytest.raises(InvalidPayload, match=r"message 1 of the batch.*greater than 0"):
        decode([payloads[0], b'{"no":0}'])
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        encode([{"no": 1}])
    avro = Schema.avro(
        '{"type":"record","name":"M","fields":[{"name":"no","type":"long"}]}'
    ).parse()
    assert value_decoder(avro, Model)(value_encoder(avro)([{"no": 5}])) == [Model(no=5)]


@pytest.mark.slow
def test_generated_message_round_trips():
    schema = Schema.from_protobuf(pb.Position)
    parsed = schema.parse()
    payloads = value_encoder(parsed, pb.Position)([pb.Position(offset=7)])
    assert value_decoder(parsed, pb.Position)(payloads) == [pb.Position(offset=7)]
    [plain] = value_decoder(parsed)(payloads)
    assert plain["offset"] == 7
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        value_decoder(parsed, pb.Position)([b"\xff"])
    written_in_json = made("json_schema")
    with pytest.raises(InvalidPayload, match="written as json_schema"):
        value_decoder(written_in_json, pb.Position)([b"{}"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (str, ["ü", ""]),
        (bytes, [b"\xff", b""]),
        (int, [-1, 2**63 - 1]),
        (float, [1.5, -0.0]),
    ],
)
def test_primitive_types_have_python_types(kind, values):
    schema = Schema.of(kind)
    assert schema.type in (SchemaType.STRING, SchemaType.BYTES, SchemaType.NUMBER)
    parsed = schema.parse()
    payloads = value_encoder(parsed, kind)(values)
    assert value_decoder(parsed, kind)(payloads) == values
