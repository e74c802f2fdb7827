"""
The query for values that would become others in the columns of a ClickHouse table.

ClickHouse stores the low bits of an integer that is too large for its column, cuts off
decimal places, takes a date beyond the range of ``Date`` for another one, and leaves
out the fields of a struct that a ``Tuple`` does not have.  So each value of a column
whose type differs is converted to the table's type and back before rows are moved.

Two differences are what the type of a column promises: a float of 32 bits has about
seven digits, and times may have less than microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube_spark.sinks.pure.clickhouse_sql import (
    column_type,
    literal,
    plain_type,
    quote_identifier,
)

_ERRORS = {
    "BFloat16": 1e-2,
    # It has at most 6e-8.
    "Float32": 1e-6,
    # Sums have some, and ClickHouse may read text less exactly.
    "Float64": 1e-13,
    "Decimal": 1e-13,
}
"""The relative errors that numbers may have, by a part of the column's type."""
_TIME_ERROR_US = 1_000_000
_DATE = "^\\d{4}-\\d\\d-\\d\\d([ T][0-9:.]*)?$"
"""A date, or a time without a zone, in text."""

_KEEPING = ("Variant(", "Dynamic", "JSON", "Object(", "String")
"""Types that keep values of other types as they are, or as text."""
_OF_PARTS = (
    *("Array(", "Map(", "Tuple(", "Point", "Ring", "LineString", "MultiLineString"),
    *("Polygon", "MultiPolygon", "Geometry"),
)
"""Types that are never null; they are made of text by parsing it."""
_AGGREGATE = re.compile(r"SimpleAggregateFunction\(\w+(?:\([^)]*\))?, (.*)\)")
_SHOWN_MAX = 60
"""How many characters of a value an error has."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A column, or a part of one, whose values are converted."""

    column: str
    kind: pa.DataType
    """The type of the whole column."""
    to: str
    """The type of the table's column."""
    path: str
    """For errors: the column and the part of it."""
    query: str
    """Returns the first value that would become another one, or null."""


def conversions(schema: pa.Schema, columns: Mapping[str, str]) -> list[Conversion]:
    """
    Return the conversions of rows with *schema* to a table with the types *columns*.

    Columns whose types are equal have none.
    """
    found = []
    for field in schema:
        to = _stored_type(columns.get(field.name, "String"))
        if to in _equal_types(field.type) or _plain(to).startswith(_KEEPING):
            continue
        if to.startswith(_OF_PARTS) and not types.is_nested(field.type):
            continue
        before = quote_identifier(field.name)
        there = f"CAST({before}, {literal(_nullable(field.type, to))})"
        wide = str(column_type(field.type, plain=_wide_plain_type))
        after = f"CAST({there}, {literal(wide)})"
        pairs = zip(
            _leaves(field.type, before, field.name),
            _leaves(field.type, after, field.name),
            strict=True,
        )
        for (path, kind, old), (_, _, new) in pairs:
            test = f"(a, b) -> ifNull({_is_other(kind, to)}, isNotNull(a))"
            first = f"toString(arrayFirst({test}, {old}, {new}))"
            query = (
                f"anyOrNullIf(leftUTF8({first}, {_SHOWN_MAX}), "
                f"arrayExists({test}, {old}, {new}))"
            )
            found.append(
                Conversion(field.name, field.type, columns[field.name], path, query)
            )
    return found


def problem(table: str, conversion: Conversion, value: str) -> str:
    """Return the error for a *value* that would become another one."""
    return (
        f"the column {conversion.column!r} of {table} is {conversion.to}, which cannot "
        f"store {value} of {conversion.path} in a row: change it with ALTER TABLE "
        f"{table} MODIFY COLUMN {quote_identifier(conversion.column)} "
        f"{column_type(conversion.kind)}, or convert the values in the query"
    )


def _equal_types(kind: pa.DataType) -> list[str]:
    both = column_type(kind), column_type(kind, may_be_null=False)
    # ClickHouse shows the names of fields without quotes if it can.
    return [name for each in both for name in (str(each), str(each).replace("`", ""))]


def _stored_type(to: str) -> str:
    """Return the type of values in a column of the type *to*."""
    found = _AGGREGATE.fullmatch(to)
    return to if found is None else found[1]


def _plain(to: str) -> str:
    """Return *to* without null and the dictionary of LowCardinality."""
    for wrapper in ("LowCardinality(", "Nullable("):
        if to.startswith(wrapper):
            to = to.removeprefix(wrapper).removesuffix(")")
    return to


def _nullable(kind: pa.DataType, to: str) -> str:
    """
    Return the type *to* with null, if values of *kind* may be null.

    The default of a column replaces a null, by the setting insert_null_as_default.
    """
    return to if types.is_nested(kind) else f"Nullable({_plain(to)})"


def _wide_plain_type(kind: pa.DataType) -> str | None:
    """Return the type that shows what a value of the plain type *kind* has become."""
    if types.is_integer(kind):
        return "Int256"
    return "String" if types.is_decimal(kind) else plain_type(kind)


def _leaves(
    kind: pa.DataType, sql: str, path: str, *, is_array: bool = False
) -> Iterator[tuple[str, pa.DataType, str]]:
    """
    Yield the plain values of *sql*: path, type, and the SQL for an array of them.

    With *is_array*, *sql* is an array of values of *kind*.
    """

    def part(call: str) -> str:
        if is_array:
            return f"arrayMap(x -> {call.format('x')}, {sql})"
        return call.format(sql)

    if types.is_list(kind):
        while types.is_list(kind):
            kind, path = kind.value_type, f"{path}[]"
        yield from _leaves(kind, f"arrayFlatten({sql})", path, is_array=True)
    elif types.is_map(kind):
        for of, call in ((kind.key_type, "mapKeys"), (kind.item_type, "mapValues")):
            yield from _leaves(pa.list_(of), part(call + "({})"), path)
    elif types.is_struct(kind):
        for at, field in enumerate(kind, 1):
            yield from _leaves(
                field.type,
                part(f"tupleElement({{}}, {at})"),
                f"{path}.{field.name}",
                is_array=is_array,
            )
    else:
        yield path, kind, sql if is_array else f"[{sql}]"


def _is_other(kind: pa.DataType, to: str) -> str:
    """Return the condition that ``b``, read from *to*, is not what ``a`` was."""
    error = next((each for name, each in _ERRORS.items() if name in to), 0)
    if types.is_floating(kind):
        return (
            f"NOT (a = b OR (isNaN(a) AND isNaN(b)) OR {_are_close('a', 'b', error)})"
        )
    if types.is_decimal(kind):
        # A float may have an exponent.
        number = f"toDecimal256OrNull(b, {kind.scale})"
        return f"toString(a) != b AND NOT ifNull({number} = a, false)"
    if types.is_timestamp(kind):
        micros = [f"toUnixTimestamp64Micro({each})" for each in "ab"]
        return f"abs({' - '.join(micros)}) >= {_TIME_ERROR_US}"
    if types.is_string(kind) or types.is_binary(kind):
        are_close = _are_close("toFloat64OrNull(a)", "toFloat64OrNull(b)", error)
        return (
            f"a != b AND ((empty(b) OR NOT ifNull({are_close}, true)) "
            f"OR (match(a, {literal(_DATE)}) AND (left(a, 10) != left(b, 10) "
            "OR (length(b) = 10 AND match(substring(a, 11), '[1-9]')))))"
        )
    return "a != b"


def _are_close(a: str, b: str, error: float) -> str:
    return f"abs({a} - {b}) <= abs({a}) * {error}"
