"""The interface to the manifest: the list of segments of each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    async def add(self, topic_id: TopicId, entry: SegmentEntry, epoch: int) -> None:
        """
        Add *entry* to the topic; adding it again changes nothing.

        Raises:
            TopicFenced: The topic has a newer epoch than *epoch*.
        """

    async def replace(
        self,
        topic_id: TopicId,
        old: Sequence[SegmentEntry],
        new: Sequence[SegmentEntry],
        epoch: int,
    ) -> None:
        """
        Replace *old* by *new*, atomically.

        Raises:
            TopicFenced: The topic has a newer epoch than *epoch*.
        """

    async def drop(
        self, topic_id: TopicId, entries: Sequence[SegmentEntry], epoch: int
    ) -> None:
        """
        Remove *entries* from the topic; missing ones are ignored.

        Raises:
            TopicFenced: The topic has a newer epoch than *epoch*.
        """
