"""
The limits of a micro-batch: messages, bytes, and how long it waits for more.

Everything in this module is pure; callers pass the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydanube_spark.reader.pure.query_positions import Position, Positions, share
from pydanube_spark.reader.pure.scans import TopicRange, byte_count, offset_within


@dataclass(slots=True)
class BatchThresholds:
    """
    When a micro-batch runs: with enough messages, or after a delay.

    The state is in memory only.  A query that has just started does not wait, because
    it does not know how long its messages have been waiting.
    """

    rows_min: int
    delay_s: float
    _ran_at: float | None = None

    def is_due(self, waiting: int, now: float) -> bool:
        """
        Return whether a micro-batch of *waiting* messages should run now.

        If so, the delay starts again.
        """
        is_due = (
            waiting >= self.rows_min
            or self._ran_at is None
            or now - self._ran_at >= self.delay_s
        )
        if is_due:
            self._ran_at = now
        return is_due


def count_between(start: Mapping[str, Position], end: Mapping[str, Position]) -> int:
    """Return the most messages that a micro-batch ``start … end`` can have."""
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
    Reduce *end* so that ``start … end`` has about *bytes_max* bytes.

    Bytes are counted as they are stored, and divided among the topics in proportion to
    what each has waiting.  *ranges* has the segments of ``start … end`` of each topic.

    Bounds: Never before *start* nor after *end*; at least one message, however large,
        if there is one.
    """
    weights = {topic: byte_count(each) for topic, each in ranges.items()}
    shares = share(weights, bytes_max)
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
