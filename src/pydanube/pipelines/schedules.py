"""
When a pipeline with ``schedule`` runs.  Pure.

``cronsim`` evaluates the expressions, with the rules of Debian's cron for daylight
saving time: a time that does not exist moves to the next one that does, and a time that
occurs twice is used once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from pydanube.model.errors import InvalidConfig

SKIPPED_MAX = 100_000
"""How many skipped times are counted at most; those of ten weeks of every minute."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of a cron expression in a time zone."""

    cron: str
    timezone: ZoneInfo

    def next_after(self, now: datetime) -> datetime:
        """Return the first time after *now*, in UTC."""
        return next(self._times_after(now)).astimezone(UTC)

    def count_between(self, start: datetime, end: datetime) -> int:
        """Return how many times are after *start* and not after *end*."""
        times = takewhile(lambda each: each <= end, self._times_after(start))
        return sum(1 for _ in islice(times, SKIPPED_MAX))

    def _times_after(self, now: datetime) -> Iterator[datetime]:
        from cronsim import CronSim  # noqa: PLC0415  # Only schedules need it.

        return CronSim(self.cron, now.astimezone(self.timezone))


def parse_schedule(cron: str, timezone: str) -> Schedule:
    """
    Return the schedule of a file.

    Raises:
        InvalidConfig: *cron* is no cron expression or has no times, or there is no time
            zone *timezone*.
    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise InvalidConfig(
            f"{timezone!r} is not a time zone such as UTC or Europe/Berlin"
        ) from None
    try:
        # An expression such as "0 0 30 2 *" has no times.
        next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it has no times"
        raise InvalidConfig(
            f"{cron!r} is not a cron expression such as '0 3 * * *', which is every "
            f"day at 03:00: {why[0].lower()}{why[1:]}"
        ) from None
    return Schedule(cron, zone)
