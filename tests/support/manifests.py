"""A manifest in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.ids import TopicId
    from pydanube.model.segments import SegmentEntry


class MemoryManifest:
    """A manifest in memory."""

    def __init__(self) -> None:
        self.segments: dict[TopicId, dict[int, SegmentEntry]] = {}

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """See Manifest."""
        segments = self.segments.get(topic_id, {})
        return tuple(segments[base] for base in sorted(segments))

    async def add(self, topic_id: TopicId, entry: SegmentEntry, epoch: int) -> None:
        """See Manifest; there is one broker, so none is fenced."""
        del epoch
        self.segments.setdefault(topic_id, {})[entry.base] = entry

    async def replace(
        self,
        topic_id: TopicId,
        old: Sequence[SegmentEntry],
        new: Sequence[SegmentEntry],
        epoch: int,
    ) -> None:
        """See Manifest."""
        await self.drop(topic_id, old, epoch)
        for entry in new:
            await self.add(topic_id, entry, epoch)

    async def drop(
        self, topic_id: TopicId, entries: Sequence[SegmentEntry], epoch: int
    ) -> None:
        """See Manifest."""
        del epoch
        for entry in entries:
            self.segments.get(topic_id, {}).pop(entry.base, None)
