"""
The planning of merging and compaction.  Pure.

**Merging** joins small neighbouring segments and keeps all their messages.

**Compaction by key** keeps the message with the highest offset of each key, and all
messages without a key.  A *tombstone* is a message with a key and an empty payload; it
deletes its key.  Compaction removes a tombstone when its publish time is older than a
grace period, which gives readers time to see it.  The newest message in the segments
always stays, even if it is a tombstone, so there is a message after every gap.  Offsets
never change.

Groups are replaced in the order of offsets.  The messages that a tombstone deletes are
older, so they are removed before the tombstone, wherever a run is interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydanube.model.descriptions import Segment

GROUP_SEGMENTS_MAX = 100
"""The most segments that a broker replaces in one transaction."""

BUCKET_BYTES = 64 * 1024 * 1024
"""The approximate number of bytes of keys that one task compares."""

CHUNK_BYTES = 256 * 1024 * 1024
"""The approximate number of bytes of segments whose keys one task collects."""

_OFFSET_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeyCounts:
    """Key statistics of one segment, for the planning of compaction."""

    without_key: int
    """The number of messages without a key."""
    oldest_tombstone: int | None
    """The publish time of its oldest tombstone, if it has any."""
    live: int = 0
    """The number of messages that are the last of their key, among all segments."""

    @property
    def remaining(self) -> int:
        """The number of messages that stay, tombstones included."""
        return self.without_key + self.live


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Neighbouring segments that become one."""

    segments: tuple[Segment, ...]

    @property
    def base(self) -> int:
        """The first offset."""
        return self.segments[0].base

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.segments[-1].end

    @property
    def byte_count(self) -> int:
        """The total size of the segments."""
        return sum(each.byte_count for each in self.segments)

    @property
    def count(self) -> int:
        """The total number of messages."""
        return sum(each.count for each in self.segments)


def plan_merge(segments: Sequence[Segment], target_bytes: int) -> list[SegmentGroup]:
    """
    Group two or more neighbours that are smaller than half of *target_bytes*.

    A group ends as soon as it reaches *target_bytes*, so that large segments are not
    rewritten repeatedly.
    """
    return _grouped(segments, {}, target_bytes, is_merging=True)


def plan_compaction(
    segments: Sequence[Segment],
    facts: Mapping[str, SegmentKeyCounts],
    target_bytes: int,
    *,
    is_merging: bool,
    tombstones_before: int,
) -> list[SegmentGroup]:
    """
    Group the segments that lose messages, by object name in *facts*.

    With *is_merging* neighbours are merged up to *target_bytes*, counted without the
    removed messages, and so are small segments.  Tombstones that were published before
    *tombstones_before*, in microseconds since 1970, are removed.
    """
    changed = {}
    for each in segments:
        found = facts[each.object_name]
        oldest = found.oldest_tombstone
        if found.remaining < each.count or (
            oldest is not None and oldest < tombstones_before
        ):
            changed[each.object_name] = found.remaining
    return _grouped(segments, changed, target_bytes, is_merging=is_merging)


def _grouped(
    segments: Sequence[Segment],
    changed: Mapping[str, int],
    target_bytes: int,
    *,
    is_merging: bool,
) -> list[SegmentGroup]:
    groups: list[SegmentGroup] = []
    open_: list[Segment] = []
    byte_count = 0

    def close() -> None:
        nonlocal byte_count
        if len(open_) > 1 or (open_ and open_[0].object_name in changed):
            groups.append(SegmentGroup(tuple(open_)))
        open_.clear()
        byte_count = 0

    for segment in segments:
        is_changed = segment.object_name in changed
        is_small = is_merging and segment.byte_count < target_bytes / 2
        if not is_changed and not is_small:
            close()
            continue
        open_.append(segment)
        size = segment.byte_count
        if is_changed:
            size = size * changed[segment.object_name] // max(1, segment.count)
        byte_count += size
        if (
            not is_merging
            or byte_count >= target_bytes
            or len(open_) == GROUP_SEGMENTS_MAX
        ):
            close()
    close()
    return groups


def chunk_segments(segments: Sequence[Segment]) -> list[tuple[Segment, ...]]:
    """Divide *segments* among tasks that collect their keys."""
    portions: dict[int, list[Segment]] = {}
    byte_count = 0
    for segment in segments:
        portions.setdefault(byte_count // CHUNK_BYTES, []).append(segment)
        byte_count += segment.byte_count
    return [tuple(each) for each in portions.values()]


def bucket_count(segments: Sequence[Segment], key_bytes: int) -> int:
    """
    Return the number of buckets for the keys of *segments*; each must fit in memory.

    *key_bytes* is the size of the keys according to the files, where a dictionary
    counts each key once.
    """
    messages = sum(each.count for each in segments)
    return max(1, -(-(key_bytes + messages * _OFFSET_BYTES) // BUCKET_BYTES))
