"""
The messages that a worker holds, and which of them are processed next.  Pure.

    arrived ──→ waiting ──→ running ──→ (finished)
                   └──────────────────→ (released, or lost)

Messages of one *lane* are processed in the order in which they arrived, and one call
at a time has messages of a lane.  With the order of keys, a lane is a key; without,
every message is a lane of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pydanube.client.messages.messages import Message, MessageId

WAITING_S = 0.1
"""A worker lets as many messages wait as it processes in this time."""
WAITING_MAX = 1000
"""The most messages that wait because a worker is fast."""
MEASURE_S = 0.02
"""How long a worker counts messages to learn how fast it is."""


class DeliverySource(Protocol):
    """The consumer of one topic or partition, as ``WorkItem`` uses it."""

    drops: int
    """
    The number of times that it has dropped its messages, for example because the
    connection broke, and the broker delivers them again.
    """


@dataclass(slots=True, eq=False)
class WorkItem:
    """A message that a worker holds."""

    id: MessageId
    lane: Hashable
    message: Message
    source: DeliverySource
    drops: int
    """The value of ``source.drops`` when the message arrived."""
    arrival: int = 0
    """The number of the delivery, which rises from one to the next of its source."""
    is_running: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether the broker delivers the message again, perhaps to another worker."""
        return self.source.drops != self.drops


@dataclass(slots=True, eq=False)
class Work:
    """The messages of one call, in order."""

    items: list[WorkItem]
    lanes: list[Hashable]


@dataclass(slots=True, eq=False)
class Recovery:
    """
    A lane with a failed message, until the broker is known to have learnt of it.

    Later messages of the lane that the broker has sent before that must be released.
    """

    lane: Hashable
    source: DeliverySource
    drops: int
    failed: frozenset[MessageId]
    limit: float = inf
    """Deliveries from this number on were sent afterwards; infinite: not known yet."""

    def is_over(self, item: WorkItem) -> bool:
        """Return whether *item* was sent after the broker had learnt of the failure."""
        return (
            item.id in self.failed
            or item.arrival >= self.limit
            or item.drops != self.drops
        )


class WaitingLimit:
    """
    How many messages a worker lets wait: those that it processes in ``WAITING_S``.

    A fast worker does not wait for the broker after each message, and a slow one leaves
    messages to other workers.  *now* is in seconds, of any clock that does not go back.
    """

    def __init__(self, messages_min: int, now: float) -> None:
        self.messages = messages_min
        """The limit; at least *messages_min*."""
        self._messages_min = messages_min
        self._since = now
        self._processed = 0

    def on_processed(self, count: int, now: float) -> bool:
        """Count processed messages; return whether the limit was measured again."""
        self._processed += count
        elapsed_s = now - self._since
        if elapsed_s < MEASURE_S:
            return False
        wanted = int(self._processed / elapsed_s * WAITING_S)
        self.messages = max(self._messages_min, min(wanted, WAITING_MAX))
        self._since, self._processed = now, 0
        return True


class WorkQueue:
    """
    Decides which messages are processed together, and when.

    Ordering: After a failure, later messages of the same lanes are released, so that
        the broker delivers them after the failed ones.

    Bounds: At most *concurrency* calls run, each with at most *batch_max* messages.
        Callers add no more messages than ``room``.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        batch_max: int,
        waiting_max: int,
        is_ordered: bool = False,
    ) -> None:
        self.waiting_max = waiting_max
        """The most messages that wait."""
        self._concurrency = concurrency
        self._batch_max = batch_max
        # The waiting messages of every lane that has messages, waiting or running.
        self._lanes: dict[Hashable, list[WorkItem]] = {}
        # The lanes that have waiting messages and no running ones.
        self._ready: deque[Hashable] = deque()
        self._held: dict[MessageId, WorkItem] = {}
        self._running: set[Work] = set()
        self._running_messages = 0
        self._is_ordered = is_ordered
        self._recovering: dict[Hashable, Recovery] = {}

    @property
    def room(self) -> int:
        """The number of messages that may be added now."""
        waiting = len(self._held) - self._running_messages
        return max(0, self.waiting_max - waiting)

    @property
    def has_room(self) -> bool:
        """Whether at least half of the messages that may wait may be added now."""
        return self.room * 2 >= self.waiting_max

    @property
    def is_running(self) -> bool:
        """Whether any call runs."""
        return bool(self._running)

    def __iter__(self) -> Iterator[WorkItem]:
        """Yield all messages, waiting and running."""
        return iter(self._held.values())

    def add(self, item: WorkItem) -> bool:
        """
        Add a message; return False if it must be released instead.

        A message that is running already is ignored: the broker has delivered it again
        because the connection broke, and the result of the call counts for both
        deliveries.
        """
        held = self._held.get(item.id)
        if held is not None:
            if held.is_running or not held.is_lost:
                return True
            self._lanes[held.lane].remove(held)
        recovery = self._recovering.get(item.lane)
        if recovery is not None:
            if not recovery.is_over(item):
                return False
            del self._recovering[item.lane]
        self._held[item.id] = item
        lane = self._lanes.get(item.lane)
        if lane is None:
            self._lanes[item.lane] = [item]
            self._ready.append(item.lane)
        else:
            lane.append(item)
        return True

    def take(self) -> Work | None:
        """Return the messages of the next call, which runs from now on, or None."""
        if not self._ready or len(self._running) >= self._concurrency:
            return None
        items: list[WorkItem] = []
        lanes: list[Hashable] = []
        while self._ready and len(items) < self._batch_max:
            key = self._ready.popleft()
            self._drop_lost(key)
            taken = self._lanes[key][: self._batch_max - len(items)]
            if not taken:
                del self._lanes[key]
                continue
            del self._lanes[key][: len(taken)]
            items += taken
            lanes.append(key)
        if not items:
            return None
        for item in items:
            item.is_running = True
        work = Work(items, lanes)
        self._running.add(work)
        self._running_messages += len(items)
        return work

    def finish(self, work: Work) -> None:
        """Remove *work*, whose messages are settled."""
        self._running.remove(work)
        self._running_messages -= len(work.items)
        for item in work.items:
            del self._held[item.id]
        for key in work.lanes:
            if self._lanes[key]:
                self._ready.append(key)
            else:
                del self._lanes[key]

    def fail(self, work: Work) -> tuple[list[WorkItem], list[Recovery]]:
        """
        Remove *work*, of which messages were rejected.

        Returns:
            The messages to release, and the lanes that recover.
        """
        released, recoveries = [], []
        for key in work.lanes:
            self._drop_lost(key)
            released += self._lanes[key]
            for item in self._lanes[key]:
                del self._held[item.id]
            self._lanes[key].clear()
            if self._is_ordered:
                mine = [item for item in work.items if item.lane == key]
                last = mine[-1]
                failed = frozenset(item.id for item in mine)
                recovery = Recovery(key, last.source, last.source.drops, failed)
                self._recovering[key] = recovery
                recoveries.append(recovery)
        self.finish(work)
        return released, recoveries

    def recover(self, source: DeliverySource, unread_from: float) -> None:
        """Forget recoveries of which no delivery before *unread_from* is missing."""
        for recovery in list(self._recovering.values()):
            if recovery.source is source and recovery.limit <= unread_from:
                del self._recovering[recovery.lane]

    def _drop_lost(self, key: Hashable) -> None:
        # They arrived before all others of the lane.
        lane = self._lanes[key]
        while lane and lane[0].is_lost:
            del self._held[lane.pop(0).id]
