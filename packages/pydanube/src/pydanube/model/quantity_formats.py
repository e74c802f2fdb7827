"""Sizes, counts, durations and times as texts for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from pydanube.model.quantities import DURATION_UNITS


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


def format_counted(names: Iterable[str]) -> str:
    """Return the different *names*, with the number of each if there are several."""
    counts = Counter(names)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
