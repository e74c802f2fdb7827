"""A manifest in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube_broker.storage.segments.manifest import position_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube.model.ids import TopicId
    from pydanube.model.segments import SegmentEntry


class MemoryManifest:
    """A manifest in memory."""

    def __init__(self) -> None:
        self.segments: dict[TopicId, dict[int, SegmentEntry]] = {}
        self.held: set[TopicId] = set()
        """The topics with retention holds."""

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """See Manifest."""
        segments = self.segments.get(topic_id, {})
        return tuple(segments[base] for base in sorted(segments))

    async def load_each(
        self, topic_ids: Sequence[TopicId]
    ) -> list[tuple[SegmentEntry, ...]]:
        """See Manifest."""
        return [await self.load(each) for each in topic_ids]

    async def all_segments(
        self, after: str = ""
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """See Manifest."""
        for topic_id in sorted(self.segments, key=str):
            for entry in await self.load(topic_id):
                if position_of(topic_id, entry.base) > after:
                    yield topic_id, entry

    def transferable_segments(self) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """See Manifest; there is one broker, so it may upload all segments."""
        return self.all_segments()

    async def held_topics(self) -> set[TopicId]:
        """See Manifest."""
        return set(self.held)

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        shard: int | None = None,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        """See Manifest; there is one broker, so none is fenced."""
        del epoch, shard
        segments = self.segments.setdefault(topic_id, {})
        for entry in removed:
            segments.pop(entry.base, None)
        for entry in added:
            segments[entry.base] = entry
