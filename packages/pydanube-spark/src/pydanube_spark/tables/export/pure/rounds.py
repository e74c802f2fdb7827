"""
The rounds of an export, each of which brings a table closer to the end of its topic.

A round ends at the end of a segment or of the topic, so that no segment is read in two
rounds.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydanube_spark.reader.pure.scans import Scan, TopicRange, plan_scans
from pydanube_spark.tables.pure.app_transactions import AppTransaction

APP = "danube-export:"
"""The prefix of the application id that stores the exported offset of a topic."""
TOPIC_ID = "danube-topic:"
"""The prefix of the application id that stores the topic id."""
SCAN_BYTES_MIN = 8 * 1024 * 1024
"""The least size for which another task and another file are used."""


@dataclass(frozen=True, slots=True)
class ExportRound:
    """The offset ranges that one round exports."""

    ranges: tuple[TopicRange, ...]
    """One range for each topic or partition that has new messages."""
    is_last: bool
    """True if the round reaches the end of the topic."""

    @property
    def message_count(self) -> int:
        """The most messages that it can have."""
        return sum(each.end - each.base for each in self.ranges)


def limit(ranges: Sequence[TopicRange], byte_count_max: int) -> ExportRound:
    """
    Limit *ranges* to one round.

    Bounds: Each range gets an equal share of *byte_count_max*, counted in bytes of
        segments, and at least one segment.
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
    """Return the scans of a round; a small round has about as many as *cores*."""
    byte_count = sum(
        segment.byte_count for each in planned.ranges for segment in each.segments
    )
    share = min(scan_bytes_max, max(SCAN_BYTES_MIN, -(-byte_count // cores)))
    return plan_scans(planned.ranges, scan_bytes_max=share)


def app_transactions(
    ranges: Sequence[TopicRange], exported: Mapping[str, int | None]
) -> list[AppTransaction]:
    """
    Return the application transactions to commit with the rows of *ranges*.

    *exported* has the offset that each topic had in the table when the round was
    planned.
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
