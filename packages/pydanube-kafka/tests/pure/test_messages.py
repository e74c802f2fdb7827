"""Records become messages and the same records again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.batch import batch_of
from pydanube.model.kafka_records import HEADERS, TOMBSTONE
from pydanube.model.schemas import SchemaType
from pydanube.wire.batches import BatchHeader, decode, encode
from pydanube_kafka.pure.messages import (
    BadTime,
    decode_messages,
    encode_for_clients,
    encode_messages,
)
from pydanube_kafka.pure.value_prefix import prefix_of, with_prefix
from pydanube_kafka.wire.record_batches import Records, encode_batch
from pydanube_kafka.wire.record_columns import RECORDS_MIN

NOW_US = 1_700_000_000_000_000
BYTES = st.none() | st.binary(max_size=10)
NAMES = st.sampled_from(["a", "b", "kafka.tombstone", "kafka.headers", "é"])
RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 2**41),
        BYTES,
        BYTES,
        st.lists(st.tuples(NAMES, BYTES)).map(tuple),
    ),
    min_size=1,
    max_size=5,
)


def records_of(rows):
    times, keys, values, headers = zip(*rows, strict=True)
    return Records(timestamps=times, keys=keys, values=values, headers=headers)


def stored(rows):
    header = BatchHeader(first_publish_time=0, last_publish_time=0, producer="p")
    frame = decode(encode_messages(records_of(rows), header, NOW_US).buffer)
    frame.check()
    frame.stamp(40, 1)
    return frame


@given(RECORDS)
def test_records_survive_the_way_into_a_topic_and_back(rows):
    records, offsets = decode_messages(stored(rows))
    found = [
        *zip(
            records.timestamps,
            records.keys,
            records.values,
            map(tuple, records.headers),
            strict=True,
        )
    ]
    now = NOW_US // 1000
    assert found == [(now if row[0] == -1 else row[0], *row[1:]) for row in rows]
    assert list(offsets) == list(range(40, 40 + len(rows)))


def attributes(*row):
    return dict(stored([row]).arrow().column("attributes")[0].as_py())


def test_headers_are_attributes_where_these_can_hold_them():
    found = attributes(1, b"k", b"v", (("a", b"1"), ("b", "é".encode())))
    assert found == {"a": "1", "b": "é"}


def test_other_headers_are_kept_beside_those_that_can_be_read():
    found = attributes(1, b"k", b"v", (("a", b"1"), ("a", b"2"), ("b", b"\xff")))
    assert found["a"] == "2"
    assert found[HEADERS] == '[["a","MQ=="],["a","Mg=="],["b","/w=="]]'


def test_a_null_value_is_a_tombstone():
    frame = stored([(1, b"k", None, ())])
    assert frame.arrow().column("payload")[0].as_py() == b""
    assert attributes(1, b"k", None, ()) == {TOMBSTONE: "true"}
    assert decode_messages(stored([(1, b"k", b"", ())]))[0].values == [b""]


@pytest.mark.parametrize(
    "text", ["", "x", "1", "[1]", "[[1,2]]", '[["a","?"]]', "[" * 10_000, '{"a":1}']
)
def test_attributes_that_others_wrote_are_headers(text):
    other = BatchHeader(first_publish_time=0, last_publish_time=0, producer="native")

    native = encode(batch_of([b"v"], attributes=[{"a": "1", HEADERS: text}]), other)
    assert decode_messages(native)[0].headers == [[("a", b"1")]]


def test_times_out_of_range_are_refused():
    with pytest.raises(BadTime):
        stored([(2**60, None, b"v", ())])


PREFIX = prefix_of(1, 2, SchemaType.AVRO, ())


@pytest.mark.parametrize("prefix", [None, PREFIX])
@pytest.mark.parametrize(
    "row",
    [
        lambda number: (5, None, b"v%d" % number, ()),
        lambda number: (number, b"k" if number % 2 else None, b"v%d" % number, ()),
        lambda number: (number, b"k", b"", ()),
        lambda number: (number, b"k", None if number % 2 else b"v", ()),
        lambda number: (number, None, b"v", (("a", b"1"),)),
        lambda number: (-1 - number * 1000, None, b"v", ()),
    ],
    ids=["values", "keys", "empty", "nulls", "headers", "before 1970"],
)
def test_large_batches_have_the_bytes_of_their_records(prefix, row):
    frame = stored([row(number) for number in range(RECORDS_MIN)])
    records, offsets = decode_messages(frame)
    if prefix is not None:
        records = with_prefix(records, prefix)
    expected = encode_batch(records, offsets, leader_epoch=1)
    assert encode_for_clients(frame, prefix) == expected
