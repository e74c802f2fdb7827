"""The interface to the manifest: the list of segments of each topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry


class Manifest(Protocol):
    """
    The list of segments of every topic.

    Each change is atomic and compares the topic's epoch, so that a fenced broker cannot
    change a topic.
    """

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """Return all segments of the topic, sorted by offset."""

    def all_segments(self) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """Yield all segments of all topics, by topic."""
        ...

    async def held_topics(self) -> set[TopicId]:
        """Return the topics with retention holds, whose local copies are kept."""

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        """
        Remove segments from the topic and add others, atomically.

        Removing an absent segment, or adding a segment again, changes nothing.

        Raises:
            TopicFenced: The topic has a newer epoch than *epoch*.
        """
