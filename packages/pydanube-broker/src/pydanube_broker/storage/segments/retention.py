"""The segments that retention drops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydanube.model.policy import Deduplication, Retention
from pydanube.model.segments import SegmentEntry

_US_PER_S = 1_000_000


def plan_drops(
    segments: Sequence[SegmentEntry],
    retention: Retention,
    *,
    tail_bytes: int,
    now: int,
    cursors: Iterable[int] = (),
    start_offset: int = 0,
    is_held: bool = False,
    deduplication: Deduplication | None = None,
) -> tuple[SegmentEntry, ...]:
    """
    Return the oldest of a topic's *segments* that *retention* does not keep.

    Only whole segments are dropped, from the oldest on, so that the others have no gap.
    One reason is enough: a segment is too old, it is too much, all subscriptions have
    acknowledged it, or all of its messages are before *start_offset*, because they were
    trimmed.

    - A segment is too old when its last message is.
    - The topic may exceed *bytes_max* by less than one segment.  Unsealed messages
      count and are never dropped.
    - *cursors* are the offsets below which each subscription has acknowledged
      everything.  Without subscriptions, nothing counts as acknowledged.

    A topic with *deduplication* keeps the messages of its window, whatever *retention*
    says, because a broker that restarts reads their ids.  Trimmed ones are not read.

    The newest segment always stays: if the journal is lost, only this segment tells
    the offset at which the topic continues.  If *is_held*, all segments stay.

    *now* is in microseconds since 1970, UTC.
    """
    if is_held:
        return ()
    acknowledged = min(cursors, default=0) if retention.drops_acknowledged else 0
    kept_bytes = tail_bytes + sum(segment.byte_count for segment in segments)
    count = 0
    for segment in segments[:-1]:
        kept_bytes -= segment.byte_count
        is_old = (
            retention.age_s is not None
            and segment.last_publish_time < now - retention.age_s * _US_PER_S
        )
        is_too_much = (
            retention.bytes_max is not None and kept_bytes >= retention.bytes_max
        )
        is_done = segment.end <= acknowledged
        is_trimmed = segment.end <= start_offset
        if not is_old and not is_too_much and not is_done and not is_trimmed:
            break
        if not is_trimmed and (
            deduplication is not None
            and segment.end > segments[-1].end - deduplication.messages_max
            and segment.last_publish_time >= now - deduplication.age_us
        ):
            break
        count += 1
    return tuple(segments[:count])
