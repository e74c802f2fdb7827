"""The rows of the list of topics: filtered, sorted, and cut into pages.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydanube.model.activity import Activity
from pydanube.model.subscription_lag import base_of

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, with all its partitions."""

    name: str
    partitions: int
    """0: the topic is not partitioned."""
    activity: Activity | None
    """None: it is not measured."""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A part of the list."""

    rows: list[TopicRow]
    count: int
    """The number of topics that match."""
    page_count: int


def _measured(key: Callable[[Activity], float]) -> Callable[[TopicRow], Any]:
    return lambda row: -1.0 if row.activity is None else key(row.activity)


ORDERS: dict[str, Callable[[TopicRow], Any] | None] = {
    "Name": None,
    "In/s": _measured(lambda each: each.published_per_s),
    "Out/s": _measured(lambda each: each.delivered_per_s),
    "Lag": _measured(lambda each: each.lag),
    "Stored": _measured(lambda each: each.byte_count),
}
"""The orders; all but the name sort the largest first."""


def rows_of(names: Iterable[str], found: Iterable[Activity]) -> list[TopicRow]:
    """Return a row for each topic, by name."""
    measured = {each.topic: each for each in found}
    counts: Counter[str] = Counter()
    for name in names:
        base = base_of(name)
        counts[base] += base != name
    return [TopicRow(name, counts[name], measured.get(name)) for name in sorted(counts)]


def page_of(rows: list[TopicRow], *, text: str, order: str, number: int) -> TopicPage:
    """Return the page *number*, from 1, of the rows whose names have *text*."""
    word = text.strip().lower()
    matching = [each for each in rows if word in each.name.lower()]
    key = ORDERS.get(order)
    if key is not None:
        matching.sort(key=key, reverse=True)
    page_count = max(1, -(-len(matching) // PAGE_ROWS))
    start = (min(max(number, 1), page_count) - 1) * PAGE_ROWS
    return TopicPage(matching[start : start + PAGE_ROWS], len(matching), page_count)
