"""A failover subscription: one consumer is active, the others stand by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.active import ActiveSubscription
from pydanube.dispatch.effects import BecomeActive, BecomeStandby

if TYPE_CHECKING:
    from pydanube.dispatch.effects import Effect


class FailoverSubscription(ActiveSubscription):
    """
    The active consumer gets everything, in order.

    When it leaves, the standby that came first takes over, beginning with what
    the former one had and did not acknowledge.  A standby may give credit in
    advance.
    """

    def on_consumer_came(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is there; it is active if it is the only one."""
        effects = super().on_consumer_came(consumer, now)
        is_active = self.active == consumer
        state = BecomeActive(consumer) if is_active else BecomeStandby(consumer)
        return [state, *effects]

    def on_consumer_gone(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; if it was active, another becomes it."""
        was_active = self.active == consumer
        effects = super().on_consumer_gone(consumer, now)
        if was_active and self.active is not None:
            return [BecomeActive(self.active), *effects]
        return effects

    def on_consumer_replaced(self, consumer: int, now: float) -> list[Effect]:
        """A consumer began anew in its old place, and is told which one that is."""
        effects = super().on_consumer_replaced(consumer, now)
        is_active = self.active == consumer
        return [
            BecomeActive(consumer) if is_active else BecomeStandby(consumer),
            *effects,
        ]
