"""Histograms: how many events took how long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

BOUNDS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    600.0,
    3600.0,
    86400.0,
)
"""The upper bounds of the buckets in seconds; one more bucket has what took longer."""

NO_EXEMPLARS: Mapping[int, Exemplar] = {}


def bucket_of(duration_s: float) -> int:
    """Return the position of the bucket that *duration_s* belongs to."""
    return bisect_left(BOUNDS_S, duration_s)


class Exemplar(NamedTuple):
    """An event that was traced: an example for the others in its bucket."""

    trace_id: str
    span_id: str
    duration_s: float
    time_s: float
    """When the event ended, in seconds since 1970, UTC."""


class Histogram:
    """
    The number of events in each bucket of durations, and the total of all durations.

    Bounds: There are ``len(BOUNDS_S) + 1`` integers, and at most as many exemplars.
    """

    __slots__ = ("counts", "exemplars", "total_s")

    def __init__(self, exemplars: Mapping[int, Exemplar] = NO_EXEMPLARS) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """The number of events in each bucket, which is not cumulative."""
        self.total_s = 0.0
        self.exemplars = exemplars
        """An exemplar for some of the buckets, by their positions in ``counts``."""

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Add *count* events that took *duration_s* each; negative counts as 0."""
        self.counts[bucket_of(duration_s)] += count
        if duration_s > 0:
            self.total_s += duration_s * count

    @property
    def count(self) -> int:
        """The number of events."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each upper bound with the number of events up to it, last infinity."""
        bounds = (*BOUNDS_S, float("inf"))
        return list(zip(bounds, accumulate(self.counts), strict=True))

    def __add__(self, other: Histogram) -> Histogram:
        added = Histogram({**self.exemplars, **other.exemplars})
        added.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        added.total_s = self.total_s + other.total_s
        return added
