"""
The query for values that would become others in the columns of a PostgreSQL table.

PostgreSQL refuses numbers that are too large, but it rounds decimal places, truncates
text that is cast to ``varchar(n)``, and drops the time when it makes a date.  So values
of a column with another type are converted to that type and back before rows are moved.

Two differences are what the type of a column promises: ``real`` has about six digits,
and times may have less than microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydanube_spark.sinks.pure.postgres_sql import (
    Plan,
    Target,
    quote_identifier,
    staged_type,
)

_NARROW = (
    *("smallint", "integer", "bigint", "real", "double precision", "numeric"),
    *("boolean", "character", "date"),
)
"""Types that take values of other types only in part; both ways have casts."""


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
    types = {column.name: column.type for column in target.columns}
    found = []
    for name in plan.written:
        staged, to = staged_type(plan.schema.field(name).type), types[name]
        column = quote_identifier(name)
        is_other = _is_other(column, staged, to)
        if is_other is not None:
            value = f"min(left({column}::text, 60)) FILTER (WHERE {is_other})"
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


def _is_other(column: str, staged: str, to: str) -> str | None:
    """Return the condition that *column* changes; None if it cannot."""
    kind = to.removesuffix("[]")
    if not kind.startswith(_NARROW):
        return None
    match staged.removesuffix("[]"):
        case "text" if kind.startswith("numeric("):
            staged = f"numeric{'[]' if staged.endswith('[]') else ''}"
            column = f"{column}::{staged}"
        case "text" if not kind.startswith("character"):
            return None
        case "timestamp with time zone" | "timestamp without time zone" if (
            kind != "date"
        ):
            return None
        case "real" | "double precision" if kind in ("real", "double precision"):
            return None
    if staged == to:
        return None
    return f"{column}::{to}::{staged} IS DISTINCT FROM {column}"
