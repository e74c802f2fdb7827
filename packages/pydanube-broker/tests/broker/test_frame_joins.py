"""Joining frames loses no message, offset, key or time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pydanube.model.batch import Column, batch_of
from pydanube.wire.batches import BatchHeader, Codec, encode
from pydanube_broker.broker.pure.frame_joins import JOINED_MESSAGES_MAX, join_frames


def frame_at(base, count=2, *, codec=Codec.NONE, **fields):
    """A frame of *count* messages with keys, from *base* on, published at *base*."""
    numbers = range(base, base + count)
    batch = batch_of([b"%d" % each for each in numbers], keys=[b"k"] * count)
    header = BatchHeader(
        **{
            "base_offset": base,
            "base_sequence": base,
            "first_publish_time": base,
            "last_publish_time": base,
            "producer": "anna",
            **fields,
        }
    )
    return encode(batch, header, codec)


def test_joined_frames_have_all_messages_with_their_times():
    frames = [frame_at(4, 3), frame_at(7, 1, codec=Codec.LZ4), frame_at(8)]
    (joined,) = join_frames(frames, 100)
    assert (joined.base, joined.end, joined.header.base_sequence) == (4, 10, 4)
    assert (joined.header.first_publish_time, joined.header.last_publish_time) == (4, 8)
    rows = joined.check()
    assert rows.column("payload").to_pylist() == [b"%d" % at for at in range(4, 10)]
    times = rows.column("publish_time").cast("int64").to_pylist()
    assert times == [4, 4, 4, 7, 8, 8]
    assert not joined.header.columns & Column.OFFSET


@pytest.mark.parametrize(
    "other",
    [
        {"producer": "ben"},
        {"epoch": 2},
        {"schema_id": 1},
        {"base_sequence": 9},
        {"producer_epoch": 3},
    ],
)
def test_frames_with_other_headers_are_not_joined(other):
    frames = [frame_at(0), frame_at(2, **other)]
    assert list(join_frames(frames, 100)) == frames


def test_frames_with_gaps_are_not_joined():
    frames = [frame_at(0, 4).take([(0, 1), (3, 4)]), frame_at(4), frame_at(7)]
    assert list(join_frames(frames, 100)) == frames


def test_no_more_is_joined_than_is_wanted_or_allowed():
    frames = [frame_at(at) for at in range(0, 10, 2)]
    assert [each.count for each in join_frames(frames, 3)] == [4, 4, 2]
    assert list(join_frames(frames, 0)) == frames
    large = [frame_at(at, 6000) for at in range(0, 24_000, 6000)]
    joined = list(join_frames(large, 10**6))
    assert [each.count for each in joined] == [12_000, 12_000]
    assert all(each.count <= JOINED_MESSAGES_MAX for each in joined)
    assert all(one.end == other.base for one, other in pairwise(joined))
