"""What may be forgotten.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.policy import Retention
    from pydanube.storage.manifest import SegmentEntry

_US_PER_S = 1_000_000


def plan_drops(
    segments: Sequence[SegmentEntry], retention: Retention, *, tail_bytes: int, now: int
) -> tuple[SegmentEntry, ...]:
    """
    The oldest of *segments*, a topic's, that *retention* no longer keeps.

    Whole segments only, from the oldest on, so that what is left has no gap; a
    segment is too old when its last message is.  *bytes_max* is kept as well
    as whole segments allow: the last one that reaches below the limit stays.
    What is not sealed counts and is never dropped.

    The newest segment stays, however old: where the journal is lost, it alone
    tells at which offset the topic goes on.

    *now* is in microseconds since 1970, UTC.
    """
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
        if not is_old and not is_too_much:
            break
        count += 1
    return tuple(segments[:count])
