"""
The messages between "in hand" and "done": ready, or in flight and perhaps back.

Both halves keep *stretches*, ranges of one batch and one attempt.  A stretch is
not cut when some of its messages are acknowledged: the cursor knows what is done,
and is asked when the stretch is delivered (again).  So an acknowledgement costs no
more than the cursor's mark, and a million of them leave nothing behind here.
What is ready and what is in flight never overlap in messages that are not done.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor

_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Batch:
    """A batch as it came, which no delivery crosses."""

    base: int
    end: int
    byte_count: int

    def charge(self, base: int, end: int) -> int:
        """
        What ``base … end`` of it costs in bytes.

        The charges of the parts add up to the whole, however it is cut.
        """
        if base == self.base and end == self.end:
            return self.byte_count
        count = self.end - self.base
        return (end - self.base) * self.byte_count // count - (
            base - self.base
        ) * self.byte_count // count


@dataclass(slots=True, eq=False)
class Stretch:
    """Messages ``base … end`` of *batch* that are to be delivered alike."""

    base: int
    end: int
    attempt: int
    """The number of their next delivery, 1 for the first."""
    batch: Batch


class Ready:
    """What can be delivered: first what came back, by offset, then what is new."""

    __slots__ = ("_cursor", "_new", "_returned")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._new: deque[Stretch] = deque()
        # A heap.  Stretches are disjoint, so no two have the same base.
        self._returned: list[tuple[int, Stretch]] = []

    def add_new(self, stretch: Stretch) -> None:
        """Append a stretch that lies behind everything that came before."""
        self._new.append(stretch)

    def put_back(self, stretch: Stretch) -> None:
        """Take back a stretch that was taken, or that comes back from a consumer."""
        if stretch.attempt == 1:
            self._new.appendleft(stretch)
        else:
            heappush(self._returned, (stretch.base, stretch))

    def take(self, *, new: bool) -> Stretch | None:
        """
        Remove and return the next stretch, of which nothing is done.

        Without *new*, only what came back counts.
        """
        while self._returned:
            stretch = self._pop_returned()
            if self._cut_to_open(stretch):
                return stretch
        while new and self._new:
            stretch = self._new.popleft()
            if self._cut_to_open(stretch):
                return stretch
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._returned.clear()
        self._new.clear()

    def _pop_returned(self) -> Stretch:
        returned = self._returned
        _, stretch = heappop(returned)
        # What a batch was cut into for several consumers, or by a nack in its
        # middle, becomes one delivery again.
        while returned:
            base, following = returned[0]
            if (
                base != stretch.end
                or following.batch is not stretch.batch
                or following.attempt != stretch.attempt
            ):
                break
            stretch.end = following.end
            heappop(returned)
        return stretch

    def _cut_to_open(self, stretch: Stretch) -> bool:
        """Leave the first part that is not done; what follows it is put back."""
        found = self._cursor.first_open(stretch.base, stretch.end)
        if found is None:
            return False
        base, end = found
        if end < stretch.end:
            rest = Stretch(end, stretch.end, stretch.attempt, stretch.batch)
            self.put_back(rest)
        stretch.base, stretch.end = base, end
        return True


@dataclass(slots=True, eq=False)
class Flight:
    """A stretch that a consumer has."""

    base: int
    end: int
    attempt: int
    batch: Batch
    consumer: int
    deadline: float | None
    open_count: int
    """How many of its messages are not done; 0 only while it is being removed."""


class Flights:
    """
    What consumers have and have not acknowledged, by offset and by deadline.

    Every change costs a binary search.  Removed flights leave their place in the
    sorted lists, which are rebuilt when they are mostly such places; therefore
    removing from the front, where most acknowledgements fall, moves nothing.
    """

    __slots__ = ("_bases", "_cursor", "_deadlines", "_flights", "count")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._flights: dict[int, Flight] = {}
        # Sorted; a superset of the keys of _flights.  No base of a removed flight
        # lies inside a present one, so the flight that holds an offset, if any,
        # is the one at the highest base that is not above it.
        self._bases: list[int] = []
        # A heap; an entry counts if there is still such a flight.
        self._deadlines: list[tuple[float, int]] = []
        self.count = 0
        """How many messages are in flight, without those that are done."""

    def add(self, flight: Flight) -> None:
        """Put *flight* in, which overlaps no other."""
        bases = self._bases
        if not bases or flight.base > bases[-1]:
            bases.append(flight.base)
        else:
            first = bisect_left(bases, flight.base)
            last = bisect_left(bases, flight.end, first)
            bases[first:last] = [flight.base]
        self._flights[flight.base] = flight
        self.count += flight.open_count
        if flight.deadline is not None:
            heappush(self._deadlines, (flight.deadline, flight.base))

    def settle(self, flight: Flight, count: int) -> None:
        """Note that *count* messages of *flight* became done."""
        flight.open_count -= count
        self.count -= count
        assert flight.open_count >= 0
        if not flight.open_count:
            self._remove(flight)

    def find_holder(self, base: int, end: int) -> Flight | None:
        """The flight that holds all of ``base … end``, if one does."""
        at = bisect_right(self._bases, base) - 1
        flight = self._flights.get(self._bases[at]) if at >= 0 else None
        return flight if flight is not None and end <= flight.end else None

    def overlapping(self, base: int, end: int) -> list[Flight]:
        """The flights that hold some of ``base … end``, in order."""
        first = max(0, bisect_right(self._bases, base) - 1)
        last = bisect_left(self._bases, end, first)
        found = map(self._flights.get, self._bases[first:last])
        return [each for each in found if each is not None and base < each.end]

    def withdraw(self, base: int, end: int) -> list[Stretch]:
        """Take ``base … end`` back, splitting the flights at its ends."""
        stretches = []
        for flight in self.overlapping(base, end):
            self.count -= flight.open_count
            self._remove(flight)
            for kept_base, kept_end in ((flight.base, base), (end, flight.end)):
                self._keep(flight, kept_base, kept_end)
            returned = max(base, flight.base), min(end, flight.end)
            if self._cursor.open_count(*returned):
                stretches.append(
                    Stretch(*returned, flight.attempt + 1, flight.batch),
                )
        return stretches

    def withdraw_from(self, consumer: int) -> list[Stretch]:
        """Take everything back that *consumer* has."""
        return self._withdraw_all(
            [each for each in self._flights.values() if each.consumer == consumer]
        )

    def withdraw_expired(self, now: float) -> list[Stretch]:
        """Take everything back whose deadline has come."""
        expired = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            flight = self._flights[heappop(self._deadlines)[1]]
            # Without a deadline, what else the heap says of this flight is stale.
            flight.deadline = None
            expired.append(flight)
        return self._withdraw_all(expired)

    def next_deadline(self) -> float | None:
        """The earliest deadline of all flights, or None."""
        deadlines = self._deadlines
        while deadlines:
            deadline, base = deadlines[0]
            flight = self._flights.get(base)
            if flight is not None and flight.deadline == deadline:
                return deadline
            heappop(deadlines)
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._flights.clear()
        self._bases.clear()
        self._deadlines.clear()
        self.count = 0

    def _withdraw_all(self, flights: list[Flight]) -> list[Stretch]:
        for flight in flights:
            self.count -= flight.open_count
            self._remove(flight)
        return [
            Stretch(each.base, each.end, each.attempt + 1, each.batch)
            for each in flights
        ]

    def _keep(self, flight: Flight, base: int, end: int) -> None:
        """Put ``base … end`` of *flight*, which was removed, in again."""
        base, end = max(base, flight.base), min(end, flight.end)
        open_count = self._cursor.open_count(base, end)
        if open_count:
            self.add(
                Flight(
                    base,
                    end,
                    flight.attempt,
                    flight.batch,
                    flight.consumer,
                    flight.deadline,
                    open_count,
                )
            )

    def _remove(self, flight: Flight) -> None:
        flights = self._flights
        del flights[flight.base]
        if len(self._bases) > 2 * len(flights) + _STALE_MAX:
            self._bases = [base for base in self._bases if base in flights]
        if len(self._deadlines) > 2 * len(flights) + _STALE_MAX:
            self._deadlines = [
                (each.deadline, each.base)
                for each in flights.values()
                if each.deadline is not None
            ]
            heapify(self._deadlines)
