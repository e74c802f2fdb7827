"""A shared subscription: every message goes to one of the consumers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydanube.dispatch.flow import Allowances
from pydanube.dispatch.turns import SubscriptionInTurns

if TYPE_CHECKING:
    from pydanube.dispatch.effects import Effect
    from pydanube.dispatch.flow import Credit


class SharedSubscription(SubscriptionInTurns):
    """
    The consumers that have credit take turns, those of the lowest priority value first.

    A batch is cut into equal parts, one for each of them, so that few messages
    are spread as evenly as many.  A consumer that can take no more loses its turn
    and nothing else; it stops nobody.  While none of the first can take more, it is
    the turn of those with the next priority.
    """

    def on_consumer_gone(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; what it had is shared by the others."""
        credit = self._credits[consumer]
        self._allowances.remove(credit)
        priority = credit.priority
        line = self._lines.get(priority)
        if line is not None:
            line.pop(consumer, None)
            if not line:
                del self._lines[priority]
        return super().on_consumer_gone(consumer, now)

    def _begin(self) -> None:
        super()._begin()
        # By priority, in order, the consumers with credit; the first one's turn is
        # next.  A line may be empty.
        self._lines: dict[int, OrderedDict[int, Credit]] = {}
        self._allowances = Allowances()

    def _find_next(self) -> int | None:
        for line in self._lines.values():
            if line:
                return next(iter(line))
        return None

    def _share_of(self, count: int) -> int:
        for line in self._lines.values():
            if line:
                return -(-count // len(line))
        return count

    def _credit_messages(self) -> int:
        return self._allowances.total()

    def _on_credit_changed(self, consumer: int) -> None:
        credit = self._credits[consumer]
        self._allowances.update(credit)
        line = self._lines.get(credit.priority)
        if credit:
            if line is None:
                line = self._add_line(credit.priority)
            line.setdefault(consumer, credit)
        elif line is not None:
            line.pop(consumer, None)

    def _on_served(self, consumer: int) -> None:
        credit = self._credits[consumer]
        self._allowances.update(credit)
        line = self._lines[credit.priority]
        if credit:
            line.move_to_end(consumer)
        else:
            del line[consumer]

    def _add_line(self, priority: int) -> OrderedDict[int, Credit]:
        line: OrderedDict[int, Credit] = OrderedDict()
        self._lines = dict(sorted([*self._lines.items(), (priority, line)]))
        return line
