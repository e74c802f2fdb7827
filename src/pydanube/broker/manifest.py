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

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        """Remove and add segments, atomically; see ``Manifest.change``."""
        bases = {entry.base for entry in added}
        operations: list[Operation] = [
            Delete(keys.segment(topic_id, entry.base))
            for entry in removed
            if entry.base not in bases
        ]
        operations += [
            Put(keys.segment(topic_id, entry.base), entry) for entry in added
        ]
        try:
            await self._store.transaction(
                [HasValue(keys.EPOCHS.key(topic_id), epoch)], operations
            )
        except RevisionConflict as error:
            raise TopicFenced(
                f"topic {topic_id} has a newer writer than epoch {epoch}"
            ) from error
