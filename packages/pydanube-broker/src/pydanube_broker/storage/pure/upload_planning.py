"""Which segments are uploaded and which local copies are evicted; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest

from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.segment_format import ObjectName

# Evictions go this fraction below the limit, so that they are planned less often.
_EVICTION_SHARE = 16


@dataclass(frozen=True, slots=True)
class TrackedSegment:
    """A segment that is not uploaded yet, or that has a local copy."""

    topic_id: TopicId
    object_name: str
    byte_count: int
    sealed_at: int


class SegmentTiers:
    """The segments that are not uploaded yet, and the local copies of the others."""

    def __init__(self) -> None:
        self.backlog: dict[str, TrackedSegment] = {}
        """The segments that are not uploaded, by name."""
        self.backlog_bytes = 0
        self.cached: dict[str, TrackedSegment] = {}
        """The uploaded segments that have a local copy, by name."""
        self.cached_bytes = 0
        self.obsolete: dict[str, TrackedSegment] = {}
        """Segments that were dropped or replaced before their upload, until deleted."""
        self.obsolete_bytes = 0

    @property
    def local_bytes(self) -> int:
        """The size of all segments on the local disk."""
        return self.backlog_bytes + self.cached_bytes + self.obsolete_bytes

    @property
    def oldest_sealed_at(self) -> int | None:
        """When the oldest segment of the backlog was sealed; None if it is empty."""
        return min((each.sealed_at for each in self.backlog.values()), default=None)

    def add(self, topic_id: TopicId, entry: SegmentEntry, *, is_local: bool) -> None:
        """Track a segment of the manifest in its present state."""
        self.remove(entry.object_name)
        segment = TrackedSegment(
            topic_id, entry.object_name, entry.byte_count, entry.sealed_at
        )
        if not entry.is_uploaded:
            self.backlog[entry.object_name] = segment
            self.backlog_bytes += entry.byte_count
        elif is_local:
            self.cached[entry.object_name] = segment
            self.cached_bytes += entry.byte_count

    def on_obsolete(self, object_name: str) -> None:
        """Note that a segment was dropped or replaced; its local copy is left."""
        segment = self.backlog.get(object_name)
        if segment is None:
            # An uploaded one may be evicted before it is deleted.
            return
        self.remove(object_name)
        self.obsolete[object_name] = segment
        self.obsolete_bytes += segment.byte_count

    def remove(self, object_name: str) -> None:
        """Forget a segment."""
        segment = self.backlog.pop(object_name, None)
        if segment is not None:
            self.backlog_bytes -= segment.byte_count
        segment = self.cached.pop(object_name, None)
        if segment is not None:
            self.cached_bytes -= segment.byte_count
        segment = self.obsolete.pop(object_name, None)
        if segment is not None:
            self.obsolete_bytes -= segment.byte_count

    def find(self, object_name: str) -> TrackedSegment | None:
        """Return the segment of this name, if it is tracked."""
        return (
            self.backlog.get(object_name)
            or self.cached.get(object_name)
            or self.obsolete.get(object_name)
        )


def plan_uploads(
    backlog: Iterable[TrackedSegment], count_max: int
) -> list[TrackedSegment]:
    """Return the oldest *count_max* segments, the oldest first."""
    return nsmallest(count_max, backlog, key=_age)


def plan_evictions(
    cached: Iterable[TrackedSegment], excess_bytes: int
) -> list[TrackedSegment]:
    """Return the oldest local copies that together take at least *excess_bytes*."""
    chosen = []
    for segment in sorted(cached, key=_age):
        if excess_bytes <= 0:
            break
        chosen.append(segment)
        excess_bytes -= segment.byte_count
    return chosen


def plan_room(
    cached: Iterable[TrackedSegment], wanted_bytes: int, bytes_max: int
) -> list[TrackedSegment]:
    """
    Return the local copies to evict so that *wanted_bytes* become *bytes_max* or less.

    *wanted_bytes* are those of all local copies, and of those that are to be added.
    """
    excess = wanted_bytes - bytes_max
    if excess <= 0:
        return []
    return plan_evictions(cached, excess + bytes_max // _EVICTION_SHARE)


def _age(segment: TrackedSegment) -> tuple[int, str]:
    return segment.sealed_at, segment.object_name


def is_orphan(
    object_name: str,
    parsed: ObjectName,
    segments: Sequence[SegmentEntry],
    *,
    epoch: int,
    end_offset: int,
) -> bool:
    """
    Return whether an object of a topic with *segments* is not needed.

    An object with a newer epoch, or with messages from the end of the log on, may be
    the only copy of messages that an old copy of the metadata does not know.
    """
    if any(segment.object_name == object_name for segment in segments):
        return False
    return parsed.epoch <= epoch and parsed.end <= end_offset


class TransferPace:
    """The starting times of transfers that together keep to a rate; 0: no limit."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")

    def delay_s(self, byte_count: int, now: float) -> float:
        """Plan to transfer *byte_count* bytes; return how long that has to wait."""
        if not self._bytes_per_s:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + byte_count / self._bytes_per_s
        return start - now
