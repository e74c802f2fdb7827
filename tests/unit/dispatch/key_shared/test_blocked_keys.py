"""BlockedKeys are closed for the keys that must wait, and for no others."""

from __future__ import annotations

import pytest

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.key_shared.blocked_keys import BlockedKeys
from pydanube.dispatch.ready import OFFSET_MAX


@pytest.fixture
def blocked_keys():
    return BlockedKeys()


def opened(blocked_keys, released):
    """The keys of *released* for which nothing has to wait any more."""
    free = [blocked for blocked in released if blocked.deliverable_below == OFFSET_MAX]
    for blocked in free:
        blocked_keys.open(blocked)
    return [blocked.key for blocked in free]


def test_a_key_is_closed_from_the_first_held_message_on(blocked_keys):
    blocked_keys.hold(5, [b"a", b"b", b"b"])
    blocked_keys.hold(20, [b"a"])
    assert blocked_keys.blocked_among([b"a", b"b", b"c"]) == {b"a", b"b"}
    assert blocked_keys[b"a"].deliverable_below == 5
    assert blocked_keys[b"b"].deliverable_below == 6
    assert opened(blocked_keys, blocked_keys.release(0, 6)) == []
    assert blocked_keys[b"a"].deliverable_below == 20
    assert opened(blocked_keys, blocked_keys.release(7, 8)) == []
    assert blocked_keys[b"b"].deliverable_below == 6
    assert opened(blocked_keys, blocked_keys.release(6, 100)) == [b"b", b"a"]
    assert not blocked_keys


def test_every_closing_is_noticed(blocked_keys):
    before = blocked_keys.block_count
    blocked_keys.hold(5, [b"a"])
    assert blocked_keys.block_count > before
    before = blocked_keys.block_count
    blocked_keys.move([b"b"])
    assert blocked_keys.block_count > before


def test_a_part_of_what_is_held_can_be_released(blocked_keys):
    blocked_keys.hold(10, [b"a"] * 10)
    (blocked,) = blocked_keys.release(13, 15)
    assert list(blocked.held) == [(10, 13), (15, 20)]
    (blocked,) = blocked_keys.release(5, 11)
    assert blocked.deliverable_below == 11
    assert (
        blocked_keys.release(0, 10)
        == blocked_keys.release(13, 15)
        == blocked_keys.release(20, 99)
        == []
    )
    assert blocked_keys.release(11, 20) == [blocked]
    assert not blocked.held


def test_only_what_is_done_is_released(blocked_keys):
    cursor = Cursor(3)
    blocked_keys.hold(2, [b"a", b"b", b"c", b"c", b"c"])
    cursor.mark(5, 6)
    assert opened(blocked_keys, blocked_keys.release_done(0, 100, cursor)) == [b"a"]
    assert list(blocked_keys[b"c"].held) == [(4, 5), (6, 7)]
    assert blocked_keys[b"b"].deliverable_below == 3
    cursor.mark(0, 100)
    assert opened(blocked_keys, blocked_keys.release_done(0, 100, cursor)) == [
        b"b",
        b"c",
    ]


def test_a_moving_key_is_closed_until_nothing_of_it_is_in_flight(blocked_keys):
    blocked_keys.move([b"a", b"a", b"b"])
    assert blocked_keys[b"a"].deliverable_below == 0
    assert opened(blocked_keys, blocked_keys.moved([b"a", b"c"])) == []
    assert opened(blocked_keys, blocked_keys.moved([b"a"])) == [b"a"]
    assert opened(blocked_keys, blocked_keys.moved([b"b"])) == [b"b"]


def test_a_key_may_be_moving_and_held(blocked_keys):
    blocked_keys.hold(5, [b"a"])
    blocked_keys.move([b"a"])
    (blocked,) = blocked_keys.moved([b"a"])
    assert blocked.deliverable_below == 5
    blocked_keys.move([b"a", b"b"])
    blocked_keys.reset_draining()
    assert blocked.deliverable_below == 5
    assert len(blocked_keys) == 1
    blocked_keys.clear()
    assert not blocked_keys
    assert blocked_keys.release(0, 100) == []
