"""What waits for a consumer leaves in the order of offsets."""

from __future__ import annotations

import random

from pydanube.dispatch.bundles import Bundle, Share, lowest, lowest_bits, positions
from pydanube.dispatch.lanes import Lane
from pydanube.dispatch.stretches import Batch


def share_of(*offsets, bundle=None, attempt=1):
    """A share of these offsets, of a bundle that begins at 0."""
    bundle = bundle or Bundle(Batch(0, 1000, 1000), 0, 0, 1000)
    return Share(bundle, sum(1 << offset for offset in set(offsets)), attempt)


def drained(lane, count):
    """What leaves *lane*, at most *count* messages at a time."""
    left = []
    while (share := lane.head()) is not None:
        bits = lowest_bits(lane.leading(share), count)
        left.append((share.attempt, positions(bits)))
        taken = lane.take(share, bits)
        assert taken.bits == bits
    return left


def test_shares_that_lie_between_each_other_leave_in_order():
    lane = Lane(1)
    lane.put(share_of(1, 2, 9, 10))
    lane.put(share_of(4, 11, attempt=2))
    lane.put(share_of(3, attempt=3))
    assert lane.count == 7
    assert drained(lane, 100) == [
        (1, [1, 2]),
        (3, [3]),
        (2, [4]),
        (1, [9, 10]),
        (2, [11]),
    ]
    assert lane.count == 0


def test_any_shares_leave_in_order_however_they_are_taken():
    for seed in range(50):
        chance = random.Random(seed)
        lane = Lane(1)
        offsets = list(range(200))
        chance.shuffle(offsets)
        while offsets:
            count = chance.randrange(1, 20)
            lane.put(share_of(*offsets[:count]))
            del offsets[:count]
        left = [o for _, each in drained(lane, chance.randrange(1, 9)) for o in each]
        assert left == list(range(200))


def test_what_is_done_meanwhile_does_not_leave():
    lane = Lane(1)
    share, other = share_of(1, 5), share_of(3)
    lane.put(share)
    lane.put(other)
    share.bits = 1 << 5
    lane.count -= 1
    assert lane.head() is other
    other.line = None
    lane.count -= 1
    assert lane.head() is share
    assert drained(lane, 9) == [(1, [5])]


def test_the_head_can_be_sent_elsewhere():
    lane = Lane(1)
    share, other = share_of(1, 5), share_of(3)
    lane.put(share)
    lane.put(other)
    lane.pop(share)
    assert (lane.head(), lane.count, share.line) == (other, 1, None)


def test_what_was_delivered_before_is_known():
    lane = Lane(1)
    assert lane.returned_below() == 0
    lane.put(share_of(50))
    assert lane.returned_below() == 0
    lane.put(share_of(3, 7, attempt=2))
    assert lane.returned_below() == 8
    assert lowest(lane.head().bits) == 3
