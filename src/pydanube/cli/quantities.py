"""Sizes, durations, rates and positions in options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from pydanube.model import positions
from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import PositionLike, to_datetime
from pydanube.model.quantities import BYTE_UNITS, DURATION_UNITS, parse_quantity

T = TypeVar("T")

POSITION_METAVAR = "OFFSET|earliest|latest|TIME|DURATION"


def parse_bytes(text: str) -> int:
    """
    Return the bytes of a size such as ``500MB``; without a unit it is bytes.

    Raises:
        InvalidRequest: *text* is not a size.
    """
    return int(_parse(text, BYTE_UNITS, "a size such as 500MB or 10GiB"))


def parse_duration(text: str) -> float:
    """
    Return the seconds of a duration such as ``12h``; only 0 needs no unit.

    Raises:
        InvalidRequest: *text* is not a duration, or has no unit.
    """
    word = text.strip()
    if parse_quantity(word, {"": 1}):
        raise InvalidRequest(
            f"{text!r} has no unit: write {word}s for seconds, or {word}m, {word}h or "
            f"{word}d for minutes, hours or days"
        )
    units = {"": 1, **DURATION_UNITS}
    return _parse(word, units, "a duration such as 90s, 12h or 7d")


def parse_rate(text: str) -> float:
    """
    Return the messages per second of ``500`` or ``500/s``.

    Raises:
        InvalidRequest: *text* is not a positive rate.
    """
    number = text.strip().removesuffix("/s")
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise InvalidRequest(f"{text!r} is not a rate such as 500 or 500/s")
    return rate


def parse_attribute(text: str) -> tuple[str, str]:
    """
    Return the name and value of ``name=value``.

    Raises:
        InvalidRequest: The name or the ``=`` is missing.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"{text!r} is not an attribute such as source=web")
    return name, value


def parse_position(text: str, now: datetime | None = None) -> PositionLike:
    """
    Return the position that *text* names; *now* is the current time by default.

    Raises:
        InvalidRequest: *text* is not a position.
    """
    return positions.parse_position(text, now or to_datetime(time.time_ns() // 1000))


def optional(parse: Callable[[str], T], text: str | None) -> T | None:
    """Return the quantity in *text*, or None if there is no text."""
    return None if text is None else parse(text)


def _parse(text: str, units: Mapping[str, float], expected: str) -> float:
    number = parse_quantity(text, units)
    if number is None:
        raise InvalidRequest(f"{text!r} is not {expected}")
    return number
