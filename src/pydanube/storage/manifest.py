"""What storage needs somebody to remember: of which segments a topic consists."""

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
    """The first offset that is *not* in the segment."""
    epoch: int
    """Of the claim under which it was written, or put in place of others."""
    count: int
    """How many messages there are; fewer than offsets where some are missing."""
    byte_count: int
    """How long the object is."""
    object_name: str
    first_publish_time: int
    """The earliest in it; microseconds since 1970, UTC, as all times here."""
    last_publish_time: int
    """The latest in it."""
    sealed_at: int
    checksum: int | None = None
    """CRC-32C of the object; None where none was taken."""
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

    Each change is all or nothing and compares the topic's epoch, so that a
    broker whose claim is over cannot change history.
    """

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """All segments of the topic, by offset."""

    async def add(self, topic_id: TopicId, entry: SegmentEntry, epoch: int) -> None:
        """
        Make *entry* part of the topic's history; adding it again changes nothing.

        Raises:
            TopicFenced: The topic has been claimed again since *epoch*.
        """

    async def replace(
        self,
        topic_id: TopicId,
        old: Sequence[SegmentEntry],
        new: Sequence[SegmentEntry],
        epoch: int,
    ) -> None:
        """
        Put *new* in the place of *old*, all at once.

        Raises:
            TopicFenced: The topic has been claimed again since *epoch*.
        """

    async def drop(
        self, topic_id: TopicId, entries: Sequence[SegmentEntry], epoch: int
    ) -> None:
        """
        Take *entries* out of the topic's history; those not there do not matter.

        Raises:
            TopicFenced: The topic has been claimed again since *epoch*.
        """
