"""A cache of decoded row groups of segments."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any, cast

from pydanube.model.errors import CorruptSegment
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.storage.segments import SegmentReader
from pydanube.wire.batches import BatchFrame

# The approximate size of an open segment, and of each of its row groups.
_FOOTER_BYTES = 16 * 1024
_FOOTER_GROUP_BYTES = 2 * 1024

_RETRIES = RetryPolicy(first_s=1.0, max_s=30.0)

FAILURES_MAX = 10_000
"""How many failed reads are remembered; the oldest are forgotten first."""

log = logging.getLogger(__name__)

_Key = tuple["SegmentEntry", int | None]


class SegmentCache:
    """
    Reads segments in worker threads and caches the decoded row groups.

    Readers that need the same row group at the same time share one decoding.

    A failed read is repeated at growing intervals; until the next attempt, all readers
    get the same error.

    Bounds: The cache holds at most *bytes_max* and evicts the least recently used
        entries; readers may hold more.

    Cancellation: A cancelled reader does not affect others; the decoding that it
        started is finished and cached.
    """

    def __init__(
        self, objects: Objects, executor: Executor, *, frame_bytes: int, bytes_max: int
    ) -> None:
        self.byte_count = 0
        self._objects = objects
        self._executor = executor
        self._frame_bytes = frame_bytes
        self._bytes_max = bytes_max
        # The key is the whole entry, because another topic of the same name may reuse
        # the object's name.  With the index None, the value is the open segment.
        self._cached: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._loading: dict[_Key, asyncio.Future[tuple[Any, int]]] = {}
        self._failed: OrderedDict[_Key, CorruptSegment] = OrderedDict()

    async def read(
        self, entry: SegmentEntry, offset: int, bytes_max: int
    ) -> list[BatchFrame]:
        """
        Return frames of one row group from the first with a message from *offset* on.

        They have about *bytes_max* bytes; there is at least one, unless the segment has
        no such message.

        Raises:
            CorruptSegment: The object is damaged or gone.
        """
        reader = cast("SegmentReader", await self._get((entry, None), self._open))
        index = reader.row_group_of(offset)
        if index is None:
            return []
        frames = cast(
            "list[BatchFrame]",
            await self._get((entry, index), partial(_decode, reader)),
        )
        first = max(0, bisect_right(frames, offset, key=_base_of) - 1)
        if frames[first].end <= offset:
            # *offset* is missing, between two frames.
            first += 1
        end, byte_count = first + 1, frames[first].byte_count
        while end < len(frames):
            byte_count += frames[end].byte_count
            if byte_count > bytes_max:
                break
            end += 1
        # Read ahead: sequential readers need the next row group soon.
        following = entry, index + 1
        if (
            2 * end > len(frames)
            and index + 1 < reader.row_group_count
            and following not in self._failed
        ):
            self._begin(following, partial(_decode, reader))
        return frames[first:end]

    async def find_time(self, entry: SegmentEntry, publish_time: int) -> int | None:
        """
        Return the offset of the segment's first message of *publish_time* or later.

        Raises:
            CorruptSegment: The object is damaged or gone.
        """
        reader = cast("SegmentReader", await self._get((entry, None), self._open))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, reader.find_time, publish_time
        )

    @property
    def failing(self) -> set[SegmentEntry]:
        """The segments whose last read failed, as far as is remembered."""
        return {entry for entry, _ in self._failed}

    def discard(self, entries: Iterable[SegmentEntry]) -> None:
        """Free the memory of segments that no topic consists of any more."""
        gone = set(entries)
        for key in [key for key in self._cached if key[0] in gone]:
            _, size = self._cached.pop(key)
            self.byte_count -= size

    async def _get(self, key: _Key, load: Callable[[_Key], tuple[Any, int]]) -> Any:
        kept = self._cached.get(key)
        if kept is not None:
            self._cached.move_to_end(key)
            return kept[0]
        failed = self._failed.get(key)
        if failed is not None and asyncio.get_running_loop().time() < failed.retry_at:
            # The same error is raised repeatedly, so drop its traceback.
            raise failed.with_traceback(None)
        value, _ = await asyncio.shield(self._begin(key, load))
        return value

    def _begin(
        self, key: _Key, load: Callable[[_Key], tuple[Any, int]]
    ) -> asyncio.Future[tuple[Any, int]]:
        """Return a future of the value of *key*; start loading it if necessary."""
        loading = self._loading.get(key)
        if loading is not None:
            return loading
        loop = asyncio.get_running_loop()
        if key in self._cached:
            there: asyncio.Future[tuple[Any, int]] = loop.create_future()
            there.set_result(self._cached[key])
            return there
        loading = loop.run_in_executor(self._executor, load, key)
        self._loading[key] = loading
        loading.add_done_callback(partial(self._on_loaded, key))
        return loading

    def _on_loaded(self, key: _Key, loading: asyncio.Future[tuple[Any, int]]) -> None:
        del self._loading[key]
        if loading.cancelled():
            return
        error = loading.exception()
        if error is not None:
            # Nobody may be waiting, because of reading ahead, so do not raise.
            if isinstance(error, CorruptSegment):
                self._on_failed(key, error)
            return
        if self._failed.pop(key, None) is not None:
            log.info("segment %s can be read again", key[0].object_name)
        self._cached[key] = loading.result()
        self.byte_count += loading.result()[1]
        while self.byte_count > self._bytes_max:
            _, (_, size) = self._cached.popitem(last=False)
            self.byte_count -= size

    def _on_failed(self, key: _Key, error: CorruptSegment) -> None:
        before = self._failed.pop(key, None)
        if before is not None:
            error.attempts = before.attempts + 1
            error.is_logged = before.is_logged and str(before) == str(error)
        delay_s = _RETRIES.delay_s(error.attempts)
        error.retry_at = asyncio.get_running_loop().time() + delay_s
        self._failed[key] = error
        if len(self._failed) > FAILURES_MAX:
            self._failed.popitem(last=False)

    def _open(self, key: _Key) -> tuple[SegmentReader, int]:
        entry = key[0]
        reader = SegmentReader(
            entry,
            partial(self._objects.open, entry.object_name),
            frame_bytes=self._frame_bytes,
        )
        return reader, _FOOTER_BYTES + reader.row_group_count * _FOOTER_GROUP_BYTES


def _decode(reader: SegmentReader, key: _Key) -> tuple[list[BatchFrame], int]:
    index = key[1]
    assert index is not None
    frames = reader.read_row_group(index)
    return frames, sum(frame.byte_count for frame in frames)


def _base_of(frame: BatchFrame) -> int:
    return frame.base
