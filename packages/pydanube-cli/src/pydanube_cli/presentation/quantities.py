"""Sizes, durations, rates and positions in options."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from pydanube.model import positions
from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import PositionLike, to_datetime
from pydanube.model.quantities import parse_bytes, parse_duration

__all__ = [
    "POSITION_METAVAR",
    "optional",
    "parse_attribute",
    "parse_bytes",
    "parse_duration",
    "parse_position",
    "parse_rate",
]

T = TypeVar("T")

POSITION_METAVAR = "OFFSET|earliest|latest|TIME|DURATION"


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
