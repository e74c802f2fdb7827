"""A shared subscription: every message goes to one of the consumers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from pydanube.dispatch.flow import Allowances
from pydanube.dispatch.unkeyed import UnkeyedSubscription

if TYPE_CHECKING:
    from pydanube.dispatch.effects import Effect
    from pydanube.dispatch.flow import Credit


class SharedSubscription(UnkeyedSubscription):
    """
    The consumers that have credit take turns, those of the lowest priority value first.

    A batch is cut into equal parts, one for each of them, so that few messages
    are spread as evenly as many.  A consumer that can take no more loses its turn
    and nothing else; it stops nobody.  While none of the first can take more, it is
    the turn of those with the next priority.
    """

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """A consumer is no longer there; what it had is shared by the others."""
        credit = self._credits[consumer]
        self._allowances.remove(credit)
        priority = credit.priority
        queue = self._queues.get(priority)
        if queue is not None:
            queue.pop(consumer, None)
            if not queue:
                del self._queues[priority]
        return super().on_consumer_left(consumer, now)

    def _begin(self) -> None:
        super()._begin()
        # By priority, in order, the consumers with credit; the first one's turn is
        # next.  A queue may be empty.
        self._queues: dict[int, OrderedDict[int, Credit]] = {}
        self._allowances = Allowances()

    def _find_next(self) -> int | None:
        for queue in self._queues.values():
            if queue:
                return next(iter(queue))
        return None

    def _count_per_consumer(self, count: int) -> int:
        for queue in self._queues.values():
            if queue:
                return -(-count // len(queue))
        return count

    def _credit_messages(self) -> int:
        return self._allowances.total()

    def _on_credit_changed(self, consumer: int) -> None:
        credit = self._credits[consumer]
        self._allowances.update(credit)
        queue = self._queues.get(credit.priority)
        if credit:
            if queue is None:
                queue = self._add_queue(credit.priority)
            queue.setdefault(consumer, credit)
        elif queue is not None:
            queue.pop(consumer, None)

    def _on_served(self, consumer: int) -> None:
        credit = self._credits[consumer]
        self._allowances.update(credit)
        queue = self._queues[credit.priority]
        if credit:
            queue.move_to_end(consumer)
        else:
            del queue[consumer]

    def _add_queue(self, priority: int) -> OrderedDict[int, Credit]:
        queue: OrderedDict[int, Credit] = OrderedDict()
        self._queues = dict(sorted([*self._queues.items(), (priority, queue)]))
        return queue
