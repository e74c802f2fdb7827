"""A machine and a model that checks it, driven by the same events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pydanube.model.errors import ConsumerBusy
from pydanube.model.policy import DispatchLimits, SubscriptionType
from pydanube.model.range_blocks import bits_of
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Deliver
from pydanube_broker.dispatch.message_spans import DeliveryWindow
from support.models.subscription_model import SubscriptionModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.policy import FailurePolicy
    from pydanube.model.ranges import Range
    from pydanube_broker.dispatch.effects import Effect


class History:
    """One method for each event; each checks the machine's effects."""

    def __init__(
        self,
        kind: SubscriptionType,
        offset: int,
        done: set[int],
        policy: FailurePolicy,
        *,
        done_ranges_max: int,
        deferred_spans_max: int = 1000,
    ) -> None:
        self.kind = kind
        self.done_ranges_max = done_ranges_max
        self.now = 0.0
        self.consumers_ever = 0
        self.machine = MACHINES[kind](
            Cursor(offset, RangeSet((o, o + 1) for o in done)),
            failure_policy=policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )
        self.model = SubscriptionModel(
            kind,
            offset,
            done,
            policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )

    # Events.

    def join(self, priority: int = 0) -> None:
        consumer = self.consumers_ever
        if self.kind is SubscriptionType.EXCLUSIVE and self.machine.consumers:
            with pytest.raises(ConsumerBusy):
                self.machine.on_consumer_joined(consumer, self.now)
            return
        self.consumers_ever += 1
        effects = self.machine.on_consumer_joined(consumer, self.now, priority=priority)
        self.model.on_consumer_joined(consumer, priority)
        self.check(effects)

    def leave(self, consumer: int) -> None:
        effects = self.machine.on_consumer_left(consumer, self.now)
        self.model.on_consumer_left(consumer, self.now)
        self.check(effects)

    def replace(self, consumer: int) -> None:
        effects = self.machine.on_consumer_replaced(consumer, self.now)
        self.model.on_consumer_replaced(consumer, self.now)
        self.check(effects)

    def credit(self, consumer: int, messages: int, byte_count: int) -> None:
        effects = self.machine.on_credit(consumer, messages, byte_count, self.now)
        self.model.on_credit(consumer, messages, byte_count)
        self.check(effects)

    def add_batch(
        self,
        count: int,
        byte_count: int,
        *,
        earlier: int = 0,
        windows: Sequence[tuple[int, int, float | None, float | None]] = (),
    ) -> None:
        """
        Make a batch available that begins *earlier* than the next offset, if possible.

        Each of *windows* is the number of messages to skip, the number of messages in
        the window, and the seconds from now after which they are due and expire.
        """
        base = max(0, self.machine.next_offset - earlier)
        absolute_windows = windows_from(windows, base, base + count, self.now)
        effects = self.machine.on_available(
            base, base + count, byte_count, self.now, absolute_windows
        )
        self.model.on_available(
            base, base + count, byte_count, self.now, absolute_windows
        )
        self.check(effects)

    def ack(self, ranges: list[Range]) -> None:
        # Clients send ranges or bit maps, which mean the same.
        is_valid = all(base < end for base, end in ranges)
        if ranges and is_valid and sum(map(sum, ranges)) % 2:
            base = min(range_base for range_base, _ in ranges)
            bits = bits_of(ranges, base)
            effects = self.machine.on_ack_bits(base, bits, self.now)
        else:
            effects = self.machine.on_ack(ranges, self.now)
        self.model.on_ack(ranges)
        self.check(effects)

    def ack_ahead(self, ahead: int, count: int, beyond: int) -> None:
        """Ack untracked messages, if the cursor has room for them."""
        if len(self.machine.cursor.done) >= self.done_ranges_max:
            return
        base = self.machine.next_offset + ahead
        effects = self.machine.on_ack(
            [(base, base + count + beyond)], self.now, base + count
        )
        self.model.on_ack([(base, base + count + beyond)], base + count)
        self.check(effects)

    def ack_through(self, end: int) -> None:
        effects = self.machine.on_ack([(0, end)], self.now)
        self.model.on_ack([(0, end)])
        self.check(effects)

    def skip(self, count: int, beyond: int) -> None:
        end_offset = self.machine.next_offset + beyond
        undone = [o for o in range(end_offset) if o not in self.model.done][:count]
        cursor = self.machine.cursor
        end = cursor.end_of_open(count, end_offset)
        effects = self.machine.on_ack([(cursor.offset, end)], self.now, end)
        self.model.on_ack([(o, o + 1) for o in undone], end_offset)
        self.check(effects)

    def nack(self, ranges: list[Range], delay_s: float = 0.0, reason: str = "") -> None:
        effects = self.machine.on_nack(ranges, self.now, delay_s=delay_s, reason=reason)
        self.model.on_nack(ranges, self.now, delay_s, reason)
        self.check(effects)

    def release(self, consumer: int, ranges: list[Range]) -> None:
        effects = self.machine.on_release(consumer, ranges, self.now)
        self.model.on_release(consumer, ranges, self.now)
        self.check(effects)

    def extend(
        self, consumer: int, ranges: list[Range], ack_timeout_s: float | None
    ) -> None:
        if ack_timeout_s is None and len(found := list(RangeSet(_valid(ranges)))) > 1:
            # A delivery that is sent late means the same.
            base, end = found[0][0], found[-1][1]
            late = Deliver(consumer, base, end, 1, bits=bits_of(found, base))
            effects = self.machine.on_sent_late(late, self.now)
        else:
            effects = self.machine.on_extend(
                consumer, ranges, self.now, ack_timeout_s=ack_timeout_s
            )
        self.model.on_extend(consumer, ranges, self.now, ack_timeout_s)
        self.check(effects)

    def hold(self, ranges: list[Range]) -> None:
        """Let a commit hold messages, if it may."""
        ranges = list(RangeSet(_valid(ranges)))
        can_hold = self.model.can_hold(ranges)
        assert self.machine.can_hold(ranges) == can_hold
        if can_hold:
            effects = self.machine.on_hold(ranges, self.now)
            self.model.on_hold(ranges)
            self.check(effects)

    def commit(self, ranges: list[Range]) -> None:
        effects = self.machine.on_commit(ranges, self.now)
        self.model.on_commit(ranges)
        self.check(effects)

    def refuse_commit(self, ranges: list[Range]) -> None:
        effects = self.machine.on_commit_refused(ranges, self.now)
        self.model.on_commit_refused(ranges)
        self.check(effects)

    def pass_time(self, passed_s: float) -> None:
        self.now += passed_s
        effects = self.machine.on_time(self.now)
        self.model.on_time(self.now)
        self.check(effects)

    def pass_time_unnoticed(self, passed_s: float) -> None:
        self.now += passed_s

    def seek(self, offset: int) -> None:
        effects = self.machine.on_seek(offset, self.now)
        self.model.on_seek(offset)
        self.check(effects)

    def park(self, base: int, end: int) -> None:
        effects = self.machine.on_parked(base, end, self.now)
        self.model.on_parked([(base, end)])
        self.check(effects)

    def fail_to_park(self, base: int, end: int, retry_s: float) -> None:
        retry_at = self.now + retry_s
        effects = self.machine.on_park_failed(base, end, self.now, retry_at)
        self.model.on_park_failed(base, end, retry_at)
        self.check(effects)

    # Settings.

    def set_policy(self, policy: FailurePolicy) -> None:
        effects = self.machine.set_failure_policy(policy, self.now)
        self.model.set_failure_policy(policy, self.now)
        self.check(effects)

    def set_ack_timeout(self, ack_timeout_s: float) -> None:
        effects = self.machine.set_ack_timeout(ack_timeout_s, self.now)
        self.model.set_ack_timeout(ack_timeout_s, self.now)
        self.check(effects)

    def set_limits(self, all_: int | None, each: int | None) -> None:
        limits = DispatchLimits(
            unacked_messages_max=all_, unacked_messages_max_per_consumer=each
        )
        effects = self.machine.set_limits(limits, self.now)
        self.model.limits = limits
        self.check(effects)

    def set_rate(self, messages_per_s: float | None) -> None:
        effects = self.machine.set_rate(messages_per_s, self.now)
        self.model.set_rate(messages_per_s, self.now)
        self.check(effects)

    def set_paused(self, *, is_paused: bool) -> None:
        effects = self.machine.set_paused(is_paused, self.now)
        self.model.is_paused = is_paused
        self.check(effects)

    # Checks.

    def check(self, effects: list[Effect]) -> None:
        self.model.check(effects, self.machine, self.now)

    def process_all(self) -> None:
        """
        Let all messages be processed, and check that none is left.

        Consumers acknowledge all messages and give credit, also for blocked messages,
        the dead-letter topic works, and time passes to each deadline.
        """
        if not self.machine.consumers:
            self.join()
        self.set_paused(is_paused=False)
        end = self.machine.next_offset + 7
        for _ in range(2000):
            if self.machine.cursor.offset >= end:
                break
            self._process_some(end)
        machine = self.machine
        assert machine.cursor.offset >= end
        assert not machine.ready_count + machine.in_flight.count
        assert not machine.deferred.waiting.count + machine.deferred.parked.count
        assert not machine.deferred.blocked.ranges()
        assert not machine.deferred.held.count
        assert machine.next_deadline() is None

    def _process_some(self, end: int) -> None:
        machine, model = self.machine, self.model
        for consumer, credit in list(machine.consumers.items()):
            owed = max(0, -credit.byte_count)
            self.credit(consumer, 3, owed + 1)
        if machine.demand() and machine.next_offset < end:
            self.add_batch(end - machine.next_offset, 10)
        had = machine.cursor.offset, len(machine.cursor.done)
        self.ack([(o, o + 1) for o in sorted({*model.in_flight, *model.blocked})])
        if model.held:
            self.commit([(o, o + 1) for o in sorted(model.held)])
        for offset in list(model.parked):
            self.park(offset, offset + 1)
        deadline = machine.next_deadline()
        is_idle = had == (machine.cursor.offset, len(machine.cursor.done))
        if is_idle and deadline is not None:
            self.pass_time(max(0.0, deadline - self.now))


def _valid(ranges: list[Range]) -> list[Range]:
    return [(base, end) for base, end in ranges if base < end]


def windows_from(
    windows: Sequence[tuple[int, int, float | None, float | None]],
    base: int,
    end: int,
    now: float,
) -> list[DeliveryWindow]:
    """Return the windows of the batch ``base … end``; see ``add_batch``."""
    absolute_windows, at = [], base
    for skipped, count, due_s, expires_s in windows:
        absolute_windows.append(
            DeliveryWindow(
                at + skipped,
                min(at + skipped + count, end),
                None if due_s is None else now + due_s,
                None if expires_s is None else now + expires_s,
            )
        )
        at += skipped + count
    return [each for each in absolute_windows if each.base < each.end]
