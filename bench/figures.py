"""What many measurements come to: percentiles, and medians with their spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}


def latency_figures(nanoseconds: Any) -> dict[str, float]:
    """The percentiles of an array of latencies, and the longest, in microseconds."""
    values = np.sort(np.asarray(nanoseconds)) / 1e3
    if not len(values):
        return {}
    figures = {
        name: float(values[min(len(values) - 1, int(len(values) * percent / 100))])
        for name, percent in PERCENTILES.items()
    }
    return figures | {"max": float(values[-1])}


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """The spread of *values*; None of none."""
        ordered = sorted(values)
        if not ordered:
            return None
        middle = len(ordered) // 2
        if len(ordered) % 2:
            median = ordered[middle]
        else:
            median = (ordered[middle - 1] + ordered[middle]) / 2
        return cls(median, ordered[0], ordered[-1])
