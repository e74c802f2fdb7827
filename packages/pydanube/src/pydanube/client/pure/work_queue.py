"""
The messages that a worker holds, and which of them are processed next.  Pure.

    arrived ──→ waiting ──→ running ──→ (finished)
                   └──────────────────→ (released, or lost)

Messages wait as they arrived: a run is a part of a delivery, so waiting costs nothing
for each message.

With the order of keys, a *lane* has the messages of a key.  They are processed in the
order in which they arrived, and one call at a time has messages of a lane.  A message
that is next while its lane runs is parked until the call ends.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, MutableSequence, Sequence
from math import inf
from typing import Protocol, TypeAlias

from pydanube.client.messages.messages import MessageId, ReceivedBatch
from pydanube.model.lazy_dataclasses import dataclass

WAITING_S = 0.1
"""A worker lets as many messages wait as it processes in this time."""
WAITING_MAX = 10_000
"""The most messages that wait because a worker is fast."""
MEASURE_S = 0.02
"""How long a worker counts messages to learn how fast it is."""
RUN_MESSAGES_MAX = 256
"""The most messages of a run: a turn of slow calls does not look at all that wait."""


class DeliverySource(Protocol):
    """The consumer of one topic or partition, as ``Delivery`` uses it."""

    drops: int
    """
    The number of times that it has dropped its messages, for example because the
    connection broke, and the broker delivers them again.
    """


@dataclass(slots=True, eq=False)
class Delivery:
    """Messages that arrived together."""

    batch: ReceivedBatch
    source: DeliverySource
    drops: int
    """The value of ``source.drops`` when the messages arrived."""
    lanes: Sequence[Hashable] | None = None
    """The lane of each message of the batch; None: they have no order."""

    @property
    def is_lost(self) -> bool:
        """Whether the broker delivers them again, perhaps to another worker."""
        return self.source.drops != self.drops


Run: TypeAlias = tuple[Delivery, int, int]
"""A part of a delivery: the index of its first message in the batch, and its end."""


_NO_LANES: dict[Hashable, None] = {}


@dataclass(slots=True, eq=False)
class Work:
    """The messages of one call, in order."""

    runs: list[Run]
    count: int
    lanes: dict[Hashable, None]
    """The lanes of the messages as keys; empty if they have no order."""


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

    def is_over(self, delivery: Delivery, id: MessageId) -> bool:  # noqa: A002
        """Return whether a message was sent after the broker had learnt of it."""
        return (
            id in self.failed
            or delivery.batch.arrival >= self.limit
            or delivery.drops != self.drops
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

    Bounds: At most *concurrency* calls run, each with at most *batch_max* messages, and
        *prepared_max* more calls are taken before they can run.  Callers add no more
        messages than ``room``.  With *has_one_topic_per_call*, the messages of a call
        are of one topic or partition.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        batch_max: int,
        waiting_max: int,
        prepared_max: int = 0,
        has_one_topic_per_call: bool = False,
    ) -> None:
        self.waiting_max = waiting_max
        """The most messages that wait."""
        self._batch_max = batch_max
        self._has_one_topic_per_call = has_one_topic_per_call
        self._taken_max = concurrency + prepared_max
        self._running_messages_max = concurrency * batch_max
        # The messages that wait, in the order in which they arrived.
        self._waiting: deque[Run] = deque()
        # Those of them that were next while a call had messages of their lane.
        self._parked: dict[Hashable, deque[Run]] = {}
        # The lanes that have parked messages and no running ones.
        self._ready: deque[Hashable] = deque()
        self._waiting_messages = 0
        self._running: set[Work] = set()
        self._running_messages = 0
        self._running_lanes: set[Hashable] = set()
        # The offsets of all messages, by topic.
        self._held: dict[str, set[int]] = {}
        self._recovering: dict[Hashable, Recovery] = {}

    @property
    def room(self) -> int:
        """The number of messages that may be added now."""
        prepared = max(0, self._running_messages - self._running_messages_max)
        return max(0, self.waiting_max - self._waiting_messages - prepared)

    @property
    def has_room(self) -> bool:
        """Whether at least half of the messages that may wait may be added now."""
        return self.room * 2 >= self.waiting_max

    @property
    def running(self) -> Collection[Work]:
        """The calls that run, or were taken to run."""
        return self._running

    def __iter__(self) -> Iterator[Run]:
        """Yield all messages, waiting and running."""
        yield from self._waiting
        for parked in self._parked.values():
            yield from parked
        for work in self._running:
            yield from work.runs

    def add(self, delivery: Delivery, base: int, end: int) -> list[Run]:
        """
        Add messages; return those that must be released instead.

        A message that is running already is ignored: the broker has delivered it again
        because the connection broke, and the result of the call counts for both
        deliveries.
        """
        offsets = delivery.batch.offsets[base:end]
        held = self._held.setdefault(delivery.batch.topic, set())
        is_new = held.isdisjoint(offsets)
        if is_new and not self._recovering:
            held.update(offsets)
            self._waiting_messages += end - base
            _append(self._waiting, delivery, base, end)
            return []
        if not is_new:
            self._drop_lost()
        return self._add_each(delivery, base, end)

    def take(self) -> Work | None:
        """Return the messages of the next call, which runs from now on, or None."""
        if len(self._running) >= self._taken_max:
            return None
        if self._batch_max == 1 and self._is_first_ready():
            return self.take_first()
        runs: list[Run] = []
        lanes: dict[Hashable, None] = {}
        left = self._take_ready(runs, lanes) if self._ready else self._batch_max
        while left and self._waiting:
            delivery, base, end = run = self._waiting.popleft()
            if delivery.is_lost:
                self._drop(run)
            elif self._is_of_other_topic(runs, delivery):
                self._waiting.appendleft(run)
                break
            elif delivery.lanes is None:
                cut = min(base + left, end)
                if cut < end:
                    self._waiting.appendleft((delivery, cut, end))
                runs.append((delivery, base, cut))
                left -= cut - base
            else:
                left = self._take_in_order(run, delivery.lanes, runs, lanes, left)
        if not runs:
            return None
        return self._started(runs, self._batch_max - left, lanes)

    def next_run(self) -> Run | None:
        """
        Return the messages that wait longest and need not wait for other calls.

        They may be processed at once, each by a call that ends before the next one
        begins, if *batch_max* is 1.  They still wait; ``pass_first`` removes them.
        There are at most ``RUN_MESSAGES_MAX``.
        """
        if len(self._running) >= self._taken_max or not self._is_first_ready():
            return None
        delivery, base, end = self._waiting[0]
        end = min(end, base + RUN_MESSAGES_MAX)
        lanes = delivery.lanes
        if lanes is not None and (self._running_lanes or self._parked):
            for index in range(base, end):
                if lanes[index] in self._running_lanes or lanes[index] in self._parked:
                    return delivery, base, index
        return delivery, base, end

    def pass_first(self, count: int) -> None:
        """Remove the first messages of ``next_run``, which are settled."""
        delivery, base, end = self._waiting[0]
        passed = base + count
        if passed < end:
            self._waiting[0] = (delivery, passed, end)
        else:
            self._waiting.popleft()
        self._drop((delivery, base, passed))

    def take_first(self) -> Work:
        """Return the first message of ``next_run``, whose call runs from now on."""
        delivery, base, end = run = self._waiting[0]
        if base + 1 < end:
            self._waiting[0] = (delivery, base + 1, end)
            run = delivery, base, base + 1
        else:
            self._waiting.popleft()
        lanes = _NO_LANES if delivery.lanes is None else {delivery.lanes[base]: None}
        return self._started([run], 1, lanes)

    def finish(self, work: Work) -> None:
        """Remove *work*, whose messages are settled."""
        self._running.remove(work)
        self._running_messages -= work.count
        for run in work.runs:
            self._forget(run)
        if work.lanes:
            self._running_lanes.difference_update(work.lanes)
            if self._parked:
                self._ready += [lane for lane in work.lanes if lane in self._parked]

    def fail(self, work: Work) -> tuple[list[Run], list[Recovery]]:
        """
        Remove *work*, of which messages were rejected.

        Returns:
            The messages to release, and the lanes that recover.
        """
        released: list[Run] = []
        recoveries: list[Recovery] = []
        if work.lanes:
            self._drop_lost()
            released = self._remove_waiting(work.lanes)
            recoveries = _recoveries(work)
            self._recovering |= {each.lane: each for each in recoveries}
        self.finish(work)
        return released, recoveries

    def recover(self, source: DeliverySource, unread_from: float) -> None:
        """Forget recoveries of which no delivery before *unread_from* is missing."""
        for recovery in list(self._recovering.values()):
            if recovery.source is source and recovery.limit <= unread_from:
                del self._recovering[recovery.lane]

    # Adding.

    def _add_each(self, delivery: Delivery, base: int, end: int) -> list[Run]:
        """Add messages of which some are held already, or some lanes recover."""
        topic, offsets = delivery.batch.topic, delivery.batch.offsets
        held = self._held.setdefault(topic, set())
        refused: list[Run] = []
        for index in range(base, end):
            offset = offsets[index]
            if offset in held:
                continue
            lane = None if delivery.lanes is None else delivery.lanes[index]
            recovery = self._recovering.get(lane)
            if recovery is not None:
                if not recovery.is_over(delivery, MessageId(topic, offset)):
                    _append(refused, delivery, index, index + 1)
                    continue
                del self._recovering[lane]
            held.add(offset)
            self._waiting_messages += 1
            _append(self._waiting, delivery, index, index + 1)
        if not held:
            del self._held[topic]
        return refused

    # Taking.

    def _is_first_ready(self) -> bool:
        """Return whether the message that waits longest may be processed next."""
        if not self._waiting or self._ready:
            return False
        delivery, base, _ = self._waiting[0]
        if delivery.lanes is not None:
            lane = delivery.lanes[base]
            if lane in self._running_lanes or lane in self._parked:
                return False
        return not delivery.is_lost

    def _is_of_other_topic(self, runs: list[Run], delivery: Delivery) -> bool:
        """Return whether a call with *runs* may have nothing of *delivery*."""
        return (
            self._has_one_topic_per_call
            and bool(runs)
            and runs[0][0].batch.topic != delivery.batch.topic
        )

    def _started(
        self, runs: list[Run], count: int, lanes: dict[Hashable, None]
    ) -> Work:
        work = Work(runs, count, lanes)
        self._waiting_messages -= count
        self._running_messages += count
        self._running.add(work)
        if lanes:
            self._running_lanes.update(lanes)
        return work

    def _take_ready(self, runs: list[Run], lanes: dict[Hashable, None]) -> int:
        """Take parked messages; return how many more the call may have."""
        left = self._batch_max
        while left and self._ready:
            parked = self._parked[self._ready[0]]
            if self._is_of_other_topic(runs, parked[0][0]):
                break
            lane = self._ready.popleft()
            while left and parked:
                delivery, base, end = run = parked.popleft()
                if delivery.is_lost:
                    self._drop(run)
                    continue
                cut = min(base + left, end)
                if cut < end:
                    parked.appendleft((delivery, cut, end))
                runs.append((delivery, base, cut))
                left -= cut - base
                lanes[lane] = None
            if not parked:
                del self._parked[lane]
        return left

    def _take_in_order(
        self,
        run: Run,
        lanes_of_all: Sequence[Hashable],
        runs: list[Run],
        lanes: dict[Hashable, None],
        left: int,
    ) -> int:
        """Take messages of lanes that do not run; return as ``_take_ready``."""
        delivery, base, end = run
        for index in range(base, end):
            lane = lanes_of_all[index]
            if lane not in lanes:
                if lane in self._running_lanes or lane in self._parked:
                    parked = self._parked.setdefault(lane, deque())
                    _append(parked, delivery, index, index + 1)
                    continue
                lanes[lane] = None
            _append(runs, delivery, index, index + 1)
            left -= 1
            if not left:
                if index + 1 < end:
                    self._waiting.appendleft((delivery, index + 1, end))
                break
        return left

    # Removing.

    def _remove_waiting(self, lanes: dict[Hashable, None]) -> list[Run]:
        """Remove and return the waiting messages of *lanes*."""
        removed: list[Run] = []
        for lane in lanes:
            removed += self._parked.pop(lane, ())
        kept: deque[Run] = deque()
        for run in self._waiting:
            delivery, base, end = run
            of_all = delivery.lanes
            if of_all is None or lanes.keys().isdisjoint(of_all[base:end]):
                kept.append(run)
                continue
            for index in range(base, end):
                to = removed if of_all[index] in lanes else kept
                _append(to, delivery, index, index + 1)
        self._waiting = kept
        for run in removed:
            self._drop(run)
        return removed

    def _drop_lost(self) -> None:
        """Forget the waiting messages that the broker delivers again."""
        for run in [run for run in self._waiting if run[0].is_lost]:
            self._drop(run)
        self._waiting = deque(run for run in self._waiting if not run[0].is_lost)
        for lane, parked in list(self._parked.items()):
            # They arrived before all others of the lane.
            while parked and parked[0][0].is_lost:
                self._drop(parked.popleft())
            if not parked:
                del self._parked[lane]
        self._ready = deque(lane for lane in self._ready if lane in self._parked)

    def _drop(self, run: Run) -> None:
        _, base, end = run
        self._waiting_messages -= end - base
        self._forget(run)

    def _forget(self, run: Run) -> None:
        delivery, base, end = run
        batch = delivery.batch
        held = self._held[batch.topic]
        if end - base == 1:
            held.remove(batch.offsets[base])
        else:
            held.difference_update(batch.offsets[base:end])
        if not held:
            del self._held[batch.topic]


def _append(
    runs: MutableSequence[Run], delivery: Delivery, base: int, end: int
) -> None:
    """Append messages to *runs*, if possible to the last one."""
    if runs and runs[-1][0] is delivery and runs[-1][2] == base:
        base = runs.pop()[1]
    runs.append((delivery, base, end))


def _recoveries(work: Work) -> list[Recovery]:
    """Return the recovery of each lane of *work*."""
    failed: defaultdict[Hashable, list[MessageId]] = defaultdict(list)
    last: dict[Hashable, DeliverySource] = {}
    for delivery, base, end in work.runs:
        if delivery.lanes is None:
            continue
        for index in range(base, end):
            lane = delivery.lanes[index]
            id = MessageId(delivery.batch.topic, delivery.batch.offsets[index])  # noqa: A001
            failed[lane].append(id)
            last[lane] = delivery.source
    return [
        Recovery(lane, source, source.drops, frozenset(failed[lane]))
        for lane, source in last.items()
    ]
