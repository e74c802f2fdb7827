"""
The reaction of a subscription to a segment that cannot be read.

The topic's policy is to stop or to skip.  A subscription that stops lets its consumers
acknowledge the messages they have, and then closes them with the error.  If it closed
them at once, they would lose that work whenever they come back.
"""

from __future__ import annotations

import logging
from itertools import islice

from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.model.policy import CorruptionPolicy
from pydanube.model.ranges import Range, RangeSet
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

STOP_GRACE_S = 30.0
"""How long consumers may acknowledge messages before they are closed."""

SKIP_ATTEMPTS_MIN = 5
"""How often a missing or unreadable segment is read before it is skipped."""


class CorruptionHandler:
    """The segments that one subscription cannot read."""

    __slots__ = ("_counts", "_error", "_log", "_name", "_skipped", "close_at")

    def __init__(self, name: str, topic_log: TopicLog, counts: Counts) -> None:
        self.close_at: float | None = None
        """When consumers are closed with the error, or reading is tried again."""
        self._name = name
        self._log = topic_log
        self._counts = counts
        self._error: CorruptSegment | ObjectsUnavailable | None = None
        self._skipped = RangeSet()

    def on_error(
        self, error: CorruptSegment | ObjectsUnavailable, now: float, delivered: int
    ) -> None:
        """
        Note that a read failed, and wait for another attempt.

        *delivered* messages are with consumers.  Consumers stay while an object store
        does not answer: nothing is lost, and connecting again would not help.

        Raises:
            CorruptSegment: Consumers have no messages, or took too long.
        """
        if isinstance(error, ObjectsUnavailable):
            self._error, self.close_at = error, error.retry_at
            return
        if not isinstance(self._error, CorruptSegment):
            log.error("%s stops: %s", self._name, error)
            self.close_at = None
        self._error = error
        if self.close_at is None:
            self.close_at = now + STOP_GRACE_S
        if self._skips and not _is_final(error):
            # The segment is skipped after more attempts; consumers stay until then.
            self.close_at = error.retry_at
        elif delivered <= 0 or now >= self.close_at:
            raise error

    def on_success(self) -> None:
        """Note that segments can be read again."""
        if isinstance(self._error, CorruptSegment):
            log.info("%s continues", self._name)
        self.reset()

    def reset(self) -> None:
        """Forget the error."""
        self._error = self.close_at = None

    def skip_end(self, error: CorruptSegment) -> int:
        """
        Return the end of the messages to skip because of *error*.

        Raises:
            CorruptSegment: They are not skipped, or not yet.
        """
        if not self._skips or not _is_final(error) or error.offsets is None:
            raise error
        return error.offsets[1]

    def skip(self, error: CorruptSegment, ranges: list[Range], cursor: Cursor) -> None:
        """Count and log that *ranges* are skipped because of *error*."""
        self.reset()
        new = [gap for base, end in ranges for gap in self._skipped.gaps(base, end)]
        for base, end in new:
            self._skipped.add(base, end)
        count = sum(cursor.open_count(base, end) for base, end in ranges)
        self._counts.add(skipped=count)
        if new:
            log.error(
                "%s skips %d messages from offset %d to %d: %s",
                self._name,
                count,
                new[0][0],
                new[-1][1],
                error,
            )

    @property
    def retry_at(self) -> float | None:
        """When to read again or to close consumers, whichever is earlier."""
        if self.close_at is None:
            return None
        assert self._error is not None
        return min(self.close_at, self._error.retry_at)

    def stopped_by(
        self, cursor_offset: int
    ) -> CorruptSegment | ObjectsUnavailable | None:
        """Return the error that stops the subscription, if it is stopped."""
        error = self._error
        if error is None or error.offsets is None:
            return error
        # The cursor may have been moved past the segment.
        return error if cursor_offset < error.offsets[1] else None

    def first_skipped(self, count: int) -> tuple[Range, ...]:
        """Return the first *count* ranges that were skipped."""
        return tuple(islice(self._skipped, count))

    @property
    def _skips(self) -> bool:
        return self._log.policy.on_corruption is CorruptionPolicy.SKIP


def _is_final(error: CorruptSegment) -> bool:
    """Return whether another attempt is not expected to succeed."""
    return error.is_damaged or error.attempts >= SKIP_ATTEMPTS_MIN
