"""The types without a definition: bytes, string, number."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.schemas.primitives import BytesSchema, NumberSchema, StringSchema


def test_fingerprints_are_the_names_of_the_types():
    assert BytesSchema().fingerprint == "bytes"
    assert StringSchema().fingerprint == "string"
    assert NumberSchema().fingerprint == NumberSchema("int64").fingerprint == "number"
    assert NumberSchema("double").fingerprint == "number/float64"


@pytest.mark.parametrize("cls", [BytesSchema, StringSchema, NumberSchema])
def test_unknown_definition_is_refused(cls):
    with pytest.raises(InvalidSchema, match="has no definition"):
        cls('{"type": "record"}')


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (BytesSchema(), [b"", b"\xff", b"abc"]),
        (StringSchema(), ["", "a", "ü€"]),
        (NumberSchema(), [0, -1, 2**63 - 1]),
        (NumberSchema("float64"), [0.0, -1.5, 1e300]),
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
    assert NumberSchema().decoder()([struct.pack("<i", -7)]) == [-7]
    assert NumberSchema("float").decoder()([struct.pack("<f", 0.5)]) == [0.5]
    column = NumberSchema().column_decoder()(pa.array([struct.pack("<i", 7)]))
    assert column.to_pylist() == [7]


@pytest.mark.parametrize(
    ("schema", "bad"), [(StringSchema(), b"\xff"), (NumberSchema(), b"123")]
)
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
    [(BytesSchema(), "x"), (StringSchema(), b"x"), (NumberSchema(), "x")],
)
def test_values_of_another_type_are_refused(schema, bad):
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        schema.encoder()([bad])


def test_integers_and_floats_are_not_compatible():
    assert NumberSchema().incompatibilities(NumberSchema("int")) == []
    [found] = NumberSchema().incompatibilities(NumberSchema("float64"))
    assert found.rule == "number_kind_changed"
