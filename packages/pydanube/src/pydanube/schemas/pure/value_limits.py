"""
The values that a system can store, and a check of columns against them.  Pure.

Arrow and Spark have dates and times of hundreds of thousands of years.  Most systems
have fewer, and what a library does with a value beyond them ranges from an error
without a place to another value.  So sinks check columns before they convert them.

Spark's ``CAST(payload AS STRING)`` makes text of any bytes.  Libraries refuse such text
when they read it, if not when they write it, so it is no value of most systems either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.arrow import pc
from pydanube.model.errors import InvalidPayload
from pydanube.model.lazy_dataclasses import dataclass

DAY_S = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NUL = "\0"
_SHOWN_MAX = 60
"""How many characters, or bytes that are not UTF-8, of a value an error has."""
_COLUMNS_MAX = 5
"""How many other columns of the row an error has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """The values that a system or a format can represent."""

    name: str
    """For error messages: what has these limits."""
    dates: tuple[str, str] | None = None
    """The first date, and the one after the last, as numpy writes them; None: all."""
    times: tuple[str, str] | None = None
    """The same for timestamps."""
    are_floats_finite: bool = False
    """Whether NaN and the infinities are missing."""
    has_nul: bool = True
    """Whether text may have the character U+0000."""
    has_broken_text: bool = False
    """Whether text may have bytes that are not UTF-8."""


YEARS_1_TO_9999 = ("0001-01-01", "10000-01-01")
"""The years that RFC 3339, SQL, Python and the libraries of lakehouse tables have."""


def years_limits(name: str, *, are_floats_finite: bool = False) -> ValueLimits:
    """Return the limits of most systems: the years from 1 to 9999."""
    return ValueLimits(
        name=name,
        dates=YEARS_1_TO_9999,
        times=YEARS_1_TO_9999,
        are_floats_finite=are_floats_finite,
    )


JSON = years_limits("JSON", are_floats_finite=True)


def check_values(
    rows: pa.RecordBatch,
    limits: ValueLimits,
    first: int = 0,
    *,
    unchecked: Collection[str] = (),
) -> None:
    """
    Raise if *limits* exclude a value of *rows*, the first of which is number *first*.

    The columns *unchecked* may have any values.

    Raises:
        InvalidPayload: There is such a value; the message names its column and row.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in unchecked or not _is_limited(column.type, limits):
            continue
        for path, values, parents in _leaves(column, name, None):
            at, reason = _find_bad(values, limits)
            if at is None:
                continue
            row = at if parents is None else int(parents[at])
            raise InvalidPayload(
                f"the column {path} of row {first + row} is {_text(values, at)}: "
                f"{reason}{_others(rows, row, name)}"
            )


def checked_batches(
    batches: Iterable[pa.RecordBatch], limits: ValueLimits
) -> Iterator[pa.RecordBatch]:
    """Yield *batches*, each after ``check_values``."""
    for first, batch in counted(batches):
        check_values(batch, limits, first)
        yield batch


def counted(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield *batches*, each with the number of rows before it."""
    first = 0
    for batch in batches:
        yield first, batch
        first += batch.num_rows


def _is_limited(kind: Any, limits: ValueLimits) -> bool:
    if types.is_nested(kind):
        parts = [kind.field(at).type for at in range(kind.num_fields)]
        return any(_is_limited(each, limits) for each in parts)
    return bool(
        _range_of(kind, limits) is not None
        or (limits.are_floats_finite and types.is_floating(kind))
        or (types.is_string(kind) and not (limits.has_nul and limits.has_broken_text))
    )


def _range_of(kind: Any, limits: ValueLimits) -> tuple[str, str] | None:
    if types.is_date(kind):
        return limits.dates
    return limits.times if types.is_timestamp(kind) else None


def _leaves(array: Any, path: str, parents: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the flat arrays inside *array*, and the row of each of their values."""
    kind = array.type
    if types.is_struct(kind):
        for field, column in zip(kind, array.flatten(), strict=True):
            yield from _leaves(column, f"{path}.{field.name}", parents)
    elif types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        yield from _leaves(array.cast(pa.list_(entry)), path, parents)
    elif types.is_nested(kind):
        inner = pc.list_parent_indices(array).to_numpy()
        above = inner if parents is None else parents[inner]
        yield from _leaves(pc.list_flatten(array), f"{path}[]", above)
    else:
        yield path, array, parents


def _find_bad(values: Any, limits: ValueLimits) -> tuple[int | None, str]:
    """Return the position of the first value beyond *limits*, and why it is."""
    kind = values.type
    if (found := _range_of(kind, limits)) is not None:
        first, end = found
        what = "dates" if types.is_date(kind) else "timestamps"
        reason = f"{limits.name} has {what} from {first} to before {end}"
        return _beyond(values, *_bounds(kind, first, end)), reason
    if limits.are_floats_finite and types.is_floating(kind):
        at = pc.index(pc.is_finite(values), value=False).as_py()
        return (None if at < 0 else at), f"it is not a number in {limits.name}"
    if types.is_string(kind):
        at = None if limits.has_broken_text else _find_broken_text(values)
        if at is not None:
            return at, (
                "it is not UTF-8; in Spark, make_valid_utf8 replaces such bytes, and "
                "a binary column keeps them"
            )
    if not limits.has_nul and types.is_string(kind):
        at = pc.index(pc.match_substring(values, _NUL), value=True).as_py()
        reason = f"text in {limits.name} cannot have the character U+0000"
        return (None if at < 0 else at), reason
    return None, ""


def _find_broken_text(values: Any) -> int | None:
    """Return the position of the first text that is not UTF-8."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for at, each in enumerate(values.cast(pa.binary())):
            if each.is_valid and not _is_utf8(each.as_py()):
                return at
        raise
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bounds(kind: Any, first: str, end: str) -> tuple[int, int]:
    days = [int(np.datetime64(each, "D").astype(np.int64)) for each in (first, end)]
    if types.is_date32(kind):
        return days[0], days[1]
    scale = DAY_S * _UNITS["ms" if types.is_date64(kind) else kind.unit]
    return days[0] * scale, days[1] * scale


def _beyond(values: Any, first: int, end: int) -> int | None:
    numbers = values.cast(pa.int32() if types.is_date32(values.type) else pa.int64())
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or first <= ends["min"] <= ends["max"] < end:
        return None
    # Bounds that the type does not have are no bounds.
    number = ends["min"] if ends["min"] < first else ends["max"]
    at: int = pc.index(numbers, value=number).as_py()
    return at


def _text(values: Any, at: int) -> str:
    """Return a value as text, also if Python has no such date."""
    value, kind = values[at], values.type
    if not value.is_valid:
        return "null"
    if types.is_date32(kind):
        return str(np.datetime64(value.cast(pa.int32()).as_py(), "D"))
    if types.is_date64(kind) or types.is_timestamp(kind):
        unit: Any = "ms" if types.is_date64(kind) else kind.unit
        return str(np.datetime64(value.cast(pa.int64()).as_py(), unit))
    if types.is_string(kind):
        # Python has no text that is not UTF-8.
        return _shown(value.cast(pa.binary()).as_py())
    return _short(repr(value.as_py()))


def _shown(text: bytes) -> str:
    try:
        return _short(repr(text.decode()))
    except UnicodeDecodeError as error:
        bad = error.start
    first = max(0, min(bad - _SHOWN_MAX // 2, len(text) - _SHOWN_MAX))
    part = text[first : first + _SHOWN_MAX]
    is_whole = len(part) == len(text)
    return repr(part) + ("" if is_whole else f" (from byte {first} of {len(text)})")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _others(rows: pa.RecordBatch, row: int, but: str) -> str:
    """Return some other values of the row, by which a user finds it."""
    found = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name != but and not types.is_nested(column.type):
            found.append(f"{name}={_short(_text(column, row))}")
    shown = ", ".join(found[:_COLUMNS_MAX])
    return f"; in this row {shown}" if shown else ""
