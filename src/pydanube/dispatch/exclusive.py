"""An exclusive subscription: one consumer, and a second one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.single_active import SingleActiveSubscription
from pydanube.model.errors import ConsumerBusy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.effects import Effect


class ExclusiveSubscription(SingleActiveSubscription):
    """One consumer gets everything, in order."""

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
        The consumer is there; it gets nothing before it gives credit.

        Raises:
            ConsumerBusy: There is another one.
        """
        if self._credits:
            raise ConsumerBusy("the exclusive subscription has another consumer")
        return super().on_consumer_joined(
            consumer, now, priority=priority, key_filters=key_filters, name=name
        )
