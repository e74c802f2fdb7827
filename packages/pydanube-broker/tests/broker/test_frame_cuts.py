"""Cutting a frame into pieces loses no message, offset, key or time."""

from __future__ import annotations

import pytest

from pydanube.model.batch import batch_of
from pydanube.wire.batches import BatchHeader, Codec, encode
from pydanube_broker.broker.pure.frame_cuts import (
    GATHERED_BITS_MAX,
    cut_frame,
    gathered_max,
)

COUNT = 21
BASE = 1000


def frame_of(*, times=False, codec=Codec.NONE, count=COUNT):
    """A frame of messages with keys, some of which have none."""
    numbers = range(count)
    batch = batch_of(
        [b"payload %d" % at for at in numbers],
        keys=[b"key %d" % at if at % 3 else None for at in numbers],
        publish_times=[50 + at for at in numbers] if times else None,
    )
    header = BatchHeader(
        base_offset=BASE,
        base_sequence=70,
        first_publish_time=50,
        last_publish_time=50 + count - 1 if times else 50,
        producer="anna",
        epoch=2,
    )
    return encode(batch, header, codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("times", [False, True])
def test_pieces_of_one_gather_are_those_taken_one_by_one(times, codec):
    frame = frame_of(times=times, codec=codec)
    pieces = [
        (BASE, 0b101),
        (BASE + 1, 0b100101001),
        (BASE + 3, 0b1 | 1 << COUNT - 4),
        # They may overlap: a message may have been delivered to two consumers.
        (BASE + 2, 0b101),
    ]
    cut = cut_frame(frame, pieces)
    for (base, bits), piece in zip(pieces, cut, strict=True):
        offsets = [base + at for at in range(COUNT) if bits >> at & 1]
        expected = frame.take([(each, each + 1) for each in offsets])
        found = piece.encode()
        assert found.check().equals(expected.check())
        assert found.header == expected.header
        assert (found.base, found.end) == (offsets[0], offsets[-1] + 1)


def test_messages_outside_the_frame_cannot_be_cut():
    with pytest.raises(AssertionError):
        cut_frame(frame_of(), [(BASE - 1, 0b101)])
    with pytest.raises(AssertionError):
        cut_frame(frame_of(count=4), [(BASE + 3, 0b100001)])


@pytest.mark.parametrize("count", [1, 9, 4096, 65_536])
def test_a_gather_has_a_bound(count):
    frame = frame_of(count=count)
    most = gathered_max(frame)
    assert 1 <= most <= GATHERED_BITS_MAX // 8
    assert most * count <= GATHERED_BITS_MAX
