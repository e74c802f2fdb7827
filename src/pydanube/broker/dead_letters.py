"""
Dead letters: copies of messages that a subscription has given up on.

A dead letter is the message as it was (payload, key, attributes, schema, producer
and publish time) with attributes that say where it comes from and why.  It is on
disk in the dead-letter topic before the message is done for its subscription; so a
crash in between makes a second copy, and none is ever lost.

Whoever fails here keeps the message.  It is tried again, after longer and longer
pauses, for as long as the policy says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.model.batch import FIELDS, Column, attributes_of, batch_of
from pydanube.model.dead_letters import (
    ATTEMPT,
    HISTORY,
    ORIGINAL_BROKER,
    ORIGINAL_OFFSET,
    ORIGINAL_PRODUCER,
    ORIGINAL_PRODUCER_ID,
    ORIGINAL_SUBSCRIPTION,
    ORIGINAL_TOPIC,
    POISON_POLICY,
    REASON,
)
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from pydanube.model.ids import producer_id_of
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet
from pydanube.model.retry import RetryPolicy
from pydanube.wire.batches import BatchHeader, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from pydanube.broker.reliable_subscription import ReliableSubscription
    from pydanube.broker.topic import ReliableTopic
    from pydanube.dispatch.effects import Park
    from pydanube.model.ranges import Range
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)

COPIED_MESSAGES_MAX = 1000
COPIED_BYTES_MAX = 8 * 1024 * 1024
"""So many messages are copied at a time, and those of one batch more."""
BATCH_BYTES = 1024 * 1024
"""How long a batch of dead letters is, if messages allow it."""
HISTORY_MAX = 16
"""Of a message that was dead-lettered again and again, the last times."""
HISTORY_BYTES_MAX = 8 * 1024
"""The same in bytes; what is older is left out."""
HISTORY_REASON_CHARS_MAX = 200
REASON_CHARS_MAX = 1000
RETRIES = RetryPolicy(first_s=1.0, max_s=60.0)


@dataclass(slots=True, kw_only=True)
class DeadLetter:
    """One message on its way to the dead-letter topic."""

    offset: int
    payload: bytes
    key: bytes | None
    attributes: dict[str, str]
    publish_time: int
    producer: str
    schema: tuple[int, int]
    park: Park

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        attributes = sum(len(k) + len(v) for k, v in self.attributes.items())
        return len(self.payload) + len(self.key or b"") + attributes

    def sources(self) -> set[str]:
        """The topics from which the message was dead-lettered before."""
        found = {each.get("topic", "") for each in self.history()}
        found.add(self.attributes.get(ORIGINAL_TOPIC, ""))
        return found

    def history(self) -> list[dict[str, Any]]:
        """What was noted when it was dead-lettered before the last time."""
        try:
            noted = json.loads(self.attributes.get(HISTORY, "[]"))
        except ValueError:
            return []
        if not isinstance(noted, list):
            return []
        return [each for each in noted if isinstance(each, dict)]

    def address(self, of: ReliableSubscription, broker: str) -> None:
        """Note in the attributes where the message comes from, and why."""
        attributes = self.attributes
        if ORIGINAL_TOPIC in attributes:
            before = {
                "topic": attributes[ORIGINAL_TOPIC],
                "subscription": attributes.get(ORIGINAL_SUBSCRIPTION, ""),
                "offset": attributes.get(ORIGINAL_OFFSET, ""),
                "attempt": attributes.get(ATTEMPT, ""),
                "reason": attributes.get(REASON, "")[:HISTORY_REASON_CHARS_MAX],
            }
            attributes[HISTORY] = _history_of([*self.history(), before])
        attributes |= {
            ORIGINAL_TOPIC: str(of.topic),
            ORIGINAL_SUBSCRIPTION: of.name,
            ORIGINAL_OFFSET: str(self.offset),
            ORIGINAL_PRODUCER: self.producer,
            ORIGINAL_PRODUCER_ID: str(producer_id_of(str(of.topic), self.producer)),
            ORIGINAL_BROKER: broker,
            POISON_POLICY: "dead_letter",
            ATTEMPT: str(self.park.attempt),
            REASON: self.park.reason[:REASON_CHARS_MAX],
        }


def _history_of(entries: list[dict[str, Any]]) -> str:
    """The latest of *entries* as an attribute, as many as there is room for."""
    kept: list[str] = []
    byte_count = len("[]")
    for entry in reversed(entries[-HISTORY_MAX:]):
        text = json.dumps(entry)
        byte_count += len(text) + len(", ")
        if byte_count > HISTORY_BYTES_MAX:
            break
        kept.append(text)
    return f"[{', '.join(reversed(kept))}]"


@dataclass(slots=True, eq=False)
class _Queue:
    """What one subscription has given up on."""

    parks: deque[Park] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    failures: int = 0
    """How often copying failed in a row."""


class DeadLetters:
    """
    Carries messages of all subscriptions to their dead-letter topics.

    There is a task for each subscription that has something to carry, and only
    as long as it has.

    Ordering: The messages of a subscription are copied in the order in which it
        gave up on them, but for those that failed to be.

    Durability: A message is done for its subscription when its copy is on disk.
    """

    def __init__(
        self,
        open_target: Callable[[TopicName], Awaitable[ReliableTopic]],
        has_room: Callable[[], bool],
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        """
        *open_target* gives the topic of that name, which it may create; *has_room*
        says whether more messages may be stored.
        """
        self.broker_address = ""
        """What dead letters call this broker."""
        self._open_target = open_target
        self._has_room = has_room
        self._tasks = tasks
        self._clock = clock
        self._queues: dict[ReliableSubscription, _Queue] = {}

    def add(self, of: ReliableSubscription, park: Park) -> None:
        """Messages of *of* are to be copied; it is told when they are, or are not."""
        queue = self._queues.setdefault(of, _Queue())
        queue.parks.append(park)
        if queue.task is None:
            queue.task = self._tasks.create_task(
                self._run(of, queue), name=f"dead letters of {of.topic} {of.name}"
            )

    def forget(self, of: ReliableSubscription) -> None:
        """What *of* has given up on is not to be copied any more."""
        queue = self._queues.pop(of, None)
        if queue is not None:
            queue.parks.clear()
            if queue.task is not None:
                queue.task.cancel()

    async def finish(self) -> None:
        """Return when nothing is being copied; what fails meanwhile is not repeated."""
        while running := [q.task for q in self._queues.values() if q.task is not None]:
            await asyncio.wait(running)

    async def _run(self, of: ReliableSubscription, queue: _Queue) -> None:
        try:
            while queue.parks:
                await self._carry(of, queue)
        finally:
            queue.task = None
            if not queue.failures and self._queues.get(of) is queue:
                del self._queues[of]

    async def _carry(self, of: ReliableSubscription, queue: _Queue) -> None:
        """Copy the first messages of *queue*, and tell *of* what became of them."""
        taken: list[Park] = []
        letters: list[DeadLetter] = []
        # The messages of one subscription may fail alone: this is the one place
        # that decides so.
        try:
            while queue.parks and not _are_enough(letters):
                taken.append(queue.parks.popleft())
                letters += await self._read(of, taken[-1])
            target = await self._open_target_of(of)
            letters = self._refuse_circles(of, letters, str(target.name))
            for letter in letters:
                letter.address(of, self.broker_address)
            await self._publish(of, queue, letters, target)
        except BrokerError as error:
            self._fail(of, queue, _ranges_of(letters), error)
        except Exception as error:
            log.exception("subscription %s of %s: dead letters", of.name, of.topic)
            failure = Unavailable(f"the messages cannot be copied: {error}")
            self._fail(of, queue, [(park.base, park.end) for park in taken], failure)

    async def _read(self, of: ReliableSubscription, park: Park) -> list[DeadLetter]:
        """The messages of *park*, as far as they are there."""
        base = max(park.base, of.base_offset)
        if base > park.base:
            log.warning(
                "subscription %s of %s: retention has dropped messages %d to %d "
                "before they could be dead-lettered",
                of.name,
                of.topic,
                park.base,
                min(base, park.end),
            )
            of.ack([(park.base, min(base, park.end))], 0)
        if base >= park.end:
            return []
        try:
            frames = await of.read([(base, park.end)])
        except BrokerError as error:
            # What is damaged must not keep the others.
            self._keep(of, [(base, park.end)], error)
            return []
        return [letter for frame in frames for letter in _letters_of(frame, park)]

    async def _open_target_of(self, of: ReliableSubscription) -> ReliableTopic:
        if not self._has_room():
            raise Overloaded("there is no room for dead letters at the moment")
        policy = of.settings.failure_policy
        if policy is None or policy.dead_letter_topic is None:
            raise InvalidRequest("there is no dead-letter topic any more")
        return await self._open_target(TopicName.parse(policy.dead_letter_topic))

    def _refuse_circles(
        self, of: ReliableSubscription, letters: list[DeadLetter], target: str
    ) -> list[DeadLetter]:
        """Without those that would go back to where they were dead-lettered."""
        circling = [each for each in letters if target in each.sources()]
        if not circling:
            return letters
        error = InvalidRequest(
            f"{target} has dead-lettered the message itself: it would go in a circle"
        )
        self._keep(of, _ranges_of(circling), error)
        return [each for each in letters if target not in each.sources()]

    def _keep(
        self, of: ReliableSubscription, ranges: Iterable[Range], error: BrokerError
    ) -> None:
        """Have the subscription try these again much later; others can go on."""
        log.warning("subscription %s of %s: dead letters: %s", of.name, of.topic, error)
        of.counts.fail_to_dead_letter()
        for base, end in ranges:
            of.on_park_failed(base, end, error, self._clock() + RETRIES.max_s)

    async def _publish(
        self,
        of: ReliableSubscription,
        queue: _Queue,
        letters: list[DeadLetter],
        target: ReliableTopic,
    ) -> None:
        """Store *letters*, all of them with one commit if they fit."""
        loop = asyncio.get_running_loop()
        batches: list[tuple[list[DeadLetter], asyncio.Future[BrokerError | None]]] = []
        for batch in _batches(letters):
            stored: asyncio.Future[BrokerError | None] = loop.create_future()
            batches.append((batch, stored))
            try:
                target.take(_frame_of(batch), partial(_note, stored))
            except BrokerError as error:
                stored.set_result(error)
        for batch, stored in batches:
            failure = await stored
            if failure is not None:
                self._fail(of, queue, _ranges_of(batch), failure)
                continue
            queue.failures = 0
            for park, letters_of_park in groupby(batch, _park_of):
                for base, end in _ranges_of(letters_of_park):
                    of.on_parked(base, end, is_expired=park.is_expired)

    def _fail(
        self,
        of: ReliableSubscription,
        queue: _Queue,
        ranges: Iterable[Range],
        error: BrokerError,
    ) -> None:
        """Have the subscription try again later, also with what is next in line."""
        queue.failures += 1
        pause_s = RETRIES.delay_s(queue.failures)
        of.counts.fail_to_dead_letter()
        log.warning(
            "subscription %s of %s: dead letters wait %g s: %s",
            of.name,
            of.topic,
            pause_s,
            error,
        )
        waiting = [(park.base, park.end) for park in queue.parks]
        queue.parks.clear()
        for base, end in (*ranges, *waiting):
            of.on_park_failed(base, end, error, self._clock() + pause_s)


def _are_enough(letters: list[DeadLetter]) -> bool:
    return (
        len(letters) >= COPIED_MESSAGES_MAX
        or sum(letter.size for letter in letters) >= COPIED_BYTES_MAX
    )


def _letters_of(frame: BatchFrame, park: Park) -> Iterator[DeadLetter]:
    header, rows = frame.header, frame.arrow()

    def column(which: Column, otherwise: object) -> Iterable[Any]:
        if not header.columns & which:
            return repeat(otherwise, frame.count)
        values = rows.column(FIELDS[which].name)
        if which is Column.PUBLISH_TIME:
            values = values.cast(pa.int64())
        return values.to_pylist()  # type: ignore[no-any-return]

    offsets: Iterable[int] = range(frame.base, frame.end)
    if frame.has_gaps:
        offsets = rows.column("offset").to_pylist()
    for offset, payload, key, attributes, publish_time, producer in zip(
        offsets,
        column(Column.PAYLOAD, b""),
        column(Column.KEY, None),
        column(Column.ATTRIBUTES, None),
        column(Column.PUBLISH_TIME, header.first_publish_time),
        column(Column.PRODUCER, header.producer),
        strict=True,
    ):
        yield DeadLetter(
            offset=offset,
            payload=payload,
            key=key,
            attributes=attributes_of(attributes),
            publish_time=publish_time,
            producer=producer or "",
            schema=(header.schema_id, header.schema_version),
            park=park,
        )


def _batches(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """*letters* in portions of one schema and of about BATCH_BYTES."""
    portion: list[DeadLetter] = []
    size = 0
    for letter in letters:
        if portion and (
            letter.schema != portion[0].schema or size + letter.size > BATCH_BYTES
        ):
            yield portion
            portion, size = [], 0
        portion.append(letter)
        size += letter.size
    if portion:
        yield portion


def _frame_of(letters: list[DeadLetter]) -> BatchFrame:
    first, last = letters[0], letters[-1]
    schema_id, schema_version = first.schema
    header = BatchHeader(
        count=len(letters),
        columns=Column.PAYLOAD,
        first_publish_time=first.publish_time,
        last_publish_time=last.publish_time,
        schema_id=schema_id,
        schema_version=schema_version,
    )
    rows = batch_of(
        [each.payload for each in letters],
        keys=[each.key for each in letters],
        attributes=[each.attributes for each in letters],
        publish_times=[each.publish_time for each in letters],
        producers=[each.producer or None for each in letters],
    )
    return encode(rows, header)


def _ranges_of(letters: Iterable[DeadLetter]) -> list[Range]:
    return list(RangeSet((each.offset, each.offset + 1) for each in letters))


def _park_of(letter: DeadLetter) -> Park:
    return letter.park


def _note(
    stored: asyncio.Future[BrokerError | None], _: int, error: BrokerError | None
) -> None:
    if not stored.done():
        stored.set_result(error)
