"""
What one round of an export does: from where the table stands to where the topic does.

A round ends at the border of a segment, unless it reaches the end of the topic, so
that it stays small and what it reads is read once.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydanube.reader.scans import plan_scans
from pydanube.tables.table import AppTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydanube.reader.scans import Scan, TopicRange

APP = "danube-export:"
"""What an export is called in the table: this, and the name of the topic."""
TOPIC_ID = "danube-topic:"
"""Under this the table remembers which topic of a name it holds."""
SCAN_BYTES_MIN = 8 * 1024 * 1024
"""Less than that is not worth another task and another file."""


@dataclass(frozen=True, slots=True)
class ExportRound:
    """What one round reads and how far it gets."""

    ranges: tuple[TopicRange, ...]
    """What is exported, of each topic or partition that has something new."""
    is_last: bool
    """Whether nothing is left behind them."""

    @property
    def message_count(self) -> int:
        """How many messages it has at most."""
        return sum(each.end - each.base for each in self.ranges)


def limit(ranges: Sequence[TopicRange], byte_count_max: int) -> ExportRound:
    """
    As much of *ranges*, from the beginning of each, as one round takes.

    Bounds: Each gets its share of *byte_count_max*, counted in bytes of segments,
        and one segment at least.
    """
    cut = []
    for each in ranges:
        share = byte_count_max // len(ranges)
        end = each.end
        for segment in sorted(each.segments, key=lambda segment: segment.base):
            share -= segment.byte_count
            if share <= 0 and segment.end < end:
                end = max(segment.end, each.base + 1)
                break
        kept = tuple(segment for segment in each.segments if segment.base < end)
        cut.append(replace(each, end=end, segments=kept))
    is_last = all(a.end == b.end for a, b in zip(cut, ranges, strict=True))
    return ExportRound(tuple(cut), is_last)


def scans(planned: ExportRound, *, cores: int, scan_bytes_max: int) -> list[Scan]:
    """The tasks of a round, about as many as there are *cores* if it is small."""
    byte_count = sum(
        segment.byte_count for each in planned.ranges for segment in each.segments
    )
    share = min(scan_bytes_max, max(SCAN_BYTES_MIN, -(-byte_count // cores)))
    return plan_scans(planned.ranges, scan_bytes_max=share)


def app_transactions(
    ranges: Sequence[TopicRange], exported: Mapping[str, int | None]
) -> list[AppTransaction]:
    """
    What the table has to remember of a round over *ranges*, with the rows.

    *exported* is where each topic stood in the table when the round was planned.
    """
    found = []
    for each in ranges:
        at = exported[each.topic]
        if at is None or at < each.end:
            found.append(
                AppTransaction(
                    APP + each.topic, each.end, after=-1 if at is None else at
                )
            )
        if at is None:
            found.append(AppTransaction(TOPIC_ID + each.topic, each.topic_id, after=-1))
    return found
