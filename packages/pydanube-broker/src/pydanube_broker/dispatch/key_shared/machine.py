"""
A key-shared subscription: all messages of one key go to one consumer, in order.

A hash ring of the consumers that accept a key determines its owner; see key_owners.py.
Ready messages wait in the queue of their consumer, by offset, so a slow consumer or one
without credit delays only its own keys.  A key is blocked while a failed message of
it is not done, or while it moves to another consumer; see blocked_keys.py.  Other keys
take no memory of their own: they are in the chunks of their batches; see
batch_chunks.py.

    batch → chunk ─ selection ─ selection ─ …
                      │            └→ blocked key → queue
                      └→ queue of a consumer → in flight → (done)
                                                  └→ deferred, and back
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from pydanube.model.range_blocks import lowest_bit
from pydanube.model.ranges import Range
from pydanube_broker.dispatch.effects import Deliver, Effect
from pydanube_broker.dispatch.flow import Allowances, Credit
from pydanube_broker.dispatch.key_shared.batch_chunks import (
    BatchChunk,
    BatchChunks,
    BatchSlice,
    Selection,
    bits_below,
    lowest_bits,
    moved_bits,
)
from pydanube_broker.dispatch.key_shared.in_flight import InFlightSelections
from pydanube_broker.dispatch.key_shared.key_filters import KeyFilters
from pydanube_broker.dispatch.key_shared.key_owners import KeyOwners
from pydanube_broker.dispatch.key_shared.ready import ConsumerQueue, ReadySelections
from pydanube_broker.dispatch.machine import UNLIMITED, SubscriptionMachine
from pydanube_broker.dispatch.message_spans import Batch, MessageSpan
from pydanube_broker.dispatch.ready import OFFSET_MAX

WAITING_MESSAGES_MAX = 50_000
"""About 5 MB if they came in large batches, 60 MB if each came in its own batch."""


class KeySharedSubscription(SubscriptionMachine):
    """
    Each key belongs to one of the consumers that accept it.

    Ordering: The messages of one key are delivered in the order of offsets, also while
    consumers join and leave: a key moves to another consumer only when none of its
    messages is in flight with the former one.  After a failure no later message of the
    key is delivered until the failed one is delivered again or is done, which includes
    the time while it waits, blocks, or is on its way to a dead-letter topic.  Other
    keys are not affected.  Delayed messages block nothing.

    Bounds: Messages wait if their consumer has no credit, their key is blocked, or no
    consumer accepts their key.  While *waiting_messages_max* messages wait, ``demand``
    is 0.
    """

    needs_keys = True
    waiting_messages_max = WAITING_MESSAGES_MAX

    in_flight: InFlightSelections
    _ready: ReadySelections

    def _init_state(self) -> None:
        self._chunks = BatchChunks()
        self._owners = KeyOwners()
        self._ready = ReadySelections(self.cursor, self._chunks, self._owners)
        self.in_flight = InFlightSelections(self._chunks)
        # The consumers that have credit.
        self._with_credit: dict[int, Credit] = {}
        self._allowances = Allowances()
        # Whether a consumer joined or left since the messages were last routed.
        self._needs_reassignment = False

    # Events.

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """Remove a consumer; its keys go to others."""
        self._owners.remove(consumer)
        self._ready.remove_consumer(consumer)
        self._with_credit.pop(consumer, None)
        self._allowances.remove(self.consumers[consumer])
        self._needs_reassignment = True
        return super().on_consumer_left(consumer, now)

    def on_ack_bits(
        self, base: int, bits: int, now: float, end_offset: int | None = None
    ) -> list[Effect]:
        """Mark messages as done; see the base class."""
        end = base + bits.bit_length()
        if self._has_deferred() or end > self.next_offset:
            return super().on_ack_bits(base, bits, now, end_offset)
        count = 0
        for chunk in self._chunks.overlapping(base, end):
            count += self._mark_chunk(chunk, moved_bits(bits, base - chunk.origin))
        return self._complete([], now, has_cursor_moved=count > 0)

    def on_sent_late(self, delivery: Deliver, now: float) -> list[Effect]:
        """Let the ack timeout of *delivery* begin now; see the base class."""
        if not delivery.bits:
            return super().on_sent_late(delivery, now)
        if self.ack_timeout_s is not None:
            self.in_flight.extend_bits(
                delivery.base,
                delivery.bits,
                delivery.consumer,
                now + self.ack_timeout_s,
            )
        return self._complete([], now) if self._needs_slow_path else []

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """Move to *offset*; see the base class."""
        self._ready.blocked_keys.clear()
        self._chunks.clear()
        return super().on_seek(offset, now)

    # State.

    def demand(self) -> int:
        """Return how many more messages could be delivered at once."""
        if self.ready_count - self._deliverable_count() >= self.waiting_messages_max:
            return 0
        return super().demand()

    def awaits_credit(self, count: int) -> bool:
        """
        See the base class: a consumer has less credit than its share of *count*.

        With limits, credit does not decide.
        """
        share = -(-count // max(1, len(self.consumers)))
        return not self._needs_slow_path and any(
            credit.unacked_max is None and credit.is_low(share)
            for credit in self.consumers.values()
        )

    def stop_awaiting_credit(self) -> None:
        """See the base class."""
        for credit in self.consumers.values():
            if credit.messages * 2 < credit.most:
                credit.most = credit.messages

    # Steps.

    def _admit(
        self, consumer: int, priority: int, key_filters: Sequence[str], name: str
    ) -> list[Effect]:
        self._owners.add(consumer, priority, KeyFilters(key_filters), name)
        self._ready.add_consumer(consumer)
        self._needs_reassignment = True
        return []

    def _credit_messages(self) -> int:
        return self._allowances.total(self._owners.priority_max)

    def _deliverable_count(self) -> int:
        with_credit = self._with_credit
        return sum(
            queue.count
            for queue in self._ready.non_empty
            if queue.consumer in with_credit
        )

    def _is_new_blocked(self) -> bool:
        return False

    def _on_credit_changed(self, consumer: int) -> None:
        credit = self.consumers[consumer]
        self._allowances.update(credit)
        if credit:
            self._with_credit[consumer] = credit
        else:
            self._with_credit.pop(consumer, None)

    def _on_waiting_done(self, base: int, end: int) -> None:
        self._ready.remove_done(base, end)

    def _requeue_in_flight_of(self, consumer: int, now: float) -> list[Effect]:
        self._needs_slow_path = self._needs_reassignment = True
        effects: list[Effect] = []
        expiring: list[tuple[Selection, list[MessageSpan]]] = []
        for selection in self.in_flight.withdraw_from(consumer):
            chunk = selection.chunk
            self._reduce_unacked(consumer, selection.bits.bit_count())
            selection.attempt += 1
            if chunk.has_expiring:
                expiring.append((selection, chunk.spans(selection, selection.bits)))
            else:
                self.ready_count += selection.bits.bit_count()
                self._ready.put_back_selection(selection)
        # A chunk that shrinks drops the keys of messages that it has no more.
        for selection, spans in expiring:
            self._chunks.shrink(selection.chunk, selection.bits.bit_count())
            self._put_back(spans, now, effects)
        return self._complete(effects, now)

    def _accept_in_window(
        self, span: MessageSpan, due: float | None, now: float, effects: list[Effect]
    ) -> None:
        is_over = span.expires is not None and span.expires <= now
        if is_over or span.failures or (due is not None and due > now):
            # The span may stay for long; the keys of its whole batch must not.
            span.batch = _slice(span)
        super()._accept_in_window(span, due, now, effects)
        if span.failures and self.deferred.has(span.base):
            self._ready.add_failed(span)

    def _fail(
        self,
        spans: list[MessageSpan],
        reason: str,
        requested_s: float,
        now: float,
        effects: list[Effect],
    ) -> None:
        super()._fail(spans, reason, requested_s, now, effects)
        for span in spans:
            if self.deferred.has(span.base):
                self._ready.add_failed(span)

    def _on_held(self, span: MessageSpan) -> None:
        # Messages behind it wait, because it may be delivered again.
        self._ready.add_failed(span)

    def _on_returned(self, span: MessageSpan) -> None:
        super()._on_returned(span)
        if self._ready.blocked_keys:
            assert isinstance(span.batch, BatchSlice)
            self._ready.on_drained(span.batch.keys_of(span.base, span.end))

    # Deliveries.

    def _deliver_ready(self, now: float, effects: list[Effect]) -> None:
        ready, with_credit = self._ready, self._with_credit
        if self._needs_reassignment:
            self._needs_reassignment = False
            ready.reassign()
        ready.route()
        heads: list[tuple[int, int, ConsumerQueue]] = []
        for queue in list(ready.non_empty):
            if queue.consumer in with_credit:
                selection = ready.head(queue)
                if selection is not None:
                    heads.append((selection.first, queue.consumer, queue))
        if not heads:
            return
        heapify(heads)
        room = self._delivery_limit(now) if self._needs_slow_path else UNLIMITED
        builder = DeliveryBuilder(effects)
        while heads and room > 0:
            queue = heads[0][2]
            # If there is not room for all messages, divide it among the consumers.
            part = room if room >= self.ready_count else -(-room // len(heads))
            count = self._deliver_head(queue, part, now, builder)
            room -= count
            selection = None
            if count and queue.consumer in with_credit:
                selection = ready.head(queue)
            if selection is None:
                heappop(heads)
            else:
                heapreplace(heads, (selection.first, queue.consumer, queue))
        builder.finish()

    def _deliver_head(
        self, queue: ConsumerQueue, room: int, now: float, builder: DeliveryBuilder
    ) -> int:
        """Deliver the first selection in *queue*; return the number of messages."""
        selection = queue.head()
        assert selection is not None
        chunk, consumer = selection.chunk, queue.consumer
        credit = self.consumers[consumer]
        bits = queue.leading(selection)
        if (
            selection.attempt == 1
            and (first_deliveries_end := self._first_deliveries_end()) < OFFSET_MAX
        ):
            # Redeliveries may go, and so may messages before them.
            first_deliveries_end = max(first_deliveries_end, queue.returned_below())
            bits = bits_below(bits, first_deliveries_end - chunk.origin)
        bits = lowest_bits(bits, min(credit.allowance, room))
        if not bits:
            return 0
        count = bits.bit_count()
        byte_count = chunk.charge(count)
        credit.spend(count, byte_count)
        self._allowances.update(credit)
        if not credit:
            del self._with_credit[consumer]
        if self._bucket is not None:
            self._bucket.spend(count)
        self.ready_count -= count
        builder.add(consumer, chunk, bits, selection.attempt, byte_count)
        taken = self._ready.take(queue, selection, bits)
        timeout_s = self.ack_timeout_s
        self.in_flight.add(
            taken, consumer, None if timeout_s is None else now + timeout_s
        )
        return count

    # Acknowledgements.

    def _mark_all(self, ranges: Iterable[Range], end_offset: int | None) -> int:
        ranges = list(ranges)
        count = 0
        if self._has_deferred():
            for base, end in ranges:
                deferred = self.deferred.mark(base, end)
                if deferred:
                    count += deferred
                    self._on_waiting_done(base, end)
        for chunk, bits in self._chunks.bits_of(ranges):
            count += self._mark_chunk(chunk, bits)
        if end_offset is not None:
            for base, end in ranges:
                if end > self.next_offset:
                    count += self._mark_ahead(base, min(end, end_offset))
        return count

    def _mark_chunk(self, chunk: BatchChunk, bits: int) -> int:
        """Mark *bits*, as far as ready or in flight, as done; return their number."""
        done = 0
        for selection in [each for each in chunk.in_flight if each.bits & bits]:
            hit = selection.bits & bits
            drained = selection.draining & hit
            done |= hit
            self._reduce_unacked(
                selection.consumer, self.in_flight.remove(selection, hit)
            )
            if drained:
                self._ready.on_drained(chunk.keys_of(drained))
        if bits != done and chunk.ready:
            for selection in [each for each in chunk.ready if each.bits & bits]:
                hit = selection.bits & bits
                done |= hit
                self.ready_count -= self._ready.forget(selection, hit)
        if not done:
            return 0
        self.cursor.mark_bits(chunk.origin, done)
        count = done.bit_count()
        self._chunks.shrink(chunk, count)
        return count


class DeliveryBuilder:
    """
    Merges messages into deliveries.

    Successive messages for one consumer, of one batch and attempt, are one delivery.
    """

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        # The last delivery to each consumer.
        self._last: dict[int, tuple[Deliver, Batch]] = {}
        self._all: list[Deliver] = []

    def add(
        self, consumer: int, chunk: BatchChunk, bits: int, attempt: int, byte_count: int
    ) -> None:
        """Deliver *bits*, which follow the messages before, to *consumer*."""
        deliver, batch = self._last.get(consumer, (None, None))
        if deliver is not None and batch is chunk.batch and deliver.attempt == attempt:
            deliver.byte_count += byte_count
            deliver.bits |= moved_bits(bits, chunk.origin - deliver.base)
            return
        at = lowest_bit(bits)
        base = chunk.origin + at
        deliver = Deliver(consumer, base, base, attempt, byte_count, bits=bits >> at)
        self._last[consumer] = deliver, chunk.batch
        self._all.append(deliver)

    def finish(self) -> None:
        """Append the deliveries to the effects."""
        for deliver in self._all:
            bits = deliver.bits
            deliver.end = deliver.base + bits.bit_length()
            if not bits & (bits + 1):
                deliver.bits = 0
            self._effects.append(deliver)


def _slice(span: MessageSpan) -> BatchSlice:
    """Return the batch of *span* with the keys of the span only."""
    batch = span.batch
    keys = batch.keys
    assert keys is not None
    codes = keys.codes[span.base - batch.base : span.end - batch.base]
    return BatchSlice(
        batch.base,
        batch.end,
        batch.byte_count,
        first=span.base,
        slice_keys=tuple([keys.unique[code] for code in codes]),
    )
