"""Durations and sizes as users write them, such as 90s or 10GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
