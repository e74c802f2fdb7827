"""
Subscriptions that ignore the keys of messages.

Exclusive, failover and shared subscriptions differ only in the choice of the next
consumer, and in the number of messages that it receives at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from pydanube.model.ranges import Range
from pydanube_broker.dispatch.effects import Deliver, Effect
from pydanube_broker.dispatch.flow import Credit
from pydanube_broker.dispatch.machine import UNLIMITED, SubscriptionMachine
from pydanube_broker.dispatch.message_spans import Batch, MessageSpan, MessageSpans
from pydanube_broker.dispatch.ready import ReadySpans


class UnkeyedSubscription(SubscriptionMachine):
    """
    Ready messages go, in their order, to the next consumer.

    No messages are reserved for a consumer, so a consumer without credit delays no
    other.
    """

    in_flight: MessageSpans
    _ready: ReadySpans

    def _init_state(self) -> None:
        self._ready = ReadySpans(self.cursor)
        self.in_flight = MessageSpans(self.cursor)
        # The batch of the last delivery.
        self._sent_batch: Batch | None = None

    # Implemented by each type.

    @abstractmethod
    def _find_next_consumer(self) -> int | None:
        """Return the next consumer that has credit, or None."""

    @abstractmethod
    def _count_per_consumer(self, span: MessageSpan) -> int:
        """Return how many messages of *span* go to one consumer at a time."""

    def _on_delivered(self, consumer: int) -> None:
        """Handle a delivery to *consumer*, which spent some of its credit."""

    # Steps.

    def _deliver_ready(self, now: float, effects: list[Effect]) -> None:
        room = self._delivery_limit(now) if self._needs_slow_path else UNLIMITED
        while room > 0 and self.ready_count and self._find_next_consumer() is not None:
            span = self._ready.take(self._first_deliveries_end())
            if span is None:
                break
            room = self._deliver_span(span, room, now, effects)

    def _deliver_span(
        self, span: MessageSpan, room: int, now: float, effects: list[Effect]
    ) -> int:
        """Deliver *span*; return how much of *room* is left."""
        credit: Credit | None = None
        per_consumer, end, attempt = 0, span.end, span.attempt
        while True:
            consumer = self._find_next_consumer()
            if consumer is None or room <= 0:
                self._ready.put_back(span)
                return room
            before, credit = credit, self.consumers[consumer]
            base = span.base
            if before is None or before.priority != credit.priority:
                per_consumer = self._count_per_consumer(span)
            count = min(per_consumer, end - base, credit.allowance, room)
            room -= count
            part_end = base + count
            part = span if part_end == end else span.part(base, part_end)
            byte_count = self._put_in_flight(part, consumer, now)
            self._on_delivered(consumer)
            last = effects[-1] if effects else None
            if (
                isinstance(last, Deliver)
                and last.end == base
                and last.consumer == consumer
                and last.attempt == attempt
                and self._sent_batch is span.batch
            ):
                # Merge neighbours: they differ only in failures or expiry.
                last.end = part_end
                last.byte_count += byte_count
            else:
                self._sent_batch = span.batch
                effects.append(Deliver(consumer, base, part_end, attempt, byte_count))
            if part is span:
                return room
            span.base = part_end

    def _put_in_flight(self, span: MessageSpan, consumer: int, now: float) -> int:
        """
        Note that *consumer* has *span*, of which nothing is done.

        Returns:
            The bytes charged to the consumer.
        """
        count = span.end - span.base
        byte_count = span.batch.charge(span.base, span.end)
        self.consumers[consumer].spend(count, byte_count)
        if self._bucket is not None:
            self._bucket.spend(count)
        span.consumer = consumer
        span.time = None if self.ack_timeout_s is None else now + self.ack_timeout_s
        span.open_count = count
        self.in_flight.add(span)
        self.ready_count -= count
        return byte_count

    def _requeue_in_flight_of(self, consumer: int, now: float) -> list[Effect]:
        self._needs_slow_path = True
        effects: list[Effect] = []
        lost = self.in_flight.withdraw_from(consumer)
        for span in lost:
            self._on_returned(span)
            span.attempt += 1
        self._put_back(lost, now, effects)
        return self._complete(effects, now)

    def _mark_all(self, ranges: Iterable[Range], end_offset: int | None) -> int:
        count = 0
        for base, end in ranges:
            count += self._mark(base, end)
            if end_offset is not None and end > self.next_offset:
                count += self._mark_ahead(base, min(end, end_offset))
        return count

    def _mark(self, base: int, end: int) -> int:
        """Mark tracked messages of ``base … end`` as done; return their number."""
        cursor, in_flight = self.cursor, self.in_flight
        base, end = max(base, cursor.offset), min(end, self.next_offset)
        if base >= end:
            return 0
        span = in_flight.find_containing(base, end)
        if span is not None:
            count = cursor.mark(base, end)
            self._on_done_in_flight(span, count)
            return count
        total = 0
        for span in in_flight.overlapping(base, end):
            count = cursor.mark(max(base, span.base), min(end, span.end))
            self._on_done_in_flight(span, count)
            total += count
        deferred = self.deferred.mark(base, end) if self._needs_slow_path else 0
        # The rest is ready.
        ready = cursor.mark(base, end)
        self.ready_count -= ready
        if deferred or ready:
            self._on_waiting_done(base, end)
        return total + deferred + ready

    def _on_done_in_flight(self, span: MessageSpan, count: int) -> None:
        if not count:
            return
        self.in_flight.mark_done(span, count)
        self._reduce_unacked(span.consumer, count)
