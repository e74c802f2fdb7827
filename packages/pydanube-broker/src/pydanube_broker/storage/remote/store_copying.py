"""
Copying the history to another remote object store, from which it is read afterwards.

All uploaded segments are copied, page by page, while the broker goes on.  The object
with the cluster id comes last.  A broker whose settings name a store without it does
not use this store, so a copy that is not finished cannot be taken for the history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from pydanube.aio.tasks import gather
from pydanube.model.descriptions import CopyState, DamagedSegment, SegmentsVerified
from pydanube.model.errors import InvalidRequest, ObjectsUnavailable
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube_broker.storage.remote.segment_copies import copy_segment, find_damage
from pydanube_broker.storage.remote.tiered_objects import MARKER_NAME, TieredObjects
from pydanube_broker.storage.remote.verification import OpenStore
from pydanube_broker.storage.segments.segment_pages import (
    PAGE_SEGMENTS,
    Page,
    SegmentPages,
)

STATS_MAX = 16
"""The number of objects that are looked for at the same time."""


class StoreCopying:
    """Copies the segments in the remote store to another one; see copy_page()."""

    def __init__(
        self,
        tiers: TieredObjects,
        *,
        pages: SegmentPages,
        claim: Callable[[], Awaitable[None]],
    ) -> None:
        """*claim* raises unless the remote store is known to be this cluster's."""
        self._tiers = tiers
        self._pages = pages
        self._claim = claim

    async def copy_page(
        self,
        open_target: OpenStore,
        after: str,
        *,
        bytes_per_s: int,
        is_counting: bool,
        segments_max: int = PAGE_SEGMENTS,
    ) -> SegmentsVerified:
        """
        Copy the next segments after the position *after* that are not there yet.

        What is there is read and compared.  ``damaged`` are those that could not be
        copied.

        Cancellation: Safe at any point.

        Raises:
            InvalidRequest: *after* is not a position, or the target belongs to another
                cluster.
            InvalidConfig: The target cannot be opened.
            ObjectsUnavailable: A store does not answer.
        """
        async with self._pages.turn:
            target, _ = await self._open(open_target)
            return await self._pages.run(
                partial(self._copy, target),
                None,
                after,
                bytes_per_s=bytes_per_s,
                is_counting=is_counting,
                segments_max=segments_max,
            )

    async def finish(self, open_target: OpenStore) -> SegmentsVerified:
        """
        Write the cluster id to the target, after copying what it does not have yet.

        Objects that are there are recognised by their length, so this is fast.  If a
        segment cannot be copied, the cluster id is not written.

        Bounds: It takes about 300 bytes of memory for each segment.

        Durability: When it returns without ``damaged``, the target has the cluster id,
            and a broker accepts it.

        Raises:
            InvalidRequest: The target belongs to another cluster.
            InvalidConfig: The target cannot be opened.
            ObjectsUnavailable: A store does not answer.
        """
        async with self._pages.turn:
            target, marker = await self._open(open_target)
            page = self._pages.new_page()
            damaged = []
            for topic_id, name in await self._missing(target):
                entry = await self._pages.find(topic_id, name)
                if entry is None:
                    continue
                problem = await self._copy(target, topic_id, entry, page)
                if problem is not None:
                    damaged.append(problem)
            if not damaged:
                await target.put(MARKER_NAME, marker)
        return SegmentsVerified(copied_count=page.copied_count, damaged=tuple(damaged))

    async def _missing(self, target: Objects) -> list[tuple[TopicId, str]]:
        """Return the uploaded segments whose objects the target does not have."""
        uploaded = [
            (topic_id, entry.object_name, entry.byte_count)
            async for topic_id, entry in self._pages.segments(None, "")
            if entry.is_uploaded
        ]
        following = iter(uploaded)
        missing: list[tuple[TopicId, str]] = []

        async def look_for_next() -> None:
            for topic_id, name, byte_count in following:
                found = await target.stat(name)
                if found is None or found.byte_count != byte_count:
                    missing.append((topic_id, name))

        await gather(look_for_next() for _ in range(STATS_MAX))
        return missing

    async def _open(self, open_target: OpenStore) -> tuple[Objects, bytes]:
        """Return the target, and the object with the cluster id."""
        await self._claim()
        marker = await self._tiers.remote.read(MARKER_NAME)
        if marker is None:
            raise ObjectsUnavailable(
                f"the remote object store has no {MARKER_NAME} any more"
            )
        target = await open_target()
        found = await target.read(MARKER_NAME)
        if found is not None and bytes(found) != bytes(marker):
            raise InvalidRequest(
                f"the object store {target.url('')} belongs to another cluster; choose "
                "another store"
            )
        return target, bytes(marker)

    async def _copy(
        self, target: Objects, topic_id: TopicId, entry: SegmentEntry, page: Page
    ) -> DamagedSegment | None:
        if not entry.is_uploaded:
            return None
        if await find_damage(target, entry, page.pace) is None:
            return None
        await page.pace(entry.byte_count)
        problem = await copy_segment(entry, self._tiers.remote, target)
        if problem:
            # The local copy may still be intact, or the segment was dropped.
            problem = await copy_segment(entry, self._tiers.local, target) and problem
        if not problem:
            page.copied_count += 1
            return None
        if await self._pages.find(topic_id, entry.object_name) is None:
            return None
        return DamagedSegment(
            object_name=entry.object_name,
            base=entry.base,
            end=entry.end,
            byte_count=entry.byte_count,
            local=CopyState.NONE,
            remote=CopyState.MISSING,
            problem=f"in the other store: {problem}",
        )
