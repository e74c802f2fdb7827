"""The manifest of segments, kept in the metadata store."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.metadata import keys
from pydanube.metadata.store import Delete, HasValue, MetadataStore, Operation, Put
from pydanube.model.errors import RevisionConflict, TopicFenced
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry


class MetadataManifest:
    """
    The segments of each topic; implements ``storage.manifest.Manifest``.

    Every change is one transaction that compares the topic's epoch, so a fenced broker
    cannot change the manifest.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """Return all segments of the topic, sorted by offset."""
        stored = await self._store.scan(keys.SEGMENTS.within(topic_id))
        return tuple(each.value for _, each in stored)

    async def add(self, topic_id: TopicId, entry: SegmentEntry, epoch: int) -> None:
        """
        Add a segment to the topic.

        Raises:
            TopicFenced: The topic has a higher epoch than *epoch*.
        """
        await self._change(
            topic_id, epoch, [Put(keys.segment(topic_id, entry.base), entry)]
        )

    async def replace(
        self,
        topic_id: TopicId,
        old: Sequence[SegmentEntry],
        new: Sequence[SegmentEntry],
        epoch: int,
    ) -> None:
        """
        Replace the segments *old* by *new*, atomically.

        Raises:
            TopicFenced: The topic has a higher epoch than *epoch*.
        """
        bases = {entry.base for entry in new}
        operations: list[Operation] = [
            Delete(keys.segment(topic_id, entry.base))
            for entry in old
            if entry.base not in bases
        ]
        operations += [Put(keys.segment(topic_id, entry.base), entry) for entry in new]
        await self._change(topic_id, epoch, operations)

    async def drop(
        self, topic_id: TopicId, entries: Sequence[SegmentEntry], epoch: int
    ) -> None:
        """
        Remove segments from the topic.

        Raises:
            TopicFenced: The topic has a higher epoch than *epoch*.
        """
        await self._change(
            topic_id,
            epoch,
            [Delete(keys.segment(topic_id, entry.base)) for entry in entries],
        )

    async def _change(
        self, topic_id: TopicId, epoch: int, operations: Sequence[Operation]
    ) -> None:
        try:
            await self._store.transaction(
                [HasValue(keys.EPOCHS.key(topic_id), epoch)], operations
            )
        except RevisionConflict as error:
            raise TopicFenced(
                f"topic {topic_id} has a newer writer than epoch {epoch}"
            ) from error
