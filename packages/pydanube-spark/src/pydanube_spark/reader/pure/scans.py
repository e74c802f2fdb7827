"""
The division of offset ranges into scans, one for each Spark partition.

A topic is a sequence of immutable segments, which executors read from the object
store, and after them the tail, which they request from the broker.  ``plan_scans``
splits the range of a query at the ends of segments, merges small neighbours and splits
large scans, so that exactly one scan reads each offset.  A segment may have fewer
messages than offsets; the bytes of a part are estimated by its share of the offsets.
Messages that compress well also take time to read, so each message may be given a least
size.  Pure: the same input always gives the same plan.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pydanube.model.descriptions import Segment

TAIL_MESSAGE_BYTES = 100
"""The assumed size of a message in the tail, if the broker does not report one."""


MESSAGE_BYTES_MIN = 64
"""The least size of a message when the tasks of Spark are planned, in bytes."""

TASK_BYTES_MIN = 8 * 1024 * 1024
"""The size below which a task is not worth its start, with that least size."""

TASK_SCANS_MAX = 64
"""The most scans of a task: each opens a file or sends a request."""


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The offset range ``base … end`` of a topic, and its segments."""

    topic: str
    topic_id: int
    base: int
    end: int
    segments: tuple[Segment, ...] = ()
    message_bytes: int = TAIL_MESSAGE_BYTES
    """The estimated size of a message that is in no segment."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Messages ``base … end`` of *segment*."""

    segment: Segment
    base: int
    end: int

    @property
    def byte_count(self) -> int:
        """An estimate: the segment's bytes by the share of its offsets."""
        whole = self.segment
        count = self.end - self.base
        return max(1, whole.byte_count * count // (whole.end - whole.base))

    def weight(self, message_bytes_min: int) -> int:
        """Return the bytes, where a message counts as *message_bytes_min* or more."""
        whole = self.segment
        # The messages are estimated as the bytes are.
        count = whole.count * (self.end - self.base) // (whole.end - whole.base)
        return max(self.byte_count, count * message_bytes_min)


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Messages ``base … end`` of a topic, which one Spark task reads.

    The segments cover *base* to *end* without a gap.  A scan without segments is read
    from the broker.
    """

    topic: str
    topic_id: int
    base: int
    end: int
    segments: tuple[SegmentRange, ...] = ()
    message_bytes: int = TAIL_MESSAGE_BYTES

    def __post_init__(self) -> None:
        assert self.base < self.end
        if self.segments:
            assert self.segments[0].base == self.base
            assert self.segments[-1].end == self.end
            assert all(a.end == b.base for a, b in pairwise(self.segments))

    @property
    def count(self) -> int:
        """The most messages that it can have."""
        return self.end - self.base

    @property
    def byte_count(self) -> int:
        """The estimated number of bytes to read."""
        if not self.segments:
            return self.count * self.message_bytes
        return sum(each.byte_count for each in self.segments)

    def weight(self, message_bytes_min: int) -> int:
        """Return the bytes, where a message counts as *message_bytes_min* or more."""
        if not self.segments:
            return max(self.byte_count, self.count * message_bytes_min)
        return sum(each.weight(message_bytes_min) for each in self.segments)


def plan_scans(
    ranges: Sequence[TopicRange],
    *,
    scans_min: int = 1,
    scan_bytes_max: int,
    scan_rows_max: int | None = None,
    message_bytes_min: int = 0,
) -> list[Scan]:
    """
    Return scans that together read every offset of *ranges* exactly once.

    Bounds: A scan has at most about *scan_bytes_max* bytes, where a message counts as
        *message_bytes_min* or more, unless one message alone is larger, and at most
        *scan_rows_max* messages.  There are at least *scans_min* scans if there are as
        many messages.
    Ordering: Scans are in the order of *ranges*, then of offsets.
    """
    scans = [
        scan
        for each in ranges
        for scan in _merge(
            _pieces(each), scan_bytes_max, scan_rows_max, message_bytes_min
        )
    ]
    weights = [scan.weight(message_bytes_min) for scan in scans]
    parts = _parts(scans, weights, scans_min, scan_bytes_max)
    return [
        piece
        for scan, count in zip(scans, parts, strict=True)
        for part in split(scan, count, message_bytes_min)
        for piece in _split_by_rows(part, scan_rows_max)
    ]


def tasks_for(ranges: Sequence[TopicRange], parallelism: int) -> int:
    """Return the number of scans for *parallelism* tasks, none of which is tiny."""
    weight = sum(
        piece.weight(MESSAGE_BYTES_MIN) for each in ranges for piece in _pieces(each)
    )
    return max(1, min(parallelism, weight // TASK_BYTES_MIN))


def group_scans(
    scans: Sequence[Scan],
    *,
    tasks_min: int = 1,
    task_bytes_max: int,
    task_rows_max: int | None = None,
    message_bytes_min: int = 0,
) -> list[tuple[Scan, ...]]:
    """
    Divide *scans* into tasks: small neighbours share one, others have their own.

    Bounds: Scans share a task if together they have TASK_BYTES_MIN or less, where a
        message counts as *message_bytes_min* or more, and within *task_bytes_max* and
        *task_rows_max*, and if *tasks_min* tasks remain.
    Ordering: Tasks and their scans are in the order of *scans*.
    """
    weights = [scan.weight(message_bytes_min) for scan in scans]
    bytes_max = min(TASK_BYTES_MIN, task_bytes_max, sum(weights) // max(1, tasks_min))
    tasks: list[list[Scan]] = []
    left_bytes = left_rows = 0
    for scan, weight in zip(scans, weights, strict=True):
        rows = 0 if task_rows_max is None else scan.count
        if (
            not tasks
            or weight > left_bytes
            or rows > left_rows
            or len(tasks[-1]) == TASK_SCANS_MAX
        ):
            tasks.append([])
            left_bytes, left_rows = bytes_max, task_rows_max or 0
        tasks[-1].append(scan)
        left_bytes, left_rows = left_bytes - weight, left_rows - rows
    if len(tasks) < min(tasks_min, len(scans)):
        # A large scan took the share of others.
        return [(scan,) for scan in scans]
    return [tuple(task) for task in tasks]


def byte_count(wanted: TopicRange) -> int:
    """Estimate the stored bytes of *wanted*."""
    return sum(piece.byte_count for piece in _pieces(wanted))


def offset_within(wanted: TopicRange, byte_count: int) -> int:
    """Estimate the offset after the first *byte_count* bytes of *wanted*."""
    for piece in _pieces(wanted):
        if byte_count < piece.byte_count:
            return _offset_at(piece, byte_count)
        byte_count -= piece.byte_count
    return wanted.end


def split(scan: Scan, parts: int, message_bytes_min: int = 0) -> list[Scan]:
    """Split *scan* into *parts* scans of about equal weight, none of them empty."""
    assert 1 <= parts <= scan.count
    if parts == 1:
        return [scan]
    weight = scan.weight(message_bytes_min)
    shares = [weight * index // parts for index in range(1, parts)]
    cuts = [scan.base]
    for index, wanted in enumerate(_offsets_at(scan, shares, message_bytes_min), 1):
        cuts.append(max(cuts[-1] + 1, min(wanted, scan.end - (parts - index))))
    return _cut(scan, [*cuts, scan.end])


def _split_by_rows(scan: Scan, rows_max: int | None) -> list[Scan]:
    """Split *scan* into scans of about equal counts, *rows_max* messages at most."""
    parts = 1 if rows_max is None else -(-scan.count // rows_max)
    if parts == 1:
        return [scan]
    cuts = [scan.base + scan.count * index // parts for index in range(parts + 1)]
    return _cut(scan, cuts)


@dataclass(frozen=True, slots=True)
class SealedPart:
    """The segments with the messages of a range, and the messages after them."""

    whole: tuple[Segment, ...]
    """The segments of which all messages are wanted."""
    cut: tuple[SegmentRange, ...]
    """The others."""
    tail: tuple[int, int] | None
    """The offsets of the messages that are in no segment."""


def divide(wanted: TopicRange) -> SealedPart | None:
    """
    Divide *wanted* into segments and the tail.

    It is None if messages before a segment are in no segment: the broker must say where
    these are.
    """
    pieces = list(_pieces(wanted))
    tail = None
    if pieces and not pieces[-1].segments:
        tail = pieces[-1].base, pieces.pop().end
    if not all(piece.segments for piece in pieces):
        return None
    parts = [each for piece in pieces for each in piece.segments]
    is_whole = [
        (each.base, each.end) == (each.segment.base, each.segment.end) for each in parts
    ]
    return SealedPart(
        tuple(
            each.segment for each, all_of in zip(parts, is_whole, strict=True) if all_of
        ),
        tuple(each for each, all_of in zip(parts, is_whole, strict=True) if not all_of),
        tail,
    )


def _pieces(wanted: TopicRange) -> Iterator[Scan]:
    """Yield one scan for each segment, and one for each range outside segments."""
    position = wanted.base
    for segment in sorted(wanted.segments, key=lambda each: (each.base, -each.end)):
        base, end = max(position, segment.base), min(wanted.end, segment.end)
        if base >= end:
            continue
        if position < base:
            # A gap between segments: the broker has the messages or reports a loss.
            yield _unsealed(wanted, position, base)
        piece = SegmentRange(segment, base, end)
        yield Scan(wanted.topic, wanted.topic_id, base, end, (piece,))
        position = end
    if position < wanted.end:
        yield _unsealed(wanted, position, wanted.end)


def _unsealed(wanted: TopicRange, base: int, end: int) -> Scan:
    return Scan(
        wanted.topic, wanted.topic_id, base, end, message_bytes=wanted.message_bytes
    )


def _merge(
    pieces: Iterable[Scan],
    scan_bytes_max: int,
    scan_rows_max: int | None,
    message_bytes_min: int,
) -> Iterator[Scan]:
    """Merge neighbouring scans of segments while they stay within the limits."""
    # Sums are kept, because a topic may have many small segments.
    group: list[Scan] = []
    weight = 0
    for piece in pieces:
        own = piece.weight(message_bytes_min)
        if group and not (
            group[0].segments
            and piece.segments
            and weight + own <= scan_bytes_max
            and (scan_rows_max is None or piece.end - group[0].base <= scan_rows_max)
        ):
            yield _merged(group)
            group, weight = [], 0
        group.append(piece)
        weight += own
    if group:
        yield _merged(group)


def _merged(group: Sequence[Scan]) -> Scan:
    first = group[0]
    if len(group) == 1:
        return first
    segments = tuple(each for scan in group for each in scan.segments)
    return replace(first, end=group[-1].end, segments=segments)


def _parts(
    scans: Sequence[Scan], weights: Sequence[int], scans_min: int, scan_bytes_max: int
) -> list[int]:
    """Return into how many parts to split each of *scans*."""
    parts = [
        min(scan.count, max(1, -(-weight // scan_bytes_max)))
        for scan, weight in zip(scans, weights, strict=True)
    ]
    # The scan with the largest parts gets one more part until there are scans_min.
    largest = [(-weight / parts[index], index) for index, weight in enumerate(weights)]
    heapq.heapify(largest)
    missing = scans_min - sum(parts)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        if parts[index] < scans[index].count:
            parts[index] += 1
            missing -= 1
            heapq.heappush(largest, (-weights[index] / parts[index], index))
    return parts


def _offset_at(scan: Scan, weight: int, message_bytes_min: int = 0) -> int:
    """Estimate the offset after the first *weight* bytes of *scan*."""
    [found] = _offsets_at(scan, [weight], message_bytes_min)
    return found


def _offsets_at(
    scan: Scan, weights: Iterable[int], message_bytes_min: int
) -> Iterator[int]:
    """Yield the same for each of *weights*."""
    if not scan.segments:
        size = max(scan.message_bytes, message_bytes_min)
        yield from (scan.base + weight // size for weight in weights)
        return
    ends = list(accumulate(each.weight(message_bytes_min) for each in scan.segments))
    for weight in weights:
        at = bisect_right(ends, weight)
        if at == len(ends):
            yield scan.end
            continue
        piece, before = scan.segments[at], ends[at - 1] if at else 0
        offsets = piece.end - piece.base
        yield piece.base + (weight - before) * offsets // (ends[at] - before)


def _cut(scan: Scan, cuts: Sequence[int]) -> list[Scan]:
    """Return the parts of *scan* between neighbouring *cuts*, which rise."""
    found = []
    first = 0
    for base, end in pairwise(cuts):
        segments = []
        while first < len(scan.segments):
            piece = scan.segments[first]
            inner = max(base, piece.base), min(end, piece.end)
            segments.append(SegmentRange(piece.segment, *inner))
            if piece.end > end:
                break
            first += 1
            if piece.end == end:
                break
        found.append(replace(scan, base=base, end=end, segments=tuple(segments)))
    return found
