"""
A subscription as sets of single offsets: slow, obvious, and the judge of machines.

The model does not choose who gets what.  It is told the same facts as the machine,
checks each of the machine's effects against the rules, and follows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.effects import BecomeActive, BecomeStandby, Deliver, SaveCursor
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from pydanube.dispatch.effects import Effect
    from pydanube.dispatch.machine import SubscriptionMachine
    from pydanube.model.ranges import Range


class SubscriptionModel:
    """What must hold of a subscription after each fact."""

    def __init__(
        self,
        kind: SubscriptionType,
        offset: int,
        done: set[int],
        ack_timeout_s: float | None,
        done_ranges_max: int,
    ) -> None:
        self.kind = kind
        self.ack_timeout_s = ack_timeout_s
        self.done_ranges_max = done_ranges_max
        self.done = set(range(offset)) | done
        self.in_hand_end = offset
        self.batch_of: dict[int, tuple[int, int, int]] = {}
        self.deliveries: dict[int, int] = {}
        self.ready: set[int] = set()
        self.in_flight: dict[int, tuple[int, float | None]] = {}
        self.credits: dict[int, list[int]] = {}
        self.is_save_due = False
        self.came: list[Effect] = []
        self.first_delivered: dict[int, list[int]] = {}

    # The facts, as they are told to the machine.

    def on_consumer_came(self, consumer: int) -> None:
        self.credits[consumer] = [0, 0]
        if self.kind is SubscriptionType.FAILOVER:
            is_active = self.active == consumer
            self.came = [
                BecomeActive(consumer) if is_active else BecomeStandby(consumer)
            ]

    def on_consumer_gone(self, consumer: int) -> None:
        was_active = self.active == consumer
        del self.credits[consumer]
        if self.kind is SubscriptionType.FAILOVER and was_active and self.credits:
            self.came = [BecomeActive(self.active)]
        self._return(o for o, (c, _) in self.in_flight.items() if c == consumer)

    def on_credit(self, consumer: int, messages: int, byte_count: int) -> None:
        self.credits[consumer][0] += messages
        self.credits[consumer][1] += byte_count

    def on_available(self, base: int, end: int, byte_count: int) -> None:
        for offset in range(max(base, self.in_hand_end), end):
            self.batch_of[offset] = (base, end, byte_count)
            if offset not in self.done:
                self.ready.add(offset)
        self.in_hand_end = max(end, self.in_hand_end)

    def on_ack(self, ranges: list[Range], end_offset: int = 0) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        ahead = set(range(self.in_hand_end, end_offset)) - self.done
        new = offsets & (self.ready | set(self.in_flight) | ahead)
        self.done |= new
        self.ready -= new
        for offset in new:
            self.in_flight.pop(offset, None)
        self.is_save_due = bool(new)

    def on_nack(self, ranges: list[Range]) -> None:
        offsets = {o for base, end in ranges for o in range(base, end)}
        self._return(offsets & set(self.in_flight))

    def on_time(self, now: float) -> None:
        self._return(
            o for o, (_, d) in self.in_flight.items() if d is not None and d <= now
        )

    def on_seek(self, offset: int) -> None:
        self.is_save_due = self.done != set(range(offset))
        self.done = set(range(offset))
        self.in_hand_end = offset
        self.ready.clear()
        self.in_flight.clear()
        self.deliveries.clear()
        self.first_delivered.clear()

    def _return(self, offsets) -> None:
        for offset in list(offsets):
            del self.in_flight[offset]
            self.ready.add(offset)

    # What the machine answered.

    def check(
        self, effects: list[Effect], machine: SubscriptionMachine, now: float
    ) -> None:
        """Judge *effects*, follow them, and compare what the machine then says."""
        saves = [effect for effect in effects if isinstance(effect, SaveCursor)]
        assert len(saves) == self.is_save_due
        states = [e for e in effects if isinstance(e, BecomeActive | BecomeStandby)]
        assert states == self.came == effects[: len(states)]
        before: Deliver | None = None
        for effect in effects:
            if isinstance(effect, Deliver):
                self._check_delivery(effect, before)
                self._follow(effect, now)
                before = effect
        self.is_save_due = False
        self.came = []
        self._check_nobody_waits_in_vain()
        self._check_queries(machine)

    def _check_delivery(self, delivery: Deliver, before: Deliver | None) -> None:
        offsets = range(delivery.base, delivery.end)
        assert len(offsets) > 0
        assert self.ready.issuperset(offsets), "delivered what was not ready"
        attempts = {self.deliveries.get(offset, 0) + 1 for offset in offsets}
        assert attempts == {delivery.attempt}
        assert len({self.batch_of[offset] for offset in offsets}) == 1
        messages, byte_count = self.credits[delivery.consumer]
        assert len(offsets) <= messages, "more than was asked for"
        assert byte_count > 0, "no byte credit at all"
        base, end, size = self.batch_of[delivery.base]
        fair = size * len(offsets) / (end - base)
        assert abs(delivery.byte_count - fair) < 1
        returned = {o for o in self.ready if self.deliveries.get(o, 0)}
        assert delivery.base == min(returned or self.ready), "out of order"
        # One stretch may be shared out in several deliveries.
        goes_on = before is not None and before.end == delivery.base
        if not returned and not goes_on:
            assert not self._is_blocked(), "new messages although there is no room"
        if self.kind is not SubscriptionType.SHARED:
            assert delivery.consumer == self.active
            assert before is None or not (
                before.end == delivery.base
                and before.attempt == delivery.attempt
                and self.batch_of[before.base] == self.batch_of[delivery.base]
            ), "one delivery would have done"

    def _follow(self, delivery: Deliver, now: float) -> None:
        timeout_s = self.ack_timeout_s
        deadline = None if timeout_s is None else now + timeout_s
        for offset in range(delivery.base, delivery.end):
            self.ready.remove(offset)
            self.in_flight[offset] = delivery.consumer, deadline
            self.deliveries[offset] = delivery.attempt
            if delivery.attempt == 1:
                self.first_delivered.setdefault(delivery.consumer, []).append(offset)
        credit = self.credits[delivery.consumer]
        credit[0] -= delivery.end - delivery.base
        credit[1] -= delivery.byte_count
        mine = self.first_delivered.get(delivery.consumer, [])
        assert mine == sorted(mine)

    def _check_nobody_waits_in_vain(self) -> None:
        if not self._eligible():
            return
        returned = {o for o in self.ready if self.deliveries.get(o, 0)}
        assert not returned
        assert not self.ready or self._is_blocked()

    def _check_queries(self, machine: SubscriptionMachine) -> None:
        offset = self.offset
        assert machine.cursor.offset == offset
        assert list(machine.cursor.done) == self._done_ranges()
        assert machine.in_flight_count == len(self.in_flight)
        assert machine.ready_count == len(self.ready)
        assert machine.consumers == tuple(self.credits)
        for consumer, (messages, byte_count) in self.credits.items():
            assert machine.credit_of(consumer) == (messages, byte_count)
        deadlines = [d for _, d in self.in_flight.values() if d is not None]
        assert machine.next_deadline() == min(deadlines, default=None)
        # What is done already need not be brought.
        assert machine.next_offset >= self.in_hand_end
        assert self.done.issuperset(range(self.in_hand_end, machine.next_offset))
        self.in_hand_end = machine.next_offset
        end_offset = self.in_hand_end + 3
        backlog = sum(o not in self.done for o in range(end_offset))
        assert machine.backlog(end_offset) == backlog
        asked = sum(self.credits[c][0] for c in self._eligible())
        wanted = max(0, asked - len(self.ready))
        if self._is_full() and (self.ready or self.in_flight):
            wanted = 0
        assert machine.wanted() == wanted

    # What follows from it.

    @property
    def active(self) -> int | None:
        return next(iter(self.credits), None)

    @property
    def offset(self) -> int:
        return next(o for o in range(len(self.done) + 1) if o not in self.done)

    def _eligible(self) -> list[int]:
        having = [c for c, (m, b) in self.credits.items() if m > 0 and b > 0]
        if self.kind is SubscriptionType.SHARED:
            return having
        return [c for c in having if c == self.active]

    def _is_full(self) -> bool:
        return len(self._done_ranges()) >= self.done_ranges_max

    def _is_blocked(self) -> bool:
        return self._is_full() and bool(self.in_flight)

    def _done_ranges(self) -> list[Range]:
        offset = self.offset
        above = sorted(o for o in self.done if o > offset)
        return list(RangeSet((o, o + 1) for o in above))
