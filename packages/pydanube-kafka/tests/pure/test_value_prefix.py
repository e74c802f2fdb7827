"""Records lose the prefixes of their values, and get exactly the same ones back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.schemas import SchemaType
from pydanube_kafka.pure.value_prefix import (
    RUNS_MAX,
    divide,
    ids_of,
    prefix_of,
    with_prefix,
)
from pydanube_kafka.wire.record_batches import Records

AVRO = prefix_of(1, 2, SchemaType.AVRO, ())
JSON = prefix_of(3, 1, SchemaType.JSON_SCHEMA, ())
PROTOBUF = prefix_of(4, 1, SchemaType.PROTOBUF, (0,))
KNOWN = {int.from_bytes(each.data[1:5]): each for each in (AVRO, JSON, PROTOBUF)}


def records_of(*values, keys=None):
    return Records(
        timestamps=list(range(len(values))),
        keys=keys or [None] * len(values),
        values=list(values),
        headers=[()] * len(values),
    )


def test_a_prefix_is_a_zero_and_the_id():
    assert AVRO.data == bytes([0, 0, 0, 1 << 6, 2])
    assert PROTOBUF.data == bytes([0, 0, 1, 0, 1, 0])


@pytest.mark.parametrize(
    ("path", "encoded"), [((0,), b"\0"), ((1,), b"\2\2"), ((0, 0), b"\4\0\0")]
)
def test_the_message_of_protobuf_is_in_the_prefix(path, encoded):
    assert prefix_of(4, 1, SchemaType.PROTOBUF, path).data[5:] == encoded


@pytest.mark.parametrize(
    ("schema_id", "version", "type_"),
    [
        (1, 1, SchemaType.STRING),
        (1, 1, SchemaType.PROTOBUF),
        (1 << 17, 1, SchemaType.AVRO),
        (1, 1 << 14, SchemaType.AVRO),
        (1, 0, SchemaType.AVRO),
    ],
)
def test_other_schemas_have_no_prefix(schema_id, version, type_):
    assert prefix_of(schema_id, version, type_, ()) is None


def test_a_batch_is_divided_where_the_schema_changes():
    a, b = AVRO.data, JSON.data
    records = records_of(None, a + b"1", None, a + b"2", b + b"{}", None)
    assert ids_of(records.values) == {1 << 14 | 2, 3 << 14 | 1}
    first, second = divide(records, KNOWN)
    assert (first.prefix, first.start, first.records.values) == (
        AVRO,
        0,
        [None, b"1", None, b"2"],
    )
    assert (second.prefix, second.start, second.records.timestamps) == (JSON, 4, [4, 5])


@pytest.mark.parametrize(
    "records",
    [
        records_of(b"plain"),
        records_of(AVRO.data + b"1", b"plain"),
        records_of(AVRO.data + b"1", AVRO.data[:4]),
        records_of(AVRO.data + b"1", b""),
        records_of(b"\0\0\0\0\7unknown"),
        # The index of another message.
        records_of(PROTOBUF.data[:5] + b"\2\2"),
        # It would be a tombstone.
        records_of(AVRO.data, keys=[b"k"]),
        records_of(*([AVRO.data + b"1", JSON.data + b"1"] * RUNS_MAX)),
        records_of(None),
    ],
)
def test_other_batches_stay_as_they_are(records):
    assert divide(records, KNOWN) == []


def test_ids_are_bounded_and_end_at_a_value_without():
    many = [bytes([0]) + number.to_bytes(4) for number in range(RUNS_MAX * 2)]
    assert len(ids_of(many)) == RUNS_MAX + 1
    assert ids_of([None, b"plain", *many]) == set()


VALUES = st.none() | st.one_of(
    st.builds(
        lambda prefix, rest: prefix.data + rest,
        st.sampled_from([AVRO, JSON, PROTOBUF]),
        st.binary(max_size=3),
    )
)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=1), VALUES), min_size=1))
def test_clients_read_the_bytes_that_they_wrote(rows):
    keys, values = (list(column) for column in zip(*rows, strict=True))
    runs = divide(records_of(*values, keys=keys), KNOWN)
    if runs:
        back = [with_prefix(each.records, each.prefix) for each in runs]
        assert [value for each in back for value in each.values] == values
        assert [key for each in back for key in each.keys] == keys
        for each in runs:
            at = each.start
            assert each.records.timestamps[0] == at


def test_a_tombstone_of_a_native_client_is_null():
    records = records_of(b"", b"", b"1", keys=[b"k", None, b"k"])
    assert with_prefix(records, AVRO).values == [None, AVRO.data, AVRO.data + b"1"]
