"""Columns of values become valid payloads, and round-trip."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidPayload, InvalidRequest
from pydanube.model.schemas import SchemaType
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.column_encoding import column_encoder
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.primitives import PrimitiveSchema
from pydanube.schemas.protobuf import ProtobufSchema

BYTES = PrimitiveSchema(SchemaType.BYTES)
STRING = PrimitiveSchema(SchemaType.STRING)
INT64 = PrimitiveSchema(SchemaType.NUMBER)
FLOAT64 = PrimitiveSchema(SchemaType.NUMBER, "float64")

ORDER = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)
ORDERS = pa.array(
    [
        {"id": 1, "name": 'a "quoted"\n\\ name', "amount": 0.5},
        {"id": 2, "name": "Ä\x01\x1f", "amount": None},
        None,
        {"id": 3, "name": None, "amount": 1e300},
    ],
    ORDER,
)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "amount", "type": ["null", "double"], "default": None},
        ],
    }
)


def encoded(array, schema=None):
    return column_encoder(schema, array.type)(array).to_pylist()


def json_values(array, schema=None):
    return [
        None if each is None else json.loads(each) for each in encoded(array, schema)
    ]


def test_without_a_schema_values_are_json_and_nulls_are_left_out():
    assert json_values(ORDERS) == [
        {"id": 1, "name": 'a "quoted"\n\\ name', "amount": 0.5},
        {"id": 2, "name": "Ä\x01\x1f"},
        None,
        {"id": 3, "amount": 1e300},
    ]


def test_without_a_schema_text_and_bytes_are_payloads():
    assert encoded(pa.array(["a", None])) == [b"a", None]
    assert encoded(pa.array([b"\xff"])) == [b"\xff"]


def test_all_types_of_json_are_written():
    value = {
        "flag": True,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 2, 3, 4, 5, 678, UTC),
        "local": datetime(2024, 1, 2),  # noqa: DTZ001  # Without a zone on purpose.
        "price": Decimal("12.50"),
        "raw": b"\x00\xff",
        "tags": ["a", None],
        "counts": [("x", 1), ('y"', None)],
        "rows": [{"a": 1, "b": None}, None],
        "nothing": {},
        "none": None,
    }
    has = pa.struct(
        [
            pa.field("flag", pa.bool_()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="Europe/Vienna")),
            pa.field("local", pa.timestamp("us")),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("raw", pa.binary()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("counts", pa.map_(pa.string(), pa.int32())),
            pa.field(
                "rows",
                pa.list_(
                    pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.int8())])
                ),
            ),
            pa.field("nothing", pa.struct([])),
            pa.field("none", pa.null()),
        ]
    )
    [found] = json_values(pa.array([value], has))
    assert found == {
        "flag": True,
        "day": "2024-02-29",
        "at": "2024-01-02T03:04:05.000678Z",
        "local": "2024-01-02T00:00:00.000000",
        "price": 12.5,
        "raw": "AP8=",
        "tags": ["a", None],
        "counts": {"x": 1, 'y"': None},
        "rows": [{"a": 1}, None],
        "nothing": {},
    }


def test_slice_of_a_column_is_written():
    lists = pa.array([[{"a": 1}], [{"a": 2}, {"a": 3}], None, []])
    assert json_values(lists[1:]) == [[{"a": 2}, {"a": 3}], None, []]
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert json_values(maps[1:]) == [{"b": 2}]
    assert json_values(ORDERS[3:]) == [{"id": 3, "amount": 1e300}]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(number):
    with pytest.raises(InvalidPayload, match="not a number in JSON"):
        encoded(pa.array([1.0, None, number]))


@pytest.mark.parametrize(
    ("has", "said"),
    [
        (pa.struct([pa.field("for", pa.duration("us"))]), "value.for is duration"),
        (pa.map_(pa.int64(), pa.int64()), "names in a JSON object are text"),
        (pa.list_(pa.month_day_nano_interval()), r"value\[\] is"),
    ],
)
def test_type_without_a_json_form_is_refused_before_any_value(has, said):
    with pytest.raises(InvalidRequest, match=said):
        column_encoder(None, has)


ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "amount": {"$ref": "#/$defs/amount"},
    },
    "required": ["id", "name"],
    "additionalProperties": False,
    "$defs": {"amount": {"type": "number"}},
}


def test_a_row_without_any_value_is_an_empty_object():
    rows = pa.array([{"id": None}, {"id": 1}], pa.struct([pa.field("id", pa.int64())]))
    assert json_values(rows) == [{}, {"id": 1}]


def test_a_required_property_that_is_null_is_written_as_null():
    schema = JsonSchema(json.dumps(ORDER_SCHEMA))
    assert json_values(ORDERS, schema)[3] == {"id": 3, "name": None, "amount": 1e300}


def test_a_value_that_breaks_a_json_schema_is_refused_with_its_place():
    schema = JsonSchema(json.dumps(ORDER_SCHEMA))
    bad = pa.array([{"id": 1, "name": "a", "amount": 1.0}, {"id": None}], ORDER)
    with pytest.raises(InvalidPayload, match=r"message 1 .*'id'"):
        encoded(bad, schema)
    strict = dict(ORDER_SCHEMA, properties={"id": {"maximum": 2}})
    with pytest.raises(InvalidPayload, match="message 0"):
        encoded(ORDERS, JsonSchema(json.dumps(strict)))


def test_column_whose_type_proves_validity_is_not_validated():
    looked_at = []

    class Watched(JsonSchema):
        def validator(self):
            return lambda payloads: looked_at.append(payloads) or []

    watched = Watched(json.dumps(ORDER_SCHEMA))
    encoded(ORDERS, watched)
    assert looked_at == []
    with_null = pa.array([{"id": None}], ORDER)
    encoded(with_null, watched)
    assert len(looked_at) == 1


def test_column_without_a_required_property_is_refused():
    schema = JsonSchema(json.dumps(ORDER_SCHEMA))
    with pytest.raises(
        InvalidRequest, match=r"value\.name is missing, which the schema requ"
    ):
        column_encoder(schema, pa.struct([pa.field("id", pa.int64())]))


def test_avro_values_round_trip():
    schema = AvroSchema(AVRO)
    payloads = column_encoder(schema, ORDER)(ORDERS)
    assert schema.column_decoder()(payloads).to_pylist() == ORDERS.to_pylist()


def test_avro_refuses_a_field_that_it_would_lose_and_a_value_that_does_not_fit():
    schema = AvroSchema(AVRO)
    has = pa.struct([pa.field("id", pa.int64()), pa.field("colour", pa.string())])
    with pytest.raises(
        InvalidRequest, match=r"the schema has no value\.colour; it has"
    ):
        column_encoder(schema, has)
    with pytest.raises(InvalidRequest, match="the schema is a record"):
        column_encoder(schema, pa.int64())
    with pytest.raises(InvalidPayload, match="message 0"):
        encoded(
            pa.array([{"id": None}], pa.struct([pa.field("id", pa.int64())])), schema
        )


def test_maps_and_lists_are_written_as_avro():
    text = {
        "type": "record",
        "name": "M",
        "fields": [
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {
                "name": "rows",
                "type": {
                    "type": "array",
                    "items": {"type": "map", "values": "string"},
                },
            },
        ],
    }
    schema = AvroSchema(json.dumps(text))
    value = {"counts": [("a", 1)], "rows": [[("k", "v")], []]}
    has = pa.struct(
        [
            pa.field("counts", pa.map_(pa.string(), pa.int64())),
            pa.field("rows", pa.list_(pa.map_(pa.string(), pa.string()))),
        ]
    )
    [payload] = encoded(pa.array([value], has), schema)
    assert schema.decoder()([payload]) == [
        {"counts": {"a": 1}, "rows": [{"k": "v"}, {}]}
    ]


@pytest.mark.slow
def test_protobuf_values_round_trip():
    schema = ProtobufSchema(
        'syntax = "proto3"; message Order { int64 id = 1; string name = 2; '
        "optional double amount = 3; }"
    )
    orders = pa.array([{"id": 1, "name": "a", "amount": None}], ORDER)
    payloads = column_encoder(schema, ORDER)(orders)
    assert schema.column_decoder()(payloads).to_pylist() == orders.to_pylist()


@pytest.mark.parametrize(
    ("schema", "array", "payloads"),
    [
        (STRING, pa.array(["a", None]), [b"a", None]),
        (BYTES, pa.array([b"\xff"]), [b"\xff"]),
        (INT64, pa.array([1, 2, -3], pa.int32())[1:], None),
        (FLOAT64, pa.array([1.5, None], pa.float32()), None),
        (FLOAT64, pa.array([2], pa.int64()), None),
    ],
)
def test_values_of_primitive_types_round_trip(schema, array, payloads):
    found = column_encoder(schema, array.type)(array)
    assert payloads is None or found.to_pylist() == payloads
    assert schema.column_decoder()(found).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("schema", "has"),
    [
        (STRING, pa.binary()),
        (BYTES, pa.string()),
        (INT64, pa.float64()),
        (FLOAT64, pa.string()),
    ],
)
def test_values_of_another_type_than_the_schema_are_refused(schema, has):
    with pytest.raises(InvalidRequest, match="value is"):
        column_encoder(schema, has)
