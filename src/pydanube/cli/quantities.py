"""Sizes, durations, counts and positions in options and output."""

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


def format_bytes(count: float) -> str:
    """Return *count* bytes in the largest unit of which there is at least 1."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        # A value that rounds to 1024 of this unit is 1 of the next.
        if count < 1023.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def format_count(count: float) -> str:
    """Return *count* with commas between thousands."""
    return f"{count:,.0f}"


def format_messages(count: int) -> str:
    """Return *count* with the word, as in ``1 message``."""
    return f"{format_count(count)} message{'' if count == 1 else 's'}"


def format_offsets(base: int, end: int, count: int) -> str:
    """Return the first and the last of the offsets ``base … end``, and their count."""
    if base >= end:
        return f"none, the next is {end}"
    return f"{format_offset_range(base, end)} ({format_messages(count)})"


def format_offset_range(base: int, end: int) -> str:
    """Return the first and the last of the offsets ``base … end``."""
    return str(base) if end == base + 1 else f"{base}\u2013{end - 1}"


def format_duration(seconds: float) -> str:
    """Return *seconds* in the largest unit that represents it exactly, as in ``7d``."""
    for unit in ("d", "h", "m"):
        if seconds >= DURATION_UNITS[unit] and seconds % DURATION_UNITS[unit] == 0:
            return f"{seconds / DURATION_UNITS[unit]:.0f}{unit}"
    return f"{seconds:.12g}s"


def format_age(seconds: float) -> str:
    """Return about *seconds* in its two largest units, as in ``3h 5m``."""
    left = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(DURATION_UNITS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if part[0] != "0") or "0s"


def format_time(moment: datetime) -> str:
    """Return a UTC time to the second, as in ``2025-03-01T09:30:00Z``."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _parse(text: str, units: Mapping[str, float], expected: str) -> float:
    number = parse_quantity(text, units)
    if number is None:
        raise InvalidRequest(f"{text!r} is not {expected}")
    return number
