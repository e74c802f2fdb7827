"""
Column statistics of a file for a Delta table's log: rows, nulls, minima and maxima.

Readers skip files by them, so only exact values are included.  Pure.
"""

from __future__ import annotations

import datetime
from typing import Any

TEXT_MAX = 64
"""The longest text whose minimum and maximum are in the log."""


def collect(metadata: Any) -> dict[str, Any]:
    """Return the statistics of the flat columns in a Parquet file's *metadata*."""
    found: dict[str, Any] = {"nullCount": {}, "minValues": {}, "maxValues": {}}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if "." in name or metadata.schema.column(index).max_repetition_level:
            continue
        chunks = [
            metadata.row_group(at).column(index).statistics
            for at in range(metadata.num_row_groups)
        ]
        if not all(each is not None and each.has_null_count for each in chunks):
            continue
        found["nullCount"][name] = sum(each.null_count for each in chunks)
        ranges = [each for each in chunks if each.num_values]
        if ranges and all(each.has_min_max for each in ranges):
            low = _log_value(min(each.min for each in ranges))
            high = _log_value(max(each.max for each in ranges))
            if low is not None and high is not None:
                found["minValues"][name], found["maxValues"][name] = low, high
    return {"numRecords": metadata.num_rows, **found}


def _log_value(value: Any) -> Any:
    """Return *value* as JSON in the log; None if it has no exact form there."""
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
            # Not strftime, which writes years before 1000 with fewer digits.
            return f"{utc.isoformat(timespec='microseconds')}Z"
        case datetime.date() if not isinstance(value, datetime.datetime):
            return value.isoformat()
        case str() if len(value) > TEXT_MAX:
            return None
        case int() | str() if not isinstance(value, bool):
            return value
        case _:
            return None
