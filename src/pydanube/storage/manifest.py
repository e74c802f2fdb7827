"""The interface to the manifest: the list of segments of each topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """One sealed segment: the messages ``base … end`` of a topic."""

    base: int
    end: int
    """The first offset after the segment."""
    epoch: int
    """The topic's epoch when the segment was sealed, or replaced others."""
    count: int
    """The number of messages; fewer than offsets if some are missing."""
    byte_count: int
    """The length of the object."""
    object_name: str
    first_publish_time: int
    """The earliest publish time; microseconds since 1970, UTC, as all times here."""
    last_publish_time: int
    """The latest publish time."""
    sealed_at: int
    checksum: int | None = None
    """CRC-32C of the object; None for segments of old versions."""
    part_checksums: bytes | None = None
    """CRC-32C of its footer and of each column chunk; see ``segment_checksums``."""

    def __post_init__(self) -> None:
        assert self.base < self.end
        assert 0 <= self.count <= self.end - self.base

    @property
    def has_gaps(self) -> bool:
        """Whether there are offsets without a message."""
        return self.count < self.end - self.base


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
