"""An exclusive subscription: it refuses a second consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.single_active import SingleActiveSubscription
from pydanube.model.errors import ConsumerBusy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.effects import Effect


class ExclusiveSubscription(SingleActiveSubscription):
    """One consumer receives all messages, in order."""

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
        Add the consumer; it receives nothing before it gives credit.

        Raises:
            ConsumerBusy: The subscription has another consumer.
        """
        if self._credits:
            raise ConsumerBusy("the exclusive subscription has another consumer")
        return super().on_consumer_joined(
            consumer, now, priority=priority, key_filters=key_filters, name=name
        )
