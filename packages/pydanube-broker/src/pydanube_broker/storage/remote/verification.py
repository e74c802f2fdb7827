"""
Verification: comparing all copies of the segments with the manifest, and repairing.

A bad copy is replaced by the other copy of the segment, or by one in a further store,
such as a backup.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from pydanube.model.descriptions import CopyState, DamagedSegment, SegmentsVerified
from pydanube.model.errors import ObjectsUnavailable
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube_broker.storage.remote.segment_copies import copy_segment, find_damage
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.segment_pages import (
    PAGE_SEGMENTS,
    Page,
    SegmentPages,
)
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

BAD = frozenset({CopyState.DAMAGED, CopyState.MISSING})
"""The states of copies that are to be repaired."""

OpenStore = Callable[[], Awaitable[Objects]]
"""Opens an object store that a client has named."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a segment, as it was found."""

    state: CopyState
    problem: str = ""


def damaged_of(entry: SegmentEntry, local: Copy, remote: Copy) -> DamagedSegment | None:
    """
    Return the description of a segment if a copy is damaged or missing.

    An uploaded segment needs no local copy.  A remote copy that cannot be read, because
    the broker has no remote store, is a problem if there is no intact local one.
    """
    is_lost = remote.state is CopyState.UNKNOWN and local.state is not CopyState.INTACT
    if BAD.isdisjoint({local.state, remote.state}) and not is_lost:
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
        pages: SegmentPages,
        claim: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """*claim* raises unless the remote store is known to be this cluster's."""
        self._local, self._remote = objects, None
        self._tiers = objects if isinstance(objects, TieredObjects) else None
        if self._tiers is not None:
            self._local, self._remote = self._tiers.local, self._tiers.remote
        self._logs = logs
        self._pages = pages
        self._claim = claim

    async def verify_page(
        self,
        topic_ids: set[TopicId] | None,
        after: str,
        *,
        bytes_per_s: int,
        is_repairing: bool,
        open_source: OpenStore | None = None,
        is_counting: bool = False,
        segments_max: int = PAGE_SEGMENTS,
    ) -> SegmentsVerified:
        """
        Verify the next segments after the position *after*, of some topics or of all.

        With *is_repairing*, bad copies are replaced by intact ones, also by those in
        the store that *open_source* opens.  Segments that are dropped or replaced
        meanwhile are left out.

        Cancellation: Safe at any point.

        Raises:
            InvalidRequest: *after* is not a position.
            InvalidConfig: The source cannot be opened.
            ObjectsUnavailable: The remote store or the source does not answer.
            InconsistentDirectory: The remote store is that of another cluster.
        """
        async with self._pages.turn:
            if self._claim is not None:
                # In a wrong store, everything would be missing.
                await self._claim()
            source = None if open_source is None else await open_source()

            async def work(
                topic_id: TopicId, entry: SegmentEntry, page: Page
            ) -> DamagedSegment | None:
                damaged = await self._verify(topic_id, entry, page.pace)
                if damaged is None or not is_repairing:
                    return damaged
                return await self._repair(topic_id, entry, damaged, source)

            return await self._pages.run(
                work,
                topic_ids,
                after,
                bytes_per_s=bytes_per_s,
                is_counting=is_counting,
                segments_max=segments_max,
            )

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
            current = await self._pages.find(topic_id, entry.object_name)
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

    async def _repair(
        self,
        topic_id: TopicId,
        entry: SegmentEntry,
        damaged: DamagedSegment,
        source: Objects | None,
    ) -> DamagedSegment | None:
        """
        Replace the bad copies of a segment; None if it is gone meanwhile.

        A new copy has the bytes that the manifest describes, so nothing changes for
        readers, whatever happens meanwhile.
        """
        good = source
        if damaged.local is CopyState.INTACT:
            good = self._local
        elif damaged.remote is CopyState.INTACT:
            good = self._remote
        if good is None:
            return damaged
        if entry.checksum is None:
            problem = f"{damaged.problem}; without a checksum it is not repaired"
            return replace(damaged, problem=problem)
        async with self._maintenance(topic_id):
            if await self._pages.find(topic_id, entry.object_name) is None:
                return None
            for state, bad in (
                (damaged.local, self._local),
                (damaged.remote, self._remote),
            ):
                if bad is None or state not in BAD:
                    continue
                if state is CopyState.DAMAGED and await _is_absent(bad, entry):
                    # It was evicted.
                    return None
                problem = await copy_segment(entry, good, bad)
                if problem:
                    return replace(damaged, problem=f"{damaged.problem}; {problem}")
                if bad is self._local:
                    damaged = replace(damaged, local=CopyState.REPAIRED)
                else:
                    damaged = replace(damaged, remote=CopyState.REPAIRED)
            if self._tiers is not None:
                await self._tiers.find_local(entry.object_name)
        log.warning("%s was repaired: %s", entry.object_name, damaged.problem)
        return damaged

    def _maintenance(self, topic_id: TopicId) -> AbstractAsyncContextManager[object]:
        """Return the lock of a topic, if it is open."""
        topic_log = self._logs.get(topic_id)
        return nullcontext() if topic_log is None else topic_log.maintenance


async def _is_absent(objects: Objects, entry: SegmentEntry) -> bool:
    return await objects.stat(entry.object_name) is None
