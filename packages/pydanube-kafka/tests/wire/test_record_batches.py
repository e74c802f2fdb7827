"""Record batches are those of Kafka, and hostile bytes do no harm."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.wire.compression import Compression, compress
from pydanube_kafka.wire.record_batches import (
    HEADER_BYTES,
    BadRecords,
    OldFormat,
    RecordBatch,
    Records,
    decode_batches,
    encode_batch,
)

TIMES = st.integers(-(2**40), 2**45)
BYTES = st.none() | st.builds(
    lambda data, times: data * times,
    st.binary(max_size=40),
    st.sampled_from([1, 3, 400]),
)
"""Their lengths are written in one byte, in two and in three."""
GAPS = st.sampled_from([1, 100, 10_000, 10**7])
HEADERS = st.lists(st.tuples(st.text("abcé", max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
CODECS = st.sampled_from(Compression)


def records_of(rows):
    times, keys, values, headers = zip(*rows, strict=True)
    return Records(timestamps=times, keys=keys, values=values, headers=headers)


def rows_of(records):
    headers = map(tuple, records.headers)
    return [
        *zip(records.timestamps, records.keys, records.values, headers, strict=True)
    ]


ONE = encode_batch(records_of([(1000, b"k", b"v", ())]), [0])


@given(RECORDS, CODECS, st.integers(0, 2**40), GAPS)
def test_records_are_read_as_they_were_written(rows, codec, base, gap):
    offsets = [base + number * gap for number in range(len(rows))]
    data = encode_batch(records_of(rows), offsets, codec=codec, producer_id=7)
    (batch,) = decode_batches(data)
    assert rows_of(batch.records()) == rows
    assert (batch.base_offset, batch.count) == (base, len(rows))
    assert batch.last_offset_delta == offsets[-1] - base
    assert (batch.codec, batch.producer_id) == (codec, 7)
    assert batch.max_timestamp == max(row[0] for row in rows)


@given(RECORDS)
def test_another_implementation_reads_the_records(rows):
    aiokafka = pytest.importorskip("aiokafka.record.default_records")
    found = aiokafka.DefaultRecordBatch(
        encode_batch(records_of(rows), range(len(rows)))
    )
    assert found.validate_crc()
    assert [
        (each.timestamp, each.key, each.value, tuple(each.headers)) for each in found
    ] == rows


@given(RECORDS, st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_records_of_another_implementation_are_read(rows, codec):
    aiokafka = pytest.importorskip("aiokafka.record.default_records")
    builder = aiokafka.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for number, (time, key, value, headers) in enumerate(rows):
        builder.append(number, time, key, value, list(headers))
    (batch,) = decode_batches(bytes(builder.build()))
    assert rows_of(batch.records()) == rows


@given(RECORDS, CODECS, st.data())
def test_damaged_bytes_are_refused(rows, codec, data):
    whole = bytearray(encode_batch(records_of(rows), range(len(rows)), codec=codec))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    # The offset and the epoch of the leader are not covered by the checksum.
    if not (at < 8 or 12 <= at < 16):
        with pytest.raises(BadRecords):
            [each.records() for each in decode_batches(bytes(whole))]


@given(st.binary(max_size=200), st.integers(0, 5), CODECS)
def test_arbitrary_bodies_are_read_or_refused(body, count, codec):
    batch = RecordBatch(codec=codec, count=count, body=memoryview(body))
    try:
        records = batch.records()
    except BadRecords:
        return
    assert len(records) == count


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data):
    try:
        [each.records() for each in decode_batches(data)]
    except BadRecords:
        return


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic):
    data = bytearray(ONE)
    data[16] = magic
    with pytest.raises(OldFormat, match=f"format is {magic}"):
        list(decode_batches(bytes(data)))


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_bombs_are_refused_before_they_take_memory(codec):
    body = compress(bytes(100_001), codec)
    batch = RecordBatch(codec=codec, count=1, body=memoryview(body))
    with pytest.raises(BadRecords, match="longer than 100000"):
        batch.records(100_000)


@pytest.mark.parametrize("prefix", [b"", b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\x0f"])
def test_snappy_that_says_that_it_is_longer_than_memory_is_refused(prefix):
    body = prefix + b"\xff\xff\xff\xff\x0f" + b"x" * 10
    batch = RecordBatch(codec=Compression.SNAPPY, count=1, body=memoryview(body))
    with pytest.raises(BadRecords, match="longer than"):
        batch.records()


def test_counts_are_bounded_before_anything_is_decoded():
    data = bytearray(ONE)
    struct.pack_into(">i", data, HEADER_BYTES - 4, 70_000)
    with pytest.raises(BadRecords):
        list(decode_batches(bytes(data)))


def test_snappy_of_java_is_read_in_blocks():
    plain = encode_batch(records_of([(1, None, b"x" * 100, ())] * 3), range(3))
    body = plain[HEADER_BYTES:]
    blocks = [body[:50], body[50:]]
    data = b"\x82SNAPPY\0" + bytes(8)
    for block in blocks:
        compressed = pa.compress(block, codec="snappy", asbytes=True)
        data += struct.pack(">i", len(compressed)) + compressed
    batch = RecordBatch(
        codec=Compression.SNAPPY, count=3, base_timestamp=1, body=memoryview(data)
    )
    assert list(batch.records().values) == [b"x" * 100] * 3


def test_times_of_brokers_replace_those_of_records():
    batch = RecordBatch(
        is_append_time=True,
        max_timestamp=77,
        count=1,
        body=memoryview(ONE)[HEADER_BYTES:],
    )
    assert list(batch.records().timestamps) == [77]
