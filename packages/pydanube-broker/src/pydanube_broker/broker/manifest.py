"""The manifest of segments, kept in the metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pydanube.model.errors import RevisionConflict, TopicFenced
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import (
    OPERATIONS_MAX,
    Delete,
    HasValue,
    MetadataStore,
    Operation,
    Put,
)

PAGE = 1000
"""The number of segments that are read at once."""


class MetadataManifest:
    """
    The segments of each topic; implements ``storage.manifest.Manifest``.

    Every change is one transaction that compares the epoch of the topic, or in a
    cluster that of its shard, so a fenced broker cannot change the manifest.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """Return all segments of the topic, sorted by offset."""
        stored = await self._store.scan(keys.SEGMENTS.within(topic_id))
        return tuple(each.value for _, each in stored)

    async def load_each(
        self, topic_ids: Sequence[TopicId]
    ) -> list[tuple[SegmentEntry, ...]]:
        """Return for each topic what ``load`` does."""
        prefixes = [keys.SEGMENTS.within(each) for each in topic_ids]
        return [
            tuple(stored.value for _, stored in found)
            for found in await self._store.scan_each(prefixes)
        ]

    async def all_segments(
        self, after: str = ""
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """Yield all segments of all topics after the position *after*, in pages."""
        after = after and keys.SEGMENTS.path + after
        while page := await self._store.scan(keys.SEGMENTS, after=after, limit=PAGE):
            for path, stored in page:
                topic_id, _, _ = keys.SEGMENTS.name_of(path).partition("/")
                yield TopicId(int(topic_id)), stored.value
            after = page[-1][0]

    def transferable_segments(self) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """Yield all segments: no other broker uploads any."""
        return self.all_segments()

    async def held_topics(self) -> set[TopicId]:
        """Return the topics with retention holds."""
        held = await self._store.scan(keys.HOLDS)
        names = (keys.HOLDS.name_of(path) for path, _ in held)
        return {TopicId(int(name.partition("/")[0])) for name in names}

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        shard: int | None = None,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        """
        Remove and add segments; see ``Manifest.change``.

        Many segments are removed in several transactions if none is added.
        """
        epoch_key = keys.writer_epoch(topic_id, shard)
        bases = {entry.base for entry in added}
        operations: list[Operation] = [
            Delete(keys.segment(topic_id, entry.base))
            for entry in removed
            if entry.base not in bases
        ]
        operations += [
            Put(keys.segment(topic_id, entry.base), entry) for entry in added
        ]
        count = max(1, len(operations))
        step = count if added else OPERATIONS_MAX
        try:
            for begin in range(0, count, step):
                await self._store.transaction(
                    [HasValue(epoch_key, epoch)],
                    operations[begin : begin + step],
                )
        except RevisionConflict as error:
            raise TopicFenced(
                f"topic {topic_id} has a newer writer than epoch {epoch}"
            ) from error


class SharedManifest(MetadataManifest):
    """The manifest of a cluster: the owner of each topic uploads its segments."""

    async def transferable_segments(
        self,
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """Yield the segments that are uploaded: this broker may have copies of them."""
        async for topic_id, entry in self.all_segments():
            if entry.is_uploaded:
                yield topic_id, entry
