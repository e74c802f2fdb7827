"""
A key-shared subscription: all messages of one key to one consumer, in order.

Who owns a key says a hash ring of those consumers that accept it; see key_owners.py.
What is ready for a consumer waits in its lane, by offset; so whoever is slow or has no
credit stalls its own keys and nobody else's.  A key of which a message failed, or that
is to move to another consumer, waits at a gate until it can go on in order; see
gates.py.  All other keys cost nothing: what is known of them is in the bundles of
their batches, see bundles.py.

    batch → bundle ─ share ─ share ─ …
                       │       └→ gate of its key → lane
                       └→ lane of a consumer → in flight → (done)
                                                 └→ aside, and back
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from pydanube.dispatch.bundles import (
    Bundle,
    Bundles,
    Excerpt,
    bits_below,
    lowest_bits,
)
from pydanube.dispatch.effects import Deliver, Effect
from pydanube.dispatch.flow import Allowances
from pydanube.dispatch.key_filters import KeyFilters
from pydanube.dispatch.key_owners import KeyOwners
from pydanube.dispatch.keyed_flights import KeyedFlights
from pydanube.dispatch.keyed_ready import KeyedReady
from pydanube.dispatch.machine import (
    DONE_RANGES_MAX,
    UNLIMITED,
    WAITING_STRETCHES_MAX,
    SubscriptionMachine,
)
from pydanube.dispatch.ready import ANYWHERE
from pydanube.model.policy import DispatchLimits, FailurePolicy
from pydanube.model.range_blocks import ranges_of_bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.flow import Credit
    from pydanube.dispatch.lanes import Lane
    from pydanube.dispatch.stretches import Batch, Stretch
    from pydanube.model.ranges import Range

WAITING_MESSAGES_MAX = 50_000
"""About 5 MB if they came in batches of many, and 60 MB if each came in its own."""


class KeySharedSubscription(SubscriptionMachine):
    """
    Each key belongs to one of the consumers that accept it.

    Ordering: The messages of one key are delivered in the order of offsets, also while
    consumers come and go: a key moves to another consumer only when none of its
    messages is in flight with the former one.  After a failure nothing of the key is
    delivered that comes later, until the message is delivered again, or is done: while
    it waits for that, blocks, or is on its way to a dead-letter topic.  Other keys go
    on.  But what is delayed holds back nothing, and takes its place when it is due.

    Bounds: Messages that cannot be delivered, for want of credit, because of their key
    or because nobody accepts it, wait; while *waiting_messages_max* of them do,
    nothing new is asked for.
    """

    needs_keys = True

    _ready: KeyedReady
    _flights: KeyedFlights

    def __init__(
        self,
        cursor: Cursor,
        *,
        failure_policy: FailurePolicy | None = None,
        limits: DispatchLimits | None = None,
        ack_timeout_s: float | None = None,
        done_ranges_max: int = DONE_RANGES_MAX,
        waiting_stretches_max: int = WAITING_STRETCHES_MAX,
        waiting_messages_max: int = WAITING_MESSAGES_MAX,
    ) -> None:
        """Go on from *cursor*, which the machine keeps and moves."""
        assert waiting_messages_max > 0
        super().__init__(
            cursor,
            failure_policy=failure_policy or FailurePolicy(),
            limits=limits or DispatchLimits(),
            ack_timeout_s=ack_timeout_s,
            done_ranges_max=done_ranges_max,
            waiting_stretches_max=waiting_stretches_max,
        )
        self._waiting_messages_max = waiting_messages_max

    def _begin(self) -> None:
        self._bundles = Bundles()
        self._owners = KeyOwners()
        self._ready = KeyedReady(self._cursor, self._bundles, self._owners)
        self._flights = KeyedFlights(self._bundles)
        # Who has credit.
        self._creditors: dict[int, Credit] = {}
        self._allowances = Allowances()
        # Somebody came or went, and it was not decided yet who gets what now.
        self._has_moved = False

    # What happened.

    def on_consumer_came(
        self,
        consumer: int,
        now: float,
        *,
        priority: int = 0,
        key_filters: Sequence[str] = (),
        name: str = "",
    ) -> list[Effect]:
        """
        A consumer is there; it gets nothing before it gives credit.

        It accepts the keys that one of *key_filters* matches, or all if there are
        none.  A key goes to those with the lowest *priority* that accept it.  Which
        keys are the consumer's follows from its *name*, and without one from its
        number.

        Raises:
            InvalidRequest: A filter makes no sense.
        """
        self._owners.add(consumer, priority, KeyFilters(key_filters), name)
        self._ready.add_lane(consumer)
        self._has_moved = True
        return super().on_consumer_came(consumer, now, priority=priority)

    def on_consumer_gone(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; its keys go to others."""
        self._owners.remove(consumer)
        self._ready.remove_lane(consumer)
        self._creditors.pop(consumer, None)
        self._allowances.remove(self._credits[consumer])
        self._has_moved = True
        return super().on_consumer_gone(consumer, now)

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """Go on at *offset*; see the base class."""
        self._ready.gates.clear()
        self._bundles.clear()
        return super().on_seek(offset, now)

    # What is known.

    def wanted(self) -> int:
        """How many messages beyond those in hand could be delivered at once."""
        if self._ready_count - self._deliverable_count() >= self._waiting_messages_max:
            return 0
        return super().wanted()

    # What follows.

    def _credit_messages(self) -> int:
        return self._allowances.total(self._owners.priority_max)

    def _deliverable_count(self) -> int:
        creditors = self._creditors
        return sum(
            lane.count for lane in self._ready.busy if lane.consumer in creditors
        )

    def _holds_back_new(self) -> bool:
        return False

    def _on_credit_changed(self, consumer: int) -> None:
        credit = self._credits[consumer]
        self._allowances.update(credit)
        if credit:
            self._creditors[consumer] = credit
        else:
            self._creditors.pop(consumer, None)

    def _on_held_done(self, base: int, end: int) -> None:
        self._ready.release_done(base, end)

    def _on_lost(self, consumer: int, now: float) -> list[Effect]:
        self._is_special = self._has_moved = True
        effects: list[Effect] = []
        for share in self._flights.take_all_of(consumer):
            bundle = share.bundle
            self._give_back(consumer, share.bits.bit_count())
            share.attempt += 1
            if not bundle.has_expiring:
                self._ready_count += share.bits.bit_count()
                self._ready.take_back(share)
                continue
            self._bundles.shrink(bundle, share.bits.bit_count())
            self._put_back(bundle.stretches(share, share.bits), now, effects)
        return self._answer(effects, now)

    def _accept_on_terms(
        self, stretch: Stretch, due: float | None, now: float, effects: list[Effect]
    ) -> None:
        is_over = stretch.expires is not None and stretch.expires <= now
        if is_over or (due is not None and due > now):
            # It may stay for long; the keys of its whole batch must not.
            stretch.batch = _excerpt(stretch)
        super()._accept_on_terms(stretch, due, now, effects)

    def _fail(
        self,
        stretches: list[Stretch],
        reason: str,
        asked_s: float,
        now: float,
        effects: list[Effect],
    ) -> None:
        super()._fail(stretches, reason, asked_s, now, effects)
        for stretch in stretches:
            if self._aside.has(stretch.base):
                self._ready.hold(stretch)

    def _land(self, stretch: Stretch) -> None:
        super()._land(stretch)
        if self._ready.gates:
            assert isinstance(stretch.batch, Excerpt)
            self._ready.on_moved(stretch.batch.keys_of(stretch.base, stretch.end))

    # Deliveries.

    def _deliver_ready(self, now: float, effects: list[Effect]) -> None:
        ready, creditors = self._ready, self._creditors
        if self._has_moved:
            self._has_moved = False
            ready.reassign()
        ready.route()
        queue: list[tuple[int, int, Lane]] = []
        for lane in list(ready.busy):
            if lane.consumer in creditors:
                share = ready.head(lane)
                if share is not None:
                    queue.append((share.first, lane.consumer, lane))
        if not queue:
            return
        heapify(queue)
        room = self._room(now) if self._is_special else UNLIMITED
        outgoing = Outgoing(effects)
        while queue and room > 0:
            lane = queue[0][2]
            # Where there is not room for all, everybody gets a part of it.
            part = room if room >= self._ready_count else -(-room // len(queue))
            count = self._deliver_head(lane, part, now, outgoing)
            room -= count
            share = None
            if count and lane.consumer in creditors:
                share = ready.head(lane)
            if share is None:
                heappop(queue)
            else:
                heapreplace(queue, (share.first, lane.consumer, lane))
        outgoing.finish()

    def _deliver_head(
        self, lane: Lane, room: int, now: float, outgoing: Outgoing
    ) -> int:
        """Deliver the first share in *lane*; return how many messages it was."""
        share = lane.head()
        assert share is not None
        bundle, consumer = share.bundle, lane.consumer
        credit = self._credits[consumer]
        bits = lane.leading(share)
        if share.attempt == 1 and (first_below := self._first_below()) < ANYWHERE:
            # What was delivered before may go, and so may what lies before it.
            first_below = max(first_below, lane.returned_below())
            bits = bits_below(bits, first_below - bundle.origin)
        bits = lowest_bits(bits, min(credit.allowance, room))
        if not bits:
            return 0
        count = bits.bit_count()
        byte_count = bundle.charge(count)
        credit.spend(count, byte_count)
        self._allowances.update(credit)
        if not credit:
            del self._creditors[consumer]
        if self._bucket is not None:
            self._bucket.spend(count)
        self._ready_count -= count
        outgoing.add(consumer, bundle, bits, share.attempt, byte_count)
        taken = self._ready.take(lane, share, bits)
        timeout_s = self._timeout_s
        self._flights.add(
            taken, consumer, None if timeout_s is None else now + timeout_s
        )
        return count

    # Acknowledgements.

    def _mark_all(self, ranges: Iterable[Range], end_offset: int | None) -> int:
        told = list(ranges)
        count = 0
        if self._is_holding():
            for base, end in told:
                held = self._aside.mark(base, end)
                if held:
                    count += held
                    self._on_held_done(base, end)
        for bundle, bits in self._bundles.bits_of(told):
            count += self._settle(bundle, bits)
        if end_offset is not None:
            for base, end in told:
                if end > self._next_offset:
                    count += self._mark_ahead(base, min(end, end_offset))
        return count

    def _settle(self, bundle: Bundle, bits: int) -> int:
        """Mark what is ready or in flight of *bits*; return how many became done."""
        done = 0
        for share in [each for each in bundle.in_flight if each.bits & bits]:
            hit = share.bits & bits
            moved = share.moving & hit
            done |= hit
            self._give_back(share.consumer, self._flights.settle(share, hit))
            if moved:
                self._ready.on_moved(bundle.keys_of(moved))
        if bits != done and bundle.ready:
            for share in [each for each in bundle.ready if each.bits & bits]:
                hit = share.bits & bits
                done |= hit
                self._ready_count -= self._ready.forget(share, hit)
        if not done:
            return 0
        self._cursor.mark_bits(bundle.origin, done)
        count = done.bit_count()
        self._bundles.shrink(bundle, count)
        return count


class Outgoing:
    """
    Deliveries that are being put together.

    What goes to one consumer, one after the other and of one batch and attempt, is
    one delivery.
    """

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        # Of each consumer the last one.
        self._open: dict[int, tuple[Deliver, Batch, list[Range]]] = {}
        self._all: list[tuple[Deliver, list[Range]]] = []

    def add(
        self, consumer: int, bundle: Bundle, bits: int, attempt: int, byte_count: int
    ) -> None:
        """*consumer* gets these messages, which lie behind what it got before."""
        ranges = ranges_of_bits(bundle.origin, bits)
        deliver, batch, before = self._open.get(consumer, (None, None, None))
        if (
            deliver is not None
            and before is not None
            and batch is bundle.batch
            and deliver.attempt == attempt
        ):
            deliver.byte_count += byte_count
            if before[-1][1] == ranges[0][0]:
                before[-1] = before[-1][0], ranges.pop(0)[1]
            before += ranges
            return
        deliver = Deliver(consumer, 0, 0, attempt, byte_count)
        self._open[consumer] = deliver, bundle.batch, ranges
        self._all.append((deliver, ranges))

    def finish(self) -> None:
        """Append the deliveries to the effects."""
        for deliver, ranges in self._all:
            deliver.base, deliver.end = ranges[0][0], ranges[-1][1]
            if len(ranges) > 1:
                deliver.ranges = tuple(ranges)
            self._effects.append(deliver)


def _excerpt(stretch: Stretch) -> Excerpt:
    """The batch of *stretch*, with the keys of its messages only."""
    batch = stretch.batch
    keys = batch.keys
    assert keys is not None
    codes = keys.codes[stretch.base - batch.base : stretch.end - batch.base]
    return Excerpt(
        batch.base,
        batch.end,
        batch.byte_count,
        first=stretch.base,
        texts=tuple([keys.unique[code] for code in codes]),
    )
