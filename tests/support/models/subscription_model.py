"""
A model of a subscription as sets of single offsets: slow and obvious.

The model does not choose consumers.  It receives the same events as the machine,
checks each of the machine's effects against the rules, and applies them.  Where the
rules leave no choice (parked, dropped, due and blocked messages), it computes the
result itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    Drop,
    Park,
    SaveCursor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.model.ranges import Range
    from pydanube_broker.dispatch.effects import Effect
    from pydanube_broker.dispatch.machine import SubscriptionMachine
    from pydanube_broker.dispatch.message_spans import DeliveryWindow


class SubscriptionModel:
    """The rules of a subscription, checked after each event."""

    def __init__(
        self,
        kind: SubscriptionType,
        offset: int,
        done: set[int],
        policy: FailurePolicy,
        *,
        done_ranges_max: int,
        deferred_spans_max: int,
    ) -> None:
        self.kind = kind
        self.policy = policy
        self.ack_timeout_s = policy.ack_timeout_s
        self.is_timeout_given = False
        self.limits = DispatchLimits()
        self.is_paused = False
        self.bucket: Bucket | None = None
        self.rate_deadline: float | None = None
        self.done_ranges_max = done_ranges_max
        self.deferred_spans_max = deferred_spans_max
        # Consumers.
        self.credits: dict[int, list[int]] = {}
        self.priorities: dict[int, int] = {}
        self.active: int | None = None
        # Messages: each one below tracked_end that is not done is in one of these.
        self.done = set(range(offset)) | done
        self.tracked_end = offset
        self.ready: set[int] = set()
        self.in_flight: dict[int, tuple[int, float | None]] = {}
        self.waiting: dict[int, float] = {}
        self.blocked: set[int] = set()
        self.parked: dict[int, float | None] = {}
        self.held: set[int] = set()
        # Properties of messages.
        self.batch_of: dict[int, tuple[int, int, int]] = {}
        self.expires: dict[int, float] = {}
        self.was_delayed: set[int] = set()
        self.deliveries: dict[int, int] = {}
        self.failures: dict[int, int] = {}
        self.reasons: dict[int, str] = {}
        self.expired: set[int] = set()
        self.expired_through = 0.0
        self.first_delivered: list[int] = []
        # The effects that the machine must return for the current event.
        self.is_save_due = False
        self.states: list[Effect] = []
        self.to_drop: dict[int, tuple[str, bool]] = {}
        self.to_park: dict[int, tuple[int, str, bool]] = {}

    # Events, as for the machine.

    def on_consumer_joined(self, consumer: int, priority: int) -> None:
        self.credits[consumer] = [0, 0]
        self.priorities[consumer] = priority
        if self.kind is SubscriptionType.FAILOVER and (
            self.in_flight or self.successor != consumer
        ):
            self.states = [BecomeStandby(consumer)]

    def on_consumer_left(self, consumer: int, now: float) -> None:
        del self.credits[consumer]
        del self.priorities[consumer]
        if self.active == consumer:
            self.active = None
        self._lose(consumer, now)

    def on_consumer_replaced(self, consumer: int, now: float) -> None:
        self.credits[consumer] = [0, 0]
        self._lose(consumer, now)
        if self.kind is SubscriptionType.FAILOVER:
            was, successor = self.active, self.successor
            if was == consumer and successor == consumer:
                self.states = [BecomeActive(consumer)]
            elif was != consumer and (successor != consumer or self.in_flight):
                self.states = [BecomeStandby(consumer)]

    def on_credit(self, consumer: int, messages: int, byte_count: int) -> None:
        self.credits[consumer][0] += messages
        self.credits[consumer][1] += byte_count

    def on_available(
        self,
        base: int,
        end: int,
        byte_count: int,
        now: float,
        windows: Sequence[DeliveryWindow],
    ) -> None:
        for offset in range(max(base, self.tracked_end), end):
            self.batch_of[offset] = (base, end, byte_count)
            if offset in self.done:
                continue
            its = next(
                (each for each in windows if each.base <= offset < each.end), None
            )
            if its is not None and its.expires is not None:
                self.expires[offset] = its.expires
            if its is not None and its.due is not None and its.due > now:
                self.was_delayed.add(offset)
                self.waiting[offset] = its.due
            else:
                self.ready.add(offset)
        self.tracked_end = max(end, self.tracked_end)

    def on_ack(self, ranges: list[Range], end_offset: int = 0) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        ahead = set(range(self.tracked_end, end_offset)) - self.done
        self._finish(offsets & (self._tracked() | ahead))

    def on_nack(
        self, ranges: list[Range], now: float, delay_s: float, reason: str
    ) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        for offset in offsets & set(self.in_flight):
            self._fail(offset, now, delay_s, reason or "not processed")

    def on_release(self, consumer: int, ranges: list[Range], now: float) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        for offset in offsets & set(self.in_flight):
            if self.in_flight[offset][0] == consumer:
                self._return(offset, now)

    def on_extend(
        self,
        consumer: int,
        ranges: list[Range],
        now: float,
        ack_timeout_s: float | None,
    ) -> None:
        timeout_s = ack_timeout_s or self.ack_timeout_s
        offsets = {o for base, end in ranges for o in range(base, end)}
        for offset in offsets & set(self.in_flight):
            holder, deadline = self.in_flight[offset]
            if holder == consumer and None not in (deadline, timeout_s):
                self.in_flight[offset] = consumer, max(deadline, now + timeout_s)

    def can_hold(self, ranges: list[Range]) -> bool:
        delayed = {o for o in self.waiting if not self.failures.get(o)}
        free = self._tracked() - delayed - set(self.parked) - self.held
        return free.issuperset(o for base, end in ranges for o in range(base, end))

    def on_hold(self, ranges: list[Range]) -> None:
        for offset in [o for base, end in ranges for o in range(base, end)]:
            if offset not in self.in_flight:
                # It was delivered before, perhaps by an earlier owner.
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
            self._take(offset)
            self.held.add(offset)

    def on_commit(self, ranges: list[Range]) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        self._finish(offsets - self.done)

    def on_commit_refused(self, ranges: list[Range]) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        for offset in sorted(offsets & self.held):
            self._apply_policy(offset)

    def on_time(self, now: float) -> None:
        self._expire(now)
        due = [o for o, time in self.waiting.items() if time <= now]
        retried = [o for o, t in self.parked.items() if t is not None and t <= now]
        for offset, (_, deadline) in list(self.in_flight.items()):
            if deadline is not None and deadline <= now:
                self._fail(offset, now, 0.0, "not acknowledged in time")
        for offset in due:
            del self.waiting[offset]
            self.ready.add(offset)
        for offset in retried:
            self._apply_policy(offset)

    def on_seek(self, offset: int) -> None:
        self.is_save_due = self.done != set(range(offset))
        self.done = set(range(offset))
        self.tracked_end = offset
        for state in (
            self.ready,
            self.in_flight,
            self.waiting,
            self.blocked,
            self.parked,
            self.held,
            self.expires,
            self.was_delayed,
            self.deliveries,
            self.failures,
            self.expired,
            self.first_delivered,
        ):
            state.clear()

    def on_parked(self, ranges: list[Range]) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        self._finish(offsets & set(self.parked))

    def on_park_failed(self, base: int, end: int, retry_at: float) -> None:
        for offset in set(range(base, end)) & set(self.parked):
            self.parked[offset] = retry_at

    def set_failure_policy(self, policy: FailurePolicy, now: float) -> None:
        self.policy = policy
        latest = now + policy.redelivery_delay_s_max
        for offset in [o for o in self.waiting if self.failures.get(o)]:
            if self.failures[offset] > policy.redeliveries_max:
                self._apply_policy(offset)
            else:
                self.waiting[offset] = min(self.waiting[offset], latest)
        failed = [o for o, time in self.parked.items() if time is not None]
        for offset in [*self.blocked, *failed]:
            self._apply_policy(offset)
        if not self.is_timeout_given:
            self._change_ack_timeout(policy.ack_timeout_s, now)

    def set_ack_timeout(self, ack_timeout_s: float, now: float) -> None:
        self.is_timeout_given = True
        self._change_ack_timeout(ack_timeout_s, now)

    def _change_ack_timeout(self, timeout_s: float | None, now: float) -> None:
        if self.ack_timeout_s == timeout_s:
            return
        self.ack_timeout_s = timeout_s
        latest = None if timeout_s is None else now + timeout_s
        for offset, (consumer, deadline) in self.in_flight.items():
            earlier = latest
            if latest is not None and deadline is not None:
                earlier = min(latest, deadline)
            self.in_flight[offset] = consumer, earlier

    def set_rate(self, messages_per_s: float | None, now: float) -> None:
        if messages_per_s is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = Bucket(messages_per_s, now)
        else:
            self.bucket.refill(now)
            self.bucket.set_rate(messages_per_s)

    # Consequences without a choice.

    def _lose(self, consumer: int, now: float) -> None:
        for offset in [o for o, (c, _) in self.in_flight.items() if c == consumer]:
            self._return(offset, now)

    def _fail(self, offset: int, now: float, requested_s: float, reason: str) -> None:
        self.failures[offset] = number = self.failures.get(offset, 0) + 1
        self.reasons[offset] = reason
        self.is_save_due = True
        if number > self.policy.redeliveries_max and not self._is_over(offset, now):
            self._apply_policy(offset)
            return
        policy = self.policy
        delay_s = policy.redelivery_delay_s
        if policy.backoff is Backoff.EXPONENTIAL:
            delay_s *= 2 ** (number - 1)
        delay_s = min(max(delay_s, requested_s), policy.redelivery_delay_s_max)
        self._return(offset, now)
        if delay_s > 0:
            self.ready.remove(offset)
            self.waiting[offset] = now + delay_s

    def _return(self, offset: int, now: float) -> None:
        self._take(offset)
        self.ready.add(offset)

    def _apply_policy(self, offset: int) -> None:
        """Apply the policy to *offset*, which is or was given up."""
        policy = self.policy
        has_failed = self.failures.get(offset, 0) > policy.redeliveries_max
        parks = policy.dead_letter_topic is not None
        self._take(offset)
        if offset in self.expired:
            self._give_up(offset, parks=policy.dead_letter_expired and parks)
        elif not has_failed:
            self.ready.add(offset)
        elif policy.poison is PoisonPolicy.DROP:
            self._give_up(offset, parks=False)
        elif policy.poison is PoisonPolicy.DEAD_LETTER and parks:
            self._give_up(offset, parks=True)
        else:
            self.blocked.add(offset)

    def _give_up(self, offset: int, *, parks: bool) -> None:
        is_expired = offset in self.expired
        reason = "expired" if is_expired else self.reasons[offset]
        if parks:
            self.parked[offset] = None
            delivered = self.deliveries.get(offset, 0)
            self.to_park[offset] = delivered, reason, is_expired
        else:
            self._finish({offset})
            self.to_drop[offset] = reason, is_expired

    def _expire(self, now: float) -> None:
        self.expired_through = now
        for offset in self.ready | set(self.waiting) | self.blocked:
            if self._is_over(offset, now):
                self.expired.add(offset)
                self._apply_policy(offset)

    def _is_over(self, offset: int, now: float) -> bool:
        return offset in self.expires and self.expires[offset] <= now

    def _finish(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._take(offset)
            self.done.add(offset)
            self.is_save_due = True

    def _take(self, offset: int) -> None:
        """Remove *offset* from its state, if it has one."""
        self.ready.discard(offset)
        self.blocked.discard(offset)
        self.held.discard(offset)
        for state in (self.in_flight, self.waiting, self.parked):
            state.pop(offset, None)

    # Checks of effects.

    def check(
        self, effects: list[Effect], machine: SubscriptionMachine, now: float
    ) -> None:
        """Check *effects*, apply them, and compare the state of the machine."""
        self._expire(now)
        self._switch_active()
        saves = [effect for effect in effects if isinstance(effect, SaveCursor)]
        assert len(saves) == self.is_save_due
        states = [e for e in effects if isinstance(e, BecomeActive | BecomeStandby)]
        assert states == self.states
        self._check_given_up(effects)
        deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
        assert effects[len(effects) - len(deliveries) :] == deliveries
        if self.bucket is not None:
            self.bucket.refill(now)
        assert not deliveries or not self.is_paused
        before: Deliver | None = None
        for delivery in deliveries:
            self._check_delivery(delivery, before)
            self._follow(delivery, now)
            before = delivery
        self._check_no_message_waits_needlessly()
        self._update_rate_deadline(now)
        self.is_save_due = False
        self.states = []
        self.check_queries(machine)

    def _switch_active(self) -> None:
        if self.kind is SubscriptionType.SHARED:
            return
        successor = self.successor
        if successor != self.active and not self.in_flight:
            if self.kind is SubscriptionType.FAILOVER:
                if self.active is not None:
                    self.states.append(BecomeStandby(self.active))
                if successor is not None:
                    self.states.append(BecomeActive(successor))
            self.active = successor

    def _check_given_up(self, effects: list[Effect]) -> None:
        parked: dict[int, tuple[int, str, bool]] = {}
        dropped: dict[int, tuple[str, bool]] = {}
        for effect in effects:
            if isinstance(effect, Park | Drop):
                offsets = range(effect.base, effect.end)
                assert len({self.batch_of[offset] for offset in offsets}) == 1
                assert not set(offsets) & (set(parked) | set(dropped))
            if isinstance(effect, Park):
                its = effect.attempt, effect.reason, effect.is_expired
                parked |= dict.fromkeys(offsets, its)
            elif isinstance(effect, Drop):
                dropped |= dict.fromkeys(offsets, (effect.reason, effect.is_expired))
        assert parked == self.to_park
        assert dropped == self.to_drop
        self.to_park, self.to_drop = {}, {}

    def _check_delivery(self, delivery: Deliver, before: Deliver | None) -> None:
        assert not delivery.bits
        offsets = range(delivery.base, delivery.end)
        assert len(offsets) > 0
        assert self.ready.issuperset(offsets), "delivered what was not ready"
        attempts = {self.deliveries.get(offset, 0) + 1 for offset in offsets}
        assert attempts == {delivery.attempt}
        assert len({self.batch_of[offset] for offset in offsets}) == 1
        messages, byte_count = self._allowance(delivery.consumer)
        assert len(offsets) <= messages, "more than the credit"
        assert byte_count > 0, "no byte credit at all"
        assert len(offsets) <= self._delivery_limit(), "more than limits and rate allow"
        assert delivery.consumer in self._eligible(), "another consumer is next"
        base, end, size = self.batch_of[delivery.base]
        fair = size * len(offsets) / (end - base)
        assert abs(delivery.byte_count - fair) < 1
        returned = {o for o in self.ready if self.deliveries.get(o, 0)}
        assert delivery.base == min(returned or self.ready), "out of order"
        # One span may be shared out in several deliveries.
        goes_on = before is not None and before.end == delivery.base
        if not returned and not goes_on:
            assert delivery.base < self._first_deliveries_end(), (
                "nothing new is to be delivered"
            )
        assert before is None or not (
            before.end == delivery.base
            and before.consumer == delivery.consumer
            and before.attempt == delivery.attempt
            and self.batch_of[before.base] == self.batch_of[delivery.base]
        ), "one delivery would have done"
        if self.kind is not SubscriptionType.SHARED:
            assert {consumer for consumer, _ in self.in_flight.values()} <= {
                delivery.consumer
            }, "another consumer still has messages"

    def _follow(self, delivery: Deliver, now: float) -> None:
        timeout_s = self.ack_timeout_s
        deadline = None if timeout_s is None else now + timeout_s
        for offset in range(delivery.base, delivery.end):
            self._take(offset)
            self.in_flight[offset] = delivery.consumer, deadline
            self.deliveries[offset] = delivery.attempt
            if delivery.attempt == 1 and offset not in self.was_delayed:
                self.first_delivered.append(offset)
        credit = self.credits[delivery.consumer]
        credit[0] -= delivery.end - delivery.base
        credit[1] -= delivery.byte_count
        if self.bucket is not None:
            self.bucket.tokens -= delivery.end - delivery.base
        mine = self.first_delivered
        assert mine == sorted(mine)

    def _check_no_message_waits_needlessly(self) -> None:
        if self.is_paused or not self._eligible() or self._delivery_limit() <= 0:
            return
        assert not {o for o in self.ready if self.deliveries.get(o, 0)}
        assert not {o for o in self.ready if o < self._first_deliveries_end()}

    def _update_rate_deadline(self, now: float) -> None:
        self.rate_deadline = None
        bucket = self.bucket
        if bucket is None or self.is_paused or not self.ready or not self._eligible():
            return
        if not bucket.available:
            self.rate_deadline = bucket.next_time(len(self.ready), now)

    def check_queries(self, machine: SubscriptionMachine) -> None:
        """Compare the state of the machine with the model."""
        offset = self.offset
        assert machine.cursor.offset == offset
        assert list(machine.cursor.done) == self._done_ranges()
        assert machine.in_flight.count == len(self.in_flight)
        assert machine.ready_count == len(self.ready)
        assert machine.deferred.waiting.count == len(self.waiting)
        assert machine.deferred.parked.count == len(self.parked)
        assert machine.deferred.held.count == len(self.held)
        blocked = [
            o
            for base, end in machine.deferred.blocked.ranges()
            for o in range(base, end)
        ]
        assert blocked == sorted(self.blocked)
        assert list(machine.consumers) == list(self.credits)
        holders = [consumer for consumer, _ in self.in_flight.values()]
        for consumer, (messages, byte_count) in self.credits.items():
            credit = machine.consumers[consumer]
            assert (credit.messages, credit.byte_count) == (messages, byte_count)
            assert credit.unacked == holders.count(consumer)
        if self.kind is not SubscriptionType.SHARED:
            assert machine.active == self.active
        self._check_next_deadline(machine.next_deadline())
        # The machine may skip done messages.
        assert machine.next_offset >= self.tracked_end
        assert self.done.issuperset(range(self.tracked_end, machine.next_offset))
        self.tracked_end = machine.next_offset
        end_offset = self.tracked_end + 3
        backlog = sum(o not in self.done for o in range(end_offset))
        assert machine.cursor.backlog(end_offset) == backlog
        self._check_demand(machine.demand())

    def _check_next_deadline(self, deadline: float | None) -> None:
        assert deadline == pytest.approx(self._next_deadline())

    def _next_deadline(self) -> float | None:
        times = [
            *(deadline for _, deadline in self.in_flight.values()),
            *self.waiting.values(),
            *self.parked.values(),
            *(
                time
                for offset, time in self.expires.items()
                if offset not in self.done and time > self.expired_through
            ),
            self.rate_deadline,
        ]
        return min((time for time in times if time is not None), default=None)

    def _check_demand(self, demand: int) -> None:
        could = sum(self._allowance(c)[0] for c in self._having_credit())
        if self.bucket is not None:
            could = min(could, self.bucket.capacity)
        unacked_max = self.limits.unacked_messages_max
        if unacked_max is not None:
            could = min(could, unacked_max - len(self.in_flight))
        could = max(0, could - len(self.ready))
        if self.is_paused or self.blocked or (self._is_full() and self._tracked()):
            could = 0
        deferred = self._deferred()
        # Neighbouring spans, also with done messages in between, may be one.
        undone = sorted(self._tracked())
        pairs = zip([None, *undone], undone, strict=False)
        runs = sum(o in deferred and before not in deferred for before, o in pairs)
        if runs >= self.deferred_spans_max:
            assert demand == 0
        elif len(deferred) < self.deferred_spans_max:
            assert demand == could
        else:
            # The machine may divide them into any number of spans.
            assert demand in {0, could}

    # State.

    @property
    def successor(self) -> int | None:
        return min(self.priorities, key=self.priorities.__getitem__, default=None)

    @property
    def offset(self) -> int:
        return next(o for o in range(len(self.done) + 1) if o not in self.done)

    def _tracked(self) -> set[int]:
        return self.ready | set(self.in_flight) | self._deferred()

    def _deferred(self) -> set[int]:
        return set(self.waiting) | self.blocked | set(self.parked) | self.held

    def _allowance(self, consumer: int) -> tuple[int, int]:
        messages, byte_count = self.credits[consumer]
        unacked_max = self.limits.unacked_messages_max_per_consumer
        if unacked_max is not None:
            has = sum(holder == consumer for holder, _ in self.in_flight.values())
            messages = min(messages, unacked_max - has)
        return messages, byte_count

    def _having_credit(self) -> list[int]:
        """Return the consumers that may receive messages, now or after others."""
        having = [c for c in self.credits if min(self._allowance(c)) > 0]
        if self.kind is SubscriptionType.SHARED:
            return having
        return [c for c in having if c == self.active == self.successor]

    def _eligible(self) -> list[int]:
        having = self._having_credit()
        first = min((self.priorities[c] for c in having), default=None)
        return [c for c in having if self.priorities[c] == first]

    def _delivery_limit(self) -> int:
        room = 1 << 60
        if self.limits.unacked_messages_max is not None:
            room = self.limits.unacked_messages_max - len(self.in_flight)
        if self.bucket is not None:
            room = min(room, self.bucket.available)
        return room

    def _first_deliveries_end(self) -> int:
        """Return the offset below which first deliveries are allowed."""
        if self.blocked:
            return 0
        if self._is_full() and (self.in_flight or self._deferred()):
            return max(self.done) + 1
        return 1 << 60

    def _is_full(self) -> bool:
        return len(self._done_ranges()) >= self.done_ranges_max

    def _done_ranges(self) -> list[Range]:
        offset = self.offset
        above = sorted(o for o in self.done if o > offset)
        return list(RangeSet((o, o + 1) for o in above))


class Bucket:
    """The tokens of a rate."""

    def __init__(self, per_s: float, now: float) -> None:
        self.per_s = per_s
        self.tokens = max(1.0, per_s)
        self.at = now

    @property
    def capacity(self) -> int:
        return int(max(1.0, self.per_s))

    @property
    def available(self) -> int:
        return int(self.tokens + 1e-3)

    def refill(self, now: float) -> None:
        self.tokens += (now - self.at) * self.per_s
        self.tokens = min(self.tokens, max(1.0, self.per_s))
        self.at = now

    def set_rate(self, per_s: float) -> None:
        self.per_s = per_s
        self.tokens = min(self.tokens, max(1.0, per_s))

    def next_time(self, waiting: int, now: float) -> float:
        worthwhile = min(waiting, max(1, int(self.per_s / 100)))
        return now + max(0.0, worthwhile - self.tokens) / self.per_s
