"""Payloads of several schemas to JSON."""

import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidPayload
from pydanube.model.schemas import SchemaType
from pydanube_spark.reader.decoding import ValueDecoder
from pydanube_spark.reader.json_decoding import JsonDecoder, JsonDecoding, decoder_for
from pydanube_spark.reader.pure.read_options import OnUndecodable

AVRO = {
    "type": "record",
    "name": "Part",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def decoder(on_undecodable=OnUndecodable.NULL):
    decoding = JsonDecoding(
        definitions={
            (7, 1): Schema(SchemaType.JSON_SCHEMA, '{"type": "object"}'),
            (8, 3): Schema(SchemaType.AVRO, json.dumps(AVRO)),
        },
        on_undecodable=on_undecodable,
    )
    # Tasks get it pickled.
    return decoder_for(pickle.loads(pickle.dumps(decoding)), pa.string())


def avro(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


def batch(*messages):
    """Messages of a schema id, a version and a payload."""
    return pa.record_batch(
        {
            "offset": pa.array(range(len(messages)), pa.int64()),
            "payload": pa.array([each[2] for each in messages], pa.binary()),
            "schema_id": pa.array([each[0] for each in messages], pa.int64()),
            "schema_version": pa.array([each[1] for each in messages], pa.int32()),
        }
    )


PART = {"id": 5, "tags": ["a", "é"]}


def test_each_message_has_the_fields_of_its_own_schema():
    values, errors = decoder().decode(
        batch((7, 1, b'{"x": 1}'), (8, 3, avro(PART)), (7, 1, b'{"y": null}')), "/t"
    )
    assert [json.loads(each) for each in values.to_pylist()] == [
        {"x": 1},
        PART,
        {"y": None},
    ]
    assert errors.null_count == 3


def test_messages_without_a_known_schema_have_a_reason():
    values, errors = decoder().decode(
        batch((0, 0, b"{}"), (9, 1, b"{}"), (8, 3, b"\xff"), (7, 1, b"{}")), "/t"
    )
    assert values.to_pylist() == [None, None, None, "{}"]
    found = errors.to_pylist()
    assert found[0] == "it was written without a schema"
    assert "version 1 of the schema id 9" in found[1]
    assert found[2]
    assert found[3] is None


def test_first_undecodable_message_is_named():
    with pytest.raises(InvalidPayload, match="message 1 cannot be decoded"):
        decoder(OnUndecodable.FAIL).decode(batch((7, 1, b"{}"), (9, 1, b"{}")), "/t")


def test_decoder_depends_on_the_plan():
    assert type(decoder()) is JsonDecoder
    assert issubclass(JsonDecoder, ValueDecoder)
