"""
The figures of a measurement: rates, percentiles, and their durability class.

It needs only the standard library, for the workers of other systems.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Figures = dict[str, float]
"""Figures by their names, of which FIGURES has the titles."""

FIGURES = {
    "per_second": "messages/s",
    "mb_per_second": "MB/s",
    "p50_us": "p50 µs",
    "p90_us": "p90 µs",
    "p99_us": "p99 µs",
    "p999_us": "p99.9 µs",
    "max_us": "max µs",
    "client_cpu_s_per_million": "client CPU s/M",
}
"""The titles of the figures in tables."""

PERCENTS = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9}


class Durability(StrEnum):
    """Where a message is stored when it is acknowledged; only like are compared."""

    MEMORY = "memory"
    """In the server's memory: lost when its process ends."""
    PAGE_CACHE = "page cache"
    """In the page cache: lost when the machine loses power."""
    SYNCED = "synced before acknowledgement"
    """On the disk."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value below which *percent* of sorted values are."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def latency_figures(ordered_ns: Sequence[float]) -> Figures:
    """Return the percentiles of sorted latencies, and the longest; none of none."""
    if not len(ordered_ns):  # An array has no truth value.
        return {}
    figures = {
        name: float(percentile(ordered_ns, percent)) / 1e3
        for name, percent in PERCENTS.items()
    }
    return figures | {"max_us": float(ordered_ns[-1]) / 1e3}


def rate_figures(messages: int, message_bytes: int, seconds: float) -> Figures:
    """Return the rates of *messages* that took *seconds*."""
    per_second = messages / seconds
    return {"per_second": per_second, "mb_per_second": per_second * message_bytes / 1e6}


def headline(figures: Mapping[str, Any], *, shows_latency: bool) -> str:
    """Return the most important figures in a few words."""
    if shows_latency:
        return f"p50 {figures['p50_us']:,.0f} µs, p99 {figures['p99_us']:,.0f} µs"
    return f"{figures['per_second']:,.0f} messages/s"
