"""Selections in flight: each delivery has its deadline, also after merging."""

from __future__ import annotations

import pytest

from pydanube_broker.dispatch.key_shared.batch_chunks import (
    BatchChunk,
    BatchChunks,
    Selection,
)
from pydanube_broker.dispatch.key_shared.in_flight import InFlightSelections
from pydanube_broker.dispatch.message_spans import Batch, BatchKeys

ANNA, BEN = 1, 2


@pytest.fixture
def chunk():
    keys = BatchKeys([b"a", b"b"], [at % 2 for at in range(100)])
    return BatchChunk.of_batch(Batch(0, 100, 1000, keys), 0, 0, 100)


@pytest.fixture
def in_flight(chunk):
    chunks = BatchChunks()
    chunks.insert(chunk)
    return InFlightSelections(chunks)


@pytest.fixture
def deliver(chunk, in_flight):
    """Return a function that delivers messages to a consumer."""

    def deliver(consumer, *offsets, time=None, attempt=1):
        selection = Selection(chunk, sum(1 << offset for offset in offsets), attempt)
        chunk.count += len(offsets)
        in_flight.add(selection, consumer, time)
        return selection

    return deliver


def ranges_of(spans):
    return [(each.base, each.end) for each in spans]


def test_messages_of_one_batch_and_consumer_are_one_selection(
    chunk, deliver, in_flight
):
    for offset in range(0, 50, 2):
        deliver(ANNA, offset, time=5.0)
    deliver(BEN, 1)
    deliver(ANNA, 3, attempt=2)
    assert len(chunk.in_flight) == 3
    assert in_flight.count == 27


def test_each_delivery_has_its_own_deadline(deliver, in_flight):
    deliver(ANNA, 1, 2, time=5.0)
    deliver(ANNA, 4, time=7.0)
    deliver(BEN, 6, time=6.0)
    assert in_flight.next_time() == 5.0
    assert in_flight.withdraw_due(4.9) == []
    (due,) = in_flight.withdraw_due(6.0)[:1]
    assert (due.base, due.end, due.consumer, due.attempt) == (1, 3, ANNA, 1)
    assert due.batch.keys_of(1, 3) == (b"b", b"a")
    assert in_flight.next_time() == 7.0
    assert in_flight.count == 1


def test_removed_messages_are_not_due(chunk, deliver, in_flight):
    selection = deliver(ANNA, 1, 2, 3, time=5.0)
    deliver(BEN, 4, time=6.0)
    assert in_flight.remove(selection, 1 << 1 | 1 << 3) == 2
    assert ranges_of(in_flight.withdraw_due(5.0)) == [(2, 3)]
    assert in_flight.next_time() == 6.0
    assert list(chunk.in_flight) != [selection]


def test_withdraw_removes_a_part(deliver, in_flight):
    deliver(ANNA, 1, 2, 5, time=5.0)
    deliver(BEN, 3, 4)
    assert ranges_of(in_flight.withdraw(2, 4)) == [(2, 3), (3, 4)]
    assert ranges_of(in_flight.withdraw(0, 100)) == [(1, 2), (4, 5), (5, 6)]
    assert in_flight.count == 0
    assert in_flight.next_time() is None


def test_withdraw_from_removes_all_of_a_consumer(chunk, deliver, in_flight):
    deliver(ANNA, 1, 2, time=5.0)
    deliver(BEN, 3, time=6.0)
    deliver(ANNA, 4, attempt=2)
    taken = in_flight.withdraw_from(ANNA)
    assert [(each.bits, each.attempt) for each in taken] == [(0b110, 1), (0b10000, 2)]
    assert [selection.consumer for selection in chunk.in_flight] == [BEN]
    assert in_flight.next_time() == 6.0


def test_limit_times_moves_or_removes_deadlines(deliver, in_flight):
    deliver(ANNA, 1, time=5.0)
    deliver(ANNA, 2)
    deliver(ANNA, 3, time=9.0)
    in_flight.limit_times(7.0)
    assert ranges_of(in_flight.withdraw_due(6.9)) == [(1, 2)]
    in_flight.limit_times(8.0)
    assert in_flight.next_time() == 7.0
    in_flight.limit_times(None)
    assert in_flight.next_time() is None
    in_flight.limit_times(4.0)
    assert ranges_of(in_flight.withdraw_due(4.0)) == [(2, 4)]


def test_extending_moves_earlier_deadlines_of_one_consumer(deliver, in_flight):
    deliver(ANNA, 1, 2, time=5.0)
    deliver(ANNA, 3, time=9.0)
    deliver(ANNA, 4)
    deliver(BEN, 5, time=6.0)
    in_flight.extend([(2, 4), (4, 6)], ANNA, 8.0)
    assert ranges_of(in_flight.withdraw_due(7.9)) == [(1, 2), (5, 6)]
    assert ranges_of(in_flight.withdraw_due(8.0)) == [(2, 3)]
    in_flight.extend([(0, 100)], ANNA, 7.0)
    assert in_flight.next_time() == 9.0


def test_extending_again_and_again_takes_no_memory(deliver, in_flight):
    deliver(BEN, 99, time=1.0)
    selection = deliver(ANNA, 1, 2, 3, time=2.0)
    for number in range(2000):
        in_flight.extend([(1, 2 + number % 2)], ANNA, 3.0 + number)
    assert len(in_flight._timers) < 200
    assert len(selection.timers) <= 3


def test_bits_are_there_while_one_consumer_has_all_of_them(deliver, in_flight):
    selection = deliver(ANNA, 3, 5, 8)
    deliver(BEN, 4)
    assert in_flight.has_bits(3, 0b100101, ANNA, 1)
    assert in_flight.has_bits(5, 0b1001, ANNA, 1)
    assert not in_flight.has_bits(3, 0b11, ANNA, 1)
    assert not in_flight.has_bits(3, 0b101, ANNA, 2)
    in_flight.remove(selection, 1 << 5)
    assert not in_flight.has_bits(3, 0b101, ANNA, 1)


def test_extending_scattered_messages_takes_one_timer(deliver, in_flight):
    selection = deliver(ANNA, *range(0, 40, 2), time=2.0)
    in_flight.extend([(at, at + 1) for at in range(0, 40, 4)], ANNA, 3.0)
    assert [each.time for each in selection.timers] == [2.0, 3.0]


def test_bits_are_extended_as_ranges_are(deliver, in_flight):
    selection = deliver(ANNA, 3, 5, 8, time=5.0)
    deliver(BEN, 4, time=6.0)
    in_flight.extend_bits(4, 0b10011, ANNA, 8.0)
    assert [(each.time, each.bits) for each in selection.timers] == [
        (5.0, 1 << 3),
        (8.0, 1 << 5 | 1 << 8),
    ]
    assert ranges_of(in_flight.withdraw_due(7.9)) == [(3, 4), (4, 5)]


def test_deadlines_of_done_messages_are_removed(deliver, in_flight):
    """This includes deadlines after one that stays for a long time."""
    deliver(BEN, 99, time=1.0)
    for number in range(2000):
        selection = deliver(ANNA, number % 50, time=2.0 + number)
        in_flight.remove(selection, selection.bits)
    assert len(in_flight._timers) < 200
    assert in_flight.next_time() == 1.0
