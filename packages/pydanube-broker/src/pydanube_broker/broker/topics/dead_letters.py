"""
Dead letters: copies of messages that a subscription has given up on.

A dead letter is the message as it was (payload, key, attributes, schema, producer
and publish time) with attributes that say where it comes from and why.  It is on
disk in the dead-letter topic, whichever broker serves that, before the subscription
acknowledges the message.  After a crash in between it is copied again, and the
dead-letter topic recognises it by its offset: it has one copy.

A message that cannot be copied stays parked.  Copying is tried again, after longer
and longer pauses, as long as the failure policy says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import field
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa

from pydanube.model.batch import Column, attributes_of
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
    parse_history,
)
from pydanube.model.envelope import FIELDS
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    Unavailable,
)
from pydanube.model.ids import producer_id_of
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.ranges import Range, RangeSet
from pydanube.model.retry import RetryPolicy
from pydanube.model.shown_text import excerpt
from pydanube.security.principals import Principal
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.delivery.internal_batches import (
    InternalBatch,
    PublishInternally,
    Source,
)
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.publishing.message_batcher import SingleMessage, frame_of
from pydanube_broker.dispatch.effects import Park

log = logging.getLogger(__name__)

COPIED_MESSAGES_MAX = 1000
COPIED_BYTES_MAX = 8 * 1024 * 1024
"""Copying begins when this much was read; the last batch may exceed it."""
BATCH_BYTES = 1024 * 1024
"""The size of a batch of dead letters, unless one message is larger."""
HISTORY_MAX = 16
"""The number of earlier dead-letterings that a dead letter lists, the latest ones."""
HISTORY_BYTES_MAX = 8 * 1024
"""The size of that list."""
HISTORY_REASON_CHARS_MAX = 200
REASON_CHARS_MAX = 1000
RETRIES = RetryPolicy(first_s=1.0, max_s=60.0)


@dataclass(slots=True, kw_only=True)
class DeadLetter(SingleMessage):
    """One message that is copied to the dead-letter topic."""

    offset: int
    attributes: dict[str, str]
    park: Park

    @property
    def schema(self) -> tuple[int, int]:
        """The id and version of its schema."""
        return self.schema_id, self.schema_version

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        attributes = sum(len(k) + len(v) for k, v in self.attributes.items())
        return len(self.payload) + len(self.key or b"") + attributes

    def sources(self) -> set[str]:
        """Return the topics from which the message was dead-lettered before."""
        found = {each.get("topic", "") for each in self.history()}
        found.add(self.attributes.get(ORIGINAL_TOPIC, ""))
        return found

    def history(self) -> list[dict[str, str]]:
        """Return the entries of its history attribute."""
        return parse_history(self.attributes.get(HISTORY, ""))

    def add_origin(self, subscription: ReliableSubscription, broker: str) -> None:
        """Add attributes that say where the message comes from, and why."""
        attributes = self.attributes
        if ORIGINAL_TOPIC in attributes:
            before = {
                "topic": attributes[ORIGINAL_TOPIC],
                "subscription": attributes.get(ORIGINAL_SUBSCRIPTION, ""),
                "offset": attributes.get(ORIGINAL_OFFSET, ""),
                "attempt": attributes.get(ATTEMPT, ""),
                "reason": excerpt(attributes.get(REASON, ""), HISTORY_REASON_CHARS_MAX),
            }
            attributes[HISTORY] = _history_of([*self.history(), before])
        attributes |= {
            ORIGINAL_TOPIC: str(subscription.topic),
            ORIGINAL_SUBSCRIPTION: subscription.name,
            ORIGINAL_OFFSET: str(self.offset),
            ORIGINAL_PRODUCER: self.producer,
            ORIGINAL_PRODUCER_ID: str(
                producer_id_of(str(subscription.topic), self.producer)
            ),
            ORIGINAL_BROKER: broker,
            POISON_POLICY: "dead_letter",
            ATTEMPT: str(self.park.attempt),
            REASON: excerpt(self.park.reason, REASON_CHARS_MAX),
        }


def _history_of(entries: list[dict[str, str]]) -> str:
    """Return the latest of *entries* as an attribute within the size limits."""
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
    """The parked messages of one subscription."""

    parks: deque[Park] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    failures: int = 0
    """The number of consecutive failures."""


class DeadLetters:
    """
    Copies parked messages of all subscriptions to their dead-letter topics.

    Each subscription with parked messages has a task.

    Ordering: The messages of a subscription are copied in the order in which it
        parked them, except those whose copying failed.

    Durability: A subscription acknowledges a message when its copy is on disk.
    """

    def __init__(
        self,
        publish: PublishInternally,
        check_target: Callable[[Principal | None, TopicName], Awaitable[None]],
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
        *,
        broker: str,
    ) -> None:
        """
        *check_target* is ``IndirectTargets.check``.

        Dead letters name this broker *broker*.
        """
        self._broker = broker
        self._publish = publish
        self._check_target = check_target
        self._tasks = tasks
        self._clock = clock
        self._queues: dict[ReliableSubscription, _Queue] = {}

    def add(self, subscription: ReliableSubscription, park: Park) -> None:
        """Copy messages, and call ``on_parked`` or ``on_park_failed``."""
        queue = self._queues.setdefault(subscription, _Queue())
        queue.parks.append(park)
        if queue.task is None:
            queue.task = self._tasks.create_task(
                self._run(subscription, queue),
                name=f"dead letters of {subscription.topic} {subscription.name}",
            )

    def forget(self, subscription: ReliableSubscription) -> None:
        """Stop copying messages of a subscription."""
        queue = self._queues.pop(subscription, None)
        if queue is not None:
            queue.parks.clear()
            if queue.task is not None:
                queue.task.cancel()

    async def finish(self) -> None:
        """Wait until no messages are being copied; failures are not retried."""
        while running := [q.task for q in self._queues.values() if q.task is not None]:
            await asyncio.wait(running)

    async def _run(self, subscription: ReliableSubscription, queue: _Queue) -> None:
        try:
            while queue.parks:
                await self._copy_next(subscription, queue)
        finally:
            queue.task = None
            # After a failure the queue stays: its count decides the next pause.  After
            # forget(), another queue may have the place.
            if not queue.failures and self._queues.get(subscription) is queue:
                del self._queues[subscription]

    async def _copy_next(
        self, subscription: ReliableSubscription, queue: _Queue
    ) -> None:
        """Copy the first messages of *queue*, and report the result."""
        # Each message that is taken is reported once: as dropped or damaged by _read(),
        # as part of a cycle, or with the rest of *messages* at the end.
        taken: list[Park] = []
        messages: list[DeadLetter] = []
        # A failure of one subscription must not stop the others.
        try:
            while queue.parks and not _is_batch_full(messages):
                taken.append(queue.parks.popleft())
                messages += await self._read(subscription, taken[-1])
            target = _target_of(subscription)
            await self._check_target(subscription.author, target)
            messages = self._reject_cycles(subscription, messages, str(target))
            for message in messages:
                message.add_origin(subscription, self._broker)
            source = subscription.source
            await self._publish(
                target, source, [_batch_of(each, source) for each in _batches(messages)]
            )
            self._settle(subscription, queue, messages)
        except BrokerError as error:
            self._fail(subscription, queue, _ranges_of(messages), error)
        except Exception as error:
            log.exception("%s: dead letters", subscription.log_name)
            # *messages* may lack what was being read.
            failure = Unavailable(f"the messages cannot be copied: {error}")
            self._fail(
                subscription, queue, [(park.base, park.end) for park in taken], failure
            )

    async def _read(
        self, subscription: ReliableSubscription, park: Park
    ) -> list[DeadLetter]:
        """Return the messages of *park* that still exist."""
        base = max(park.base, subscription.base_offset)
        if base > park.base:
            log.warning(
                "%s: retention has dropped messages %d to %d before they could be "
                "dead-lettered",
                subscription.log_name,
                park.base,
                min(base, park.end),
            )
            # Nothing can be copied, and unacknowledged they would be parked for ever.
            subscription.ack([(park.base, min(base, park.end))], 0)
        if base >= park.end:
            return []
        try:
            frames = await subscription.read([(base, park.end)])
        except BrokerError as error:
            # Damaged messages must not hold up the others.
            self._retry(subscription, [(base, park.end)], error)
            return []
        return [message for frame in frames for message in _read_messages(frame, park)]

    def _reject_cycles(
        self,
        subscription: ReliableSubscription,
        messages: list[DeadLetter],
        target: str,
    ) -> list[DeadLetter]:
        """Return *messages* without those that *target* has dead-lettered before."""
        rejected = [each for each in messages if target in each.sources()]
        if not rejected:
            return messages
        error = InvalidRequest(
            f"{target} has dead-lettered the message before; it cannot go back"
        )
        self._retry(subscription, _ranges_of(rejected), error)
        return [each for each in messages if target not in each.sources()]

    def _retry(
        self,
        subscription: ReliableSubscription,
        ranges: Iterable[Range],
        error: BrokerError,
        pause_s: float = RETRIES.max_s,
    ) -> None:
        """Retry these messages after a pause; others continue."""
        subscription.counts.add(dead_letter_failures=1)
        log.warning(
            "%s: dead letters are retried after %g s: %s",
            subscription.log_name,
            pause_s,
            error,
        )
        for base, end in ranges:
            subscription.on_park_failed(base, end, error, self._clock() + pause_s)

    def _settle(
        self,
        subscription: ReliableSubscription,
        queue: _Queue,
        messages: list[DeadLetter],
    ) -> None:
        """Report that *messages* are on disk in the dead-letter topic."""
        queue.failures = 0
        for park, messages_of_park in groupby(messages, attrgetter("park")):
            for base, end in _ranges_of(messages_of_park):
                subscription.on_parked(base, end, is_expired=park.is_expired)

    def _fail(
        self,
        subscription: ReliableSubscription,
        queue: _Queue,
        ranges: Iterable[Range],
        error: BrokerError,
    ) -> None:
        """Retry these and all queued messages after a pause."""
        queue.failures += 1
        # Those that wait go back, too: copied now, they would overtake the others.
        waiting = [(park.base, park.end) for park in queue.parks]
        queue.parks.clear()
        pause_s = RETRIES.delay_s(queue.failures)
        self._retry(subscription, [*ranges, *waiting], error, pause_s)


def _target_of(subscription: ReliableSubscription) -> TopicName:
    policy = subscription.settings.failure_policy
    if policy is None or policy.dead_letter_topic is None:
        raise InvalidRequest("the failure policy has no dead-letter topic any more")
    return TopicName.parse(policy.dead_letter_topic)


def _batch_of(messages: list[DeadLetter], source: Source) -> InternalBatch:
    frame = frame_of(messages, sender=source.producer)
    return InternalBatch([each.offset for each in messages], frame)


def _is_batch_full(messages: list[DeadLetter]) -> bool:
    return (
        len(messages) >= COPIED_MESSAGES_MAX
        or sum(message.size for message in messages) >= COPIED_BYTES_MAX
    )


def _read_messages(frame: BatchFrame, park: Park) -> Iterator[DeadLetter]:
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
            publish_time_us=publish_time,
            producer=producer or "",
            schema_id=header.schema_id,
            schema_version=header.schema_version,
            park=park,
        )


def _batches(messages: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Divide *messages* into batches of one schema and about BATCH_BYTES."""
    portion: list[DeadLetter] = []
    size = 0
    for message in messages:
        if portion and (
            message.schema != portion[0].schema or size + message.size > BATCH_BYTES
        ):
            yield portion
            portion, size = [], 0
        portion.append(message)
        size += message.size
    if portion:
        yield portion


def _ranges_of(messages: Iterable[DeadLetter]) -> list[Range]:
    return list(RangeSet((each.offset, each.offset + 1) for each in messages))
