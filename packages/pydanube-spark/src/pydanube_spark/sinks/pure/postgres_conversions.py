"""
The query for values that would become others in the columns of a PostgreSQL table.

PostgreSQL refuses numbers that are too large, but it rounds decimal places, truncates
text that is cast to ``varchar(n)``, and drops the time when it makes a date.  So values
of a column with another type are converted to that type and back before rows are moved.

Three differences are what the types promise: ``real`` has about six digits, times may
have less than microseconds, and of a double ``numeric`` has 15 digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydanube_spark.sinks.pure.postgres_sql import (
    Plan,
    Target,
    quote_identifier,
    staged_type,
)
from pydanube_spark.sinks.pure.staging import literal

_NARROW = re.compile(
    r"(smallint|integer|bigint|real|double precision|numeric|boolean|date|bit"
    r"|bit varying(?=\()|character|character varying(?=\())(\(.*\))?"
)
"""Types that take values of other types only in part; both ways have casts."""

_OF_TEXT = {
    "numeric": "numeric",
    "date": "timestamp without time zone",
    # Spaces at the end mean nothing.
    "character": "bpchar",
    "character varying": "text",
    "bit": "text",
    "bit varying": "text",
}
"""The type as which text is compared, by the column's type."""
_OF_TIMES = ("date", "character", "character varying")
"""The types that times are checked for."""
_KEPT = {
    "real": ("real", "double precision"),
    "double precision": ("real", "double precision", "numeric"),
}
"""The types whose difference is a promise, by the type of the staged values."""
_DOUBLE_ERROR = "1e-14"
"""The relative error of a double that becomes a ``numeric``."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column whose values are converted."""

    column: str
    staged: str
    to: str
    """The type of the table's column."""
    value: str
    """The SQL for a value that would become another one, or null."""


def conversions(plan: Plan, target: Target) -> list[Conversion]:
    """Return the conversions of staged rows to the types of *target*."""
    columns = {column.name: column for column in target.columns}
    found = []
    for name in plan.written:
        staged, to = staged_type(plan.schema.field(name).type), columns[name].type
        column = quote_identifier(name)
        is_other = _is_other(column, staged, to, columns[name].base or to)
        if is_other is not None:
            condition = f"{is_other}{_is_stored(plan, name)}"
            value = f"min(left({column}::text, 60)) FILTER (WHERE {condition})"
            found.append(Conversion(name, staged, to, value))
    return found


def problem(plan: Plan, conversion: Conversion, value: str) -> str:
    """Return the error for a *value* that would become another one."""
    column = quote_identifier(conversion.column)
    return (
        f"the column {conversion.column!r} of {plan.table} is {conversion.to}, which "
        f"cannot store {value} of a row: change it with ALTER TABLE {plan.table} "
        f"ALTER COLUMN {column} TYPE {conversion.staged}, or convert the values in the "
        "query"
    )


def _is_stored(plan: Plan, name: str) -> str:
    """Return more conditions: the row stores its value of the column *name*."""
    found = ""
    if name not in plan.keys and plan.delete is not None:
        found += f" AND {quote_identifier(plan.delete)} IS NOT TRUE"
    if name not in plan.keys and plan.unavailable is not None:
        names = quote_identifier(plan.unavailable)
        found += f" AND ({literal(name)} = ANY ({names})) IS NOT TRUE"
    return found


def _is_other(column: str, staged: str, to: str, base: str) -> str | None:
    """
    Return the condition that *column* changes; None if it cannot.

    *base* is the type *to*, or that of which *to* is a domain.
    """
    found = _NARROW.fullmatch(base.removesuffix("[]"))
    if found is None or staged.replace(", ", ",") == base:
        return None
    of = staged.removesuffix("[]")
    is_array = staged != of
    if of == "text":
        compared = None if found[0] == "numeric" else _OF_TEXT.get(found[1])
        if compared is None or (base.endswith("[]") and not is_array):
            return None
        compared += staged.removeprefix(of)
        return f"{column}::{to}::{compared} IS DISTINCT FROM {column}::{compared}"
    is_time = of.startswith("timestamp")
    if found[0] in _KEPT.get(of, ()) or (is_time and found[1] not in _OF_TIMES):
        return None
    # A cast of a float to numeric would leave 15 digits.
    back = "text::numeric" if of.startswith("numeric(") else staged
    condition = f"{column}::{to}::{back} IS DISTINCT FROM {column}"
    if of == "double precision" and found[1] == "numeric" and not is_array:
        error = f"abs({column}::{to}::{back} - {column})"
        condition += f" AND {error} > abs({column}) * {_DOUBLE_ERROR}"
    return condition
