"""
Reading the messages of a subscription from the log of its topic.

Compaction removes messages.  Their offsets are missing, and so are those of segments
that are skipped because they cannot be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, takewhile

from pydanube.model.errors import CorruptSegment, OffsetDropped
from pydanube.model.ranges import Range, RangeSet
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.pure.frame_cuts import (
    CutPiece,
    Piece,
    cut_frame,
    gathered_max,
)
from pydanube_broker.broker.pure.frame_joins import join_frames
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Deliver
from pydanube_broker.storage.segments.topic_log import TopicLog

Skip = Callable[[CorruptSegment, deque[Range]], list[Range]]
"""Removes and returns the ranges to skip, or raises the error."""

READ_AHEAD_BYTES = 2 * 1024 * 1024
"""How much is read from the tail at a time; deliveries are bounded by credit."""
HISTORY_BYTES = 1024 * 1024
"""How much of a segment is sent before what is ready for other consumers."""


class SubscriptionReader:
    """
    Reads messages of one topic.

    Keeps the frame that was offered to the dispatch machine last: the next deliveries
    usually come from it, without another read of the log.
    """

    __slots__ = ("_divided", "_log", "_offsets", "_pieces", "frame")

    def __init__(self, topic_log: TopicLog) -> None:
        self._log = topic_log
        self.frame: BatchFrame | None = None
        """The kept frame."""
        # The offsets of the kept frame, if some are missing in between.
        self._offsets: RangeSet | None = None
        # The frame that was cut last: the kept one, or an earlier one.
        self._divided: BatchFrame | None = None
        # Pieces of it that are gathered and not sent.
        self._pieces: dict[Piece, CutPiece] = {}

    def cut(self, delivery: Deliver, queue: Iterable[Deliver]) -> CutPiece | None:
        """
        Return the messages of *delivery*, which has bits, if one frame has them.

        The frame is the kept one, or one joined from the tail; it has no gaps.
        The messages of the next deliveries in *queue* are gathered with them.
        """
        frame = self._find_divisible(delivery)
        if frame is None:
            return None
        pieces, piece = self._pieces, (delivery.base, delivery.bits)
        if piece not in pieces:
            # Those behind a delivery of another frame would be gathered for nothing.
            inside = takewhile(partial(_contains, frame), queue)
            following = ((each.base, each.bits) for each in inside if each.bits)
            wanted = {piece: None} | dict.fromkeys(
                islice(following, gathered_max(frame) - 1)
            )
            self._pieces = pieces = dict(
                zip(wanted, cut_frame(frame, [*wanted]), strict=True)
            )
        return pieces.pop(piece)

    def _find_divisible(self, delivery: Deliver) -> BatchFrame | None:
        """Return a frame without gaps that has the messages of *delivery*."""
        if self._divided is not None and _contains(self._divided, delivery):
            return self._divided
        self._pieces = {}
        self._divided = self.frame
        if self.frame is None or not _contains(self.frame, delivery):
            # Its consumer had no credit when these messages were offered.
            frames = self._log.read_tail(delivery.base, bytes_max=READ_AHEAD_BYTES)
            self._divided = next(join_frames(frames or ()), None)
        found = self._divided
        if found is None or found.has_gaps or not _contains(found, delivery):
            self._divided = None
        return self._divided

    def keep(self, frame: BatchFrame | None) -> None:
        """Keep *frame* for the next deliveries."""
        self.frame = frame
        self._offsets = self._divided = None
        self._pieces = {}
        if frame is not None and frame.has_gaps:
            self._offsets = RangeSet(frame.ranges())

    def find_missing(self, begin: int) -> list[Range]:
        """Return the missing offsets from *begin* to the end of the kept frame."""
        frame, offsets = self.frame, self._offsets
        assert frame is not None
        missing = [(begin, frame.base)] if begin < frame.base else []
        if offsets is not None:
            missing += offsets.gaps(max(begin, frame.base), frame.end)
        return missing

    async def read(
        self, ranges: Iterable[Range], skip: Skip
    ) -> tuple[list[BatchFrame], list[Range]]:
        """
        Return the messages of *ranges*, which are sorted, and the missing offsets.

        Raises:
            OffsetDropped: Retention has dropped some of the messages.
            CorruptSegment: A segment cannot be read, and *skip* raised the error.
        """
        frames: list[BatchFrame] = []
        missing: list[Range] = []
        left = deque(ranges)
        while left:
            if left[0][0] < self._log.start_offset:
                missing += take_below(self._log.start_offset, left)
                continue
            try:
                frame = await self._read_at(left[0][0])
            except CorruptSegment as error:
                missing += skip(error, left)
                continue
            except OffsetDropped:
                if left[0][0] >= self._log.start_offset:
                    raise
                # The topic was trimmed while it was read.
                continue
            if frame is None:
                missing += left
                break
            inside = take_below(frame.end, left)
            if frame.has_gaps or inside[0][0] < frame.base:
                inside = self._find_existing(frame, inside, missing)
                if not inside:
                    continue
            if frame is self.frame and inside != [(frame.base, frame.end)]:
                # A frame that is cut into pieces is decompressed and decoded only once.
                frame = self.frame = frame.opened()
            frames.append(frame.take(inside))
        return frames, missing

    async def find_end(self, cursor: Cursor, count: int) -> int:
        """Return the end of the next *count* messages that are not acknowledged."""
        offset = max(cursor.offset, self._log.base_offset)
        while count > 0:
            frames = await self._log.read(offset, bytes_max=HISTORY_BYTES)
            if not frames:
                return self._log.end_offset
            for base, end in (each for frame in frames for each in frame.ranges()):
                while count > 0 and (
                    found := cursor.first_open(max(base, offset), end)
                ):
                    offset = min(found[1], found[0] + count)
                    count -= offset - found[0]
            if count > 0:
                offset = frames[-1].end
        return offset

    def _find_existing(
        self, frame: BatchFrame, ranges: list[Range], missing: list[Range]
    ) -> list[Range]:
        """Return the parts of *ranges* in *frame*; add the others to *missing*."""
        offsets = self._offsets if frame is self.frame else None
        if offsets is None:
            offsets = RangeSet(frame.ranges())
        existing: list[Range] = []
        for base, end in ranges:
            existing += offsets.intersection(base, end)
            missing += offsets.gaps(base, end)
        return existing

    async def _read_at(self, offset: int) -> BatchFrame | None:
        """Return the first frame with a message from *offset* on, if there is one."""
        frame = self.frame
        if frame is not None and frame.base <= offset < frame.end:
            return frame
        frames = self._log.read_tail(offset, bytes_max=1)
        if frames is None:
            frames = await self._log.read(offset, bytes_max=1)
        return frames[0] if frames else None


def _contains(frame: BatchFrame, delivery: Deliver) -> bool:
    return frame.base <= delivery.base and delivery.end <= frame.end


def take_below(end: int, ranges: deque[Range]) -> list[Range]:
    """Remove and return the parts of *ranges*, which are sorted, below *end*."""
    if ranges[-1][1] <= end:
        taken = list(ranges)
        ranges.clear()
        return taken
    taken = []
    while ranges and ranges[0][0] < end:
        range_base, range_end = ranges.popleft()
        if range_end > end:
            ranges.appendleft((end, range_end))
        taken.append((range_base, min(range_end, end)))
    return taken
