"""The offsets of the messages, ids or batches that users acknowledge.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pydanube.client.messages import (
    Message,
    MessageBatch,
    MessageId,
    MessageIds,
    PartitionedIds,
    ReceivedBatch,
    Source,
    ranges_of_offsets,
)
from pydanube.model.errors import InvalidRequest
from pydanube.model.ranges import Range

AckTarget = Message | MessageBatch | MessageId | Iterable[Message | MessageId]
"""Messages to acknowledge: messages, batches, ids, or several of these."""


def origins_of(messages: AckTarget) -> Iterator[tuple[str, ReceivedBatch | None]]:
    """
    Yield the topic of each of *messages*, and the batch that it came in if it has one.

    Successive messages that share both are reported once.

    Raises:
        InvalidRequest: As ``ranges_by_topic``.
    """
    if isinstance(messages, MessageBatch):
        yield from ((batch.topic, batch) for batch, _, _ in messages.slices)
        return
    if isinstance(messages, MessageIds) and not isinstance(messages, PartitionedIds):
        if messages:
            yield messages.topic, None
        return
    last: tuple[str, ReceivedBatch | None] | None = None
    for each in _each(messages):
        batch = each.location[0] if isinstance(each, Message) else None
        if last is None or batch is not last[1] or each.topic != last[0]:
            last = each.topic, batch
            yield last


def check_origin(source: Source, topic: str, batch: ReceivedBatch | None) -> None:
    """
    Raise unless *source* delivered the messages of *topic* that came in *batch*.

    The id of a message has no batch.  Only its topic is checked.

    Raises:
        InvalidRequest: Another subscription delivered them, none did, or the
            consumer has moved its subscription since.
    """
    theirs = None if batch is None else batch.source
    if theirs is source:
        return
    mine = f"topic {source.topic}, subscription {source.subscription}"
    if topic != source.topic or (
        theirs is not None and theirs.subscription != source.subscription
    ):
        named = "" if theirs is None else f", subscription {theirs.subscription}"
        raise InvalidRequest(
            f"the consumer of {mine} cannot acknowledge or reject a message of topic "
            f"{topic}{named}: use the consumer that received it"
        )
    if batch is not None and theirs is None:
        raise InvalidRequest(
            f"the consumer of {mine} did not receive this message, which was read "
            "without a subscription: to acknowledge it nevertheless, pass message.id"
        )
    if theirs is not None and theirs.is_over:
        raise InvalidRequest(
            f"the consumer of {mine} received this message before a seek, which "
            "invalidates earlier deliveries: receive the message again"
        )


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return the same offsets as few ranges, in order."""
    found: list[Range] = []
    last_base, last_end = 0, 0
    for base, end in sorted(ranges):
        if base <= last_end:
            last_end = max(last_end, end)
            continue
        if last_base < last_end:
            found.append((last_base, last_end))
        last_base, last_end = base, end
    if last_base < last_end:
        found.append((last_base, last_end))
    return found


def ranges_by_topic(messages: AckTarget) -> dict[str, Iterable[Range]]:
    """
    Return the offsets of *messages* as half-open ranges, by topic.

    Raises:
        InvalidRequest: *messages* are neither messages nor message ids.
    """
    if isinstance(messages, MessageBatch):
        batches: defaultdict[str, list[tuple[ReceivedBatch, int, int]]] = defaultdict(
            list
        )
        for each in messages.slices:
            batches[each[0].topic].append(each)
        return {
            topic: MessageBatch(topic, parts).ranges()
            for topic, parts in batches.items()
        }
    if isinstance(messages, MessageIds) and not isinstance(messages, PartitionedIds):
        if not messages:
            # An empty batch belongs to no partition.
            return {}
        return {messages.topic: ranges_of_offsets(messages.offsets)}
    offsets: defaultdict[str, list[int]] = defaultdict(list)
    for message in _each(messages):
        offsets[message.topic].append(message.offset)
    return {topic: ranges_of_offsets(found) for topic, found in offsets.items()}


def _each(messages: Any) -> Iterator[Message | MessageId]:
    if isinstance(messages, Message | MessageId):
        yield messages
        return
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise InvalidRequest(
            f"cannot acknowledge {type(messages).__name__}: pass a message, a batch, "
            "an id, or several of these"
        )
    for each in messages:
        if not isinstance(each, Message | MessageId):
            raise InvalidRequest(
                f"cannot acknowledge {type(each).__name__}: pass a message or an id"
            )
        yield each
