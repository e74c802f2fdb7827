"""Durations and sizes as users write them, such as 90s or 10GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydanube.model.errors import InvalidRequest

DURATION_UNITS: dict[str, float] = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}
"""In seconds."""

BYTE_UNITS: dict[str, float] = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}

SPARK_BYTE_UNITS: dict[str, float] = {
    prefix + suffix: 1024**power
    for power, prefix in enumerate(("", "k", "m", "g", "t"))
    for suffix in ("", "b")
}
"""As in Spark's settings, where all units are powers of 1024."""

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def parse_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """
    Return the number in *text* times its unit, or None if *text* is no quantity.

    *units* maps lower-case units to their values.  Upper and lower case are not
    distinguished.
    """
    match = _QUANTITY.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    number = float(match[1]) * factor
    return number if number < float("inf") else None


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


def _parse(text: str, units: Mapping[str, float], expected: str) -> float:
    number = parse_quantity(text, units)
    if number is None:
        raise InvalidRequest(f"{text!r} is not {expected}")
    return number
