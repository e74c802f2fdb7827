"""A failover subscription: one consumer is active, the others are standbys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.effects import BecomeActive, BecomeStandby
from pydanube.dispatch.single_active import SingleActiveSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.effects import Effect


class FailoverSubscription(SingleActiveSubscription):
    """
    The active consumer receives all messages, in order.

    When it leaves, the best of the others takes over, beginning with the messages
    that the former one had not acknowledged.  Standbys may give credit in advance.
    """

    def on_consumer_joined(
        self,
        consumer: int,
        now: float,
        *,
        priority: int = 0,
        key_filters: Sequence[str] = (),
        name: str = "",
    ) -> list[Effect]:
        """Add a consumer, and tell it whether it is active."""
        effects = super().on_consumer_joined(
            consumer, now, priority=priority, key_filters=key_filters, name=name
        )
        if self.active != consumer:
            effects.insert(0, BecomeStandby(consumer))
        return effects

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """Reset a consumer that has reconnected, and tell it whether it is active."""
        was_active = self.active == consumer
        effects = super().on_consumer_replaced(consumer, now)
        if was_active and self.active == consumer:
            effects.insert(0, BecomeActive(consumer))
        elif not was_active and self.active != consumer:
            effects.insert(0, BecomeStandby(consumer))
        return effects

    def _on_active_changed(self, former: int | None, effects: list[Effect]) -> None:
        if former is not None:
            effects.append(BecomeStandby(former))
        if self.active is not None:
            effects.append(BecomeActive(self.active))
