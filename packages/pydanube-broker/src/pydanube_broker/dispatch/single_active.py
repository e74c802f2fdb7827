"""Subscriptions with a single active consumer: exclusive and failover."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from pydanube.model.errors import ConsumerBusy
from pydanube_broker.dispatch.effects import BecomeActive, BecomeStandby, Effect
from pydanube_broker.dispatch.message_spans import MessageSpan
from pydanube_broker.dispatch.unkeyed import UnkeyedSubscription


class SingleActiveSubscription(UnkeyedSubscription):
    """
    One consumer is active and receives all messages.

    The active consumer is the one with the lowest priority value, and among equals
    the one that joined first.  When a better one joins, the active one receives
    nothing more, and is replaced as soon as none of its messages is in flight.
    (Without an ack timeout, that may take until it leaves.)

    Ordering: Messages are delivered for the first time in the order of offsets,
    unless they were delayed; and never while another consumer has messages.
    """

    active: int | None = None
    """The active consumer, or None."""
    # The next active consumer; the same as active, except during a switch.
    _successor: int | None = None

    def _init_state(self) -> None:
        super()._init_state()
        # A heap of candidates: priority, serial number, consumer.  It contains some
        # consumers that left, but at most as many as are present.
        self._successors: list[tuple[int, int, int]] = []
        self._serials: dict[int, int] = {}
        self._next_serial = count()

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """Remove a consumer; if it was active, another one becomes active."""
        del self._serials[consumer]
        if consumer == self._successor:
            self._successor = self._find_successor()
        elif len(self._successors) > 2 * len(self._serials) + 1:
            self._successors = [
                each for each in self._successors if self._is_present(each)
            ]
            heapify(self._successors)
        if consumer == self.active:
            self.active = None
        return super().on_consumer_left(consumer, now)

    def is_active(self, consumer: int) -> bool:
        """Return whether *consumer* is the active one."""
        return consumer == self.active

    def awaits_credit(self, count: int) -> bool:
        """See the base class; with limits, credit does not decide."""
        credit = None if self.active is None else self.consumers.get(self.active)
        return (
            credit is not None
            and not self._needs_slow_path
            and credit.unacked_max is None
            and credit.is_low(count)
        )

    def stop_awaiting_credit(self) -> None:
        if self.active is not None:
            credit = self.consumers[self.active]
            credit.most = credit.messages

    def _admit(
        self, consumer: int, priority: int, key_filters: Sequence[str], name: str
    ) -> list[Effect]:
        self._serials[consumer] = serial = next(self._next_serial)
        heappush(self._successors, (priority, serial, consumer))
        successor = self._successor
        if successor is None or priority < self.consumers[successor].priority:
            self._successor = consumer
        return []

    def _find_successor(self) -> int | None:
        while self._successors and not self._is_present(self._successors[0]):
            heappop(self._successors)
        return self._successors[0][2] if self._successors else None

    def _is_present(self, successor: tuple[int, int, int]) -> bool:
        return self._serials.get(successor[2]) == successor[1]

    def _update_active(self, effects: list[Effect]) -> None:
        if self._successor != self.active and not self.in_flight.count:
            former, self.active = self.active, self._successor
            self._on_active_changed(former, effects)

    def _check_slow_path(self) -> bool:
        return self._successor != self.active or super()._check_slow_path()

    def _on_active_changed(self, former: int | None, effects: list[Effect]) -> None:
        """Handle that another consumer has become active."""

    def _find_next_consumer(self) -> int | None:
        active = self.active
        if active is None or active != self._successor:
            return None
        return active if self.consumers[active] else None

    def _count_per_consumer(self, span: MessageSpan) -> int:
        return span.end - span.base

    def _credit_messages(self) -> int:
        consumer = self._find_next_consumer()
        return 0 if consumer is None else self.consumers[consumer].allowance

    def _on_credit_changed(self, consumer: int) -> None:
        """Do nothing: the active consumer stays."""


class ExclusiveSubscription(SingleActiveSubscription):
    """One consumer receives all messages, in order; a second one is refused."""

    def _admit(
        self, consumer: int, priority: int, key_filters: Sequence[str], name: str
    ) -> list[Effect]:
        if self.consumers:
            raise ConsumerBusy("the exclusive subscription has another consumer")
        return super()._admit(consumer, priority, key_filters, name)


class FailoverSubscription(SingleActiveSubscription):
    """
    The active consumer receives all messages, in order; the others are standbys.

    When it leaves, the best of the others takes over, beginning with the messages
    that the former one had not acknowledged.  Standbys may give credit in advance.
    """

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """Reset a consumer that has reconnected, and tell it whether it is active."""
        was_active = self.active == consumer
        effects = super().on_consumer_replaced(consumer, now)
        if was_active and self.active == consumer:
            effects.insert(0, BecomeActive(consumer))
        elif not was_active and self.active != consumer:
            effects.insert(0, BecomeStandby(consumer))
        return effects

    def _admit(
        self, consumer: int, priority: int, key_filters: Sequence[str], name: str
    ) -> list[Effect]:
        super()._admit(consumer, priority, key_filters, name)
        is_next = self._successor == consumer and not self.in_flight.count
        return [] if is_next else [BecomeStandby(consumer)]

    def _on_active_changed(self, former: int | None, effects: list[Effect]) -> None:
        if former is not None:
            effects.append(BecomeStandby(former))
        if self.active is not None:
            effects.append(BecomeActive(self.active))
