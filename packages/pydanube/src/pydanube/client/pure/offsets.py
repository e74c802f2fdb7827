"""The offsets of the messages, ids or batches that users acknowledge.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pydanube.client.messages.messages import (
    Message,
    MessageBatch,
    MessageId,
    MessageIds,
    ReceivedBatch,
    Source,
    ranges_of_slice,
)
from pydanube.client.messages.partitioned_ids import PartitionedIds
from pydanube.model.errors import InvalidRequest
from pydanube.model.range_blocks import ranges_of_offsets
from pydanube.model.ranges import Range

AckTarget = Message | MessageBatch | MessageId | Iterable[Message | MessageId]
"""Messages to acknowledge: messages, batches, ids, or several of these."""
AckPart = tuple[str, ReceivedBatch | None, list[Range]]
"""A topic, the batch that the messages arrived in if they did, and their offsets."""


def parts_of(messages: AckTarget) -> list[AckPart]:
    """
    Return the offsets of *messages* as half-open ranges, by topic and received batch.

    Raises:
        InvalidRequest: *messages* are neither messages nor message ids.
    """
    if isinstance(messages, Message):
        received, _ = messages.location
        return [(messages.topic, received, [(messages.offset, messages.offset + 1)])]
    if isinstance(messages, MessageBatch):
        return [
            (batch.topic, batch, ranges_of_slice(batch, base, end))
            for batch, base, end in messages.slices
        ]
    if isinstance(messages, MessageIds) and not isinstance(messages, PartitionedIds):
        # An empty batch belongs to no partition.
        ranges = ranges_of_offsets(messages.offsets)
        return [(messages.topic, None, ranges)] if ranges else []
    offsets: defaultdict[tuple[str, ReceivedBatch | None], list[int]]
    offsets = defaultdict(list)
    for each in _each(messages):
        batch = each.location[0] if isinstance(each, Message) else None
        offsets[each.topic, batch].append(each.offset)
    return [(*origin, ranges_of_offsets(found)) for origin, found in offsets.items()]


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
            f"the consumer of {mine} received this message before a seek or a "
            "deletion of the topic, which invalidates earlier deliveries: receive the "
            "message again"
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
