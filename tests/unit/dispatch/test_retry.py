"""What waits for a consumer, and what a consumer has."""

from __future__ import annotations

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.retry import Batch, Flight, Flights, Ready, Stretch

BATCH = Batch(0, 100, 1000)


def stretch(base, end, attempt=1, batch=BATCH):
    return Stretch(base, end, attempt, batch)


def flight(base, end, deadline=None, consumer=1):
    return Flight(base, end, 1, BATCH, consumer, deadline, end - base)


def drain(ready):
    taken = iter(lambda: ready.take(new=True), None)
    return [(each.base, each.end, each.attempt) for each in taken]


def places(stretches):
    return [(each.base, each.end, each.attempt) for each in stretches]


def test_charges_of_parts_add_up_to_the_whole():
    batch = Batch(10, 17, 100)
    parts = [batch.charge(offset, offset + 1) for offset in range(10, 17)]
    assert sum(parts) == 100
    assert batch.charge(10, 17) == 100
    assert max(parts) - min(parts) <= 1


def test_what_came_back_is_ready_first_by_offset():
    ready = Ready(Cursor(0))
    ready.add_new(stretch(50, 60))
    ready.put_back(stretch(20, 30, attempt=2))
    ready.put_back(stretch(0, 10, attempt=3))
    assert drain(ready) == [(0, 10, 3), (20, 30, 2), (50, 60, 1)]


def test_neighbours_of_one_batch_and_attempt_become_one_again():
    ready = Ready(Cursor(0))
    other = Batch(30, 40, 10)
    for each in (stretch(10, 20, 2), stretch(0, 10, 2), stretch(20, 30, 3)):
        ready.put_back(each)
    ready.put_back(stretch(30, 40, 3, other))
    assert drain(ready) == [(0, 20, 2), (20, 30, 3), (30, 40, 3)]


def test_what_is_done_is_not_ready():
    cursor = Cursor(5)
    ready = Ready(cursor)
    ready.add_new(stretch(0, 20))
    ready.add_new(stretch(20, 30))
    cursor.mark(7, 9)
    cursor.mark(18, 30)
    assert drain(ready) == [(5, 7, 1), (9, 18, 1)]


def test_without_room_only_what_came_back_is_taken():
    ready = Ready(Cursor(0))
    ready.add_new(stretch(10, 20))
    ready.put_back(stretch(0, 10, attempt=2))
    assert ready.take(new=False).base == 0
    assert ready.take(new=False) is None
    assert ready.take(new=True).base == 10


def test_a_flight_is_found_by_any_of_its_offsets():
    flights = Flights(Cursor(0))
    for base in (20, 0, 10):
        flights.add(flight(base, base + 5))
    assert flights.find_holder(12, 15).base == 10
    assert flights.find_holder(12, 16) is None
    assert flights.find_holder(7, 8) is None
    assert [each.base for each in flights.overlapping(3, 21)] == [0, 10, 20]
    assert flights.overlapping(5, 10) == []
    assert flights.count == 15


def test_a_flight_ends_when_all_of_it_is_done():
    flights = Flights(Cursor(0))
    flights.add(one := flight(0, 10, deadline=5.0))
    flights.settle(one, 4)
    assert (flights.count, flights.next_deadline()) == (6, 5.0)
    flights.settle(one, 6)
    assert (flights.count, flights.next_deadline()) == (0, None)
    assert flights.find_holder(0, 1) is None


def test_withdrawing_from_the_middle_leaves_the_ends_in_flight():
    flights = Flights(Cursor(0))
    flights.add(flight(0, 10, deadline=5.0))
    assert places(flights.withdraw(3, 6)) == [(3, 6, 2)]
    assert flights.count == 7
    assert flights.find_holder(0, 3).deadline == 5.0
    assert flights.find_holder(6, 10).deadline == 5.0
    assert flights.find_holder(3, 4) is None
    assert places(flights.withdraw(0, 100)) == [(0, 3, 2), (6, 10, 2)]


def test_what_is_done_is_not_withdrawn():
    cursor = Cursor(0)
    flights = Flights(cursor)
    flights.add(one := flight(0, 10))
    flights.settle(one, cursor.mark(3, 6))
    assert flights.withdraw(3, 6) == []
    assert flights.count == 7


def test_only_what_has_expired_is_withdrawn():
    flights = Flights(Cursor(0))
    flights.add(flight(0, 10, deadline=5.0))
    flights.add(flight(10, 20, deadline=7.0))
    assert flights.withdraw_expired(4.9) == []
    assert places(flights.withdraw_expired(5.0)) == [(0, 10, 2)]
    assert flights.next_deadline() == 7.0


def test_only_what_a_consumer_has_is_withdrawn_from_it():
    flights = Flights(Cursor(0))
    flights.add(flight(0, 10, consumer=1))
    flights.add(flight(10, 20, consumer=2))
    assert places(flights.withdraw_from(2)) == [(10, 20, 2)]
    assert flights.count == 10


def test_flights_that_ended_do_not_pile_up():
    """One that never ends must not keep the traces of all that came after it."""
    cursor = Cursor(0)
    flights = Flights(cursor)
    flights.add(flight(0, 1, deadline=0.5))
    for base in range(1, 2000):
        flights.add(one := flight(base, base + 1, deadline=float(base)))
        flights.settle(one, cursor.mark(base, base + 1))
    assert len(flights._bases) < 100
    assert len(flights._deadlines) < 100
    assert flights.next_deadline() == 0.5
