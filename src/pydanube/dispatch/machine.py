"""
What every subscription does, whatever its type.

A machine is told what happened and answers with what is to be done.  Every offset
from the cursor on is in one of these states:

                 ┌─→ delayed ──┐              ┌─→ (done)
    not in hand ─┤             ├─→ ready ─→ in span
                 └─────────────┘     ↑        │ nack, or not acknowledged in time
                                     │        ├─→ waiting for redelivery ─→ (ready)
                                     │        ├─→ blocked
                                     │        └─→ parked ─→ (done)
                                     └────────┘ the consumer left

- Not in hand: beyond ``next_offset``, except for what was acknowledged ahead.
- Delayed: its DeliveryWindow say that it is not due.  It holds back no other message.
- ReadySpans: it can be delivered as soon as a consumer has credit.
- In span: a consumer has it.  Each time it gets there its attempt rises by one.
- Waiting for redelivery: it failed, and its time is not there yet.
- Blocked, parked: it failed once more than the failure policy tolerates; see aside.py.
- Done: acknowledged, dropped, or parked and on disk.  It never comes back, but by a
  seek.

An acknowledgement makes an offset done wherever it is: a late one, for a message that
timed out and waits for its next delivery, still spares that delivery.  Only nacks and
ack timeouts are failures; a consumer that leaves or is replaced says nothing about the
messages that it had, so they are ready at once.

When a message expires, it is dropped or parked, unless it is in flight at that moment;
then it may still be acknowledged, and is given up if it comes back.

Time enters as an argument.  What is due is done by ``on_time``, which need not be
punctual; but what has expired is not delivered by any fact that comes after.

Types differ only in who gets the next messages, and how many of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pydanube.dispatch.deferred import DeferredMessages
from pydanube.dispatch.effects import Drop, Effect, SaveCursor
from pydanube.dispatch.expiries import Expiries
from pydanube.dispatch.flow import Credit
from pydanube.dispatch.message_spans import Batch, MessageSpan
from pydanube.dispatch.ready import OFFSET_MAX
from pydanube.dispatch.token_bucket import TokenBucket
from pydanube.model.policy import DispatchLimits, FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.facts import DeliveryWindow, Keys
    from pydanube.dispatch.states import InFlightMessages, ReadyMessages
    from pydanube.model.ranges import Range

DONE_RANGES_MAX = 100_000
DEFERRED_SPANS_MAX = 20_000
"""About 10 MB."""
UNLIMITED = 1 << 62
"""More than any count of messages."""
_DEFAULT_POLICY = FailurePolicy()
_NO_LIMITS = DispatchLimits()


class SubscriptionMachine(ABC):
    """
    One subscription: facts in, effects out.

    Ordering: What is delivered again comes before what is new, each in the order
    of offsets; but what is delayed or waits for redelivery lets others pass.  A
    delivery never spans two batches.

    Bounds: Memory grows with the spans in hand and the done ranges.  New messages
    are read ahead only as far as credit, limits and one second's worth of the rate
    reach.  Nothing new is asked for while *deferred_spans_max* spans are
    delayed, wait for redelivery, block or are parked.  While the cursor has
    *done_ranges_max* done ranges and something is in flight or waits, nothing new is
    asked for, and nothing new delivered above the highest of them; so there are never
    more ranges than these and one for each message that was then in hand.

    Offsets in acks and nacks come from clients: what is not in hand is ignored, but
    for acks where the shell says how far the topic goes.
    """

    needs_keys = False
    """Whether on_available() must be told the keys of messages."""

    _ready: ReadyMessages
    _in_flight: InFlightMessages

    def __init__(
        self,
        cursor: Cursor,
        *,
        failure_policy: FailurePolicy = _DEFAULT_POLICY,
        limits: DispatchLimits = _NO_LIMITS,
        ack_timeout_s: float | None = None,
        done_ranges_max: int = DONE_RANGES_MAX,
        deferred_spans_max: int = DEFERRED_SPANS_MAX,
    ) -> None:
        """Go on from *cursor*, which the machine keeps and moves."""
        assert ack_timeout_s is None or ack_timeout_s > 0
        assert done_ranges_max > 0
        assert deferred_spans_max > 0
        self._cursor = cursor
        self._limits = limits
        self._ack_timeout_s = ack_timeout_s
        self._done_ranges_max = done_ranges_max
        self._deferred_spans_max = deferred_spans_max
        self._is_paused = False
        self._bucket: TokenBucket | None = None
        # When something ready can be delivered that waits for the rate only.
        self._refilled_at: float | None = None
        # In the order in which they came.
        self._credits: dict[int, Credit] = {}
        self._next_offset = cursor.offset
        # Every message below _next_offset that is not done is in one of these.
        self._begin()
        self._ready_count = 0
        self._deferred = DeferredMessages(cursor, failure_policy)
        self._expiries = Expiries(cursor)
        # What holds of the in_flight to come: the override, or the policy's.
        self._timeout_s = self._choose_timeout_s()
        # Whether there may be more to think of than what is ready and in span.
        # Whoever changes that sets it; it is found out anew after each such fact.
        self._is_special = True

    # What happened.

    def on_consumer_joined(
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

        Those with the lowest *priority* are served first.  *key_filters* and *name*
        are ignored, unless the subscription goes by keys.

        Raises:
            ConsumerBusy: The subscription takes no further consumer.
        """
        assert consumer not in self._credits
        unacked_max = self._limits.unacked_messages_max_per_consumer
        self._credits[consumer] = Credit(priority, unacked_max)
        self._is_special = True
        return self._answer([], now)

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; what it had is delivered to others."""
        del self._credits[consumer]
        return self._on_lost(consumer, now)

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """
        A consumer began anew in its old place.

        It has nothing any more of what it had, and no credit.
        """
        credit = self._credits[consumer]
        credit.add(-credit.messages, -credit.byte_count)
        self._on_credit_changed(consumer)
        return self._on_lost(consumer, now)

    def on_credit(
        self, consumer: int, messages: int, byte_count: int, now: float
    ) -> list[Effect]:
        """
        A consumer asks for so much more.

        A negative *byte_count* takes credit away, for a shell that sent more than
        ``Deliver.byte_count`` said.
        """
        self._credits[consumer].add(messages, byte_count)
        self._on_credit_changed(consumer)
        return self._answer([], now)

    def on_available(
        self,
        base: int,
        end: int,
        byte_count: int,
        now: float,
        windows: Sequence[DeliveryWindow] = (),
        *,
        keys: Keys | None = None,
    ) -> list[Effect]:
        """
        The batch ``base … end``, of *byte_count* bytes, can be delivered.

        It holds ``next_offset``, or is known already and ignored; what lies before
        ``next_offset`` in it is ignored too.

        *windows* are in order and do not overlap; what none of them names is due and
        does not expire.  *keys* are needed if ``needs_keys``, and else ignored.
        """
        start, cursor = self._next_offset, self._cursor
        assert base <= start, f"messages {start} to {base} were left out"
        if end <= start:
            return self._answer([], now)
        self._next_offset = cursor.skip_done(end) if cursor.done else end
        effects: list[Effect] = []
        batch = Batch(base, end, byte_count, keys if self.needs_keys else None)
        for each in windows:
            self._is_special = True
            if start < each.base:
                self._accept(MessageSpan(start, each.base, 1, batch))
            start = max(start, each.base)
            if start < each.end:
                span = MessageSpan(start, each.end, 1, batch, expires=each.expires)
                self._accept_in_window(span, each.due, now, effects)
                start = each.end
        if start < end:
            self._accept(MessageSpan(start, end, 1, batch))
        return self._answer(effects, now)

    def on_ack(
        self, ranges: Iterable[Range], now: float, end_offset: int | None = None
    ) -> list[Effect]:
        """
        These messages are done, whoever says so and wherever they are.

        With *end_offset*, where the topic ends, also those that are not in hand
        yet: a consumer that outlived the broker knows what it has done.
        """
        count = self._mark_all(ranges, end_offset)
        return self._answer([], now, has_moved=count > 0)

    def on_ack_through(self, end: int, now: float) -> list[Effect]:
        """All messages below *end* are done."""
        return self.on_ack([(self._cursor.offset, end)], now)

    def on_skip(self, count: int, now: float, end_offset: int) -> list[Effect]:
        """The first *count* messages below *end_offset* that are not done are done."""
        end = self._cursor.past_open(count, end_offset)
        return self.on_ack([(self._cursor.offset, end)], now, end_offset)

    def on_nack(
        self,
        ranges: Iterable[Range],
        now: float,
        *,
        delay_s: float = 0.0,
        reason: str = "",
    ) -> list[Effect]:
        """
        Those of these messages that are in flight have failed.

        They are delivered again after the policy's delay; or after *delay_s*, if that
        is longer, but no longer than the policy's longest.
        """
        self._is_special = True
        effects: list[Effect] = []
        for base, end in ranges:
            if base < end:
                returned = self._in_flight.withdraw(base, end)
                self._fail(returned, reason or "not processed", delay_s, now, effects)
        return self._answer(effects, now)

    def on_time(self, now: float) -> list[Effect]:
        """It is *now*: do what is due."""
        self._is_special = True
        effects: list[Effect] = []
        overdue = self._in_flight.withdraw_due(now)
        self._fail(overdue, "not acknowledged in time", 0.0, now, effects)
        self._put_back(self._deferred.take_due(now, effects), now, effects)
        return self._answer(effects, now)

    def on_parked(self, base: int, end: int, now: float) -> list[Effect]:
        """What was to be parked of ``base … end`` is in the dead-letter topic."""
        count = self._deferred.mark_parked(base, end)
        if count:
            self._on_held_done(base, end)
        return self._answer([], now, has_moved=count > 0)

    def on_park_failed(
        self, base: int, end: int, now: float, retry_at: float
    ) -> list[Effect]:
        """``base … end`` could not be parked; it is tried again at *retry_at*."""
        self._deferred.retry_parking(base, end, retry_at)
        return self._answer([], now)

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """
        Go on at *offset*, as if everything before it were done and nothing else.

        Consumers and their credit stay.  Acks for what was delivered before count
        as soon as the message is in hand again.
        """
        has_moved = self._cursor.seek(offset)
        if self._in_flight.count:
            self._in_flight.clear()
            for consumer, credit in self._credits.items():
                self._give_back(consumer, credit.unacked)
        self._ready.clear()
        self._ready_count = 0
        self._next_offset = offset
        if not self._is_special:
            return [SaveCursor()] if has_moved else []
        self._deferred.clear()
        self._expiries.clear()
        return self._answer([], now, has_moved=has_moved)

    # What was decided.

    def set_failure_policy(self, policy: FailurePolicy, now: float) -> list[Effect]:
        """
        From now on this policy holds, for what failed before as well.

        What waits for redelivery waits no longer than the new policy's longest delay,
        and what is in flight no longer than its ack timeout; both from now on.  What
        is on its way to a dead-letter topic goes there.
        """
        effects: list[Effect] = []
        self._is_special = True
        self._put_back(self._deferred.set_policy(policy, now, effects), now, effects)
        self._timeout_s = self._choose_timeout_s()
        self._limit_flights(now)
        return self._answer(effects, now)

    def set_ack_timeout(
        self, ack_timeout_s: float | None, now: float | None = None
    ) -> None:
        """
        What is delivered from now on must be done within this time.

        It takes the place of the policy's, until it is None again.  With *now*, also
        what is in flight must be done within this time from now on.
        """
        assert ack_timeout_s is None or ack_timeout_s > 0
        self._ack_timeout_s = ack_timeout_s
        self._timeout_s = self._choose_timeout_s()
        if now is not None:
            self._limit_flights(now)

    def set_limits(self, limits: DispatchLimits, now: float) -> list[Effect]:
        """No more than this is delivered; who has more already keeps it."""
        self._is_special = True
        self._limits = limits
        for consumer, credit in self._credits.items():
            credit.unacked_max = limits.unacked_messages_max_per_consumer
            self._on_credit_changed(consumer)
        return self._answer([], now)

    def set_rate(self, messages_per_s: float | None, now: float) -> list[Effect]:
        """Deliver no more than so many messages a second; None: no such limit."""
        self._is_special = True
        if messages_per_s is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = TokenBucket(messages_per_s, now)
        else:
            self._bucket.set_rate(messages_per_s, now)
        return self._answer([], now)

    def set_paused(self, is_paused: bool, now: float) -> list[Effect]:
        """Deliver nothing, until it is not paused any more; all else goes on."""
        self._is_special = True
        self._is_paused = is_paused
        return self._answer([], now)

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
        return self._in_flight.count

    @property
    def ready_count(self) -> int:
        """How many messages in hand wait for a consumer with credit."""
        return self._ready_count

    @property
    def delayed_count(self) -> int:
        """How many messages in hand are not due: delayed, or waiting for redelivery."""
        return self._deferred.waiting.count

    @property
    def parked_count(self) -> int:
        """How many messages are on their way to the dead-letter topic."""
        return self._deferred.parked.count

    @property
    def blocked(self) -> tuple[Range, ...]:
        """The messages that block, in order."""
        return self._deferred.blocked.ranges()

    @property
    def failure_policy(self) -> FailurePolicy:
        """The policy that holds."""
        return self._deferred.policy

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be delivered."""
        return self._is_paused

    @property
    def consumers(self) -> tuple[int, ...]:
        """Who is there, in the order in which they came."""
        return tuple(self._credits)

    def credit_of(self, consumer: int) -> tuple[int, int]:
        """How many messages and bytes *consumer* has asked for and not been given."""
        credit = self._credits[consumer]
        return credit.messages, credit.byte_count

    def in_flight_of(self, consumer: int) -> int:
        """How many messages *consumer* has and has not acknowledged."""
        return self._credits[consumer].unacked

    def demand(self) -> int:
        """How many messages beyond those in hand could be delivered at once."""
        has_some = self._ready_count or self._in_flight.count or self._is_holding()
        if has_some and self._is_full():
            return 0
        could = self._credit_messages()
        if self._is_special:
            could = min(could, self._room_ahead())
        return max(0, could - self._deliverable_count())

    def backlog(self, end_offset: int) -> int:
        """How many messages of a topic that ends at *end_offset* are not done."""
        return self._cursor.backlog(end_offset)

    def next_deadline(self) -> float | None:
        """When on_time() must be called, or None if nothing will be due."""
        deadline = self._in_flight.next_time()
        if not self._is_special:
            return deadline
        times = (
            deadline,
            self._deferred.next_time(),
            self._expiries.next_time(),
            self._refilled_at,
        )
        return min((time for time in times if time is not None), default=None)

    # What a type decides.

    @abstractmethod
    def _begin(self) -> None:
        """Create ``_ready`` and ``_in_flight``, empty, and the state of this type."""

    @abstractmethod
    def _deliver_ready(self, now: float, effects: list[Effect]) -> None:
        """Deliver what is ready, as far as credit, limits and rate reach."""

    @abstractmethod
    def _credit_messages(self) -> int:
        """How many messages may be delivered now, to all consumers together."""

    @abstractmethod
    def _on_credit_changed(self, consumer: int) -> None:
        """What *consumer* may be given was changed, but not by a delivery."""

    @abstractmethod
    def _on_lost(self, consumer: int, now: float) -> list[Effect]:
        """Let what *consumer* had be ready again, for its next attempt."""

    @abstractmethod
    def _mark_all(self, ranges: Iterable[Range], end_offset: int | None) -> int:
        """
        Mark what is in hand of *ranges*; return how many became done.

        With *end_offset*, also what is not in hand and lies below that.
        """

    # What a type may do in another way.

    def _deliverable_count(self) -> int:
        """How many messages are ready and wait for nothing but room."""
        return self._ready_count

    def _holds_back_new(self) -> bool:
        """Whether nothing new may be delivered because something blocks."""
        return self._deferred.blocked.count > 0

    # Empty on purpose: most types have nothing to do there.

    def _hand_over(self, effects: list[Effect]) -> None:  # noqa: B027
        """Before something is delivered, change who gets it."""

    def _on_held_done(self, base: int, end: int) -> None:  # noqa: B027
        """Messages of ``base … end`` became done that were in hand, not in span."""

    # What all types have in common.

    def _answer(
        self, effects: list[Effect], now: float, *, has_moved: bool = False
    ) -> list[Effect]:
        """Complete *effects* with all that follows from a fact."""
        if self._is_special:
            self._expire(now, effects)
            for each in effects:
                if isinstance(each, Drop):
                    has_moved = True
                    self._on_held_done(each.base, each.end)
        if has_moved:
            # _next_offset is never done, so the cursor cannot pass it.
            assert self._cursor.offset <= self._next_offset
            effects.append(SaveCursor())
        if self._is_special:
            self._hand_over(effects)
        if self._ready_count and not self._is_paused:
            self._deliver_ready(now, effects)
        if not self._ready_count:
            # Whatever is left in there was done while it waited.
            self._ready.clear()
        if self._is_special:
            self._wait_for_rate(now)
            self._is_special = self._is_anything_special()
        return effects

    def _accept(self, span: MessageSpan) -> None:
        self._ready_count += self._cursor.open_count(span.base, span.end)
        self._ready.add_new(span)

    def _accept_in_window(
        self, span: MessageSpan, due: float | None, now: float, effects: list[Effect]
    ) -> None:
        span.open_count = self._cursor.open_count(span.base, span.end)
        if not span.open_count:
            return
        if span.expires is not None:
            if span.expires <= now:
                self._deferred.expire(span, effects)
                return
            self._expiries.add(span.expires, span.base, span.end)
        if due is not None and due > now:
            self._deferred.delay(span, due)
        else:
            self._ready_count += span.open_count
            self._ready.add_new(span)

    def _fail(
        self,
        spans: list[MessageSpan],
        reason: str,
        asked_s: float,
        now: float,
        effects: list[Effect],
    ) -> None:
        """Treat *spans*, which were in span, as the policy says."""
        for span in spans:
            self._land(span)
            span.attempt += 1
            span.failures += 1
            span.reason = reason
            if _has_expired(span, now):
                self._deferred.expire(span, effects)
            elif self._deferred.fail(span, now, asked_s, effects):
                self._put_back([span], now, effects)

    def _put_back(
        self, spans: list[MessageSpan], now: float, effects: list[Effect]
    ) -> None:
        """Let *spans* be ready, which were not, unless their time is over."""
        # From behind: they are usually in order, and what comes first is found first.
        for span in reversed(spans):
            if _has_expired(span, now):
                self._deferred.expire(span, effects)
            else:
                self._ready_count += span.open_count
                self._ready.put_back(span)

    def _expire(self, now: float, effects: list[Effect]) -> None:
        """Give up what has expired and no consumer has."""
        while (expired := self._expiries.pop_expired(now)) is not None:
            ready = self._ready.withdraw(*expired)
            self._ready_count -= sum(span.open_count for span in ready)
            for span in (*self._deferred.withdraw_expired(*expired), *ready):
                self._deferred.expire(span, effects)

    def _mark_ahead(self, base: int, end: int) -> int:
        """Mark what is not in hand of ``base … end``; return how many became done."""
        base = max(base, self._next_offset)
        if base >= end or (self._is_full() and base > self._cursor.offset):
            return 0
        count = self._cursor.mark(base, end)
        self._next_offset = self._cursor.skip_done(self._next_offset)
        return count

    def _land(self, span: MessageSpan) -> None:
        """Note that *span*, which was in span, is not any more."""
        self._give_back(span.consumer, span.open_count)

    def _give_back(self, consumer: int, count: int) -> None:
        credit = self._credits.get(consumer)
        if credit is not None:
            credit.unacked -= count
            if credit.unacked_max is not None:
                self._on_credit_changed(consumer)

    def _limit_flights(self, now: float) -> None:
        timeout_s = self._timeout_s
        self._in_flight.limit_times(None if timeout_s is None else now + timeout_s)

    def _choose_timeout_s(self) -> float | None:
        if self._ack_timeout_s is not None:
            return self._ack_timeout_s
        return self._deferred.policy.ack_timeout_s

    def _room(self, now: float) -> int:
        """How many messages limits and rate allow to deliver now."""
        room = UNLIMITED
        if self._limits.unacked_messages_max is not None:
            room = self._limits.unacked_messages_max - self._in_flight.count
        if self._bucket is not None:
            room = min(room, self._bucket.available(now))
        return room

    def _room_ahead(self) -> int:
        """How many messages may be ready, whatever credit allows."""
        if (
            self._is_paused
            or self._holds_back_new()
            or len(self._deferred) >= self._deferred_spans_max
        ):
            return 0
        room = UNLIMITED
        if self._limits.unacked_messages_max is not None:
            room = self._limits.unacked_messages_max - self._in_flight.count
        if self._bucket is not None:
            room = min(room, self._bucket.capacity)
        return room

    def _first_below(self) -> int:
        """Below which offset messages may be delivered for the first time."""
        if self._is_special and self._holds_back_new():
            return 0
        if (self._in_flight.count or self._is_holding()) and self._is_full():
            # What is in flight or waits may close gaps, and so does what is in them;
            # but anything beyond would only add to the done ranges.
            last = self._cursor.done.last()
            return 0 if last is None else last[1]
        return OFFSET_MAX

    def _wait_for_rate(self, now: float) -> None:
        self._refilled_at = None
        bucket = self._bucket
        waiting = self._deliverable_count()
        if bucket is None or self._is_paused or not waiting:
            return
        if self._credit_messages() and not bucket.available(now):
            self._refilled_at = bucket.next_time(waiting, now)

    def _is_holding(self) -> bool:
        """Whether anything waits, blocks or is parked."""
        return self._is_special and self._deferred.count > 0

    def _is_full(self) -> bool:
        return len(self._cursor.done) >= self._done_ranges_max

    def _is_anything_special(self) -> bool:
        """Whether there is more to think of than what is ready and in span."""
        return (
            len(self._deferred) > 0
            or bool(self._expiries)
            or self._bucket is not None
            or self._is_paused
            or self._limits.unacked_messages_max is not None
        )


def _has_expired(span: MessageSpan, now: float) -> bool:
    return span.expires is not None and span.expires <= now
