"""
Which Spark partition reads what.

A topic is a row of immutable segments, which executors read straight from the
object store, and behind them the live tail, which they fetch from the broker.
``plan_scans`` cuts the range that a query asks for along those borders, joins
neighbouring small pieces and cuts large ones, so that every offset is read by
exactly one scan.  A segment may hold fewer messages than its offsets: a plan is made
of offsets, and bytes by the share of them.  Pure: the same input always gives the
same plan.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pydanube.wire.files.segment_checksums import NOTHING_KNOWN, SegmentFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TAIL_MESSAGE_BYTES = 100
"""What a message of the tail counts for where nobody has measured it."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """An immutable segment with messages ``base … end``."""

    base: int
    end: int
    byte_count: int
    url: str
    count: int | None = None
    """How many messages: fewer than its offsets if it has gaps; None: all of them."""
    facts: SegmentFacts = NOTHING_KNOWN
    """What the file is compared with."""

    @property
    def row_count(self) -> int:
        """How many messages the file has."""
        return self.end - self.base if self.count is None else self.count

    @property
    def has_gaps(self) -> bool:
        """Whether some of its offsets have no message any more."""
        return self.row_count < self.end - self.base


@dataclass(frozen=True, slots=True)
class TopicRange:
    """What to read of one topic: ``base … end``."""

    topic: str
    topic_id: int
    base: int
    end: int
    segments: tuple[SegmentFile, ...] = ()
    message_bytes: int = TAIL_MESSAGE_BYTES
    """About how large a message is that no segment holds."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages ``base … end`` of the segment at *url*."""

    url: str
    base: int
    end: int
    byte_count: int
    """An estimate: the segment's bytes by the share of its offsets."""
    row_count: int
    """Of the whole file."""
    has_gaps: bool = False
    """Whether some offsets of the segment have no message any more."""
    facts: SegmentFacts = NOTHING_KNOWN
    """What the file is compared with."""


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Messages ``base … end`` of a topic, read by one Spark task.

    Its slices follow each other without a gap from *base* to *end*.  A scan
    without slices is read through the broker.
    """

    topic: str
    topic_id: int
    base: int
    end: int
    slices: tuple[Slice, ...] = ()
    message_bytes: int = TAIL_MESSAGE_BYTES

    def __post_init__(self) -> None:
        assert self.base < self.end
        if self.slices:
            assert self.slices[0].base == self.base
            assert self.slices[-1].end == self.end
            assert all(a.end == b.base for a, b in pairwise(self.slices))

    @property
    def count(self) -> int:
        """How many messages it reads at most."""
        return self.end - self.base

    @property
    def byte_count(self) -> int:
        """An estimate of how much there is to read."""
        if not self.slices:
            return self.count * self.message_bytes
        return sum(each.byte_count for each in self.slices)


def plan_scans(
    ranges: Sequence[TopicRange],
    *,
    scans_min: int = 1,
    scan_bytes_max: int,
    scan_rows_max: int | None = None,
) -> list[Scan]:
    """
    The scans that together read *ranges*, every offset exactly once.

    Bounds: A scan has about *scan_bytes_max* at most, unless one message alone is
        larger, and no more than *scan_rows_max* messages.  There are at least
        *scans_min* scans, if there are as many messages.  Scans are in the order of
        *ranges*, then of offsets.
    """
    scans = [
        scan
        for each in ranges
        for scan in _merge(_pieces(each), scan_bytes_max, scan_rows_max)
    ]
    parts = _parts(scans, scans_min, scan_bytes_max)
    return [
        piece
        for scan, count in zip(scans, parts, strict=True)
        for part in split(scan, count)
        for piece in _split_by_rows(part, scan_rows_max)
    ]


def byte_count(wanted: TopicRange) -> int:
    """About how many bytes are stored of *wanted*."""
    return sum(piece.byte_count for piece in _pieces(wanted))


def offset_within(wanted: TopicRange, byte_count: int) -> int:
    """How far *byte_count* bytes reach into *wanted*, about; to its end at most."""
    for piece in _pieces(wanted):
        if byte_count < piece.byte_count:
            return _offset_at(piece, byte_count)
        byte_count -= piece.byte_count
    return wanted.end


def split(scan: Scan, parts: int) -> list[Scan]:
    """*scan* as *parts* scans of about equal bytes, none of them empty."""
    assert 1 <= parts <= scan.count
    cuts = [scan.base]
    for index in range(1, parts):
        wanted = _offset_at(scan, scan.byte_count * index // parts)
        cuts.append(max(cuts[-1] + 1, min(wanted, scan.end - (parts - index))))
    cuts.append(scan.end)
    return [_cut(scan, base, end) for base, end in pairwise(cuts)]


def _split_by_rows(scan: Scan, rows_max: int | None) -> list[Scan]:
    """*scan* as scans of at most *rows_max* messages, all about the same."""
    parts = 1 if rows_max is None else -(-scan.count // rows_max)
    cuts = [scan.base + scan.count * index // parts for index in range(parts + 1)]
    return [_cut(scan, base, end) for base, end in pairwise(cuts)]


def _pieces(wanted: TopicRange) -> Iterator[Scan]:
    """One scan for each segment, and one for what no segment holds."""
    position = wanted.base
    for segment in sorted(wanted.segments, key=lambda each: (each.base, -each.end)):
        base, end = max(position, segment.base), min(wanted.end, segment.end)
        if base >= end:
            continue
        if position < base:
            # A hole in the segment list: the broker will know, or say what is lost.
            yield _unsealed(wanted, position, base)
        piece = Slice(
            segment.url,
            base,
            end,
            _share(segment, base, end),
            segment.row_count,
            segment.has_gaps,
            segment.facts,
        )
        yield Scan(wanted.topic, wanted.topic_id, base, end, (piece,))
        position = end
    if position < wanted.end:
        yield _unsealed(wanted, position, wanted.end)


def _unsealed(wanted: TopicRange, base: int, end: int) -> Scan:
    return Scan(
        wanted.topic, wanted.topic_id, base, end, message_bytes=wanted.message_bytes
    )


def _merge(
    pieces: Iterable[Scan], scan_bytes_max: int, scan_rows_max: int | None
) -> Iterator[Scan]:
    """Neighbouring pieces of segments, joined while they stay small."""
    gathered: Scan | None = None
    for piece in pieces:
        if gathered is None:
            gathered = piece
        elif (
            gathered.slices
            and piece.slices
            and gathered.byte_count + piece.byte_count <= scan_bytes_max
            and (scan_rows_max is None or gathered.count + piece.count <= scan_rows_max)
        ):
            gathered = replace(
                gathered, end=piece.end, slices=gathered.slices + piece.slices
            )
        else:
            yield gathered
            gathered = piece
    if gathered is not None:
        yield gathered


def _parts(scans: Sequence[Scan], scans_min: int, scan_bytes_max: int) -> list[int]:
    """Into how many parts each of *scans* is to be cut."""
    parts = [
        min(scan.count, max(1, -(-scan.byte_count // scan_bytes_max))) for scan in scans
    ]
    # The scan whose parts are the largest gets one more, until there are enough.
    largest = [
        (-scan.byte_count / parts[index], index) for index, scan in enumerate(scans)
    ]
    heapq.heapify(largest)
    missing = scans_min - sum(parts)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        if parts[index] < scans[index].count:
            parts[index] += 1
            missing -= 1
            weight = -scans[index].byte_count / parts[index]
            heapq.heappush(largest, (weight, index))
    return parts


def _offset_at(scan: Scan, byte_count: int) -> int:
    """The offset before which about *byte_count* bytes of *scan* lie."""
    if not scan.slices:
        return scan.base + byte_count // scan.message_bytes
    for piece in scan.slices:
        if byte_count < piece.byte_count:
            count = piece.end - piece.base
            return piece.base + byte_count * count // piece.byte_count
        byte_count -= piece.byte_count
    return scan.end


def _cut(scan: Scan, base: int, end: int) -> Scan:
    slices = tuple(
        replace(
            piece,
            base=max(base, piece.base),
            end=min(end, piece.end),
            byte_count=_share(piece, max(base, piece.base), min(end, piece.end)),
        )
        for piece in scan.slices
        if max(base, piece.base) < min(end, piece.end)
    )
    return replace(scan, base=base, end=end, slices=slices)


def _share(whole: SegmentFile | Slice, base: int, end: int) -> int:
    return max(1, whole.byte_count * (end - base) // (whole.end - whole.base))
