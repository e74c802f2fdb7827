"""
Which segments are put together, and what compaction removes.  Pure.

**Merging** puts neighbours together that are small; all their messages stay.

**Compaction by key** keeps of each key the message with the highest offset, and all
messages without a key.  A *tombstone* is a message with a key and an empty payload:
it says that the key is gone.  It is removed as well once it is older than a grace
period, by its publish time, so that readers have time to see it.  The newest message
of all that is considered always stays, even as a tombstone: so there is a message
behind every gap.  Offsets never change.

Groups are replaced in the order of offsets.  Whatever a tombstone has superseded is
older, so it is gone before the tombstone is, wherever a run is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydanube.model.descriptions import Segment

GROUP_SEGMENTS_MAX = 100
"""So many segments a broker replaces at once."""

BUCKET_BYTES = 64 * 1024 * 1024
"""About how many bytes of keys one task compares."""

CHUNK_BYTES = 256 * 1024 * 1024
"""About how many bytes of segments one task takes the keys of."""

_OFFSET_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeyCounts:
    """What compaction has found out about one segment."""

    without_key: int
    """How many messages have no key."""
    live: int
    """How many are the last of their key, among all segments."""
    oldest_tombstone: int | None
    """The publish time of its oldest tombstone, if it has any."""

    @property
    def remaining(self) -> int:
        """How many messages stay, tombstones included."""
        return self.without_key + self.live


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Segments that follow each other, and become one."""

    segments: tuple[Segment, ...]

    @property
    def base(self) -> int:
        """The first offset."""
        return self.segments[0].base

    @property
    def end(self) -> int:
        """The first offset behind the last one."""
        return self.segments[-1].end

    @property
    def byte_count(self) -> int:
        """How long the segments are together."""
        return sum(each.byte_count for each in self.segments)

    @property
    def count(self) -> int:
        """How many messages they have together."""
        return sum(each.count for each in self.segments)


def plan_merge(segments: Sequence[Segment], target_bytes: int) -> list[SegmentGroup]:
    """
    Groups of two and more neighbours that are less than half of *target_bytes* long.

    A group ends as soon as it reaches *target_bytes*, so that what is large is not
    written again and again.
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
    Groups of segments of which something is removed, by object name in *facts*.

    With *is_merging*, neighbours go together up to *target_bytes*, by what stays of
    them, and those that are only small as well.  Tombstones of a publish time before
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
    """*segments* in portions for tasks that take their keys."""
    portions: dict[int, list[Segment]] = {}
    byte_count = 0
    for segment in segments:
        portions.setdefault(byte_count // CHUNK_BYTES, []).append(segment)
        byte_count += segment.byte_count
    return [tuple(each) for each in portions.values()]


def bucket_count(segments: Sequence[Segment], key_bytes: int) -> int:
    """
    Over how many tasks the keys of *segments* are spread, each in memory at once.

    *key_bytes* is what the keys take in them, as far as their files say; no key is
    counted twice where a dictionary holds it once.
    """
    messages = sum(each.count for each in segments)
    return max(1, -(-(key_bytes + messages * _OFFSET_BYTES) // BUCKET_BYTES))


def in_portions(
    groups: Sequence[SegmentGroup], size: int
) -> list[tuple[SegmentGroup, ...]]:
    """*groups* in portions of *size*; what is done is swapped in after each of them."""
    numbered = groupby(enumerate(groups), key=lambda pair: pair[0] // size)
    return [tuple(group for _, group in portion) for _, portion in numbered]
