"""Places and times as users write them: offsets, ends of a topic, moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import AtTime, Position, Start

PositionLike = int | str | datetime
"""An offset; ``"earliest"`` or ``"latest"``; or when a message was published."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_position(where: PositionLike) -> Position:
    """
    The place that *where* means.

    Raises:
        InvalidRequest: It is none: a negative offset, another word, or a time
            that does not say in which zone it is.
    """
    if isinstance(where, datetime):
        return AtTime(to_microseconds(where))
    if isinstance(where, int):
        if where < 0:
            raise InvalidRequest(f"an offset is not negative: {where}")
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
    *time*, a datetime or seconds since 1970, in microseconds since 1970, UTC.

    Raises:
        InvalidRequest: It is a datetime without a time zone, or no time at all.
    """
    if not isinstance(time, datetime):
        try:
            return round(time * 1_000_000)
        except (TypeError, ValueError, OverflowError):
            raise InvalidRequest(f"{time!r} is not a time") from None
    if time.utcoffset() is None:
        raise InvalidRequest(
            f"{time.isoformat()} may be anywhere; give it a time zone, for example "
            "datetime.now(UTC)"
        )
    return (time - EPOCH) // _MICROSECOND


def to_datetime(microseconds: int) -> datetime:
    """The moment so many *microseconds* after 1970, in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


def parse_choice(what: str, text: str, choices: type[Any]) -> Any:
    """
    The member of the enumeration *choices* whose value is *text*.

    Words may be joined by ``-`` as on the command line.

    Raises:
        InvalidRequest: There is none.
    """
    try:
        return choices(text.replace("-", "_"))
    except (ValueError, AttributeError):
        known = ", ".join(repr(choice.value) for choice in choices)
        raise InvalidRequest(f"{what} must be one of {known}, not {text!r}") from None
