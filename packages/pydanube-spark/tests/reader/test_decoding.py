"""Payloads to values, whole columns at a time."""

import json
import pickle

import pyarrow as pa
import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidPayload, InvalidRequest
from pydanube.model.schemas import SchemaType
from pydanube_spark.reader.decoding import (
    Decoding,
    ValueDecoder,
    decode_column,
    group_by_schema,
)
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import OnUndecodable
from support.fakes.hostile_schemas import hostile_schemas

TOPIC = "/default/orders"
FIRST = {"properties": {"id": {"type": "integer"}}}
SECOND = {"properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
READ_AS = ReaderSchema(subject="orders", schema_id=7, version=2)


def definition(document):
    return Schema(SchemaType.JSON_SCHEMA, json.dumps({"type": "object", **document}))


def decoder(on_undecodable=OnUndecodable.NULL, value_type=None, **more):
    decoding = Decoding(
        reader_schema=READ_AS,
        definitions={
            1: definition(FIRST),
            2: definition(SECOND),
            4: Schema(SchemaType.STRING, ""),
        },
        on_undecodable=on_undecodable,
        **more,
    )
    # Tasks get it pickled.
    return ValueDecoder(pickle.loads(pickle.dumps(decoding)), value_type)


def batch(*messages, base=100):
    """Messages of a schema id, a version and a payload."""
    return pa.record_batch(
        {
            "offset": pa.array(range(base, base + len(messages)), pa.int64()),
            "payload": pa.array([each[2] for each in messages], pa.binary()),
            "schema_id": pa.array([each[0] for each in messages], pa.int64()),
            "schema_version": pa.array([each[1] for each in messages], pa.int32()),
        }
    )


def test_versions_may_alternate_and_the_order_stays():
    messages = [
        (7, 1 + n % 2, b'{"id": %d, "note": "n%d"}' % (n, n)) for n in range(100)
    ]
    values, errors = decoder().decode(batch(*messages), TOPIC)
    assert [each["id"] for each in values.to_pylist()] == list(range(100))
    assert errors.null_count == 100


def test_every_header_is_one_group():
    messages = batch((7, 1, b""), (0, 0, b""), (7, 1, b""), (7, 2, b""))
    found = {header: at.to_pylist() for header, at in group_by_schema(messages).items()}
    assert found == {(7, 1): [0, 2], (0, 0): [1], (7, 2): [3]}


def test_undecodable_messages_are_null_with_a_reason():
    messages = batch(
        (7, 2, b'{"id": 1, "note": "x"}'),
        (0, 0, b'{"id": 2}'),
        (8, 1, b'{"id": 3}'),
        (7, 3, b'{"id": 4}'),
        (7, 2, b"{"),
        (7, 1, b'{"id": 5}'),
        (7, 4, b"text"),
        (7, 2, b'{"id": "x"}'),
    )
    values, errors = decoder().decode(messages, TOPIC)
    assert [each and each["id"] for each in values.to_pylist()] == [
        *(1, None, None, None, None, 5, None, None)
    ]
    reasons = [
        None,
        "without a schema",
        "the schema id 8, and orders has the id 7",
        "no version 3 of orders",
        "not JSON",
        None,
        "version 4 cannot be read as version 2 of orders: data written as string",
        "'x' is not a valid integer",
    ]
    for found, expected in zip(errors.to_pylist(), reasons, strict=True):
        assert (found is None) == (expected is None)
        assert expected is None or expected in found


def test_first_undecodable_message_fails_the_task():
    messages = [(7, 2, b'{"id": %d}' % n) for n in range(50)]
    messages[20] = messages[40] = (7, 2, b"broken")
    messages[30] = (0, 0, b"")
    expected = f"{TOPIC}: message 120 cannot be decoded: not JSON: .*onUndecodable=null"
    with pytest.raises(InvalidPayload, match=expected):
        decoder(OnUndecodable.FAIL).decode(batch(*messages), TOPIC)


def test_only_the_columns_that_are_wanted_are_made():
    value_type = pa.struct({"note": pa.string()})
    values, _ = decoder(value_type=value_type).decode(
        batch((7, 2, b'{"id": 1, "note": "x"}')), TOPIC
    )
    assert values.type == value_type
    assert values.to_pylist() == [{"note": "x"}]


def test_missing_column_is_null_or_an_error():
    value_type = pa.struct({"id": pa.int64(), "colour": pa.string()})
    with pytest.raises(InvalidRequest, match=r"no value\.colour"):
        decoder(value_type=value_type)
    values, _ = decoder(value_type=value_type, allows_missing=True).decode(
        batch((7, 2, b'{"id": 1}')), TOPIC
    )
    assert values.to_pylist() == [{"id": 1, "colour": None}]


def test_good_messages_of_a_group_are_decoded_in_few_steps():
    asked = []

    def decode(payloads):
        asked.append(len(payloads))
        if b"bad" in payloads.to_pylist():
            raise ValueError("no good")
        return payloads.cast(pa.string())

    payloads = pa.array([b"good"] * 777 + [b"bad"] + [b"good"] * 246)
    values, bad = decode_column(decode, payloads, pa.string(), stops_at_first=False)
    assert bad == [(777, "no good")]
    assert values.to_pylist() == ["good"] * 777 + [None] + ["good"] * 246
    assert len(asked) == 21


HOSTILE = [each for each in hostile_schemas() if not each.is_refused]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_hostile_payloads_are_values_or_null_with_a_reason(hostile):
    reader_schema = ReaderSchema(subject="orders", schema_id=7, version=1)
    decoding = Decoding(
        reader_schema=reader_schema,
        definitions={1: Schema(hostile.type, hostile.definition)},
        on_undecodable=OnUndecodable.NULL,
    )
    messages = batch(*((7, 1, payload) for payload in hostile.payloads * 2))
    values, errors = ValueDecoder(decoding).decode(messages, TOPIC)
    assert len(values) == len(errors) == len(messages)
    for value, error in zip(values, errors, strict=True):
        assert error.is_valid is not value.is_valid


def test_messages_with_new_columns_end_a_query_that_must_not_drop_them():
    strict = decoder(fails_on_new=True)
    old = batch((7, 1, b'{"id": 1}'), (7, 2, b'{"id": 2}'), (0, 0, b""))
    assert strict.decode(old, TOPIC)[0].to_pylist()[1]["id"] == 2
    newer = batch((7, 2, b'{"id": 1}'), (7, 4, b"x"))
    with pytest.raises(InvalidRequest, match=r"offset 101 .*version 4 .*of version 2"):
        strict.decode(newer, TOPIC)
    with pytest.raises(InvalidRequest, match="If version 9 was deleted"):
        strict.decode(batch((7, 9, b"x")), TOPIC)
    assert decoder().decode(newer, TOPIC)[0].null_count == 1


def test_newer_versions_with_the_same_columns_are_read():
    definitions = {2: definition(SECOND), 3: definition({**SECOND, "title": "x"})}
    decoding = Decoding(
        reader_schema=READ_AS,
        definitions=definitions,
        on_undecodable=OnUndecodable.FAIL,
        fails_on_new=True,
    )
    found, _ = ValueDecoder(decoding).decode(batch((7, 3, b'{"id": 5}')), TOPIC)
    assert found.to_pylist()[0]["id"] == 5
    with pytest.raises(InvalidRequest, match="version 9"):
        ValueDecoder(decoding).decode(batch((7, 9, b'{"id": 5}')), TOPIC)
