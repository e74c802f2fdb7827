"""
How much a micro-batch takes: messages, bytes, and how long it may wait for more.

Everything on this page is pure; time comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydanube.reader.offsets import Position, Positions, share_out
from pydanube.reader.scans import byte_count, offset_within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.reader.scans import TopicRange


@dataclass(slots=True)
class BatchThresholds:
    """
    When a micro-batch is worth to be run: with enough messages, or after a while.

    It is remembered by the running query and nowhere else.  So a query that was just
    started does not wait: nobody knows how long its messages have been there.
    """

    rows_min: int
    delay_s: float
    _ran_at: float | None = None

    def is_due(self, waiting: int, now: float) -> bool:
        """Whether a micro-batch of *waiting* messages is to run now."""
        if waiting >= self.rows_min or self._ran_at is None:
            return True
        return now - self._ran_at >= self.delay_s

    def on_run(self, now: float) -> None:
        """A micro-batch runs; the next one has time again."""
        self._ran_at = now


def count_between(start: Mapping[str, Position], end: Mapping[str, Position]) -> int:
    """How many messages a micro-batch ``start … end`` has at most."""
    return sum(
        max(0, stop.offset - start[topic].offset)
        for topic, stop in end.items()
        if topic in start
    )


def within_bytes(
    start: Mapping[str, Position],
    end: Mapping[str, Position],
    ranges: Mapping[str, TopicRange],
    bytes_max: int,
) -> Positions:
    """
    *end*, or less of it, so that ``start … end`` has about *bytes_max* bytes.

    They are counted as they are stored, and shared out in proportion to what each
    topic has waiting.  *ranges* says where ``start … end`` of each topic is.

    Bounds: Never before *start* nor behind *end*; at least one message, however
        large, if there is one.
    """
    weights = {topic: byte_count(each) for topic, each in ranges.items()}
    shares = share_out(weights, bytes_max)
    reached = {
        topic: offset_within(each, shares[topic]) for topic, each in ranges.items()
    }
    moves = {topic for topic, offset in reached.items() if offset > ranges[topic].base}
    if ranges and not moves:
        first = min(ranges, key=lambda topic: (-weights[topic], topic))
        reached[first] = ranges[first].base + 1
    return {
        topic: replace(
            position,
            offset=min(
                position.offset,
                max(start[topic].offset, reached.get(topic, position.offset)),
            ),
        )
        for topic, position in end.items()
    }
