"""
Verification: comparing all copies of the segments with the manifest, and repairing.

A client asks for one page after the other and gives the position where the last one
ended, so no state is kept between pages, and a verification can be continued at any
time, also after a restart of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace

from crc32c import crc32c

from pydanube.model.descriptions import CopyState, DamagedSegment, SegmentsVerified
from pydanube.model.errors import BrokerError, InvalidRequest, ObjectsUnavailable
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.storage.config import MIB
from pydanube.storage.manifest import Manifest, position_of
from pydanube.storage.segment_copies import find_damage
from pydanube.storage.tiered_objects import TieredObjects
from pydanube.storage.topic_log import TopicLog
from pydanube.storage.upload_planning import TransferPace

log = logging.getLogger(__name__)

PAGE_BYTES = 64 * MIB
"""A page ends when so much was read, but has at least one segment."""
PAGE_S = 2.0
"""A page also ends when its reads take this time at the rate that was asked for."""
PAGE_SEGMENTS = 1000
"""The most segments in a page."""

_POSITION = re.compile(r"[0-9]{1,19}/[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a segment, as it was found."""

    state: CopyState
    problem: str = ""


def page_bytes(bytes_per_s: int) -> float:
    """Return the number of bytes after which a page ends; 0 means no limit of rate."""
    return min(PAGE_BYTES, bytes_per_s * PAGE_S) if bytes_per_s else PAGE_BYTES


def damaged_of(entry: SegmentEntry, local: Copy, remote: Copy) -> DamagedSegment | None:
    """
    Return the description of a segment if a copy is damaged or missing.

    An uploaded segment needs no local copy.  A remote copy that cannot be read, because
    the broker has no remote store, is a problem if there is no intact local one.
    """
    bad = {CopyState.DAMAGED, CopyState.MISSING}
    is_lost = remote.state is CopyState.UNKNOWN and local.state is not CopyState.INTACT
    if bad.isdisjoint({local.state, remote.state}) and not is_lost:
        return None
    problems = [
        f"the {tier} copy {copy.problem}"
        for tier, copy in (("local", local), ("remote", remote))
        if copy.problem
    ]
    return DamagedSegment(
        object_name=entry.object_name,
        base=entry.base,
        end=entry.end,
        byte_count=entry.byte_count,
        local=local.state,
        remote=remote.state,
        problem="; ".join(problems),
    )


class Verification:
    """
    Verifies segments page by page; see verify_page().

    Bounds: One segment is read at a time, in pieces.  To repair one, all of it is held
        in memory.
    """

    def __init__(
        self,
        objects: Objects,
        logs: Mapping[TopicId, TopicLog],
        *,
        manifest: Manifest,
        claim: Callable[[], Awaitable[None]] | None,
        clock: Callable[[], float],
    ) -> None:
        """*claim* raises unless the remote store is known to be this cluster's."""
        self._local, self._remote = objects, None
        if isinstance(objects, TieredObjects):
            self._local, self._remote = objects.local, objects.remote
        self._logs = logs
        self._manifest = manifest
        self._claim = claim
        self._clock = clock
        # Several clients together must not read faster than one.
        self._turn = asyncio.Lock()

    async def verify_page(
        self,
        topic_ids: set[TopicId] | None,
        after: str,
        *,
        bytes_per_s: int,
        is_repairing: bool,
        is_counting: bool = False,
        segments_max: int = PAGE_SEGMENTS,
    ) -> SegmentsVerified:
        """
        Verify the next segments after the position *after*, of some topics or of all.

        Segments that are dropped or replaced meanwhile are left out.

        Cancellation: Safe at any point.

        Raises:
            InvalidRequest: *after* is not a position.
            ObjectsUnavailable: The remote store does not answer.
            InconsistentDirectory: The remote store is that of another cluster.
        """
        if after and not _POSITION.fullmatch(after):
            raise InvalidRequest(
                f"{after[:100]!r} is not a position of a verification; give the one "
                "that the last page ended with, or none to begin"
            )
        async with self._turn:
            if self._claim is not None:
                # In a wrong store, everything would be missing.
                await self._claim()
            page = _Page(TransferPace(bytes_per_s), self._clock)
            left = await self._count(topic_ids, after) if is_counting else (0, 0)
            damaged, segment_count, unchecked = [], 0, 0
            async for topic_id, entry in self._segments(topic_ids, after):
                if segment_count and (
                    page.byte_count + entry.byte_count > page_bytes(bytes_per_s)
                    or segment_count == segments_max
                ):
                    break
                after = position_of(topic_id, entry.base)
                segment_count += 1
                unchecked += entry.checksum is None
                problem = await self._verify(topic_id, entry, page.pace)
                if problem is not None and is_repairing:
                    problem = await self._repair(topic_id, entry, problem)
                if problem is not None:
                    damaged.append(problem)
            else:
                after = ""
        return SegmentsVerified(
            segment_count=segment_count,
            byte_count=page.byte_count,
            without_checksum=unchecked,
            damaged=tuple(damaged),
            after=after,
            segments_left=left[0],
            bytes_left=left[1],
        )

    async def _segments(
        self, topic_ids: set[TopicId] | None, after: str
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        if topic_ids is None:
            async for topic_id, entry in self._manifest.all_segments(after):
                yield topic_id, entry
            return
        for topic_id in sorted(topic_ids, key=str):
            for entry in await self._manifest.load(topic_id):
                if position_of(topic_id, entry.base) > after:
                    yield topic_id, entry

    async def _count(
        self, topic_ids: set[TopicId] | None, after: str
    ) -> tuple[int, int]:
        count = byte_count = 0
        async for _, entry in self._segments(topic_ids, after):
            count += 1
            byte_count += entry.byte_count
        return count, byte_count

    async def _verify(
        self,
        topic_id: TopicId,
        entry: SegmentEntry,
        pace: Callable[[int], Awaitable[None]],
    ) -> DamagedSegment | None:
        """Verify one segment; retention, uploads and evictions may change it."""
        while True:
            local = await self._local_copy(entry, pace)
            remote = await self._remote_copy(entry, pace)
            damaged = damaged_of(entry, local, remote)
            if damaged is None:
                return None
            current = await self._find(topic_id, entry.object_name)
            if current is None:
                return None
            if current.is_uploaded == entry.is_uploaded:
                return damaged
            entry = current

    async def _local_copy(
        self, entry: SegmentEntry, pace: Callable[[int], Awaitable[None]]
    ) -> Copy:
        try:
            problem = await find_damage(self._local, entry, pace)
            if problem is None:
                return Copy(CopyState.INTACT)
            if await self._local.stat(entry.object_name) is not None:
                return Copy(CopyState.DAMAGED, problem)
        except ObjectsUnavailable as error:
            # The disk cannot read it.
            return Copy(CopyState.DAMAGED, f"cannot be read: {error}")
        if entry.is_uploaded:
            return Copy(CopyState.NONE)
        return Copy(CopyState.MISSING, problem)

    async def _remote_copy(
        self, entry: SegmentEntry, pace: Callable[[int], Awaitable[None]]
    ) -> Copy:
        if not entry.is_uploaded:
            return Copy(CopyState.NONE)
        if self._remote is None:
            return Copy(
                CopyState.UNKNOWN,
                "is in a remote object store, and storage.remote.url names none",
            )
        problem = await find_damage(self._remote, entry, pace)
        if problem is None:
            return Copy(CopyState.INTACT)
        is_there = await self._remote.stat(entry.object_name) is not None
        return Copy(CopyState.DAMAGED if is_there else CopyState.MISSING, problem)

    async def _find(self, topic_id: TopicId, object_name: str) -> SegmentEntry | None:
        topic_log = self._logs.get(topic_id)
        if topic_log is not None:
            return topic_log.find_segment(object_name)
        segments = await self._manifest.load(topic_id)
        return next((s for s in segments if s.object_name == object_name), None)

    async def _repair(
        self, topic_id: TopicId, entry: SegmentEntry, damaged: DamagedSegment
    ) -> DamagedSegment | None:
        """
        Replace the bad copy of a segment by the good one; None if it is gone meanwhile.

        The new copy has the bytes that the manifest describes, so nothing changes for
        readers, whatever happens meanwhile.
        """
        if self._remote is None or not damaged.has_intact_copy:
            return damaged
        is_local_good = damaged.local is CopyState.INTACT
        good, bad = self._local, self._remote
        if not is_local_good:
            good, bad = bad, good
        async with self._maintenance(topic_id):
            is_gone = await self._find(topic_id, entry.object_name) is None
            if is_gone or (bad is self._local and await _is_absent(bad, entry)):
                # It was dropped or evicted.
                return None
            problem = await _replace(entry, good, bad)
        if problem:
            return replace(damaged, problem=f"{damaged.problem}; {problem}")
        log.warning(
            "%s: %s; it was replaced by the other copy",
            entry.object_name,
            damaged.problem,
        )
        if is_local_good:
            return replace(damaged, remote=CopyState.REPAIRED)
        return replace(damaged, local=CopyState.REPAIRED)

    def _maintenance(self, topic_id: TopicId) -> AbstractAsyncContextManager[object]:
        """Return the lock of a topic, if it is open."""
        topic_log = self._logs.get(topic_id)
        return nullcontext() if topic_log is None else topic_log.maintenance


class _Page:
    """The bytes that a page has read, and the pace at which it reads."""

    def __init__(self, rate: TransferPace, clock: Callable[[], float]) -> None:
        self.byte_count = 0
        self._rate = rate
        self._clock = clock

    async def pace(self, byte_count: int) -> None:
        """Wait until *byte_count* more bytes may be read."""
        self.byte_count += byte_count
        await asyncio.sleep(self._rate.delay_s(byte_count, self._clock()))


async def _is_absent(objects: Objects, entry: SegmentEntry) -> bool:
    return await objects.stat(entry.object_name) is None


async def _replace(entry: SegmentEntry, source: Objects, target: Objects) -> str:
    """Copy an object and verify the copy; return the problem, if there is one."""
    if entry.checksum is None:
        return "the segment has no checksum, so it is not repaired"
    try:
        data = await source.read(entry.object_name)
        if data is None or await asyncio.to_thread(crc32c, data) != entry.checksum:
            return "the other copy has changed, so it is not repaired"
        await target.put(entry.object_name, data)
        del data
        problem = await find_damage(target, entry)
    except BrokerError as error:
        return f"it cannot be repaired: {error}"
    return "" if problem is None else f"after its replacement it {problem}"
