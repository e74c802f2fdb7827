"""The bytes of a batch frame, as docs/format/batch.md lays them out."""

from __future__ import annotations

import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from crc32c import crc32c

from pydanube.model.batch import Column, batch_of, schema_of
from pydanube.model.errors import CorruptBatch
from pydanube.model.positions import TIME_MAX
from pydanube.wire.batches import (
    BODY_BYTES_MAX,
    DIRECT_BYTES_MIN,
    BatchFrame,
    BatchHeader,
    Codec,
    decode,
    encode,
)
from support.fakes.arrow_memory import arrow_memory


def header_of(**fields):
    return BatchHeader(
        **{
            "count": 0,
            "columns": 0,
            "first_publish_time": 1,
            "last_publish_time": 2,
            **fields,
        }
    )


def frame_of(*payloads, codec=Codec.NONE, **fields):
    return encode(batch_of(payloads or [b"a", b"b"]), header_of(**fields), codec)


def forged(frame, layout, at, value):
    """The bytes of *frame* with a field replaced and a checksum that matches."""
    buffer = bytearray(frame.buffer)
    struct.pack_into(layout, buffer, at, value)
    struct.pack_into("<I", buffer, 16, crc32c(memoryview(buffer)[20:]))
    return buffer


def test_fields_have_the_documented_positions():
    frame = frame_of(
        b"payload",
        base_offset=7,
        epoch=3,
        producer_epoch=4,
        producer_id=5,
        base_sequence=6,
        first_publish_time=-8,
        last_publish_time=9,
        schema_id=10,
        schema_version=11,
        producer="anna",
    )
    data = bytes(frame.buffer)
    body_length = len(data) - 96
    assert data[:4] == b"\x01\0\0\0"
    assert struct.unpack_from("<IQI", data, 4) == (3, 7, crc32c(data[20:]))
    assert struct.unpack_from("<BBHII", data, 20) == (0, Column.PAYLOAD, 4, 1, 4)
    assert struct.unpack_from("<QQqqQI", data, 32) == (5, 6, -8, 9, 10, 11)
    assert struct.unpack_from("<III", data, 76) == (body_length, body_length, 0)
    assert data[88:96] == b"anna\0\0\0\0"
    assert frame.body_at == 96
    body = pa.ipc.read_record_batch(pa.py_buffer(data[96:]), schema_of(Column.PAYLOAD))
    assert body.column("payload").to_pylist() == [b"payload"]


def test_header_is_taken_from_what_is_encoded():
    header = header_of(count=99, columns=Column.KEY, codec=Codec.ZSTD)
    frame = encode(batch_of([b"a"], keys=[b"k"]), header, Codec.LZ4)
    assert frame.header.count == 1
    assert frame.header.columns == Column.PAYLOAD | Column.KEY
    assert frame.header.codec is Codec.LZ4


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compression_shrinks_a_body_and_loses_nothing(codec):
    plain = frame_of(b"a" * 10_000)
    small = frame_of(b"a" * 10_000, codec=codec)
    assert small.byte_count < plain.byte_count / 10
    assert small.check().equals(plain.check())


@pytest.mark.parametrize("producer", ["", "p", "p" * 2000])
@pytest.mark.parametrize("count", [1, DIRECT_BYTES_MIN // 8, 65_536])
def test_body_is_the_arrow_message_of_the_batch_whatever_its_size(count, producer):
    payloads = [at.to_bytes(8, "little") for at in range(count + 1)]
    # A part of larger columns, of which the frame has only its own.
    batch = batch_of(payloads, publish_times=range(1, count + 2)).slice(1)
    header = header_of(producer=producer, base_offset=7, base_sequence=5)
    frame = encode(batch, header)
    assert bytes(frame.buffer)[frame.body_at :] == batch.serialize().to_pybytes()
    again = decode(bytes(frame.buffer))
    assert again.check().equals(batch)
    assert again.header == frame.header == header
    assert (header.count, header.producer) == (count, producer)
    frame.stamp(9, 4)
    assert decode(frame.buffer).base == 9


def test_an_uncompressed_body_is_not_copied():
    frame = frame_of(b"a" * 1000)
    # The array holds a reference to the frame, so its buffer cannot be resized.
    rows = frame.arrow()
    with pytest.raises(BufferError):
        frame.buffer.append(0)
    assert rows.num_rows == 1


@pytest.mark.parametrize(
    ("layout", "at", "value", "words"),
    [
        ("<B", 0, 2, "version 2"),
        ("<B", 3, 1, "version"),
        ("<B", 20, 3, "codec 3"),
        ("<B", 20, 1, "does not decompress"),
        ("<B", 21, 0, "impossible"),
        ("<B", 21, Column.KEY, "impossible"),
        ("<B", 21, Column.EXPIRES_AT | Column.PAYLOAD, "not an Arrow batch"),
        ("<B", 21, Column.KEY | Column.PAYLOAD, "not an Arrow batch"),
        ("<H", 22, 9, "describes"),
        ("<I", 24, 0, "impossible"),
        ("<I", 24, 3, "counts 3"),
        ("<Q", 40, 2**63 - 2, "out of bounds"),
        ("<q", 48, -(2**63), "between the years"),
        ("<q", 56, TIME_MAX + 1, "between the years"),
        ("<Q", 64, 2**63, "out of bounds"),
        ("<I", 72, 2**31, "out of bounds"),
        ("<I", 76, 1, "describes"),
        ("<I", 80, 1, "two lengths"),
        ("<I", 80, BODY_BYTES_MAX + 1, "out of bounds"),
        ("<I", 84, 2, "version"),
        ("<B", 88, 0xFF, "UTF-8"),
    ],
)
def test_an_impossible_header_is_corrupt(layout, at, value, words):
    buffer = forged(frame_of(producer="anna"), layout, at, value)
    with pytest.raises(CorruptBatch, match=words):
        decode(buffer).check()


def test_checksum_error_names_both_checksums():
    frame = frame_of()
    frame.buffer[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"checksum is 0x.* header says 0x"):
        frame.verify_checksum()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_body_with_a_wrong_decompressed_length_is_corrupt(codec):
    """Otherwise uninitialised memory of the broker would become a message."""
    frame = frame_of(b"a" * 100, codec=codec)
    (length,) = struct.unpack_from("<I", frame.buffer, 80)
    for wrong in (0, length - 1, length + 1, length + 100_000):
        with pytest.raises(CorruptBatch):
            decode(forged(frame, "<I", 80, wrong)).check()


def with_body(frame, body):
    """*frame* with another body, and lengths and checksum that match it."""
    buffer = bytearray(frame.buffer[: frame.body_at]) + body
    struct.pack_into("<II", buffer, 76, len(body), len(body))
    struct.pack_into("<I", buffer, 16, crc32c(memoryview(buffer)[20:]))
    return decode(buffer)


def test_a_message_with_compression_inside_is_corrupt():
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    batch = batch_of([b"a" * 1000, b"b"])
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    body = reader.read_next_message().serialize()
    with pytest.raises(CorruptBatch, match="compressed inside"):
        with_body(frame_of(), bytes(body)).check()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff" * 8, schema_of(Column.PAYLOAD).serialize().to_pybytes()],
    ids=["empty", "end of stream", "schema"],
)
def test_a_body_that_is_no_record_batch_is_corrupt(body):
    with pytest.raises(CorruptBatch):
        with_body(frame_of(), body).check()


def metadata_numbers(body):
    """Return the positions of the 64-bit numbers in an Arrow message's metadata."""
    (length,) = struct.unpack_from("<I", body, 4)
    return range(8, 8 + length, 8)


def test_buffers_that_overlap_are_corrupt():
    frame = encode(batch_of([b"a" * 1000], keys=[b"b" * 1000]), header_of())
    body = bytearray(frame.buffer[frame.body_at :])
    numbers = metadata_numbers(body)

    def places_of(number):
        return [at for at in numbers if struct.unpack_from("<q", body, at) == (number,)]

    # Each buffer is described by its position and length; the last is truncated.
    key, payload = places_of(1000)
    body[payload - 8 : payload] = body[key - 8 : key]
    length = len(body) - numbers.stop
    [at] = places_of(length)
    struct.pack_into("<q", body, at, length - 1000)
    del body[-1000:]
    with pytest.raises(CorruptBatch, match="buffers overlap"):
        with_body(frame, body).check()


@pytest.mark.parametrize("number", [-1, 2**20, 2**31, 2**40, 2**63 - 1])
def test_hostile_arrow_metadata_does_not_allocate_memory(number):
    rows = batch_of(
        [b"payload", b""], keys=[b"k", None], attributes=[{"": "", "a": "b"}, None]
    )
    frame = encode(rows, header_of())
    body = bytes(frame.buffer[frame.body_at :])
    with arrow_memory() as memory:
        for at in metadata_numbers(body):
            forged_body = bytearray(body)
            struct.pack_into("<q", forged_body, at, number)
            with suppress(CorruptBatch):
                with_body(frame, forged_body).check()
    assert memory.peak_bytes < 1 << 20


def test_nulls_in_required_columns_are_corrupt():
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"a", None], pa.binary())],
        schema=pa.schema([pa.field("payload", pa.binary())]),
    )
    with pytest.raises(CorruptBatch, match="payload has nulls"):
        encode(rows, header_of()).check()


def test_publish_time_out_of_range_is_corrupt():
    rows = batch_of([b"a", b"b"], publish_times=[1, TIME_MAX + 1])
    with pytest.raises(CorruptBatch, match="between the years"):
        encode(rows, header_of()).check()


@pytest.mark.parametrize("column", ["deliver_at", "expires_at"])
def test_delivery_or_expiry_time_out_of_range_is_corrupt(column):
    encode(batch_of([b"a"], **{column: [None]}), header_of()).check()
    rows = batch_of([b"a", b"b"], **{column: [None, TIME_MAX + 1]})
    with pytest.raises(CorruptBatch, match="between the years"):
        encode(rows, header_of()).check()


def test_slice_keeps_the_other_header_fields():
    frame = frame_of(b"a", b"b", b"c", b"d", base_offset=10, base_sequence=50, epoch=2)
    part = frame.slice(11, 13)
    assert isinstance(part, BatchFrame)
    assert part.check().column("payload").to_pylist() == [b"b", b"c"]
    assert (part.base, part.end, part.count) == (11, 13, 2)
    assert (part.header.base_sequence, part.header.epoch) == (51, 2)
    assert (frame.base, frame.end) == (10, 14)


def test_a_slice_has_the_times_of_its_own_messages():
    rows = batch_of([b"a", b"b", b"c"], publish_times=[5, 6, 7])
    part = encode(rows, header_of()).slice(1, 3)
    assert part.header.first_publish_time == 6
    assert part.header.last_publish_time == 7


def test_a_slice_outside_the_frame_is_our_bug():
    frame = frame_of(b"a", b"b", base_offset=10)
    for base, end in [(9, 11), (11, 13), (11, 11)]:
        with pytest.raises(AssertionError):
            frame.slice(base, end)


def various():
    return encode(
        batch_of(
            [b"a", b"b", b"c", b"d", b"e"],
            keys=[b"1", None, b"2", b"1", b""],
            attributes=[{"x": "1"}, None, {}, {"y": ""}, None],
            publish_times=[5, 6, 7, 8, 9],
            deliver_at=[None, 20, None, None, 21],
        ),
        header_of(base_offset=10, base_sequence=50, epoch=2, producer="anna"),
        Codec.LZ4,
    )


def test_messages_with_gaps_between_them_are_a_batch_with_their_offsets():
    frame = various()
    part = decode(frame.take([(10, 11), (12, 14)]).buffer)
    rows = part.check()
    assert rows.column("offset").to_pylist() == [10, 12, 13]
    assert rows.schema == schema_of(frame.header.columns | Column.OFFSET)
    wanted = frame.arrow().take([0, 2, 3])
    assert all(
        rows.column(name).equals(wanted.column(name)) for name in wanted.schema.names
    )
    header = part.header
    assert (header.base_offset, header.count, header.base_sequence) == (10, 3, 50)
    assert (header.first_publish_time, header.last_publish_time) == (5, 8)
    assert (header.producer, header.epoch) == ("anna", 2)


def test_plain_batch_differs_only_in_compression():
    frame = various()
    plain = decode(frame.plain().buffer)
    assert plain.header.codec is Codec.NONE
    assert plain.check().equals(frame.check())
    assert (plain.base, plain.header.epoch, plain.header.producer) == (10, 2, "anna")
    assert frame.header.codec is Codec.LZ4
    assert plain.plain() is plain


def test_opened_frame_decodes_its_messages_once():
    frame = various()
    opened = frame.opened()
    assert opened.arrow() is opened.arrow()
    assert opened.opened() is opened
    assert opened.header.codec is Codec.NONE
    assert opened.check().equals(frame.check())
    ranges = [(11, 12), (13, 14)]
    assert opened.take(ranges).check().equals(frame.take(ranges).check())
    # The frame itself keeps nothing, also if it has no compression.
    plain = frame.plain()
    plain.opened()
    assert plain.arrow() is not plain.arrow()


def test_messages_without_a_gap_need_no_offsets():
    frame = various()
    assert frame.take([(10, 15)]) is frame
    assert frame.take([(10, 12), (12, 15)]) is frame
    part = frame.take([(11, 12), (12, 13)])
    assert (part.base, part.end) == (11, 13)
    assert not part.header.columns & Column.OFFSET


def test_taking_offsets_outside_the_frame_fails():
    frame = various()
    for ranges in ([(9, 10), (12, 13)], [(10, 11), (14, 16)]):
        with pytest.raises(AssertionError):
            frame.take(ranges)
