"""
Positions and times as users write them.

All interfaces follow one rule: a time is an instant.  A datetime, a column of
timestamps and a text need a time zone, except for texts that people type on their own
machine, which may be in the local one.  A number is in the unit that its argument or
option names, seconds where it names none, and Arrow columns have no numbers for times.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from numbers import Real
from typing import Any

from pydanube.model.choices import StartName
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import AtTime, Position, Start
from pydanube.model.quantities import DURATION_UNITS, parse_quantity

PositionLike = int | StartName | datetime
"""An offset, ``"earliest"``, ``"latest"``, or a publish time."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MIN = -62_135_596_800_000_000
TIME_MAX = 253_402_300_799_999_999
"""The years 1 to 9999: what Python, SQL and Spark can represent."""
_MICROSECOND = timedelta(microseconds=1)

POSITION_HELP = (
    "an offset; earliest or latest; a time such as 2025-03-01T09:30:00Z, or in the "
    "local time zone 2025-03-01T09:30, or 09:30 for today; or how long ago, such as 15m"
)
"""The texts of positions, for users."""


def parse_position(text: str, now: datetime) -> PositionLike:
    """
    Return the position that *text* names; *now* has a time zone.

    A time without a time zone is in the local one, and one without a date is today.

    Raises:
        InvalidRequest: *text* is not a position.
    """
    word = text.strip()
    if word.isdecimal():
        return int(word)
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    with suppress(ValueError, OverflowError):
        age_s = parse_quantity(word, DURATION_UNITS)
        if age_s is not None:
            return now - timedelta(seconds=age_s)
        moment = _parse_moment(word, now)
        return moment.astimezone() if moment.tzinfo is None else moment
    raise InvalidRequest(f"{text!r} is not a position in a topic; use {POSITION_HELP}")


def _parse_moment(text: str, now: datetime) -> datetime:
    with suppress(ValueError):
        return datetime.combine(now.astimezone(), clock_time.fromisoformat(text))
    return datetime.fromisoformat(text)


def to_position(where: PositionLike | str) -> Position:
    """
    Return the position that *where* names.

    Raises:
        InvalidRequest: *where* is a negative offset, another word, or a time without a
            time zone.
    """
    if isinstance(where, datetime):
        return AtTime(to_microseconds(where))
    if isinstance(where, int) and not isinstance(where, bool):
        if where < 0:
            raise InvalidRequest(f"an offset must not be negative: {where}")
        return where
    try:
        return Start(where)
    except ValueError:
        raise InvalidRequest(
            "a position is an offset, 'earliest', 'latest' or a datetime, not "
            f"{where!r}"
        ) from None


def to_microseconds(time: datetime | float) -> int:
    """
    Convert a datetime or seconds since 1970 to microseconds since 1970, UTC.

    Raises:
        InvalidRequest: *time* is no time of the years 1 to 9999, or a datetime without
            a time zone.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise InvalidRequest(
                f"{time.isoformat()} has no time zone; give it one, for example "
                "datetime.now(UTC)"
            )
        return (time - EPOCH) // _MICROSECOND
    if isinstance(time, bool) or not isinstance(time, Real):
        raise InvalidRequest(
            f"{time!r:.60} is not a time: use a datetime with a time zone, or the "
            "number of seconds since 1970"
        )
    try:
        found = round(float(time) * 1_000_000)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{time!r:.60} is not a time") from None
    if not TIME_MIN <= found <= TIME_MAX:
        raise InvalidRequest(
            f"{time!r:.60} seconds since 1970 is not between the years 1 and 9999; a "
            "number of milliseconds has to be divided by 1,000"
        )
    return found


def to_datetime(microseconds: int) -> datetime:
    """Convert microseconds since 1970 to a datetime in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


def parse_choice(what: str, text: str, choices: type[Any]) -> Any:
    """
    Return the member of the enumeration *choices* whose value is *text*.

    Words may be joined by ``-``, as on the command line.

    Raises:
        InvalidRequest: There is no such member.
    """
    try:
        return choices(text.replace("-", "_"))
    except (ValueError, AttributeError):
        known = ", ".join(repr(choice.value) for choice in choices)
        raise InvalidRequest(f"{what} must be one of {known}, not {text!r}") from None
