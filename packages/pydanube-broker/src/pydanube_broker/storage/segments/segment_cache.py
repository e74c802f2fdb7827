"""
A cache of decoded row groups of segments, local and remote.

A segment that has a local copy is read in worker threads.  Of a segment that is only in
the remote store, the event loop requests ranges, so that a slow store occupies no
thread that readers of local segments need; only decoding takes place in the threads.

Sequential readers find the next row group decoded.  Of remote segments, the bytes of
more row groups are requested ahead, also across the end of a segment: of one at first,
and of twice as many whenever a reader arrives at a row group that was read ahead.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.batches import BatchFrame
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_ranges import (
    WHOLE_BYTES_MAX,
    BytesMissing,
    RangeFile,
    Span,
    footer_span,
)
from pydanube_broker.storage.segments.remote_segments import Fetched, RemoteSegments
from pydanube_broker.storage.segments.segments import SegmentReader

T = TypeVar("T")

# The approximate size of an open segment, and of each of its row groups.
_FOOTER_BYTES = 16 * 1024
_FOOTER_GROUP_BYTES = 2 * 1024

_RETRIES = RetryPolicy(first_s=1.0, max_s=30.0)

FAILURES_MAX = 10_000
"""How many failed reads are remembered; the oldest are forgotten first."""

AHEAD_SHARE = 2
"""Bytes that are read ahead may take this fraction (1/2) of the cache."""

AHEAD_KEEP_S = 5.0
"""How long bytes that were read ahead are kept if others need the memory."""

log = logging.getLogger(__name__)

# A row group: its segment and index; with the index None, the open segment.
_Key = tuple[SegmentEntry, int | None]

Failure = CorruptSegment | ObjectsUnavailable
_FAILURES = (CorruptSegment, ObjectsUnavailable)


@dataclass(slots=True)
class _Cached:
    """A value, and what reading ahead knows about it."""

    value: Any
    byte_count: int
    depth: int = 0
    """How many row groups were read ahead when this one was; 0: readers came first."""


@dataclass(slots=True)
class _Ahead:
    """Bytes of a remote row group that were requested before readers need them."""

    fetching: asyncio.Future[Fetched]
    byte_count: int
    depth: int
    """How many row groups were to be requested ahead at the time."""
    done_at: float | None = None
    """When the bytes arrived."""


@dataclass(frozen=True, slots=True)
class _OpenSegment:
    """An open segment; small remote ones with all their bytes."""

    reader: SegmentReader
    whole: Buffer | None = None


_Load = Callable[[_Key], Coroutine[Any, Any, _Cached]]


class SegmentCache:
    """
    Reads segments and caches the decoded row groups; see open_segment_cache().

    Readers that need the same row group at the same time share one decoding.

    A failed read is repeated at growing intervals; until the next attempt, all readers
    get the same error.

    Bounds: The cache holds at most *bytes_max* and evicts the least recently used
        entries; readers may hold more.

    Cancellation: A cancelled reader does not affect others; the decoding that it
        started is finished and cached.
    """

    def __init__(
        self,
        objects: Objects,
        executor: Executor,
        tasks: TaskScope,
        *,
        frame_bytes: int,
        bytes_max: int,
        remote: RemoteSegments | None = None,
    ) -> None:
        self.byte_count = 0
        self.remote = remote
        """The segments without a local copy; None if there is no remote store."""
        self._objects = objects
        self._executor = executor
        self._tasks = tasks
        self._frame_bytes = frame_bytes
        self._bytes_max = bytes_max
        # The key is the whole entry, because another topic of the same name may reuse
        # the object's name.
        self._cached: OrderedDict[_Key, _Cached] = OrderedDict()
        self._loading: dict[_Key, asyncio.Future[_Cached]] = {}
        self._failed: OrderedDict[_Key, Failure] = OrderedDict()
        self.ahead_bytes = 0
        """The length of what was requested ahead and is not decoded yet."""
        # Bytes of remote row groups, the oldest first.
        self._ahead: dict[_Key, _Ahead] = {}

    async def read(
        self,
        entry: SegmentEntry,
        offset: int,
        bytes_max: int,
        following: Sequence[SegmentEntry] = (),
    ) -> list[BatchFrame]:
        """
        Return frames of one row group from the first with a message from *offset* on.

        They have about *bytes_max* bytes; there is at least one, unless the segment has
        no such message.  *following* are the next segments of the topic, for sequential
        readers.

        Raises:
            CorruptSegment: The object is damaged or gone.
            ObjectsUnavailable: The remote store, which alone has it, does not answer.
        """
        found = await self._open_segment(entry)
        index = found.reader.row_group_of(offset)
        if index is None:
            return []
        frames = cast(
            "list[BatchFrame]",
            await self._get((entry, index), partial(self._load_row_group, found, 0)),
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
        # From the middle on: readers of a few messages need no further row group.
        is_late = 2 * end > len(frames)
        depth = int(is_late)
        if self.remote is not None and not self.remote.is_local(entry.object_name):
            depth = max(depth, self._depth_at(entry, index))
            self._request_ahead(found, index + 1, following, depth)
        if is_late:
            self._decode_ahead(found, index + 1, depth)
        return frames[first:end]

    async def find_time(self, entry: SegmentEntry, publish_time: int) -> int | None:
        """
        Return the offset of the segment's first message of *publish_time* or later.

        Raises:
            CorruptSegment: The object is damaged or gone.
            ObjectsUnavailable: The remote store, which alone has it, does not answer.
        """
        found = await self._open_segment(entry)
        return await self._choose(
            entry,
            partial(found.reader.find_time, publish_time, self._local(entry)),
            partial(self._find_remote_time, found.reader, publish_time),
        )

    @property
    def failing(self) -> set[SegmentEntry]:
        """The corrupt segments whose last read failed, as far as is remembered."""
        return {
            entry
            for (entry, _), error in self._failed.items()
            if isinstance(error, CorruptSegment)
        }

    def discard(self, entries: Iterable[SegmentEntry]) -> None:
        """Free the memory of segments that no topic consists of any more."""
        gone = set(entries)
        for key in [key for key in self._cached if key[0] in gone]:
            self._drop(key)
        for key in [key for key in self._failed if key[0] in gone]:
            del self._failed[key]
        for key in [key for key in self._ahead if key[0] in gone]:
            self._take_ahead(key)

    # What is cached.

    async def _open_segment(self, entry: SegmentEntry) -> _OpenSegment:
        return cast("_OpenSegment", await self._get((entry, None), self._open))

    async def _get(self, key: _Key, load: _Load) -> Any:
        kept = self._cached.get(key)
        if kept is not None:
            self._cached.move_to_end(key)
            return kept.value
        failed = self._failed.get(key)
        if failed is not None and asyncio.get_running_loop().time() < failed.retry_at:
            # The same error is raised repeatedly, so drop its traceback.
            raise failed.with_traceback(None)
        loading = self._begin(key, load)
        # Several readers may wait for it; one that is cancelled must not end it.
        return (await asyncio.shield(loading)).value

    def _begin(self, key: _Key, load: _Load) -> asyncio.Future[_Cached]:
        """Return a future of the value of *key*; start loading it if necessary."""
        loading = self._loading.get(key)
        if loading is not None:
            return loading
        loading = self._tasks.start(load(key), "read a segment")
        self._loading[key] = loading
        loading.add_done_callback(partial(self._on_loaded, key))
        return loading

    def _on_loaded(self, key: _Key, loading: asyncio.Future[_Cached]) -> None:
        del self._loading[key]
        if loading.cancelled():
            return
        error = loading.exception()
        if error is not None:
            # Nobody may be waiting, because of reading ahead, so do not raise.
            if isinstance(error, _FAILURES):
                self._on_failed(key, error)
            return
        if self._failed.pop(key, None) is not None:
            log.info("segment %s can be read again", key[0].object_name)
        self._cached[key] = loading.result()
        self.byte_count += loading.result().byte_count
        self._shrink()

    def _shrink(self) -> None:
        """Evict what was used least recently until the rest fits."""
        while self._cached and self.byte_count > self._bytes_max - self.ahead_bytes:
            self._drop(next(iter(self._cached)))

    def _drop(self, key: _Key) -> None:
        self.byte_count -= self._cached.pop(key).byte_count

    def _on_failed(self, key: _Key, error: Failure) -> None:
        before = self._failed.pop(key, None)
        if before is not None:
            error.attempts = before.attempts + 1
            error.is_logged = before.is_logged and str(before) == str(error)
        delay_s = _RETRIES.delay_s(error.attempts)
        error.retry_at = asyncio.get_running_loop().time() + delay_s
        self._failed[key] = error
        if len(self._failed) > FAILURES_MAX:
            self._failed.popitem(last=False)

    # Loading.

    async def _open(self, key: _Key) -> _Cached:
        return await self._open_at(0, key)

    async def _open_at(self, depth: int, key: _Key) -> _Cached:
        entry = key[0]
        found = await self._choose(
            entry,
            partial(self._open_local, entry),
            partial(self._open_remote, entry),
        )
        size = _FOOTER_BYTES + found.reader.row_group_count * _FOOTER_GROUP_BYTES
        if found.whole is not None:
            size += entry.byte_count
        return _Cached(found, size, depth)

    async def _load_row_group(
        self, found: _OpenSegment, depth: int, key: _Key
    ) -> _Cached:
        entry, index = key
        assert index is not None
        ahead = self._take_ahead(key)
        frames = await self._choose(
            entry,
            partial(found.reader.read_row_group, index, self._local(entry)),
            partial(self._decode_remote, found, index, ahead),
        )
        size = sum(frame.byte_count for frame in frames)
        return _Cached(frames, size, depth if ahead is None else ahead.depth)

    async def _choose(
        self,
        entry: SegmentEntry,
        read_local: Callable[[], T],
        read_remote: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Read the local copy of a segment, or the remote one if that fails."""
        if self.remote is None:
            return await self._in_thread(read_local)
        failure: CorruptSegment | None = None
        if self.remote.is_local(entry.object_name):
            try:
                return await self._in_thread(read_local)
            except CorruptSegment as error:
                failure = error
        try:
            found = await read_remote()
        except _FAILURES:
            # The local copy may have been evicted in between; that is no failure.
            if failure is None or isinstance(failure.__cause__, FileNotFoundError):
                raise
            raise failure from None
        if failure is not None and failure.is_damaged:
            log.error("%s; the remote copy is read instead", failure)
        return found

    async def _in_thread(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, call)

    def _local(self, entry: SegmentEntry) -> Callable[[], Any]:
        return partial(self._objects.open, entry.object_name)

    def _open_local(self, entry: SegmentEntry) -> _OpenSegment:
        return _OpenSegment(self._open_bytes(entry, self._local(entry)))

    def _open_bytes(
        self, entry: SegmentEntry, source: Callable[[], Any]
    ) -> SegmentReader:
        return SegmentReader(entry, source, frame_bytes=self._frame_bytes)

    # Remote segments.

    async def _open_remote(self, entry: SegmentEntry) -> _OpenSegment:
        span = footer_span(entry)
        while True:
            try:
                reader, fetched = await self._with_bytes(
                    entry, span, partial(self._open_bytes, entry)
                )
            except BytesMissing as missing:
                # The footer is longer than expected, or the entry has no checksums of
                # parts, so that the whole object must be verified.
                begin, end = missing.span[0], entry.byte_count
            else:
                is_small = span[0] == 0 and entry.byte_count <= WHOLE_BYTES_MAX
                return _OpenSegment(reader, fetched.data if is_small else None)
            assert begin < span[0]
            span = begin, end

    async def _decode_remote(
        self, found: _OpenSegment, index: int, ahead: _Ahead | None
    ) -> list[BatchFrame]:
        reader, entry = found.reader, found.reader.entry
        decode = partial(reader.read_row_group, index)
        if found.whole is not None:
            source = partial(RangeFile, 0, found.whole, entry.byte_count)
            return await self._in_thread(partial(decode, source))
        span = reader.row_group_span(index)
        fetching = None if ahead is None else ahead.fetching
        frames, _ = await self._with_bytes(entry, span, decode, fetching)
        return frames

    async def _find_remote_time(
        self, reader: SegmentReader, publish_time: int
    ) -> int | None:
        for index in reader.row_groups_from(publish_time):
            found, _ = await self._with_bytes(
                reader.entry,
                reader.times_span(index),
                partial(reader.find_time_in, index, publish_time),
            )
            if found is not None:
                return found
        return None

    async def _with_bytes(
        self,
        entry: SegmentEntry,
        span: Span,
        call: Callable[[Callable[[], Any]], T],
        fetching: asyncio.Future[Fetched] | None = None,
    ) -> tuple[T, Fetched]:
        """Return the result of *call*, which reads the bytes *span*, and the bytes."""
        remote = self.remote
        assert remote is not None
        fetched = await (fetching or remote.fetch(entry, span))
        while True:
            source = partial(RangeFile, span[0], fetched.data, entry.byte_count)
            try:
                return await self._in_thread(partial(call, source)), fetched
            except CorruptSegment:
                if not fetched.is_from_disk:
                    raise
            fetched = await remote.fetch_again(entry, span)

    # Reading ahead.

    def _decode_ahead(self, found: _OpenSegment, index: int, depth: int) -> None:
        """Decode the row group *index* before readers need it."""
        key = found.reader.entry, index
        if index < found.reader.row_group_count and self._is_new(key):
            self._begin(key, partial(self._load_row_group, found, depth))

    def _depth_at(self, entry: SegmentEntry, index: int) -> int:
        """Return how many row groups after *index* a sequential reader needs."""
        assert self.remote is not None
        keys: list[_Key] = [(entry, index)]
        if not index:
            keys.append((entry, None))
        depths = [self._cached[key].depth for key in keys if key in self._cached]
        return min(2 * max(depths, default=0), self.remote.requests_max)

    def _request_ahead(
        self,
        found: _OpenSegment,
        index: int,
        following: Sequence[SegmentEntry],
        depth: int,
    ) -> None:
        """Request the *depth* row groups from *index* on, unless memory is short."""
        for key, reader in islice(self._upcoming(found, index, following), depth):
            if not self._is_new(key) or key in self._ahead:
                continue
            if not self._may_request_ahead():
                return
            if reader is None:
                # Small segments are opened with all their bytes.
                if depth * WHOLE_BYTES_MAX > self._bytes_max // AHEAD_SHARE:
                    return
                self._begin(key, partial(self._open_at, depth))
            elif not self._fetch_ahead(key, reader, depth):
                return

    def _upcoming(
        self, found: _OpenSegment, index: int, following: Sequence[SegmentEntry]
    ) -> Iterator[tuple[_Key, SegmentReader | None]]:
        """
        Yield what a sequential reader needs next of remote segments.

        These are row groups, with the reader of their segment, and segments that are
        not open yet.
        """
        assert self.remote is not None
        opened: _OpenSegment | None = found
        entry = found.reader.entry
        for after in (*following, None):
            if opened is None:
                yield (entry, None), None
            elif opened.whole is None:
                for at in range(index, opened.reader.row_group_count):
                    yield (entry, at), opened.reader
            elif opened is not found:
                yield (entry, None), None
            if after is None or self.remote.is_local(after.object_name):
                return
            entry, index = after, 0
            kept = self._cached.get((entry, None))
            opened = None if kept is None else kept.value

    def _is_new(self, key: _Key) -> bool:
        return not (key in self._cached or key in self._loading or key in self._failed)

    def _may_request_ahead(self) -> bool:
        """Return whether requests are left for readers that wait for an answer."""
        assert self.remote is not None
        waiting = sum(each.done_at is None for each in self._ahead.values())
        return waiting < max(1, self.remote.requests_max * 3 // 4)

    def _fetch_ahead(self, key: _Key, reader: SegmentReader, depth: int) -> bool:
        """Request the bytes of a row group; return False if memory is short."""
        entry, index = key
        assert self.remote is not None
        assert index is not None
        span = reader.row_group_span(index)
        size = span[1] - span[0]
        if not self._make_room_ahead(size):
            return False
        fetching = self._tasks.start(self.remote.fetch(entry, span), "read ahead")
        self._ahead[key] = _Ahead(fetching, size, depth)
        self.ahead_bytes += size
        self._shrink()
        fetching.add_done_callback(partial(self._on_fetched, key))
        return True

    def _make_room_ahead(self, size: int) -> bool:
        """Drop bytes that nobody has needed for a while; return whether *size* fits."""
        now = asyncio.get_running_loop().time()
        left = self._bytes_max // AHEAD_SHARE - size
        for key, ahead in list(self._ahead.items()):
            if self.ahead_bytes <= left:
                break
            if ahead.done_at is not None and now - ahead.done_at > AHEAD_KEEP_S:
                self._take_ahead(key)
        return self.ahead_bytes <= left

    def _take_ahead(self, key: _Key) -> _Ahead | None:
        ahead = self._ahead.pop(key, None)
        if ahead is not None:
            self.ahead_bytes -= ahead.byte_count
        return ahead

    def _on_fetched(self, key: _Key, fetching: asyncio.Future[Fetched]) -> None:
        ahead = self._ahead.get(key)
        if ahead is None or ahead.fetching is not fetching:
            # A reader waits for it already, and gets its error.
            if not fetching.cancelled():
                fetching.exception()
            return
        ahead.done_at = asyncio.get_running_loop().time()
        if fetching.cancelled() or fetching.exception() is not None:
            # A reader that needs it requests it again, and gets the error.
            self._take_ahead(key)


def _base_of(frame: BatchFrame) -> int:
    return frame.base


@asynccontextmanager
async def open_segment_cache(
    objects: Objects,
    executor: Executor,
    *,
    frame_bytes: int,
    bytes_max: int,
    remote: RemoteSegments | None = None,
) -> AsyncIterator[SegmentCache]:
    """
    Open a cache of segments in *objects*, and of others that *remote* reads.

    When the context ends, reads that are under way are cancelled.
    """
    async with task_scope() as tasks:
        yield SegmentCache(
            objects,
            executor,
            tasks,
            frame_bytes=frame_bytes,
            bytes_max=bytes_max,
            remote=remote,
        )
