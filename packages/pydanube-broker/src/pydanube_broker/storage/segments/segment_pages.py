"""
Work on all segments, page by page, at a limited rate.

A client asks for one page after the other and gives the position where the last one
ended, so no state is kept between pages, and the work can be continued at any time,
also after a restart of the broker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from pydanube.model.descriptions import DamagedSegment, SegmentsVerified
from pydanube.model.errors import InvalidRequest
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.config import MIB
from pydanube_broker.storage.pure.upload_planning import TransferPace
from pydanube_broker.storage.segments.manifest import Manifest, position_of

PAGE_BYTES = 64 * MIB
"""A page ends when so much was read, but has at least one segment."""
PAGE_S = 2.0
"""A page also ends when its reads take this time at the rate that was asked for."""
PAGE_SEGMENTS = 1000
"""The most segments in a page."""

_POSITION = re.compile(r"[0-9]{1,19}/[0-9]{20}")


def page_bytes(bytes_per_s: int) -> float:
    """Return the number of bytes after which a page ends; 0 means no limit of rate."""
    return min(PAGE_BYTES, bytes_per_s * PAGE_S) if bytes_per_s else PAGE_BYTES


class Page:
    """One page in progress: its counts, and the pace at which it reads."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float]) -> None:
        self.byte_count = 0
        self.copied_count = 0
        self._rate = TransferPace(bytes_per_s)
        self._clock = clock

    async def pace(self, byte_count: int) -> None:
        """Wait until *byte_count* more bytes may be read."""
        self.byte_count += byte_count
        await asyncio.sleep(self._rate.delay_s(byte_count, self._clock()))


Work = Callable[[TopicId, SegmentEntry, Page], Awaitable[DamagedSegment | None]]
"""Works on one segment, and returns its description if it is damaged."""


class SegmentPages:
    """Goes through the segments of the manifest; see run()."""

    def __init__(self, manifest: Manifest, clock: Callable[[], float]) -> None:
        self.turn = asyncio.Lock()
        """Held during each page: several clients together must not read faster."""
        self._manifest = manifest
        self._clock = clock

    async def run(
        self,
        work: Work,
        topic_ids: set[TopicId] | None,
        after: str,
        *,
        bytes_per_s: int,
        is_counting: bool,
        segments_max: int = PAGE_SEGMENTS,
    ) -> SegmentsVerified:
        """
        Do *work* for the next segments after the position *after*, one after the other.

        *topic_ids* are the topics; None stands for all.  The caller holds ``turn``.

        Raises:
            InvalidRequest: *after* is not a position.
        """
        if after and not _POSITION.fullmatch(after):
            raise InvalidRequest(
                f"{after[:100]!r} is not a position of a verification; give the one "
                "that the last page ended with, or none to begin"
            )
        page = Page(bytes_per_s, self._clock)
        left = await self._count(topic_ids, after) if is_counting else (0, 0)
        damaged, segment_count, unchecked = [], 0, 0
        async for topic_id, entry in self.segments(topic_ids, after):
            if segment_count and (
                page.byte_count + entry.byte_count > page_bytes(bytes_per_s)
                or segment_count == segments_max
            ):
                break
            after = position_of(topic_id, entry.base)
            segment_count += 1
            unchecked += entry.checksum is None
            problem = await work(topic_id, entry, page)
            if problem is not None:
                damaged.append(problem)
        else:
            after = ""
        # The rate holds across pages: the last piece of this one takes its time, too.
        await page.pace(0)
        return SegmentsVerified(
            segment_count=segment_count,
            byte_count=page.byte_count,
            without_checksum=unchecked,
            copied_count=page.copied_count,
            damaged=tuple(damaged),
            after=after,
            segments_left=left[0],
            bytes_left=left[1],
        )

    def new_page(self) -> Page:
        """Return a page without a limit of its rate."""
        return Page(0, self._clock)

    async def segments(
        self, topic_ids: set[TopicId] | None, after: str
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """Yield the segments after *after*, of some topics or of all."""
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
        async for _, entry in self.segments(topic_ids, after):
            count += 1
            byte_count += entry.byte_count
        return count, byte_count

    async def find(self, topic_id: TopicId, object_name: str) -> SegmentEntry | None:
        """Return the segment with this name, if the topic has it now."""
        segments = await self._manifest.load(topic_id)
        return next((s for s in segments if s.object_name == object_name), None)
