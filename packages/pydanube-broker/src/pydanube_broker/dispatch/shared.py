"""A shared subscription: each message goes to one of the consumers."""

from __future__ import annotations

from collections import OrderedDict

from pydanube_broker.dispatch.effects import Effect
from pydanube_broker.dispatch.flow import Allowances, Credit
from pydanube_broker.dispatch.message_spans import MessageSpan
from pydanube_broker.dispatch.unkeyed import UnkeyedSubscription


class SharedSubscription(UnkeyedSubscription):
    """
    Round robin over the consumers that have credit and the lowest priority value.

    A batch is divided into equal parts, one for each of these consumers; but if there
    are batches enough, each consumer gets a whole one.  A consumer without credit is
    skipped and delays no other.  While no consumer of the lowest priority value has
    credit, those of the next value receive messages.
    """

    def on_consumer_left(self, consumer: int, now: float) -> list[Effect]:
        """Remove a consumer; its messages are delivered to others."""
        credit = self.consumers[consumer]
        self._allowances.remove(credit)
        priority = credit.priority
        queue = self._queues.get(priority)
        if queue is not None:
            queue.pop(consumer, None)
            if not queue:
                del self._queues[priority]
        return super().on_consumer_left(consumer, now)

    def on_seek(self, offset: int, now: float) -> list[Effect]:
        """Move to *offset*; see the base class."""
        self._whole_end = 0
        return super().on_seek(offset, now)

    def _init_state(self) -> None:
        super()._init_state()
        # The consumers with credit, by priority, lowest first; the first one of a
        # queue is next.  A queue may be empty.
        self._queues: dict[int, OrderedDict[int, Credit]] = {}
        self._allowances = Allowances()
        # New batches below this offset are not divided: there is one for each consumer.
        self._whole_end = 0

    def _find_next_consumer(self) -> int | None:
        for queue in self._queues.values():
            if queue:
                return next(iter(queue))
        return None

    def _count_per_consumer(self, span: MessageSpan) -> int:
        count = span.end - span.base
        if span.attempt == 1 and span.end <= self._whole_end:
            return count
        return -(-count // self._receiver_count())

    def _receiver_count(self) -> int:
        """Return how many consumers divide the next messages."""
        return next((len(queue) for queue in self._queues.values() if queue), 1)

    def _plan_whole_batches(self, base: int, end: int, following: int) -> None:
        whole_end = base + (end - base) * self._receiver_count()
        known_end = min(end + following, base + self.demand())
        if end > self._whole_end and whole_end <= known_end:
            self._whole_end = whole_end

    def _credit_messages(self) -> int:
        return self._allowances.total()

    def _on_credit_changed(self, consumer: int) -> None:
        credit = self.consumers[consumer]
        self._allowances.update(credit)
        queue = self._queues.get(credit.priority)
        if credit:
            if queue is None:
                queue = self._add_queue(credit.priority)
            queue.setdefault(consumer, credit)
        elif queue is not None:
            queue.pop(consumer, None)

    def _on_delivered(self, consumer: int) -> None:
        credit = self.consumers[consumer]
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
