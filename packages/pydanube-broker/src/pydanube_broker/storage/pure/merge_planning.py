"""
The decision which small segments the broker merges while it is idle.

A group of neighbours becomes one segment.  No segment of a group is larger than the
others together, so a message is rewritten each time its segment doubles, at most, and
not for each few new messages.  A group covers a short time, because retention drops
whole segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydanube.model.policy import Retention
from pydanube.model.segments import SegmentEntry

GROUP_SEGMENTS_MIN = 8
"""Fewer neighbours are not merged: reading them costs little."""
GROUP_SEGMENTS_MAX = 100
"""The most segments that one transaction replaces."""
SPAN_US_MAX = 24 * 3600 * 1_000_000
"""The longest time between the first and the last message of a group."""
RETENTION_SHARE = 10
"""A group has at most this fraction (1/10) of the age and bytes of the retention."""

_US_PER_S = 1_000_000


def plan_merges(
    segments: Sequence[SegmentEntry],
    retention: Retention,
    *,
    bytes_max: int,
    may_merge: Callable[[SegmentEntry], bool] = lambda _: True,
) -> list[tuple[SegmentEntry, ...]]:
    """
    Return the groups of neighbours in a topic's *segments* to merge, in order.

    A group has at most *bytes_max*, and only segments that *may_merge* accepts.
    """
    span_us = SPAN_US_MAX
    if retention.age_s is not None:
        span_us = min(span_us, int(retention.age_s * _US_PER_S) // RETENTION_SHARE)
    if retention.bytes_max is not None:
        bytes_max = min(bytes_max, retention.bytes_max // RETENTION_SHARE)
    groups: list[tuple[SegmentEntry, ...]] = []
    window: list[SegmentEntry] = []
    byte_count = first = last = 0
    for segment in segments:
        size = segment.byte_count
        if size * 2 > bytes_max or not may_merge(segment):
            groups += _without_large(window)
            window = []
            continue
        if window:
            byte_count += size
            first = min(first, segment.first_publish_time)
            last = max(last, segment.last_publish_time)
        if (
            not window
            or len(window) == GROUP_SEGMENTS_MAX
            or byte_count > bytes_max
            or last - first > span_us
        ):
            groups += _without_large(window)
            window, byte_count = [], size
            first, last = segment.first_publish_time, segment.last_publish_time
        window.append(segment)
    return groups + _without_large(window)


def _without_large(window: Sequence[SegmentEntry]) -> list[tuple[SegmentEntry, ...]]:
    """Divide *window* at segments that are larger than all others together."""
    if len(window) < GROUP_SEGMENTS_MIN:
        return []
    sizes = [each.byte_count for each in window]
    at = sizes.index(max(sizes))
    if sizes[at] * 2 <= sum(sizes):
        return [tuple(window)]
    return _without_large(window[:at]) + _without_large(window[at + 1 :])
