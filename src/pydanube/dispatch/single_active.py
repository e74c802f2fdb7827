"""Subscriptions with a single active consumer: exclusive and failover."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from pydanube.dispatch.unkeyed import UnkeyedSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.effects import Effect


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

    _active: int | None = None
    # The next active consumer; the same as _active, except during a switch.
    _successor: int | None = None

    def _init_state(self) -> None:
        super()._init_state()
        # A heap of candidates: priority, serial number, consumer.  It contains some
        # consumers that left, but at most as many as are present.
        self._successors: list[tuple[int, int, int]] = []
        self._serials: dict[int, int] = {}
        self._next_serial = count()

    def on_consumer_joined(
        self,
        consumer: int,
        now: float,
        *,
        priority: int = 0,
        key_filters: Sequence[str] = (),
        name: str = "",
    ) -> list[Effect]:
        """Add a consumer; see the base class."""
        self._serials[consumer] = serial = next(self._next_serial)
        heappush(self._successors, (priority, serial, consumer))
        successor = self._successor
        if successor is None or priority < self._credits[successor].priority:
            self._successor = consumer
        return super().on_consumer_joined(
            consumer, now, priority=priority, key_filters=key_filters, name=name
        )

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
        if consumer == self._active:
            self._active = None
        return super().on_consumer_left(consumer, now)

    @property
    def active(self) -> int | None:
        """The active consumer, or None."""
        return self._active

    def _find_successor(self) -> int | None:
        while self._successors and not self._is_present(self._successors[0]):
            heappop(self._successors)
        return self._successors[0][2] if self._successors else None

    def _is_present(self, successor: tuple[int, int, int]) -> bool:
        return self._serials.get(successor[2]) == successor[1]

    def _update_active(self, effects: list[Effect]) -> None:
        if self._successor != self._active and not self._in_flight.count:
            former, self._active = self._active, self._successor
            self._on_active_changed(former, effects)

    def _check_slow_path(self) -> bool:
        return self._successor != self._active or super()._check_slow_path()

    def _on_active_changed(self, former: int | None, effects: list[Effect]) -> None:
        """Handle that another consumer has become active."""

    def _find_next_consumer(self) -> int | None:
        active = self._active
        if active is None or active != self._successor:
            return None
        return active if self._credits[active] else None

    def _count_per_consumer(self, count: int) -> int:
        return count

    def _credit_messages(self) -> int:
        consumer = self._find_next_consumer()
        return 0 if consumer is None else self._credits[consumer].allowance

    def _on_credit_changed(self, consumer: int) -> None:
        """Do nothing: the active consumer stays."""

    def _on_delivered(self, consumer: int) -> None:
        """Do nothing: the active consumer stays."""
