"""Batch frames are decoded as they were encoded, or refused."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pydanube.model.batch import Column, batch_of
from pydanube.model.errors import CorruptBatch
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.model.ranges import RangeSet
from pydanube.wire.batches import HEADER_BYTES, BatchHeader, Codec, decode, encode

pytestmark = pytest.mark.slow

texts = st.text(st.characters(codec="utf-8"), max_size=8)
u31, u32 = st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)
u63, u64 = st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1)
times = st.integers(TIME_MIN, TIME_MAX)
STAMPED = range(4, 16)


def column(values, count):
    return st.none() | st.lists(values, min_size=count, max_size=count)


@st.composite
def batches(draw):
    payloads = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=12))
    count = len(payloads)
    attributes = st.none() | st.dictionaries(texts, texts, max_size=3)
    return batch_of(
        payloads,
        keys=draw(column(st.none() | st.binary(max_size=8), count)),
        attributes=draw(column(attributes, count)),
        publish_times=draw(column(times, count)),
        deliver_at=draw(column(st.none() | times, count)),
        expires_at=draw(column(st.none() | times, count)),
    )


@st.composite
def headers(draw):
    return BatchHeader(
        count=0,
        columns=0,
        base_offset=draw(st.integers(0, 2**63 - 100)),
        epoch=draw(u32),
        producer_id=draw(u64),
        producer_epoch=draw(u32),
        base_sequence=draw(st.integers(0, 2**63 - 100)),
        first_publish_time=draw(times),
        last_publish_time=draw(times),
        schema_id=draw(u63),
        schema_version=draw(u31),
        producer=draw(texts),
    )


@st.composite
def frames(draw):
    return encode(draw(batches()), draw(headers()), draw(st.sampled_from(Codec)))


@given(batches(), headers(), st.sampled_from(Codec))
@settings(deadline=None)
def test_encoded_batch_is_decoded(batch, header, codec):
    frame = encode(batch, header, codec)
    found = decode(bytes(frame.buffer))
    assert found.header == frame.header
    assert found.header.codec is codec
    assert found.check().equals(batch)
    assert found.count == batch.num_rows
    assert found.end == found.base + batch.num_rows
    assert found.byte_count == len(frame.buffer)


@given(frames(), st.data())
@settings(deadline=None)
def test_a_truncated_frame_is_corrupt(frame, data):
    length = data.draw(st.integers(0, frame.byte_count - 1))
    with pytest.raises(CorruptBatch):
        decode(frame.buffer[:length])


@given(frames(), st.binary(min_size=1, max_size=9))
@settings(deadline=None)
def test_frame_with_trailing_bytes_is_corrupt(frame, more):
    with pytest.raises(CorruptBatch):
        decode(bytes(frame.buffer) + more)


@given(frames(), st.data())
@settings(deadline=None, max_examples=3 * settings.default.max_examples)
def test_flipped_bit_is_detected_outside_the_stamp(frame, data):
    at = data.draw(st.integers(0, frame.byte_count - 1))
    flipped = bytearray(frame.buffer)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    if at not in STAMPED:
        with pytest.raises(CorruptBatch):
            decode(flipped).check()
        return
    found = decode(flipped)
    assert found.check().equals(frame.check())
    stamp = frame.header.base_offset, frame.header.epoch
    assert (found.header.base_offset, found.header.epoch) != stamp


@given(frames(), u63, u32)
@settings(deadline=None)
def test_stamp_changes_only_offset_and_epoch(frame, base_offset, epoch):
    before = bytes(frame.buffer)
    frame.stamp(base_offset, epoch)
    found = decode(frame.buffer)
    assert found.header == frame.header
    assert (found.header.base_offset, found.header.epoch) == (base_offset, epoch)
    found.verify_checksum()
    assert bytes(frame.buffer)[16:] == before[16:]


@given(frames(), st.data())
@settings(deadline=None)
def test_slices_are_equal_to_slices(frame, data):
    at = data.draw(st.integers(0, frame.count - 1))
    count = data.draw(st.integers(1, frame.count - at))
    base = frame.base + at
    part = decode(frame.slice(base, base + count).buffer)
    rows = frame.arrow().slice(at, count)
    assert part.check().equals(rows)
    assert (part.base, part.end) == (base, base + count)
    assert part.header.base_sequence == frame.header.base_sequence + at
    assert part.header.producer == frame.header.producer
    if part.header.columns & Column.PUBLISH_TIME:
        own = [moment.value for moment in rows.column("publish_time")]
        assert part.header.first_publish_time == own[0]
        assert part.header.last_publish_time == own[-1]


@given(frames(), st.data())
@settings(deadline=None)
def test_taken_messages_are_equal(frame, data):
    places = data.draw(st.sets(st.integers(0, frame.count - 1), min_size=1))
    ranges = list(RangeSet((frame.base + at, frame.base + at + 1) for at in places))
    part = decode(frame.take(ranges).buffer)
    rows, wanted = part.check(), frame.arrow().take(sorted(places))
    assert all(
        rows.column(name).equals(wanted.column(name)) for name in wanted.schema.names
    )
    offsets = [frame.base + at for at in sorted(places)]
    if part.header.columns & Column.OFFSET:
        assert rows.column("offset").to_pylist() == offsets
    else:
        assert list(range(part.base, part.end)) == offsets


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_corrupt(junk):
    with pytest.raises(CorruptBatch):
        decode(junk).check()


@given(st.binary(min_size=HEADER_BYTES - 4, max_size=HEADER_BYTES + 64))
@settings(deadline=None, max_examples=3 * settings.default.max_examples)
def test_arbitrary_bytes_after_a_valid_version_are_corrupt(junk):
    with pytest.raises(CorruptBatch):
        decode(b"\x01\0\0\0" + junk).check()


@given(frames(), st.data())
@settings(deadline=None, max_examples=5 * settings.default.max_examples)
def test_forged_checksum_raises_only_corrupt_batch(frame, data):
    """A hostile producer can give anything a valid checksum."""
    forged = bytearray(frame.buffer)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(20, len(forged) - 1))
        size = data.draw(st.sampled_from([1, 4]))
        value = data.draw(st.binary(min_size=size, max_size=size))
        forged[at : at + size] = value[: len(forged) - at]
    assume(forged != frame.buffer)
    struct.pack_into("<I", forged, 16, crc32c(memoryview(forged)[20:]))
    try:
        found = decode(forged)
        batch = found.check()
    except CorruptBatch:
        return
    # It is a valid batch, and every use of it works.
    assert batch.num_rows == found.count == len(batch.to_pylist())
    if not found.header.columns & Column.OFFSET:
        found.slice(found.end - 1, found.end).check()
