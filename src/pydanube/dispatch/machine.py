"""
What every subscription does, whatever its type.

A machine is told what happened and answers with what is to be done.  Every offset
from the cursor on is in one of four states:

    not in hand → ready → in flight → done
                    ↑         │
                    └─────────┘ nack, ack timeout, or the consumer left

An acknowledgement makes an offset done wherever it is: a late one, for a message
that timed out and waits for its next delivery, still spares that delivery.

Types differ only in who gets the next messages, and how many of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pydanube.dispatch.effects import Deliver, Effect, SaveCursor
from pydanube.dispatch.flow import Credit
from pydanube.dispatch.retry import Batch, Flight, Flights, Ready, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.dispatch.cursor import Cursor
    from pydanube.model.ranges import Range

DONE_RANGES_MAX = 100_000


class SubscriptionMachine(ABC):
    """
    One subscription: facts in, effects out.

    Ordering: What is delivered again comes before what is new, each in the order
    of offsets.  A delivery never spans two batches.

    Bounds: Memory grows with the batches in hand and the done ranges.  New messages
    are read ahead only as far as credit reaches.  While the cursor has
    *done_ranges_max* done ranges and something is in flight, nothing new is asked
    for or delivered; so there are never more ranges than these and one for each
    message that was then in flight.

    Offsets in acks and nacks come from clients: what is not in hand is ignored, but
    for acks where the shell says how far the topic goes.
    """

    def __init__(
        self,
        cursor: Cursor,
        *,
        ack_timeout_s: float | None = None,
        done_ranges_max: int = DONE_RANGES_MAX,
    ) -> None:
        """Go on from *cursor*, which the machine keeps and moves."""
        assert ack_timeout_s is None or ack_timeout_s > 0
        assert done_ranges_max > 0
        self._cursor = cursor
        self._ack_timeout_s = ack_timeout_s
        self._done_ranges_max = done_ranges_max
        # In the order in which they came.
        self._credits: dict[int, Credit] = {}
        self._ready = Ready(cursor)
        self._flights = Flights(cursor)
        self._next_offset = cursor.offset
        # Messages below _next_offset that are not done: ready or in flight.
        self._in_hand = 0

    # What happened.

    def on_consumer_came(self, consumer: int, now: float) -> list[Effect]:
        """
        A consumer is there; it gets nothing before it gives credit.

        Raises:
            ConsumerBusy: The subscription takes no further consumer.
        """
        assert consumer not in self._credits
        self._credits[consumer] = Credit()
        return []

    def on_consumer_gone(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; what it had is delivered to others."""
        del self._credits[consumer]
        self._put_back(self._flights.withdraw_from(consumer))
        return self._deliver(now)

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """
        A consumer began anew in its old place.

        It has nothing any more of what it had, and no credit.
        """
        credit = self._credits[consumer]
        credit.add(-credit.messages, -credit.byte_count)
        self._on_credit_added(consumer)
        self._put_back(self._flights.withdraw_from(consumer))
        return self._deliver(now)

    def set_ack_timeout(self, ack_timeout_s: float | None) -> None:
        """What is delivered from now on must be done within this time."""
        assert ack_timeout_s is None or ack_timeout_s > 0
        self._ack_timeout_s = ack_timeout_s

    def on_credit(
        self, consumer: int, messages: int, byte_count: int, now: float
    ) -> list[Effect]:
        """
        A consumer asks for so much more.

        A negative *byte_count* takes credit away, for a shell that sent more than
        ``Deliver.byte_count`` said.
        """
        self._credits[consumer].add(messages, byte_count)
        self._on_credit_added(consumer)
        return self._deliver(now)

    def on_available(
        self, base: int, end: int, byte_count: int, now: float
    ) -> list[Effect]:
        """
        The batch ``base … end``, of *byte_count* bytes, can be delivered.

        It holds ``next_offset``, or is known already and ignored; what lies before
        ``next_offset`` in it is ignored too.
        """
        start = self._next_offset
        assert base <= start, f"messages {start} to {base} were left out"
        if end <= start:
            return []
        if self._cursor.done:
            self._in_hand += self._cursor.open_count(start, end)
            self._next_offset = self._cursor.skip_done(end)
        else:
            self._in_hand += end - start
            self._next_offset = end
        self._ready.add_new(Stretch(start, end, 1, Batch(base, end, byte_count)))
        return self._deliver(now)

    def on_ack(
        self, ranges: Iterable[Range], now: float, end_offset: int | None = None
    ) -> list[Effect]:
        """
        These messages are done, whoever says so and wherever they are.

        With *end_offset*, where the topic ends, also those that are not in hand
        yet: a consumer that outlived the broker knows what it has done.
        """
        count = ahead = 0
        for base, end in ranges:
            count += self._mark(base, end)
            if end_offset is not None and end > self._next_offset:
                ahead += self._mark_ahead(base, min(end, end_offset))
        return self._on_done(count, now, ahead)

    def on_ack_through(self, end: int, now: float) -> list[Effect]:
        """All messages below *end* are done."""
        return self._on_done(self._mark(self._cursor.offset, end), now)

    def on_nack(self, ranges: Iterable[Range], now: float) -> list[Effect]:
        """Those of these messages that are in flight are to be delivered again."""
        for base, end in ranges:
            if base < end:
                self._put_back(self._flights.withdraw(base, end))
        return self._deliver(now)

    def on_time(self, now: float) -> list[Effect]:
        """It is *now*: what was not acknowledged in time is delivered again."""
        self._put_back(self._flights.withdraw_expired(now))
        return self._deliver(now)

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """
        Go on at *offset*, as if everything before it were done and nothing else.

        Consumers and their credit stay.  Acks for what was delivered before count
        as soon as the message is in hand again.
        """
        has_moved = self._cursor.seek(offset)
        self._flights.clear()
        self._ready.clear()
        self._in_hand = 0
        self._next_offset = offset
        return [SaveCursor()] if has_moved else []

    # What is known.

    @property
    def cursor(self) -> Cursor:
        """What is done; to be read only."""
        return self._cursor

    @property
    def next_offset(self) -> int:
        """The offset that the next batch must hold."""
        return self._next_offset

    @property
    def in_flight_count(self) -> int:
        """How many messages consumers have and have not acknowledged."""
        return self._flights.count

    @property
    def ready_count(self) -> int:
        """How many messages in hand wait for a consumer with credit."""
        return self._in_hand - self._flights.count

    @property
    def consumers(self) -> tuple[int, ...]:
        """Who is there, in the order in which they came."""
        return tuple(self._credits)

    def credit_of(self, consumer: int) -> tuple[int, int]:
        """How many messages and bytes *consumer* may still be given."""
        credit = self._credits[consumer]
        return credit.messages, credit.byte_count

    def wanted(self) -> int:
        """How many messages beyond those in hand could be delivered at once."""
        if self._is_full() and self._in_hand:
            return 0
        return max(0, self._credit_messages() - self.ready_count)

    def backlog(self, end_offset: int) -> int:
        """How many messages of a topic that ends at *end_offset* are not done."""
        return self._cursor.backlog(end_offset)

    def next_deadline(self) -> float | None:
        """When on_time() must be called, or None if nothing can expire."""
        return self._flights.next_deadline()

    # Who gets the next messages.

    @abstractmethod
    def _find_next(self) -> int | None:
        """The consumer with credit whose turn it is, or None."""

    @abstractmethod
    def _share_of(self, count: int) -> int:
        """How many of the next *count* messages go to one consumer at a time."""

    @abstractmethod
    def _credit_messages(self) -> int:
        """How many messages may be delivered now, to all consumers together."""

    @abstractmethod
    def _on_credit_added(self, consumer: int) -> None:
        """The credit of *consumer* was changed by itself."""

    @abstractmethod
    def _on_served(self, consumer: int) -> None:
        """The consumer whose turn it was has spent some of its credit."""

    # What all types have in common.

    def _deliver(self, now: float) -> list[Effect]:
        """Deliver what is ready, as far as credit reaches."""
        effects: list[Effect] = []
        while self._in_hand > self._flights.count and self._find_next() is not None:
            # What is in flight or came back may close gaps; new messages beyond
            # it would only add to the done ranges.
            has_room = not (self._flights.count and self._is_full())
            stretch = self._ready.take(new=has_room)
            if stretch is None:
                break
            self._deliver_stretch(stretch, now, effects)
        if self._in_hand == self._flights.count:
            # Whatever is left in there was done while it waited.
            self._ready.clear()
        return effects

    def _deliver_stretch(
        self, stretch: Stretch, now: float, effects: list[Effect]
    ) -> None:
        base, end = stretch.base, stretch.end
        attempt, batch = stretch.attempt, stretch.batch
        deadline = None if self._ack_timeout_s is None else now + self._ack_timeout_s
        share = self._share_of(end - base)
        while base < end:
            consumer = self._find_next()
            if consumer is None:
                stretch.base = base
                self._ready.put_back(stretch)
                return
            credit = self._credits[consumer]
            count = min(share, end - base, credit.messages)
            byte_count = batch.charge(base, base + count)
            credit.spend(count, byte_count)
            self._on_served(consumer)
            self._flights.add(
                Flight(base, base + count, attempt, batch, consumer, deadline, count)
            )
            effects.append(Deliver(consumer, base, base + count, attempt, byte_count))
            base += count

    def _mark(self, base: int, end: int) -> int:
        """Mark what is in hand of ``base … end``; return how many became done."""
        cursor, flights = self._cursor, self._flights
        base, end = max(base, cursor.offset), min(end, self._next_offset)
        if base >= end:
            return 0
        flight = flights.find_holder(base, end)
        if flight is not None:
            count = cursor.mark(base, end)
            flights.settle(flight, count)
            return count
        total = 0
        for flight in flights.overlapping(base, end):
            count = cursor.mark(max(base, flight.base), min(end, flight.end))
            flights.settle(flight, count)
            total += count
        # And what lies between the flights, which is ready.
        return total + cursor.mark(base, end)

    def _mark_ahead(self, base: int, end: int) -> int:
        """Mark what is not in hand of ``base … end``; return how many became done."""
        base = max(base, self._next_offset)
        if base >= end or self._is_full():
            return 0
        count = self._cursor.mark(base, end)
        self._next_offset = self._cursor.skip_done(self._next_offset)
        return count

    def _on_done(self, count: int, now: float, ahead: int = 0) -> list[Effect]:
        if not count and not ahead:
            return []
        self._in_hand -= count
        # _next_offset is never done, so the cursor cannot pass it.
        assert self._cursor.offset <= self._next_offset
        effects: list[Effect] = [SaveCursor()]
        # Something may be ready for want of room, not of credit.
        effects += self._deliver(now)
        return effects

    def _put_back(self, stretches: list[Stretch]) -> None:
        for stretch in stretches:
            self._ready.put_back(stretch)

    def _is_full(self) -> bool:
        return len(self._cursor.done) >= self._done_ranges_max
