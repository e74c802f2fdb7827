"""
Single messages become batches.

A server that takes messages one by one, as the gRPC API does, hands them over here.
All that arrive for a topic in one turn of the event loop, from any number of
producers, become one batch and one append; each caller is told about its own
message.  An Arrow batch costs some twenty microseconds whether it holds one message
or a hundred, and so does everything that is done with it later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pydanube.broker.limits import too_large
from pydanube.model.batch import Column, batch_of
from pydanube.model.errors import BrokerError, InvalidPayload, InvalidRequest
from pydanube.wire.batches import (
    INT32_MAX,
    INT64_MAX,
    TIME_MAX,
    TIME_MIN,
    BatchHeader,
    encode,
    encode_payloads,
)
from pydanube.wire.native.frames import FRAME_BYTES_MAX, batch_bytes_max

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from pydanube.broker.producer_session import OnPublished
    from pydanube.broker.topic import Topic
    from pydanube.schemas.language import BadPayload
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_TARGET_BYTES = 1024 * 1024
"""A batch that has come to this size does not wait for the end of the turn."""

ATTRIBUTE_BYTES = 8
"""What an attribute takes in a batch besides its name and value."""

BATCH_MESSAGES_MAX = 10_000
"""The same for its messages."""

BATCH_BYTES_MAX = batch_bytes_max(FRAME_BYTES_MAX)
"""What clients take as one batch, unless the broker is configured otherwise."""


@dataclass(slots=True)
class SingleMessage:
    """A message as its producer sent it; times are microseconds since 1970, UTC."""

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
    """Messages that become one batch, and who is told."""

    messages: list[SingleMessage] = field(default_factory=list)
    told: list[OnPublished] = field(default_factory=list)
    byte_count: int = 0

    def refuse(self, bad: Sequence[BadPayload]) -> BatchFrame | None:
        """Tell these messages that they are not of their schema; the others' frame."""
        reasons = dict(bad)
        kept: list[tuple[SingleMessage, OnPublished]] = []
        refused: list[tuple[OnPublished, str]] = []
        for at, pair in enumerate(zip(self.messages, self.told, strict=True)):
            if at in reasons:
                refused.append((pair[1], reasons[at]))
            else:
                kept.append(pair)
        # In place, because whoever tells them later has this list.
        self.messages[:] = [message for message, _ in kept]
        self.told[:] = [done for _, done in kept]
        for done, why in refused:
            error = InvalidPayload(f"the message does not match its schema: {why}")
            _tell([done], 0, error)
        return _frame_of(self.messages) if kept else None


class MessageBatcher:
    """
    What has arrived in this turn of the event loop and is not published yet.

    Bounds: A group of messages is published when it has ``BATCH_TARGET_BYTES``, a
        turn lasts as long as the servers have something to hand over, and they ask
        for room as they do for batches.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, batch_bytes_max: int = BATCH_BYTES_MAX
    ) -> None:
        self._call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self._batch_bytes_max = batch_bytes_max
        self._group_bytes_max = min(BATCH_TARGET_BYTES, batch_bytes_max // 4)
        self._groups: dict[tuple[Topic, int, int], _Group] = {}
        self._is_scheduled = False

    def publish(self, topic: Topic, message: SingleMessage, done: OnPublished) -> None:
        """
        Take *message* for *topic*; *done* is told its offset when it is safe.

        If it is not taken, *done* is told why, perhaps at once: the offset means
        nothing then.  *done* must not raise.

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
        registration = (topic, message.schema_id, message.schema_version)
        group = self._groups.get(registration)
        if group is None:
            group = self._groups[registration] = _Group()
            if not self._is_scheduled:
                self._is_scheduled = True
                self._call_soon(self._publish_all)
        elif group.byte_count + size > self._group_bytes_max:
            self._publish(topic, group)
            group = self._groups[registration] = _Group()
        group.messages.append(message)
        group.told.append(done)
        group.byte_count += size
        if (
            group.byte_count >= self._group_bytes_max
            or len(group.messages) >= BATCH_MESSAGES_MAX
        ):
            del self._groups[registration]
            self._publish(topic, group)

    def _find_refusal(
        self, topic: Topic, message: SingleMessage, size: int
    ) -> BrokerError | None:
        """What is wrong with one message, as far as it can be seen without Arrow."""
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

    def _publish_all(self) -> None:
        self._is_scheduled = False
        groups, self._groups = self._groups, {}
        for (topic, _, _), group in groups.items():
            self._publish(topic, group)

    def _publish(self, topic: Topic, group: _Group) -> None:
        try:
            frame = _frame_of(group.messages)
        except (pa.ArrowException, UnicodeError) as error:
            reason = InvalidRequest(f"the message cannot be stored: {error}")
            self._publish_singly(topic, group, reason)
            return
        size, size_max = frame.byte_count, self._batch_bytes_max
        if size > size_max:
            self._publish_singly(topic, group, too_large(size, size_max, topic.name))
            return
        try:
            topic.publish_batched(frame, partial(_tell, group.told), group.refuse)
        except BrokerError as error:
            _tell(group.told, 0, error)

    def _publish_singly(self, topic: Topic, group: _Group, reason: BrokerError) -> None:
        """One of them cannot be stored; the others must not suffer from it."""
        if len(group.messages) == 1:
            _tell(group.told, 0, reason)
            return
        for message, done in zip(group.messages, group.told, strict=True):
            self._publish(topic, _Group([message], [done]))


def _find_malformed(message: SingleMessage) -> InvalidRequest | None:
    if not TIME_MIN <= message.publish_time_us <= TIME_MAX:
        return InvalidRequest("a publish time is not between the years 1 and 9999")
    for time in (message.deliver_at_us, message.expires_at_us):
        if time is not None and not TIME_MIN <= time <= TIME_MAX:
            return InvalidRequest(
                "a time of delivery or expiry is not between the years 1 and 9999"
            )
    if message.schema_id and not (
        0 < message.schema_id <= INT64_MAX and 0 <= message.schema_version <= INT32_MAX
    ):
        return InvalidRequest("a schema id or schema version is out of bounds")
    return None


def _tell(told: list[OnPublished], base_offset: int, error: BrokerError | None) -> None:
    for offset, done in enumerate(told, base_offset):
        # One caller's bug must not keep the news from the others.
        try:
            done(offset, error)
        except Exception:
            log.exception("a callback of a published message failed")


def _frame_of(messages: list[SingleMessage]) -> BatchFrame:
    first, last = messages[0], messages[-1]
    producers = [message.producer for message in messages]
    is_of_one = producers.count(first.producer) == len(producers)
    header = BatchHeader(
        count=len(messages),
        columns=Column.PAYLOAD,
        first_publish_time=first.publish_time_us,
        last_publish_time=last.publish_time_us,
        schema_id=first.schema_id,
        schema_version=first.schema_version,
        producer=first.producer if is_of_one else "",
    )
    keys = _unless_null([message.key for message in messages])
    attributes = _unless_null([message.attributes or None for message in messages])
    deliver_at = _unless_null([message.deliver_at_us for message in messages])
    expires_at = _unless_null([message.expires_at_us for message in messages])
    payloads = [message.payload for message in messages]
    times = [message.publish_time_us for message in messages]
    if times.count(times[0]) == len(times):
        times = []
    is_plain = is_of_one and not (keys or attributes or deliver_at or expires_at)
    if is_plain:
        return encode_payloads(payloads, header, times)
    batch = batch_of(
        payloads,
        keys=keys,
        attributes=attributes,
        publish_times=times or None,
        producers=None if is_of_one else [name or None for name in producers],
        deliver_at=deliver_at,
        expires_at=expires_at,
    )
    return encode(batch, header)


def _unless_null(values: list[T | None]) -> list[T | None] | None:
    """*values*, or None where there is none."""
    return None if values.count(None) == len(values) else values
