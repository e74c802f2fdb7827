"""One consumer at a time: what exclusive and failover subscriptions share."""

from __future__ import annotations

from pydanube.dispatch.machine import SubscriptionMachine


class ActiveSubscription(SubscriptionMachine):
    """
    The consumer that came first is active and gets everything.

    Ordering: Each message is delivered for the first time in the order of
    offsets.
    """

    @property
    def active(self) -> int | None:
        """The consumer that gets the messages, if any is there."""
        return next(iter(self._credits), None)

    def _find_next(self) -> int | None:
        active = self.active
        return active if active is not None and self._credits[active] else None

    def _share_of(self, count: int) -> int:
        return count

    def _credit_messages(self) -> int:
        consumer = self._find_next()
        return 0 if consumer is None else self._credits[consumer].messages

    def _on_credit_added(self, consumer: int) -> None:
        """It changes nobody's turn."""

    def _on_served(self, consumer: int) -> None:
        """It changes nobody's turn."""
