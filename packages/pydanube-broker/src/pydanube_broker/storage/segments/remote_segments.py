"""Ranged reads of segments that are only in the remote object store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_ranges import Span
from pydanube_broker.storage.segments.range_cache import RangeCache, range_name

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes of a segment."""

    data: Buffer
    is_from_disk: bool
    """Whether they are from the cache, which may be wrong after a crash."""


class RemoteSegments:
    """
    Reads ranges of segments, from the cache on the local disk or the remote store.

    The store's failures are logged when they begin and when they end.

    Bounds: At most *requests_max* requests are under way.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        is_local: Callable[[str], bool],
        cache: RangeCache | None,
        requests_max: int,
    ) -> None:
        self.cache = cache
        self.is_local = is_local
        """Returns whether the object of a name has a local copy."""
        self.requests_max = requests_max
        self.request_count = 0
        """The number of requests to the store so far."""
        self.failure_count = 0
        """The number of requests that failed."""
        self.byte_count = 0
        """The number of bytes that the store has sent."""
        self._objects = objects
        self._slots = asyncio.Semaphore(requests_max)
        self._is_failing = False

    async def fetch(self, entry: SegmentEntry, span: Span) -> Fetched:
        """
        Return bytes of a segment, from the local disk if it has them.

        Raises:
            ObjectsUnavailable: The store does not answer.
            CorruptSegment: The object does not exist, or is too short.
        """
        if self.cache is not None:
            name = range_name(entry, *span)
            data = await self.cache.get(name)
            if data is not None and len(data) == span[1] - span[0]:
                return Fetched(data, is_from_disk=True)
            if data is not None:
                self.cache.discard(name)
        return await self._request(entry, span)

    async def fetch_again(self, entry: SegmentEntry, span: Span) -> Fetched:
        """Return bytes from the store, because those on the disk are wrong."""
        assert self.cache is not None
        log.warning(
            "the cache on the local disk had wrong bytes of segment %s",
            entry.object_name,
        )
        self.cache.discard(range_name(entry, *span))
        return await self._request(entry, span)

    async def _request(self, entry: SegmentEntry, span: Span) -> Fetched:
        begin, end = span
        name = f"segment {entry.object_name}, offsets {entry.base} to {entry.end}"
        async with self._slots:
            self.request_count += 1
            try:
                data = await self._objects.read(entry.object_name, begin, end)
            except ObjectsUnavailable as error:
                self._on_failed(error)
                # Each segment has an error of its own, which counts its attempts.
                raise ObjectsUnavailable(f"{name}: {error}") from error
        self._on_answered()
        size = 0 if data is None else len(memoryview(data))
        self.byte_count += size
        if data is None or size != end - begin:
            found = "is missing" if data is None else f"ends before byte {end}"
            raise CorruptSegment(
                f"{name}: the object in the remote store {found}",
                offsets=(entry.base, entry.end),
                is_damaged=data is not None,
            )
        if self.cache is not None:
            self.cache.put(range_name(entry, *span), data)
        return Fetched(data, is_from_disk=False)

    def _on_failed(self, error: ObjectsUnavailable) -> None:
        self.failure_count += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "segments that are only in the remote object store cannot be read, and "
                "their readers wait until it answers: %s",
                error,
            )

    def _on_answered(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("the remote object store can be read again")
