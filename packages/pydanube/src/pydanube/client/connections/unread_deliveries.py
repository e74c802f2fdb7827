"""
The deliveries that a consumer has not handed out, and their deadlines.  Pure.

After the ack timeout the broker delivers a message again, of a shared or key-shared
subscription perhaps to another consumer.  If the first delivery were handed out then,
two consumers would process the message, and only one of two transactions would commit.
Therefore consumers of these subscriptions drop late deliveries.  The only consumer of
an exclusive or failover subscription hands them out, in their order.

Deadlines are times of the consumer's own clock, which begin when a delivery arrives.
They are later than the broker's: the broker delivers again whatever is dropped here.
Messages that were handed out stay with the program, which may acknowledge them late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pydanube.client.messages.messages import ReceivedBatch
from pydanube.model.policy import SubscriptionType

PACE_S = 0.01
"""Messages are handed out without a look at the clock for about this time."""


class LateDeliveries(NamedTuple):
    """Deliveries that a consumer drops, because the ack timeout of some has passed."""

    message_count: int
    """The number of messages that are late and were not handed out."""
    waiting: Sequence[ReceivedBatch]
    """The late batches of which nothing was handed out."""
    released: Sequence[ReceivedBatch]
    """
    Batches that arrived after those, and are not late.  The broker is to deliver them
    again, each message behind a late one of its key.
    """


class UnreadDeliveries:
    """
    The batches that have arrived, in their order, and the rest of the current one.

    Their number is bounded by the consumer's credit.
    """

    __slots__ = (
        "_batch",
        "_type",
        "ack_timeout_s",
        "awaiting_schema",
        "position",
        "waiting",
    )

    def __init__(self, type_: SubscriptionType) -> None:
        self.ack_timeout_s: float | None = None
        """The ack timeout of new deliveries; None: there is none, or not known yet."""
        self.waiting: deque[ReceivedBatch] = deque()
        """Batches of which nothing was handed out."""
        self.awaiting_schema: deque[ReceivedBatch] = deque()
        """The batches behind them, from the first whose schema is being loaded."""
        self.position = 0
        """The index of the next message in the current batch."""
        self._batch: ReceivedBatch | None = None
        self._type = type_

    @property
    def current(self) -> ReceivedBatch | None:
        """The batch that is being handed out, unless all its messages were."""
        batch = self._batch
        return None if batch is None or self.position >= batch.count else batch

    @property
    def has_messages(self) -> bool:
        """True if a message can be handed out."""
        return bool(self.waiting) or self.current is not None

    @property
    def batches(self) -> list[ReceivedBatch]:
        """All batches that are not handed out, or not completely."""
        current = self.current
        first = [] if current is None else [current]
        return [*first, *self.waiting, *self.awaiting_schema]

    def start_next(self) -> ReceivedBatch | None:
        """Make the next batch the current one; return None if none waits."""
        self._batch = self.waiting.popleft() if self.waiting else None
        self.position = 0
        return self._batch

    def drop_all(self) -> list[ReceivedBatch]:
        """Forget all batches; return those of which nothing was handed out."""
        dropped = [*self.waiting, *self.awaiting_schema]
        self.waiting.clear()
        self.awaiting_schema.clear()
        self._batch = None
        return dropped

    # Deadlines: each is at most that of the batches behind it.

    @property
    def _has_deadlines(self) -> bool:
        return self.ack_timeout_s is not None and self._type in {
            SubscriptionType.SHARED,
            SubscriptionType.KEY_SHARED,
        }

    def set_deadline(self, batch: ReceivedBatch, now: float) -> None:
        """Set the deadline of *batch*, which arrives."""
        if self.ack_timeout_s is not None and self._has_deadlines:
            batch.deadline = now + self.ack_timeout_s

    def change_ack_timeout(self, ack_timeout_s: float | None, now: float) -> None:
        """
        Note another ack timeout of new deliveries.

        Those that arrived before have at most this time left.
        """
        self.ack_timeout_s = ack_timeout_s
        for batch in self.batches:
            if ack_timeout_s is None:
                batch.deadline = None
            elif self._has_deadlines:
                latest = now + ack_timeout_s
                batch.deadline = min(batch.deadline or latest, latest)

    def extend(self, now: float) -> None:
        """Give all deliveries the whole ack timeout again, unless they have more."""
        if self.ack_timeout_s is None:
            return
        for batch in self.batches:
            if batch.deadline is not None:
                batch.deadline = max(batch.deadline, now + self.ack_timeout_s)

    def drop_late(self, now: float) -> LateDeliveries | None:
        """Drop messages whose deadline has passed; return None if there are none."""
        count, late = 0, []
        current = self.current
        if current is not None and _is_late(current, now):
            count = current.count - self.position
            self._batch = None
        while self.waiting and _is_late(self.waiting[0], now):
            late.append(self.waiting.popleft())
        count += sum(each.count for each in late)
        if not count:
            return None
        keeps_order = self._type is SubscriptionType.KEY_SHARED
        return LateDeliveries(count, late, self.drop_all() if keeps_order else ())


def _is_late(batch: ReceivedBatch, now: float) -> bool:
    return batch.deadline is not None and batch.deadline <= now


class HandOutPace:
    """
    How many messages are handed out between two looks at the clock.

    A slow program gets one at a time, and a fast one as many as it takes in about
    ``PACE_S``, at most *count_max*.
    """

    __slots__ = ("_count", "_count_max", "_since")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 1
        self._since = 0.0

    def next_count(self, now: float) -> int:
        """Return the number of messages until this is called again."""
        is_fast = now - self._since < PACE_S
        self._count = min(self._count * 2, self._count_max) if is_fast else 1
        self._since = now
        return self._count
