"""A shared subscription: every message goes to one of the consumers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydanube.dispatch.machine import DONE_RANGES_MAX, SubscriptionMachine

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.effects import Effect
    from pydanube.dispatch.flow import Credit


class SharedSubscription(SubscriptionMachine):
    """
    The consumers that have credit take turns.

    A batch is cut into equal parts, one for each of them, so that few messages
    are spread as evenly as many.  A consumer without credit loses its turn and
    nothing else; it stops nobody.
    """

    def __init__(
        self,
        cursor: Cursor,
        *,
        ack_timeout_s: float | None = None,
        done_ranges_max: int = DONE_RANGES_MAX,
    ) -> None:
        """Go on from *cursor*, which the machine keeps and moves."""
        super().__init__(
            cursor, ack_timeout_s=ack_timeout_s, done_ranges_max=done_ranges_max
        )
        # The consumers with credit; the first one's turn is next.
        self._line: OrderedDict[int, Credit] = OrderedDict()

    def on_consumer_gone(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; what it had is shared by the others."""
        self._line.pop(consumer, None)
        return super().on_consumer_gone(consumer, now)

    def _find_next(self) -> int | None:
        return next(iter(self._line), None)

    def _share_of(self, count: int) -> int:
        return -(-count // len(self._line))

    def _credit_messages(self) -> int:
        return sum(credit.messages for credit in self._line.values())

    def _on_credit_added(self, consumer: int) -> None:
        credit = self._credits[consumer]
        if credit:
            self._line.setdefault(consumer, credit)
        else:
            self._line.pop(consumer, None)

    def _on_served(self, consumer: int) -> None:
        if self._credits[consumer]:
            self._line.move_to_end(consumer)
        else:
            del self._line[consumer]
