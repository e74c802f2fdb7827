"""
Batching of single messages.

Servers that receive messages one by one, as the gRPC API does, publish them here.  All
messages for a topic that arrive in one iteration of the event loop, from any number of
producers, become one batch and one append; each has its own callback.  An Arrow batch
costs some twenty microseconds whether it has one message or a hundred, and so does
each later step.  While the journal commits, messages of reliable topics wait here for
the next commit, which they could not be in earlier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from pydanube.model.batch import batch_of
from pydanube.model.deduplication import DEDUPLICATION_ID, check_id
from pydanube.model.errors import BrokerError, InvalidPayload, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.schemas.language import BadPayload
from pydanube.wire.batches import (
    INT32_MAX,
    INT64_MAX,
    BatchFrame,
    BatchHeader,
    encode,
    encode_payloads,
)
from pydanube.wire.native.frames import FRAME_BYTES_MAX, batch_bytes_max
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.pure.limits import too_large
from pydanube_broker.broker.pure.producer_session import OnPublished

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_TARGET_BYTES = 1024 * 1024
"""A batch of this size is published before the event loop's iteration ends."""

ATTRIBUTE_BYTES = 8
"""The size of an attribute in a batch in addition to its name and value."""

BATCH_TARGET_MESSAGES = 10_000
"""A batch with this many messages is published early, too."""

GATHERED_BYTES_MAX = 4 * 1024 * 1024
GATHERED_MESSAGES_MAX = 20_000
"""How much waits for a commit of the journal to end; then all batches are published."""

BATCH_BYTES_MAX = batch_bytes_max(FRAME_BYTES_MAX)
"""The default of the largest batch that clients accept."""


@dataclass(slots=True)
class SingleMessage:
    """A message of a producer; times are microseconds since 1970, UTC."""

    producer: str
    payload: bytes
    publish_time_us: int
    key: bytes | None = None
    attributes: Mapping[str, str] | None = None
    schema_id: int = 0
    schema_version: int = 0
    deliver_at_us: int | None = None
    expires_at_us: int | None = None


@dataclass(slots=True)
class _Group:
    """Messages that become one batch, with their callbacks."""

    messages: list[SingleMessage] = field(default_factory=list)
    callbacks: list[OnPublished] = field(default_factory=list)
    byte_count: int = 0

    def reject(self, bad: Sequence[BadPayload]) -> BatchFrame | None:
        """Reject the invalid messages; return the frame of the others."""
        reasons, callbacks = dict(bad), list(self.callbacks)
        kept = [at for at in range(len(callbacks)) if at not in reasons]
        # In place: the callback of the batch has a reference to this list.
        self.messages[:] = [self.messages[at] for at in kept]
        self.callbacks[:] = [callbacks[at] for at in kept]
        for at, why in reasons.items():
            error = InvalidPayload(f"the message does not match its schema: {why}")
            _notify([callbacks[at]], 0, error)
        return frame_of(self.messages) if kept else None


class _Gathered:
    """The messages that are published together, in groups for batches."""

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        self.schedule = schedule
        self.groups: dict[tuple[Topic, int, int], _Group] = {}
        self.byte_count = 0
        self.message_count = 0
        self.is_scheduled = False

    def take(self) -> dict[tuple[Topic, int, int], _Group]:
        """Return and forget all groups."""
        groups, self.groups = self.groups, {}
        self.byte_count = self.message_count = 0
        return groups


class MessageBatcher:
    """
    The messages that are not published yet.

    Bounds: A batch is published early when it reaches ``BATCH_TARGET_BYTES``, and all
        are when they have ``GATHERED_BYTES_MAX`` or ``GATHERED_MESSAGES_MAX``.
        Servers wait for room as they do before publishing batches.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        when_free: Callable[[Callable[[], None]], object],
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        """*when_free* is that of the journal."""
        self._batch_bytes_max = batch_bytes_max
        self._group_bytes_max = min(BATCH_TARGET_BYTES, batch_bytes_max // 4)
        self._stored = _Gathered(when_free)
        # Messages of non-reliable topics do not wait for the journal.
        self._direct = _Gathered(loop.call_soon)

    def publish(self, topic: Topic, message: SingleMessage, done: OnPublished) -> None:
        """
        Publish *message*; *done* is called with its offset when it is stored.

        If the message is rejected, *done* is called with the error, perhaps before
        this call returns; the offset is meaningless then.  *done* must not raise.

        Ordering: Messages of one topic and schema get their offsets in the order
            of the calls.
        """
        size = len(message.payload)
        if message.key is not None:
            size += len(message.key)
        if message.attributes:
            size += sum(
                len(name) + len(value) + ATTRIBUTE_BYTES
                for name, value in message.attributes.items()
            )
        refusal = self._find_refusal(topic, message, size)
        if refusal is not None:
            done(0, refusal)
            return
        gathered = self._stored if isinstance(topic, ReliableTopic) else self._direct
        groups = gathered.groups
        key = (topic, message.schema_id, message.schema_version)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group()
            if not gathered.is_scheduled:
                gathered.is_scheduled = True
                gathered.schedule(partial(self._publish_scheduled, gathered))
        elif group.byte_count + size > self._group_bytes_max:
            self._publish(topic, group)
            group = groups[key] = _Group()
        group.messages.append(message)
        group.callbacks.append(done)
        group.byte_count += size
        gathered.byte_count += size
        gathered.message_count += 1
        if (
            group.byte_count >= self._group_bytes_max
            or len(group.messages) >= BATCH_TARGET_MESSAGES
        ):
            del groups[key]
            self._publish(topic, group)
        elif (
            gathered.byte_count >= GATHERED_BYTES_MAX
            or gathered.message_count >= GATHERED_MESSAGES_MAX
        ):
            self._publish_all(gathered)

    def _find_refusal(
        self, topic: Topic, message: SingleMessage, size: int
    ) -> BrokerError | None:
        """Return the error of an invalid message, as far as it shows without Arrow."""
        size_max = topic.limits.max_message_size
        payload_size = len(message.payload)
        if size_max and payload_size > size_max:
            return too_large(payload_size, size_max, topic.name)
        if size > self._batch_bytes_max:
            return too_large(size, self._batch_bytes_max, topic.name)
        if topic.registrations.exclusive is not None:
            fenced = topic.registrations.find_fencing(message.producer)
            if fenced is not None:
                return fenced
        return _find_malformed(message)

    def _publish_scheduled(self, gathered: _Gathered) -> None:
        gathered.is_scheduled = False
        self._publish_all(gathered)

    def _publish_all(self, gathered: _Gathered) -> None:
        for (topic, _, _), group in gathered.take().items():
            self._publish(topic, group)

    def _publish(self, topic: Topic, group: _Group) -> None:
        try:
            frame = frame_of(group.messages)
        except (pa.ArrowException, UnicodeError) as error:
            reason = InvalidRequest(f"the message cannot be stored: {error}")
            self._publish_singly(topic, group, reason)
            return
        size, size_max = frame.byte_count, self._batch_bytes_max
        if size > size_max:
            self._publish_singly(topic, group, too_large(size, size_max, topic.name))
            return
        try:
            topic.publish_batched(
                frame, partial(_notify, group.callbacks), group.reject
            )
        except BrokerError as error:
            _notify(group.callbacks, 0, error)

    def _publish_singly(self, topic: Topic, group: _Group, reason: BrokerError) -> None:
        """Publish the messages one by one, because one of them cannot be stored."""
        if len(group.messages) == 1:
            _notify(group.callbacks, 0, reason)
            return
        for message, done in zip(group.messages, group.callbacks, strict=True):
            self._publish(topic, _Group([message], [done]))


def _find_malformed(message: SingleMessage) -> InvalidRequest | None:
    if (
        TIME_MIN <= message.publish_time_us <= TIME_MAX
        and message.deliver_at_us is None
        and message.expires_at_us is None
        and not (message.attributes or message.schema_id)
    ):
        # The usual case.
        return None
    for name, time in (
        ("publish time", message.publish_time_us),
        ("delivery time", message.deliver_at_us),
        ("expiry time", message.expires_at_us),
    ):
        if time is not None and not TIME_MIN <= time <= TIME_MAX:
            return InvalidRequest(
                f"the {name} {time} (microseconds since 1970) is not between the years "
                "1 and 9999"
            )
    if message.attributes and DEDUPLICATION_ID in message.attributes:
        try:
            check_id(message.attributes[DEDUPLICATION_ID])
        except InvalidRequest as error:
            return error
    schema_id, version = message.schema_id, message.schema_version
    if schema_id and not (0 < schema_id <= INT64_MAX and 0 <= version <= INT32_MAX):
        return InvalidRequest(f"schema id {schema_id}, version {version}: out of range")
    return None


def _notify(
    callbacks: list[OnPublished],
    offsets: int | Sequence[int],
    error: BrokerError | None,
) -> None:
    if isinstance(offsets, int):
        offsets = range(offsets, offsets + len(callbacks))
    for offset, done in zip(offsets, callbacks, strict=True):
        # A failing callback must not stop the others.
        try:
            done(offset, error)
        except Exception:
            log.exception("a callback of a published message failed")


def frame_of(
    messages: Sequence[SingleMessage], *, sender: str | None = None
) -> BatchFrame:
    """
    Return a batch of *messages*, which have the same schema.

    The header names the *sender*, by default the producer of all messages.
    """
    first, last = messages[0], messages[-1]
    producers = [message.producer for message in messages]
    has_one_producer = producers.count(first.producer) == len(producers)
    if sender is not None:
        has_one_producer = has_one_producer and first.producer == sender
    header = BatchHeader(
        first_publish_time=first.publish_time_us,
        last_publish_time=last.publish_time_us,
        schema_id=first.schema_id,
        schema_version=first.schema_version,
        producer=first.producer if has_one_producer else sender or "",
    )
    keys = _unless_null([message.key for message in messages])
    attributes = _unless_null([message.attributes or None for message in messages])
    deliver_at = _unless_null([message.deliver_at_us for message in messages])
    expires_at = _unless_null([message.expires_at_us for message in messages])
    payloads = [message.payload for message in messages]
    times = [message.publish_time_us for message in messages]
    if times.count(times[0]) == len(times):
        times = []
    is_plain = has_one_producer and not (keys or attributes or deliver_at or expires_at)
    if is_plain:
        return encode_payloads(payloads, header, times)
    batch = batch_of(
        payloads,
        keys=keys,
        attributes=attributes,
        publish_times=times or None,
        producers=None if has_one_producer else [name or None for name in producers],
        deliver_at=deliver_at,
        expires_at=expires_at,
    )
    return encode(batch, header)


def _unless_null(values: list[T | None]) -> list[T | None] | None:
    """Return *values*, or None if all of them are None."""
    return None if values.count(None) == len(values) else values
