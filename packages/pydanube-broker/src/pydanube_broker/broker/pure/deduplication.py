"""
The deduplication window of a topic: the ids of its last messages.

Pure.  The ids are attributes of the stored messages, so the log is the only state:
after a restart the window is read from the log, before the first producer is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.batch import Column
from pydanube.model.deduplication import DEDUPLICATION_ID, check_id
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import Deduplication
from pydanube.wire.batches import BatchFrame, encode

Ids = Sequence[str | None]
"""The id of each message of a batch; None for a message without an id."""


class DeduplicationWindow:
    """
    The ids of the last messages of a topic.

    All times are in microseconds since 1970, UTC.

    Bounds: It has at most one id for each of the last ``messages_max`` messages.
    """

    def __init__(self, limits: Deduplication) -> None:
        self.limits = limits
        # The offset and the publish time of the newest message with an id.
        self._known: dict[str, tuple[int, int]] = {}
        # The offset of each id, in order, to remove those that left the window.
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def place(self, ids: Ids, end: int, now: int) -> tuple[list[int], list[int]]:
        """
        Return the offset of each message of a batch, and the indexes of the new ones.

        The new ones are to be stored from the offset *end* on.  A message of the batch
        may repeat an earlier one of the same batch.
        """
        offsets: list[int] = []
        new: list[int] = []
        in_batch: dict[str, int] = {}
        first, since = end - self.limits.messages_max, now - self.limits.age_us
        for index, id_ in enumerate(ids):
            if id_ is not None:
                offset, time = self._known.get(id_, (-1, 0))
                if offset < first or time < since:
                    offset = in_batch.get(id_, -1)
                if offset >= 0:
                    offsets.append(offset)
                    continue
                in_batch[id_] = end + len(new)
            offsets.append(end + len(new))
            new.append(index)
        return offsets, new

    def add(
        self, ids: Ids, times: Sequence[int], offsets: Sequence[int], now: int
    ) -> None:
        """Add the ids of stored messages, in the order of their offsets."""
        known, order = self._known, self._order
        for id_, time, offset in zip(ids, times, offsets, strict=True):
            if id_ is not None:
                known[id_] = offset, time
                order.append((offset, id_))
        if not offsets:
            return
        first, since = (
            offsets[-1] + 1 - self.limits.messages_max,
            now - self.limits.age_us,
        )
        while order:
            offset, id_ = order[0]
            # A newer message of the same id has an entry of its own.
            is_newest = known[id_][0] == offset if id_ in known else False
            if is_newest and offset >= first and known[id_][1] >= since:
                break
            if is_newest:
                del known[id_]
            order.popleft()

    def remove_from(self, offset: int) -> None:
        """Remove the ids of messages from *offset* on, which were not stored."""
        order = self._order
        while order and order[-1][0] >= offset:
            at, id_ = order.pop()
            if self._known.get(id_, (-1, 0))[0] == at:
                del self._known[id_]


def ids_of(frame: BatchFrame) -> Ids | None:
    """Return the ids of the messages of *frame*; None if no message has an id."""
    if not frame.header.columns & Column.ATTRIBUTES:
        return None
    attributes = frame.arrow().column("attributes")
    ids = pc.map_lookup(attributes, pa.scalar(DEDUPLICATION_ID), "last")
    return None if ids.null_count == len(ids) else ids.to_pylist()


def check_ids(ids: Ids) -> None:
    """
    Raise unless each message of a producer's batch has a valid id.

    Raises:
        InvalidRequest: One has none, although others have, or one is too long.
    """
    if None in ids:
        raise InvalidRequest(
            f"all messages of a batch have the attribute {DEDUPLICATION_ID}, or none: "
            "publish those without it in another batch"
        )
    for id_ in ids:
        check_id(id_ or "")


def times_of(frame: BatchFrame) -> list[int]:
    """Return the publish time of each message of *frame*."""
    if not frame.header.columns & Column.PUBLISH_TIME:
        return [frame.header.first_publish_time] * frame.count
    times: list[int] = frame.arrow().column("publish_time").cast(pa.int64()).to_pylist()
    return times


def offsets_of(frame: BatchFrame) -> Sequence[int]:
    """Return the offset of each message of a stored *frame*."""
    if not frame.has_gaps:
        return range(frame.base, frame.end)
    offsets: list[int] = frame.arrow().column("offset").to_pylist()
    return offsets


def select(frame: BatchFrame, indexes: Sequence[int]) -> BatchFrame:
    """
    Return the messages at *indexes* as a new frame.

    Their sequence numbers end where those of *frame* end, because the producer's next
    batch begins there.
    """
    rows = frame.arrow().take(pa.array(indexes, pa.int64()))
    header = frame.header
    times = times_of(frame)
    dropped = frame.count - len(indexes)
    return encode(
        rows,
        replace(
            header,
            base_sequence=header.base_sequence + dropped,
            first_publish_time=times[indexes[0]],
            last_publish_time=times[indexes[-1]],
        ),
    )
