"""The comparison of expected rows with those of a query.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

Row = Mapping[str, Any]
"""A row as JSON has it."""


class Difference(msgspec.Struct, frozen=True):
    """The rows that only one side has."""

    columns: list[str]
    """The columns that were compared."""
    missing: list[dict[str, Any]]
    """The expected rows that are not there."""
    unexpected: list[dict[str, Any]]
    """The rows that are there and not expected."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare(
    expected: Sequence[Row], actual: Sequence[Row], columns: Sequence[str]
) -> Difference:
    """
    Compare rows in any order, by those of *columns* that an expected row names.

    All columns are compared if no row is expected.  A column that only some expected
    rows name is null in the others.
    """
    named = {name for row in expected for name in row}
    compared = [name for name in columns if name in named or not expected]
    unexpected = [{name: row.get(name) for name in compared} for row in actual]
    missing = []
    for row in expected:
        wanted = {name: row.get(name) for name in compared}
        at = _index(wanted, unexpected)
        if at is None:
            missing.append(wanted)
        else:
            del unexpected[at]
    return Difference(compared, missing, unexpected)


def is_same(expected: Any, actual: Any) -> bool:
    """
    Return whether the value of a query is the expected one, from a YAML file.

    An object matches text that is JSON, and times match if they are the same moment.
    Fields that an expected object lacks are null.
    """
    if isinstance(expected, dict | list) and isinstance(actual, str):
        with suppress(ValueError):
            actual = json.loads(actual)
    if isinstance(expected, dict) and isinstance(actual, dict):
        names = expected.keys() | actual.keys()
        return all(is_same(expected.get(name), actual.get(name)) for name in names)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(is_same, expected, actual))
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or _are_same_time(expected, actual)
    return bool(expected == actual)


def _index(wanted: Row, rows: Iterable[Row]) -> int | None:
    for at, row in enumerate(rows):
        if is_same(wanted, row):
            return at
    return None


def _are_same_time(one: str, other: str) -> bool:
    try:
        times = datetime.fromisoformat(one), datetime.fromisoformat(other)
    except ValueError:
        return False
    # A time without a zone does not match one that has a zone.
    return times[0].tzinfo is not None and times[0] == times[1]
