"""One consumer at a time: what exclusive and failover subscriptions share."""

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
    One consumer is active and gets everything.

    It is the one with the lowest priority value, and among equals the one that came
    first.  When a better one comes, nothing more is delivered to the active one, and
    it is followed as soon as nothing is in flight with it any more: what it had is
    done, or came back.  (Without an ack timeout that may last as long as it is there.)

    Ordering: Each message is delivered for the first time in the order of
    offsets, unless it was delayed; and never while another consumer has one.
    """

    _active: int | None = None
    # Who is to be active: the same, but while the active one still has messages.
    _heir: int | None = None

    def _begin(self) -> None:
        super()._begin()
        # Candidates for the heir, best first: priority, order of coming, consumer.
        # It holds some that are gone, but never more of them than are there.
        self._heirs: list[tuple[int, int, int]] = []
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
        """A consumer is there; see the base class."""
        self._serials[consumer] = serial = next(self._next_serial)
        heappush(self._heirs, (priority, serial, consumer))
        heir = self._heir
        if heir is None or priority < self._credits[heir].priority:
            self._heir = consumer
        return super().on_consumer_joined(
            consumer, now, priority=priority, key_filters=key_filters, name=name
        )

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; if it was active, another becomes it."""
        del self._serials[consumer]
        if consumer == self._heir:
            self._heir = self._find_heir()
        elif len(self._heirs) > 2 * len(self._serials) + 1:
            self._heirs = [each for each in self._heirs if self._is_there(each)]
            heapify(self._heirs)
        if consumer == self._active:
            self._active = None
        return super().on_consumer_left(consumer, now)

    @property
    def active(self) -> int | None:
        """The consumer that gets the messages, if any is there."""
        return self._active

    def _find_heir(self) -> int | None:
        while self._heirs and not self._is_there(self._heirs[0]):
            heappop(self._heirs)
        return self._heirs[0][2] if self._heirs else None

    def _is_there(self, heir: tuple[int, int, int]) -> bool:
        return self._serials.get(heir[2]) == heir[1]

    def _hand_over(self, effects: list[Effect]) -> None:
        if self._heir != self._active and not self._in_flight.count:
            former, self._active = self._active, self._heir
            self._on_handed_over(former, effects)

    def _is_anything_special(self) -> bool:
        return self._heir != self._active or super()._is_anything_special()

    def _on_handed_over(self, former: int | None, effects: list[Effect]) -> None:
        """Another consumer has become active."""

    def _find_next(self) -> int | None:
        active = self._active
        if active is None or active != self._heir:
            return None
        return active if self._credits[active] else None

    def _count_per_consumer(self, count: int) -> int:
        return count

    def _credit_messages(self) -> int:
        consumer = self._find_next()
        return 0 if consumer is None else self._credits[consumer].allowance

    def _on_credit_changed(self, consumer: int) -> None:
        """It changes nobody's turn."""

    def _on_served(self, consumer: int) -> None:
        """It changes nobody's turn."""
