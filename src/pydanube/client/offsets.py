"""Which offsets of which topics a user means who hands in messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pydanube.client.messages import (
    Message,
    MessageBatch,
    MessageId,
    MessageIds,
    PartitionedIds,
    ranges_of_offsets,
)
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pydanube.model.ranges import Range

Acked = Message | MessageBatch | MessageId | Iterable[Message | MessageId]
"""What can be acknowledged."""


def ranges_of(messages: Acked) -> Iterator[Range]:
    """
    The offsets of *messages*, which are of one topic, as half-open ranges.

    Raises:
        InvalidRequest: They are no messages, and not the ids of some.
    """
    if isinstance(messages, MessageBatch):
        yield from messages.ranges()
    elif isinstance(messages, MessageIds):
        yield from ranges_of_offsets(messages.offsets)
    elif isinstance(messages, Message | MessageId):
        yield messages.offset, messages.offset + 1
    else:
        yield from ranges_of_offsets(each.offset for each in _each(messages))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets as few ranges, in order."""
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


def ranges_by_topic(messages: Acked) -> dict[str, Iterable[Range]]:
    """
    The offsets of *messages* as half-open ranges, under the names of their topics.

    Raises:
        InvalidRequest: As ``ranges_of``.
    """
    if isinstance(messages, PartitionedIds) or not isinstance(
        messages, Message | MessageBatch | MessageId | MessageIds
    ):
        offsets: defaultdict[str, list[int]] = defaultdict(list)
        for each in _each(messages):
            offsets[each.topic].append(each.offset)
        return {topic: ranges_of_offsets(found) for topic, found in offsets.items()}
    if isinstance(messages, MessageBatch | MessageIds) and not messages:
        # Nothing came: that is of no partition.
        return {}
    return {messages.topic: ranges_of(messages)}


def _each(messages: Any) -> Iterator[Message | MessageId]:
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise InvalidRequest(
            f"a message, a batch or several of them, not {type(messages).__name__}"
        )
    for each in messages:
        if not isinstance(each, Message | MessageId):
            raise InvalidRequest(f"a message, not {type(each).__name__}")
        yield each
