"""
The position of a replication, and the offsets of its messages at the target.  Pure.

The target assigns new offsets.  As nobody else publishes to its topics, a message that
was the n-th after a known one at the source is so at the target, too, except that the
offsets of the source may have gaps where compaction has removed messages.  Each gap is
a point where the difference of both offsets changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

POINTS_MAX = 128
"""
How many points are kept for each topic.  Beyond that, the oldest ones are joined: the
offsets between them are translated to the first of them.
"""


class OffsetPoint(msgspec.Struct, array_like=True):
    """A source offset and the target offset of the message there, or of the next."""

    source: int
    target: int
    is_exact: bool = True
    """Whether the messages up to the next point have no gaps."""


class TopicPosition(msgspec.Struct, omit_defaults=True):
    """The progress in one topic or partition."""

    target: str
    """Its name at the target."""
    topic_id: int
    """Differs if the source topic was deleted and created again."""
    next: int
    """The source offset to continue at."""
    target_end: int
    """The end of the target topic, if nobody else publishes there."""
    points: list[OffsetPoint] = []

    def advance(self, offsets: Sequence[int], end: int) -> None:
        """
        Note that the messages with *offsets* were replicated.

        *end* is the source offset to continue at.
        """
        if offsets and offsets[-1] - offsets[0] + 1 == len(offsets):
            self._advance(offsets[0], len(offsets))
        else:
            for offset in offsets:
                self._advance(offset, 1)
        self.next = max(self.next, end)
        surplus = len(self.points) - POINTS_MAX
        if surplus > 0:
            self.points[0].is_exact = False
            del self.points[1 : 1 + surplus]

    def _advance(self, offset: int, count: int) -> None:
        last = self.points[-1] if self.points else None
        if last is None or offset - last.source != self.target_end - last.target:
            self.points.append(OffsetPoint(offset, self.target_end))
        self.target_end += count

    def is_exact_at(self, offset: int) -> bool:
        """Return whether *offset* is translated exactly."""
        index = self._index_of(offset)
        return index < 0 or self.points[index].is_exact

    def _index_of(self, offset: int) -> int:
        """Return the index of the last point at or before *offset*, or -1."""
        return bisect_right(self.points, offset, key=lambda each: each.source) - 1

    def translate(self, offset: int) -> int:
        """
        Return the target offset for *offset* of the source.

        This is that of the message there, or of the next one that was replicated.  If
        it is not known exactly, it is an earlier one, so that no message is missed.
        """
        index = self._index_of(offset)
        if index < 0:
            return self.points[0].target if self.points else self.target_end
        point = self.points[index]
        if not point.is_exact:
            return point.target
        is_last = index + 1 == len(self.points)
        end = self.target_end if is_last else self.points[index + 1].target
        return min(end, point.target + offset - point.source)


class ReplicationPosition(msgspec.Struct):
    """The position of a whole replication, which each of its commits contains."""

    topics: dict[str, TopicPosition] = {}
    """By the topic or partition of the source."""
    is_cut_over: bool = False
    """Whether the target has taken over, so that nothing may be replicated any more."""


def decode_position(stored: object) -> ReplicationPosition:
    """Return the position that was stored with the last commit; None: a new one."""
    return msgspec.convert(stored or {}, ReplicationPosition)
