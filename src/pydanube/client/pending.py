"""Awaiting the ids of messages that were published without waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from pydanube.client.messages import MessageId
from pydanube.client.send_queue import OpenBatch

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

SentPiece: TypeAlias = "tuple[int, asyncio.Future[int]]"
"""The number of messages in a batch that was sent, and its first offset."""


class Pending(tuple[OpenBatch["asyncio.Future[int]"], int]):
    """A message that is not acknowledged yet; await it for its MessageId."""

    # One is made for every message, of its batch and its index there, and nothing is
    # made faster than a tuple.
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, MessageId]:
        batch, index = self
        batch.is_awaited = True
        future = batch.completion
        if not future.done():
            # Cancelling one waiter must not cancel the batch.
            yield from asyncio.shield(future).__await__()
        return MessageId(batch.topic, future.result() + index)

    def done(self) -> bool:
        """Return whether the message is acknowledged or has failed."""
        return self[0].completion.done()


async def wait_for_offsets(sent: Sequence[SentPiece]) -> list[range]:
    """Wait until all pieces are acknowledged, and return their offsets."""
    offsets = []
    for count, future in sent:
        # Cancelling the waiter must not cancel the batch.
        base = await asyncio.shield(future)
        offsets.append(range(base, base + count))
    return offsets


def concat_offsets(offsets: Sequence[range]) -> Sequence[int]:
    """Return the offsets of pieces as one sequence, a range if there is no gap."""
    if not offsets:
        return range(0)
    first, last = offsets[0], offsets[-1]
    if last.stop - first.start == sum(map(len, offsets)):
        return range(first.start, last.stop)
    return [offset for run in offsets for offset in run]
