"""Messages that wait for a consumer leave in the order of offsets."""

from __future__ import annotations

import random

from pydanube.model.range_blocks import lowest_bit
from pydanube_broker.dispatch.key_shared.batch_chunks import (
    BatchChunk,
    Selection,
    lowest_bits,
    positions,
)
from pydanube_broker.dispatch.key_shared.ready import ConsumerQueue
from pydanube_broker.dispatch.message_spans import Batch


def selection_of(*offsets, chunk=None, attempt=1):
    """Return a selection of *offsets* in a chunk that begins at 0."""
    chunk = chunk or BatchChunk(Batch(0, 1000, 1000), 0, 0, 1000)
    return Selection(chunk, sum(1 << offset for offset in set(offsets)), attempt)


def drained(queue, count):
    """Take everything from *queue*, at most *count* messages at a time."""
    left = []
    while (selection := queue.head()) is not None:
        bits = lowest_bits(queue.leading(selection), count)
        left.append((selection.attempt, positions(bits)))
        taken = queue.take(selection, bits)
        assert taken.bits == bits
    return left


def test_interleaved_selections_leave_in_order():
    queue = ConsumerQueue(1)
    queue.put(selection_of(1, 2, 9, 10))
    queue.put(selection_of(4, 11, attempt=2))
    queue.put(selection_of(3, attempt=3))
    assert queue.count == 7
    assert drained(queue, 100) == [
        (1, [1, 2]),
        (3, [3]),
        (2, [4]),
        (1, [9, 10]),
        (2, [11]),
    ]
    assert queue.count == 0


def test_any_selections_leave_in_order_in_parts_of_any_size():
    for seed in range(50):
        rng = random.Random(seed)
        queue = ConsumerQueue(1)
        offsets = list(range(200))
        rng.shuffle(offsets)
        while offsets:
            count = rng.randrange(1, 20)
            queue.put(selection_of(*offsets[:count]))
            del offsets[:count]
        left = [o for _, each in drained(queue, rng.randrange(1, 9)) for o in each]
        assert left == list(range(200))


def test_done_messages_do_not_leave():
    queue = ConsumerQueue(1)
    selection, other = selection_of(1, 5), selection_of(3)
    queue.put(selection)
    queue.put(other)
    selection.bits = 1 << 5
    queue.count -= 1
    assert queue.head() is other
    other.queue = None
    queue.count -= 1
    assert queue.head() is selection
    assert drained(queue, 9) == [(1, [5])]


def test_head_can_be_removed():
    queue = ConsumerQueue(1)
    selection, other = selection_of(1, 5), selection_of(3)
    queue.put(selection)
    queue.put(other)
    queue.pop(selection)
    assert (queue.head(), queue.count, selection.queue) == (other, 1, None)


def test_returned_below_is_the_end_of_redeliveries():
    queue = ConsumerQueue(1)
    assert queue.returned_below() == 0
    queue.put(selection_of(50))
    assert queue.returned_below() == 0
    queue.put(selection_of(3, 7, attempt=2))
    assert queue.returned_below() == 8
    assert lowest_bit(queue.head().bits) == 3
