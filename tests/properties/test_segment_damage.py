"""Damage to a segment is detected: readers return the original or `CorruptSegment`."""

import errno
from dataclasses import replace

import pyarrow as pa
import pytest
from crc32c import crc32c

from pydanube.model.errors import CorruptSegment
from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.segment_checksums import part_checksums_of
from pydanube.wire.files.segment_format import SegmentIdentity
from pydanube_broker.storage.segments.segments import SegmentReader, encode_segment
from support.fakes.batches import A_TIME, frame_of

IDENTITY = SegmentIdentity(topic="/default/a", topic_id=7, epoch=3)


def frames():
    """Two row groups with dictionaries, nulls and attributes."""
    found, base = [], 1000
    for part in range(2):
        frame = frame_of(
            [b"payload %d" % (part * 4 + at) for at in range(4)],
            keys=[b"even", None, b"even", b"odd"],
            attributes=[{"a": "1"}, {}, {"b": "2"}, {"a": "3"}],
            publish_times=[A_TIME + at for at in range(4)],
        )
        frame.stamp(base, 3)
        found.append(frame)
        base = frame.end
    return found


def encoded():
    return encode_segment(frames(), IDENTITY, row_group_bytes=1)


def entry_of(data, **facts):
    described = {
        "checksum": crc32c(data),
        "part_checksums": part_checksums_of(pa.BufferReader(data)),
    }
    return SegmentEntry(
        base=1000,
        end=1008,
        epoch=3,
        count=8,
        byte_count=data.size,
        object_name="default/a/one.parquet",
        first_publish_time=A_TIME,
        last_publish_time=A_TIME + 3,
        sealed_at=A_TIME,
        **(described | facts),
    )


def read_row_groups(entry, data):
    """Return the rows or the error of each row group, or the error of opening."""
    try:
        reader = SegmentReader(
            entry, lambda: pa.BufferReader(data), frame_bytes=1 << 20
        )
    except CorruptSegment as error:
        return [error]
    found = []
    for index in range(reader.row_group_count):
        try:
            read = reader.read_row_group(index)
            found.append([(each.base, each.check().to_pylist()) for each in read])
        except CorruptSegment as error:
            found.append(error)
    return found


def check(found, truth):
    """Whether *found* has an error; all of it is *truth* or `CorruptSegment`."""
    is_reported = False
    for index, each in enumerate(found):
        if isinstance(each, CorruptSegment):
            is_reported = True
            base, end = each.offsets
            assert "default/a/one.parquet" in str(each)
            assert f"offsets {base} to {end}" in str(each)
            assert each.is_damaged
        else:
            assert each == truth[index]
    assert is_reported or len(found) == len(truth)
    return is_reported


@pytest.mark.parametrize(
    "step",
    [29, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.soak])],
    ids=["some", "all"],
)
def test_every_flipped_byte_of_a_segment_is_found_or_does_not_matter(step):
    data = encoded()
    entry = entry_of(data)
    truth = read_row_groups(entry, data)
    assert not check(truth, truth)
    overlooked = []
    for at in range(0, data.size, step):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        if not check(read_row_groups(entry, damaged), truth):
            overlooked.append(at)
    # The magic number at the beginning, which no reader needs.
    assert overlooked == list(range(0, 4, step))


@pytest.mark.parametrize(
    "step",
    [29, pytest.param(5, marks=[pytest.mark.slow, pytest.mark.soak])],
    ids=["some", "more"],
)
def test_damage_without_checksums_raises_only_corrupt_segment(step):
    data = encoded()
    entry = entry_of(data, checksum=None, part_checksums=None)
    for at in range(0, data.size, step):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        # Page checksums cover the messages, but not the headers and the footer.
        read_row_groups(entry, damaged)


def test_a_truncated_or_longer_segment_is_reported():
    data = encoded()
    entry = entry_of(data)
    for damaged in (bytes(data)[:-1], bytes(data)[: data.size // 2], b""):
        assert check(read_row_groups(entry, damaged), [])
    assert check(read_row_groups(entry, bytes(data) + b"\0"), [])


def test_an_older_copy_of_another_segment_is_reported():
    data = encoded()
    other = encode_segment(frames(), replace(IDENTITY, epoch=2), row_group_bytes=1)
    assert other.size == data.size
    assert check(read_row_groups(entry_of(data), other), [])


def test_a_damaged_row_group_leaves_the_others_readable():
    data = encoded()
    entry = entry_of(data)
    truth = read_row_groups(entry, data)
    reader = SegmentReader(entry, lambda: pa.BufferReader(data), frame_bytes=1)
    chunk = reader._metadata.row_group(1).column(3)
    damaged = bytearray(data)
    damaged[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    first, second = read_row_groups(entry, damaged)
    assert first == truth[0]
    assert second.offsets == (1004, 1008)
    assert "row group 1, offsets 1004 to 1008" in str(second)
    assert "the column payload" in str(second)


@pytest.mark.parametrize(
    ("error", "message", "is_damaged"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file"), "is missing", False),
        (PermissionError(errno.EACCES, "not allowed"), "not allowed", False),
        (OSError(errno.EIO, "I/O error"), "cannot be read: .*I/O error", False),
    ],
)
def test_the_error_says_whether_a_segment_is_missing_or_unreadable(
    error, message, is_damaged
):
    def refuse():
        raise error

    with pytest.raises(CorruptSegment, match=message) as told:
        SegmentReader(entry_of(encoded()), refuse, frame_bytes=1)
    assert told.value.offsets == (1000, 1008)
    assert told.value.is_damaged is is_damaged
