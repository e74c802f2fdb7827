"""What waits for a consumer leaves in the order of offsets."""

from __future__ import annotations

import random

from pydanube.dispatch.key_shared.batch_chunks import (
    BatchChunk,
    Selection,
    lowest,
    lowest_bits,
    positions,
)
from pydanube.dispatch.key_shared.consumer_queue import ConsumerQueue
from pydanube.dispatch.message_spans import Batch


def share_of(*offsets, chunk=None, attempt=1):
    """A selection of these offsets, of a chunk that begins at 0."""
    chunk = chunk or BatchChunk(Batch(0, 1000, 1000), 0, 0, 1000)
    return Selection(chunk, sum(1 << offset for offset in set(offsets)), attempt)


def drained(queue, count):
    """What leaves *queue*, at most *count* messages at a time."""
    left = []
    while (selection := queue.head()) is not None:
        bits = lowest_bits(queue.leading(selection), count)
        left.append((selection.attempt, positions(bits)))
        taken = queue.take(selection, bits)
        assert taken.bits == bits
    return left


def test_shares_that_lie_between_each_other_leave_in_order():
    queue = ConsumerQueue(1)
    queue.put(share_of(1, 2, 9, 10))
    queue.put(share_of(4, 11, attempt=2))
    queue.put(share_of(3, attempt=3))
    assert queue.count == 7
    assert drained(queue, 100) == [
        (1, [1, 2]),
        (3, [3]),
        (2, [4]),
        (1, [9, 10]),
        (2, [11]),
    ]
    assert queue.count == 0


def test_any_shares_leave_in_order_however_they_are_taken():
    for seed in range(50):
        chance = random.Random(seed)
        queue = ConsumerQueue(1)
        offsets = list(range(200))
        chance.shuffle(offsets)
        while offsets:
            count = chance.randrange(1, 20)
            queue.put(share_of(*offsets[:count]))
            del offsets[:count]
        left = [o for _, each in drained(queue, chance.randrange(1, 9)) for o in each]
        assert left == list(range(200))


def test_what_is_done_meanwhile_does_not_leave():
    queue = ConsumerQueue(1)
    selection, other = share_of(1, 5), share_of(3)
    queue.put(selection)
    queue.put(other)
    selection.bits = 1 << 5
    queue.count -= 1
    assert queue.head() is other
    other.queue = None
    queue.count -= 1
    assert queue.head() is selection
    assert drained(queue, 9) == [(1, [5])]


def test_the_head_can_be_sent_elsewhere():
    queue = ConsumerQueue(1)
    selection, other = share_of(1, 5), share_of(3)
    queue.put(selection)
    queue.put(other)
    queue.pop(selection)
    assert (queue.head(), queue.count, selection.queue) == (other, 1, None)


def test_what_was_delivered_before_is_known():
    queue = ConsumerQueue(1)
    assert queue.returned_below() == 0
    queue.put(share_of(50))
    assert queue.returned_below() == 0
    queue.put(share_of(3, 7, attempt=2))
    assert queue.returned_below() == 8
    assert lowest(queue.head().bits) == 3
