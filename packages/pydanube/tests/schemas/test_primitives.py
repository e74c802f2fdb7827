"""The types without a definition: bytes, string, number."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.primitives import PrimitiveSchema

BYTES = PrimitiveSchema(SchemaType.BYTES)
STRING = PrimitiveSchema(SchemaType.STRING)
INT64 = PrimitiveSchema(SchemaType.NUMBER)
FLOAT64 = PrimitiveSchema(SchemaType.NUMBER, "float64")


def test_fingerprints_are_the_names_of_the_types():
    assert BYTES.fingerprint == "bytes"
    assert STRING.fingerprint == "string"
    assert (
        INT64.fingerprint
        == PrimitiveSchema(SchemaType.NUMBER, "int64").fingerprint
        == "number"
    )
    assert PrimitiveSchema(SchemaType.NUMBER, "double").fingerprint == "number/float64"


@pytest.mark.parametrize(
    "type_", [SchemaType.BYTES, SchemaType.STRING, SchemaType.NUMBER]
)
def test_unknown_definition_is_refused(type_):
    with pytest.raises(InvalidSchema, match="has no definition"):
        PrimitiveSchema(type_, '{"type": "record"}')


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (BYTES, [b"", b"\xff", b"abc"]),
        (STRING, ["", "a", "ü€"]),
        (INT64, [0, -1, 2**63 - 1]),
        (FLOAT64, [0.0, -1.5, 1e300]),
    ],
)
def test_values_come_back_also_as_a_column(schema, values):
    payloads = schema.encoder()(values)
    assert schema.decoder()(payloads) == values
    assert schema.validator()(payloads) == []
    column = schema.column_decoder()(pa.array([None, *payloads], pa.binary()))
    assert column.type == schema.arrow_type()
    assert column.to_pylist() == [None, *values]
    column = schema.column_decoder()(
        pa.array([b"x" * 8, *payloads], pa.binary()).slice(1)
    )
    assert column.to_pylist() == values


def test_numbers_of_four_bytes_are_read_too():
    assert INT64.decoder()([struct.pack("<i", -7)]) == [-7]
    assert PrimitiveSchema(SchemaType.NUMBER, "float").decoder()(
        [struct.pack("<f", 0.5)]
    ) == [0.5]
    column = INT64.column_decoder()(pa.array([struct.pack("<i", 7)]))
    assert column.to_pylist() == [7]


@pytest.mark.parametrize(("schema", "bad"), [(STRING, b"\xff"), (INT64, b"123")])
def test_bad_payloads_are_found_with_their_index(schema, bad):
    [good] = schema.encoder()(["a" if schema.type.value == "string" else 1])
    [(index, _)] = schema.validator()([good, bad])
    assert index == 1
    for read in (
        schema.decoder(),
        lambda each: schema.column_decoder()(pa.array(each)),
    ):
        with pytest.raises(InvalidPayload, match="message 1 of the batch"):
            read([good, bad])


@pytest.mark.parametrize(
    ("schema", "bad"),
    [(BYTES, "x"), (STRING, b"x"), (INT64, "x")],
)
def test_values_of_another_type_are_refused(schema, bad):
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        schema.encoder()([bad])


def test_integers_and_floats_are_not_compatible():
    assert INT64.incompatibilities(PrimitiveSchema(SchemaType.NUMBER, "int")) == []
    [found] = INT64.incompatibilities(FLOAT64)
    assert found.rule == "number_kind_changed"
