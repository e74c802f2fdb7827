"""A segment as the manifest of its topic lists it."""

from __future__ import annotations

from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass


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
    """Its name in the object store; the end of the URL."""
    first_publish_time: int
    """The earliest publish time; microseconds since 1970, UTC, as all times here."""
    last_publish_time: int
    """The latest publish time."""
    sealed_at: int
    checksum: int | None = None
    """CRC-32C of the object; None if 'danube recover' found the segment."""
    part_checksums: bytes | None = None
    """CRC-32C of its footer and of each column chunk; see ``segment_checksums``."""
    is_uploaded: bool = field(default=False, compare=False)
    """Whether the remote object store has a verified copy."""

    def __hash__(self) -> int:
        # Caches look entries up very often, and few differ in nothing but the rest.
        return hash((self.object_name, self.base, self.end))

    def __post_init__(self) -> None:
        if not 0 <= self.base < self.end or not 0 <= self.count <= self.end - self.base:
            raise ValueError(
                f"no segment has {self.count} messages in {self.base} … {self.end}"
            )

    @property
    def has_gaps(self) -> bool:
        """Whether there are offsets without a message."""
        return self.count < self.end - self.base
