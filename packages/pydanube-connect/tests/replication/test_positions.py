"""Offsets of the source, translated to those of the target."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.replication.pure.positions import (
    POINTS_MAX,
    ReplicationPosition,
    TopicPosition,
    decode_position,
)


def position(begin=0, target_end=0):
    return TopicPosition(
        target="/default/t", topic_id=1, next=begin, target_end=target_end
    )


def test_without_gaps_one_point_is_enough():
    found = position(begin=100, target_end=7)
    found.advance(range(100, 200), 200)
    found.advance(range(200, 300), 300)
    assert len(found.points) == 1
    assert (found.next, found.target_end) == (300, 207)
    assert [found.translate(each) for each in (0, 100, 150, 300, 900)] == [
        *(7, 7, 57, 207, 207)
    ]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=400),
    st.integers(1, 50),
)
def test_translated_offsets_skip_no_message(steps, size):
    offsets = []
    for step in steps:
        offsets.append((offsets[-1] if offsets else 0) + step)
    found = position()
    for first in range(0, len(offsets), size):
        some = offsets[first : first + size]
        found.advance(some, some[-1] + 1)
    assert found.target_end == len(offsets)
    assert len(found.points) <= POINTS_MAX
    for offset in range(offsets[-1] + 2):
        expected = sum(each < offset for each in offsets)
        translated = found.translate(offset)
        assert translated <= expected
        if found.is_exact_at(offset):
            assert translated == expected


def test_positions_are_stored_as_json():
    found = ReplicationPosition(topics={"/default/a": position()})
    found.topics["/default/a"].advance([3, 5], 6)
    stored = msgspec.json.decode(msgspec.json.encode(found))
    assert decode_position(stored) == found
    assert decode_position(None) == ReplicationPosition()
