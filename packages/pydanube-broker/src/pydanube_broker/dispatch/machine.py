"""The behaviour that all subscription types have in common; see the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from pydanube.model.policy import DispatchLimits, FailurePolicy
from pydanube.model.range_blocks import ranges_of_bits
from pydanube.model.ranges import Range
from pydanube.model.token_bucket import TokenBucket
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.deferred import DeferredMessages
from pydanube_broker.dispatch.effects import Deliver, Drop, Effect, SaveCursor
from pydanube_broker.dispatch.flow import Credit
from pydanube_broker.dispatch.key_shared.in_flight import InFlightSelections
from pydanube_broker.dispatch.key_shared.ready import ReadySelections
from pydanube_broker.dispatch.message_spans import (
    NOBODY,
    Batch,
    BatchKeys,
    DeliveryWindow,
    Expiries,
    MessageSpan,
    MessageSpans,
    divide_by_windows,
)
from pydanube_broker.dispatch.ready import OFFSET_MAX, ReadySpans

DONE_RANGES_MAX = 100_000
DEFERRED_SPANS_MAX = 20_000
"""About 10 MB."""
UNLIMITED = 1 << 62
"""More than any number of messages."""
DEFAULT_POLICY = FailurePolicy()
NO_LIMITS = DispatchLimits()


class SubscriptionMachine(ABC):
    """
    A subscription as a state machine: events in, effects out.

    Ordering: Redeliveries come before new messages, both in the order of offsets;
    but messages that are delayed or wait for redelivery hold back no others.  A
    delivery never spans two batches.

    Bounds: Memory grows with the tracked spans and the done ranges.  New messages are
    requested only as far as credit, limits and one second of the rate allow.
    ``demand`` is 0 while *deferred_spans_max* spans are delayed, wait for redelivery,
    block or are parked.  While the cursor has *done_ranges_max* done ranges and
    messages are in flight or deferred, ``demand`` is 0 and no message above the
    highest done range is delivered for the first time; so there are at most that many
    ranges, and one for each message that was tracked at that moment.

    Offsets in acks and nacks come from clients.  Those of messages that are not
    tracked are ignored, except in acks if the caller gives the end of the topic.
    """

    needs_keys = False
    """Whether on_available() needs the keys of messages."""

    in_flight: MessageSpans | InFlightSelections
    """The messages in flight, to be read only."""
    _ready: ReadySpans | ReadySelections

    def __init__(
        self,
        cursor: Cursor,
        *,
        failure_policy: FailurePolicy = DEFAULT_POLICY,
        limits: DispatchLimits = NO_LIMITS,
        done_ranges_max: int = DONE_RANGES_MAX,
        deferred_spans_max: int = DEFERRED_SPANS_MAX,
    ) -> None:
        """Continue from *cursor*, which the machine owns and advances."""
        assert done_ranges_max > 0
        assert deferred_spans_max > 0
        self.cursor = cursor
        """To be read only."""
        self._limits = limits
        # Replaces the policy's ack timeout.
        self._ack_timeout_s: float | None = None
        self._done_ranges_max = done_ranges_max
        self._deferred_spans_max = deferred_spans_max
        self._is_paused = False
        self._bucket: TokenBucket | None = None
        # The time at which the rate allows the next delivery, if only the rate is
        # waited for.
        self._rate_deadline: float | None = None
        self.consumers: dict[int, Credit] = {}
        """The credit of each consumer, in the order in which they joined."""
        self.next_offset = cursor.offset
        """The offset that the next batch must contain."""
        # Every tracked message is in _ready, in_flight or deferred.
        self._init_state()
        self.ready_count = 0
        """The number of messages that wait for a consumer with credit."""
        self.returned_count = 0
        """How often messages in flight have failed or were released."""
        self.freed: set[int] = set()
        """The consumers of which messages in flight were acknowledged or returned; the
        caller may clear it."""
        self.deferred = DeferredMessages(cursor, failure_policy)
        """The messages that wait, block or are parked, to be read only."""
        self._expiries = Expiries(cursor)
        # Whether messages have failed since the cursor was saved.
        self._has_failed = False
        self.ack_timeout_s = failure_policy.ack_timeout_s
        """The ack timeout of new deliveries, to be read only; None: there is none."""
        # Whether anything but ready and in-flight messages may need attention.  Methods
        # that may change this set it; _complete() computes it again.
        self._needs_slow_path = True

    # Events.

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
        Add a consumer; it receives nothing before it gives credit.

        Consumers with the lowest *priority* are served first.  In key-shared
        subscriptions a consumer accepts the keys that one of *key_filters* matches, or
        all keys if there are no filters; its share of the keys depends on its *name*,
        or on its number if it has no name.

        Raises:
            ConsumerBusy: The subscription accepts no further consumer.
            InvalidRequest: A key filter is invalid.
        """
        assert consumer not in self.consumers
        effects = self._admit(consumer, priority, key_filters, name)
        unacked_max = self._limits.unacked_messages_max_per_consumer
        self.consumers[consumer] = Credit(priority, unacked_max)
        self._needs_slow_path = True
        return self._complete(effects, now)

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """Remove a consumer; its messages are delivered to others."""
        del self.consumers[consumer]
        self.freed.discard(consumer)
        return self._requeue_in_flight_of(consumer, now)

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """
        Reset a consumer that has reconnected.

        The consumer keeps its place, but none of its messages and no credit.
        """
        self.consumers[consumer].reset()
        self._on_credit_changed(consumer)
        return self._requeue_in_flight_of(consumer, now)

    def on_credit(
        self, consumer: int, messages: int, byte_count: int, now: float
    ) -> list[Effect]:
        """
        Add to a consumer's credit.

        A negative *byte_count* removes credit, for a caller that sent more than
        ``Deliver.byte_count``.
        """
        self.consumers[consumer].add(messages, byte_count)
        self._on_credit_changed(consumer)
        return self._complete([], now)

    def on_available(
        self,
        base: int,
        end: int,
        byte_count: int,
        now: float,
        windows: Sequence[DeliveryWindow] = (),
        *,
        keys: BatchKeys | None = None,
        following: int = 0,
    ) -> list[Effect]:
        """
        Track the batch ``base … end``, of *byte_count* bytes.

        The batch must not lie entirely above ``next_offset``.  Messages below
        ``next_offset`` are ignored, because they are tracked already.

        *windows* are in order and do not overlap; messages in none of them are due
        and never expire.  *keys* are required if ``needs_keys``, otherwise ignored.
        *following* messages are made available next, as far as there is demand.
        """
        start, cursor = self.next_offset, self.cursor
        assert base <= start, f"messages {start} to {base} were left out"
        if end <= start:
            return self._complete([], now)
        self.next_offset = cursor.skip_done(end) if cursor.done else end
        if following:
            self._plan_whole_batches(start, end, following)
        effects: list[Effect] = []
        batch = Batch(base, end, byte_count, keys if self.needs_keys else None)
        for whole, due in divide_by_windows(start, end, batch, windows):
            for span in self.deferred.divide_failed(whole):
                if windows or span.failures:
                    self._needs_slow_path = True
                    self._accept_in_window(span, due, now, effects)
                else:
                    self._accept(span)
        return self._complete(effects, now)

    def on_ack(
        self, ranges: Iterable[Range], now: float, end_offset: int | None = None
    ) -> list[Effect]:
        """
        Mark these messages as done, in any state, whichever consumer sent the ack.

        With *end_offset*, the end of the topic, mark also messages that are not
        tracked yet: a consumer may have processed them before the broker restarted.
        """
        count = self._mark_all(ranges, end_offset)
        return self._complete([], now, has_cursor_moved=count > 0)

    def on_ack_bits(
        self, base: int, bits: int, now: float, end_offset: int | None = None
    ) -> list[Effect]:
        """Mark *base* + i as done for each set bit i of *bits*, as ``on_ack`` does."""
        return self.on_ack(ranges_of_bits(base, bits), now, end_offset)

    def on_nack(
        self,
        ranges: Iterable[Range],
        now: float,
        *,
        delay_s: float = 0.0,
        reason: str = "",
    ) -> list[Effect]:
        """
        Note that these messages have failed, as far as they are in flight.

        They are delivered again after the policy's delay, or after *delay_s* if that
        is longer, but at most after the policy's longest delay.
        """
        self._needs_slow_path = True
        effects: list[Effect] = []
        for base, end in ranges:
            if base < end:
                returned = self.in_flight.withdraw(base, end)
                self._fail(returned, reason or "not processed", delay_s, now, effects)
        return self._complete(effects, now)

    def on_release(
        self, consumer: int, ranges: Iterable[Range], now: float
    ) -> list[Effect]:
        """
        Make these messages ready again, as far as *consumer* has them.

        They have not failed; their next delivery has a higher attempt.
        """
        self._needs_slow_path = True
        effects: list[Effect] = []
        for base, end in ranges:
            released = self.in_flight.withdraw(base, end, consumer)
            for span in released:
                self._on_returned(span)
                span.consumer = NOBODY
                span.attempt += 1
            self._put_back(released, now, effects)
        return self._complete(effects, now)

    def on_extend(
        self,
        consumer: int,
        ranges: Iterable[Range],
        now: float,
        *,
        ack_timeout_s: float | None = None,
    ) -> list[Effect]:
        """
        Give *consumer* more time to acknowledge these messages, as far as it has them.

        Their deadline is *ack_timeout_s* from now, or that of a delivery if it is None;
        a later deadline stays.  Messages that are with another consumer or with none,
        and messages without a deadline, are ignored.
        """
        timeout_s = self.ack_timeout_s if ack_timeout_s is None else ack_timeout_s
        if timeout_s is not None:
            self.in_flight.extend(ranges, consumer, now + timeout_s)
        # No message becomes ready, but others may be due.
        return self._complete([], now) if self._needs_slow_path else []

    def on_sent_late(self, delivery: Deliver, now: float) -> list[Effect]:
        """Let the ack timeout of *delivery* begin now, as ``on_extend`` does."""
        return self.on_extend(delivery.consumer, delivery.ranges(), now)

    def can_hold(self, ranges: Iterable[Range]) -> bool:
        """
        Return whether a commit may acknowledge all of these messages.

        It may acknowledge those that are in flight, and as with acks those that have
        timed out, even if another consumer has them by now: the first commit wins.
        """
        return all(
            end <= self.next_offset
            and self.cursor.open_count(base, end) == end - base
            and self.deferred.can_hold(base, end)
            for base, end in ranges
        )

    def on_hold(self, ranges: Iterable[Range], now: float) -> list[Effect]:
        """
        Let a commit hold messages, after ``can_hold``.

        Nobody gets them, and they have no deadline, until ``on_commit`` or
        ``on_commit_refused``.
        """
        self._needs_slow_path = True
        for base, end in ranges:
            in_flight = self.in_flight.withdraw(base, end)
            for span in in_flight:
                self._on_returned(span)
            ready = self._ready.withdraw(base, end)
            self.ready_count -= sum(span.open_count for span in ready)
            for span in (*self.deferred.withdraw(base, end), *in_flight, *ready):
                self.deferred.hold(span)
            for span in (*in_flight, *ready):
                self._on_held(span)
        return self._complete([], now)

    def on_commit(self, ranges: Sequence[Range], now: float) -> list[Effect]:
        """Mark these messages as done, in any state, also if they are not tracked."""
        self._needs_slow_path = True
        count = self._mark_all(ranges, None)
        for base, end in ranges:
            count += self.cursor.mark(max(base, self.next_offset), end)
            self.next_offset = self.cursor.skip_done(self.next_offset)
        return self._complete([], now, has_cursor_moved=count > 0)

    def on_commit_refused(self, ranges: Iterable[Range], now: float) -> list[Effect]:
        """Make messages ready again that a commit held."""
        self._needs_slow_path = True
        effects: list[Effect] = []
        for base, end in ranges:
            self._put_back(self.deferred.release(base, end, effects), now, effects)
        return self._complete(effects, now)

    def on_time(self, now: float) -> list[Effect]:
        """Process deadlines up to *now*."""
        self._needs_slow_path = True
        effects: list[Effect] = []
        overdue = self.in_flight.withdraw_due(now)
        self._fail(overdue, "not acknowledged in time", 0.0, now, effects)
        self._put_back(self.deferred.take_due(now, effects), now, effects)
        return self._complete(effects, now)

    def on_parked(self, base: int, end: int, now: float) -> list[Effect]:
        """Mark parked messages of ``base … end`` as done: their copies are stored."""
        count = self.deferred.parked.mark(base, end)
        if count:
            self._on_waiting_done(base, end)
        return self._complete([], now, has_cursor_moved=count > 0)

    def on_park_failed(
        self, base: int, end: int, now: float, retry_at: float
    ) -> list[Effect]:
        """Retry parking ``base … end``, which failed, at *retry_at*."""
        self.deferred.retry_parking(base, end, retry_at)
        return self._complete([], now)

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """
        Move to *offset*: messages below it are done, and no others.

        Consumers keep their credit.  Acks of earlier deliveries count as soon as the
        message is tracked again.
        """
        has_cursor_moved = self.cursor.seek(offset)
        self.deferred.forget_failures()
        if self.in_flight.count:
            self.in_flight.clear()
            for consumer, credit in self.consumers.items():
                self._reduce_unacked(consumer, credit.unacked)
        self._ready.clear()
        self.ready_count = 0
        self.next_offset = offset
        if not self._needs_slow_path:
            return [SaveCursor()] if has_cursor_moved else []
        self.deferred.clear()
        self._expiries.clear()
        return self._complete([], now, has_cursor_moved=has_cursor_moved)

    # Settings.

    def set_failure_policy(self, policy: FailurePolicy, now: float) -> list[Effect]:
        """
        Replace the failure policy, also for messages that failed before.

        From now on, messages wait for redelivery no longer than the new policy's
        longest delay, and are in flight no longer than its ack timeout, if that is
        another one.  Messages that are being copied to a dead-letter topic stay there.
        """
        effects: list[Effect] = []
        self._needs_slow_path = True
        self._put_back(self.deferred.set_policy(policy, now, effects), now, effects)
        timeout_s = policy.ack_timeout_s
        if self._ack_timeout_s is None and self.ack_timeout_s != timeout_s:
            self.ack_timeout_s = timeout_s
            self.in_flight.limit_times(None if timeout_s is None else now + timeout_s)
        return self._complete(effects, now)

    def set_ack_timeout(self, ack_timeout_s: float, now: float) -> list[Effect]:
        """Replace the policy's ack timeout, and shorten that of messages in flight."""
        assert ack_timeout_s > 0
        self._ack_timeout_s = ack_timeout_s
        if self.ack_timeout_s != ack_timeout_s:
            self.ack_timeout_s = ack_timeout_s
            self.in_flight.limit_times(now + ack_timeout_s)
        return self._complete([], now)

    def set_limits(self, limits: DispatchLimits, now: float) -> list[Effect]:
        """Replace the limits; consumers that exceed them keep their messages."""
        self._needs_slow_path = True
        self._limits = limits
        for consumer, credit in self.consumers.items():
            credit.unacked_max = limits.unacked_messages_max_per_consumer
            self._on_credit_changed(consumer)
        return self._complete([], now)

    def set_rate(self, messages_per_s: float | None, now: float) -> list[Effect]:
        """Limit deliveries to *messages_per_s*; None: no limit."""
        self._needs_slow_path = True
        if messages_per_s is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = TokenBucket(messages_per_s, now)
        else:
            self._bucket.set_rate(messages_per_s, now)
        return self._complete([], now)

    def set_paused(self, is_paused: bool, now: float) -> list[Effect]:
        """Stop or resume deliveries; everything else continues."""
        self._needs_slow_path = True
        self._is_paused = is_paused
        return self._complete([], now)

    # State.

    def is_active(self, consumer: int) -> bool:
        """Return whether *consumer* gets messages now, if it gives credit."""
        return True

    def demand(self) -> int:
        """Return how many more messages could be delivered at once."""
        has_some = self.ready_count or self.in_flight.count or self._has_deferred()
        if has_some and self._is_cursor_full():
            return 0
        could = self._credit_messages()
        if self._needs_slow_path:
            could = min(could, self._read_ahead_limit())
        return max(0, could - self._deliverable_count())

    def next_deadline(self) -> float | None:
        """Return the time at which to call on_time(), or None."""
        deadline = self.in_flight.next_time()
        if not self._needs_slow_path:
            return deadline
        times = (
            deadline,
            self.deferred.next_time(),
            self._expiries.next_time(),
            self._rate_deadline,
        )
        return min((time for time in times if time is not None), default=None)

    # Implemented by each type.

    @abstractmethod
    def _init_state(self) -> None:
        """Create ``_ready`` and ``in_flight``, empty, and the state of this type."""

    @abstractmethod
    def _deliver_ready(self, now: float, effects: list[Effect]) -> None:
        """Deliver ready messages, as far as credit, limits and rate allow."""

    @abstractmethod
    def _credit_messages(self) -> int:
        """Return how many messages all consumers together may receive now."""

    @abstractmethod
    def _on_credit_changed(self, consumer: int) -> None:
        """Handle a change of the credit of *consumer*, except by a delivery."""

    @abstractmethod
    def _requeue_in_flight_of(self, consumer: int, now: float) -> list[Effect]:
        """Make the messages of *consumer* ready again, for their next attempt."""

    @abstractmethod
    def _mark_all(self, ranges: Iterable[Range], end_offset: int | None) -> int:
        """
        Mark open messages in *ranges* as done; return their number.

        With *end_offset*, mark also untracked messages below it.
        """

    # Overridden by some types.

    def awaits_credit(self, count: int) -> bool:
        """Return whether credit for all of *count* messages is likely to come soon."""
        return False

    def stop_awaiting_credit(self) -> None:  # noqa: B027  # Most types await none.
        """Expect no more credit than there is, because waiting for it was in vain."""

    def _deliverable_count(self) -> int:
        """Return how many messages are ready and wait only for limits or the rate."""
        return self.ready_count

    def _is_new_blocked(self) -> bool:
        """Return whether blocked messages prevent all first deliveries."""
        return self.deferred.blocked.count > 0

    def _admit(
        self, consumer: int, priority: int, key_filters: Sequence[str], name: str
    ) -> list[Effect]:
        """Note that a consumer joins, or refuse it; see ``on_consumer_joined``."""
        return []

    # Empty on purpose: most types have nothing to do.

    def _on_held(self, span: MessageSpan) -> None:  # noqa: B027
        """Handle that a commit holds *span*, which was ready or in flight."""

    def _update_active(self, effects: list[Effect]) -> None:  # noqa: B027
        """Choose the active consumer, before messages are delivered."""

    def _on_waiting_done(self, base: int, end: int) -> None:  # noqa: B027
        """Handle that messages of ``base … end`` became done while not in flight."""

    # Common to all types.

    def _complete(
        self, effects: list[Effect], now: float, *, has_cursor_moved: bool = False
    ) -> list[Effect]:
        """Append to *effects* the consequences of an event."""
        if self._needs_slow_path:
            self._expire(now, effects)
            for each in effects:
                if isinstance(each, Drop):
                    has_cursor_moved = True
                    self._on_waiting_done(each.base, each.end)
        if has_cursor_moved or self._has_failed:
            self._has_failed = False
            # next_offset is never done, so the cursor cannot pass it.
            assert self.cursor.offset <= self.next_offset
            effects.append(SaveCursor())
        if self._needs_slow_path:
            self._update_active(effects)
        if self.ready_count and not self._is_paused:
            self._deliver_ready(now, effects)
        if not self.ready_count:
            # The rest became done while it was ready.
            self._ready.clear()
        if self._needs_slow_path:
            self._wait_for_rate(now)
            self._needs_slow_path = self._check_slow_path()
        return effects

    def _plan_whole_batches(  # noqa: B027  # Most types divide no batches.
        self, base: int, end: int, following: int
    ) -> None:
        """Divide no batch if ``base … end`` and the *following* messages suffice."""

    def _accept(self, span: MessageSpan) -> None:
        self.ready_count += self.cursor.open_count(span.base, span.end)
        self._ready.add_new(span)

    def _accept_in_window(
        self, span: MessageSpan, due: float | None, now: float, effects: list[Effect]
    ) -> None:
        span.open_count = self.cursor.open_count(span.base, span.end)
        if not span.open_count:
            return
        if span.expires is not None:
            if span.expires <= now:
                self.deferred.expire(span, effects)
                return
            self._expiries.add(span.expires, span.base, span.end)
        if due is not None and due > now:
            self.deferred.delay(span, due)
        elif not span.failures:
            self.ready_count += span.open_count
            self._ready.add_new(span)
        elif not self.deferred.give_up_final(span, effects):
            self.ready_count += span.open_count
            self._ready.put_back(span)

    def _fail(
        self,
        spans: list[MessageSpan],
        reason: str,
        requested_s: float,
        now: float,
        effects: list[Effect],
    ) -> None:
        """Apply the failure policy to *spans*, which were in flight."""
        for span in spans:
            self._on_returned(span)
            span.attempt += 1
            span.failures += 1
            span.reason = reason
            self._has_failed = True
            self.deferred.note_failure(span)
            if _has_expired(span, now):
                self.deferred.expire(span, effects)
            elif self.deferred.fail(span, now, requested_s, effects):
                self._put_back([span], now, effects)

    def _put_back(
        self, spans: list[MessageSpan], now: float, effects: list[Effect]
    ) -> None:
        """Make *spans* ready, except those that have expired."""
        # Backwards: the spans are usually in order, so each insertion is an append.
        for span in reversed(spans):
            if _has_expired(span, now):
                self.deferred.expire(span, effects)
            else:
                self.ready_count += span.open_count
                self._ready.put_back(span)

    def _expire(self, now: float, effects: list[Effect]) -> None:
        """Drop or park expired messages that are not in flight."""
        while (expired := self._expiries.pop_expired(now)) is not None:
            ready = self._ready.withdraw(*expired)
            self.ready_count -= sum(span.open_count for span in ready)
            for span in (*self.deferred.withdraw(*expired), *ready):
                self.deferred.expire(span, effects)

    def _mark_ahead(self, base: int, end: int) -> int:
        """Mark untracked messages of ``base … end`` as done; return their number."""
        base = max(base, self.next_offset)
        if base >= end or (self._is_cursor_full() and base > self.cursor.offset):
            return 0
        count = self.cursor.mark(base, end)
        self.next_offset = self.cursor.skip_done(self.next_offset)
        return count

    def _on_returned(self, span: MessageSpan) -> None:
        """Note that *span* is no longer in flight."""
        self.returned_count += 1
        self._reduce_unacked(span.consumer, span.open_count)

    def _reduce_unacked(self, consumer: int, count: int) -> None:
        credit = self.consumers.get(consumer)
        if credit is not None:
            credit.unacked -= count
            self.freed.add(consumer)
            if credit.unacked_max is not None:
                self._on_credit_changed(consumer)

    def _delivery_limit(self, now: float) -> int:
        """Return how many messages limits and rate allow now."""
        room = UNLIMITED
        if self._limits.unacked_messages_max is not None:
            room = self._limits.unacked_messages_max - self.in_flight.count
        if self._bucket is not None:
            room = min(room, self._bucket.available(now))
        return room

    def _read_ahead_limit(self) -> int:
        """Return how many messages may be ready, regardless of credit."""
        if (
            self._is_paused
            or self._is_new_blocked()
            or len(self.deferred) >= self._deferred_spans_max
        ):
            return 0
        room = UNLIMITED
        if self._limits.unacked_messages_max is not None:
            room = self._limits.unacked_messages_max - self.in_flight.count
        if self._bucket is not None:
            room = min(room, self._bucket.capacity)
        return room

    def _first_deliveries_end(self) -> int:
        """Return the offset below which first deliveries are allowed."""
        if self._needs_slow_path and self._is_new_blocked():
            return 0
        if (self.in_flight.count or self._has_deferred()) and self._is_cursor_full():
            # Messages in the gaps may join done ranges; those above would only add
            # ranges.
            last = self.cursor.done.last()
            return 0 if last is None else last[1]
        return OFFSET_MAX

    def _wait_for_rate(self, now: float) -> None:
        self._rate_deadline = None
        bucket = self._bucket
        waiting = self._deliverable_count()
        if bucket is None or self._is_paused or not waiting:
            return
        if self._credit_messages() and not bucket.available(now):
            self._rate_deadline = bucket.next_time(waiting, now)

    def _has_deferred(self) -> bool:
        """Return whether any message waits, blocks or is parked."""
        return self._needs_slow_path and self.deferred.count > 0

    def _is_cursor_full(self) -> bool:
        return len(self.cursor.done) >= self._done_ranges_max

    def _check_slow_path(self) -> bool:
        """Return whether anything but ready and in-flight messages needs attention."""
        return (
            len(self.deferred) > 0
            or bool(self._expiries)
            or self._bucket is not None
            or self._is_paused
            or self._limits.unacked_messages_max is not None
        )


def _has_expired(span: MessageSpan, now: float) -> bool:
    return span.expires is not None and span.expires <= now
