"""Keys are blocked while messages failed or drain, and others are not."""

from __future__ import annotations

import pytest

from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.key_shared.blocked_keys import BlockedKeys
from pydanube_broker.dispatch.ready import OFFSET_MAX


@pytest.fixture
def blocked_keys():
    return BlockedKeys()


def opened(blocked_keys, unblocked):
    """Return the keys of *unblocked* that are no longer blocked."""
    free = [blocked for blocked in unblocked if blocked.deliverable_below == OFFSET_MAX]
    for blocked in free:
        blocked_keys.unblock(blocked)
    return [blocked.key for blocked in free]


def test_key_is_blocked_from_the_first_failed_message_on(blocked_keys):
    blocked_keys.add_failed(5, [b"a", b"b", b"b"])
    blocked_keys.add_failed(20, [b"a"])
    assert blocked_keys.blocked_among([b"a", b"b", b"c"]) == {b"a", b"b"}
    assert blocked_keys[b"a"].deliverable_below == 5
    assert blocked_keys[b"b"].deliverable_below == 6
    assert opened(blocked_keys, blocked_keys.remove_failed(0, 6)) == []
    assert blocked_keys[b"a"].deliverable_below == 20
    assert opened(blocked_keys, blocked_keys.remove_failed(7, 8)) == []
    assert blocked_keys[b"b"].deliverable_below == 6
    assert opened(blocked_keys, blocked_keys.remove_failed(6, 100)) == [b"b", b"a"]
    assert not blocked_keys


def test_block_count_counts_every_blocking(blocked_keys):
    before = blocked_keys.block_count
    blocked_keys.add_failed(5, [b"a"])
    assert blocked_keys.block_count > before
    before = blocked_keys.block_count
    blocked_keys.add_draining([b"b"])
    assert blocked_keys.block_count > before


def test_remove_failed_removes_a_part(blocked_keys):
    blocked_keys.add_failed(10, [b"a"] * 10)
    (blocked,) = blocked_keys.remove_failed(13, 15)
    assert list(blocked.failed) == [(10, 13), (15, 20)]
    (blocked,) = blocked_keys.remove_failed(5, 11)
    assert blocked.deliverable_below == 11
    assert (
        blocked_keys.remove_failed(0, 10)
        == blocked_keys.remove_failed(13, 15)
        == blocked_keys.remove_failed(20, 99)
        == []
    )
    assert blocked_keys.remove_failed(11, 20) == [blocked]
    assert not blocked.failed


def test_remove_done_removes_only_done_messages(blocked_keys):
    cursor = Cursor(3)
    blocked_keys.add_failed(2, [b"a", b"b", b"c", b"c", b"c"])
    cursor.mark(5, 6)
    assert opened(blocked_keys, blocked_keys.remove_done(0, 100, cursor)) == [b"a"]
    assert list(blocked_keys[b"c"].failed) == [(4, 5), (6, 7)]
    assert blocked_keys[b"b"].deliverable_below == 3
    cursor.mark(0, 100)
    assert opened(blocked_keys, blocked_keys.remove_done(0, 100, cursor)) == [
        b"b",
        b"c",
    ]


def test_draining_key_is_blocked_until_nothing_of_it_is_in_flight(blocked_keys):
    blocked_keys.add_draining([b"a", b"a", b"b"])
    assert blocked_keys[b"a"].deliverable_below == 0
    assert opened(blocked_keys, blocked_keys.remove_draining([b"a", b"c"])) == []
    assert opened(blocked_keys, blocked_keys.remove_draining([b"a"])) == [b"a"]
    assert opened(blocked_keys, blocked_keys.remove_draining([b"b"])) == [b"b"]


def test_key_may_be_draining_and_failed(blocked_keys):
    blocked_keys.add_failed(5, [b"a"])
    blocked_keys.add_draining([b"a"])
    (blocked,) = blocked_keys.remove_draining([b"a"])
    assert blocked.deliverable_below == 5
    blocked_keys.add_draining([b"a", b"b"])
    blocked_keys.reset_draining()
    assert blocked.deliverable_below == 5
    assert len(blocked_keys) == 1
    blocked_keys.clear()
    assert not blocked_keys
    assert blocked_keys.remove_failed(0, 100) == []
