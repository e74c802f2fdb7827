"""
Schema evolution of tables.  Pure.

A writer may add columns, and fields inside structs, and it may widen numbers if the
library of the table can.  Rows may have narrower numbers than the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest


def added_columns(
    table: pa.Schema,
    rows: pa.Schema,
    *,
    merge: bool,
    whole: bool = False,
    widening: str | None = None,
) -> pa.Schema:
    """
    Return the fields of *rows* that *table* lacks; structs have only their new fields.

    *widening* says what to do if the table's columns cannot be widened; with None
    they can.

    Raises:
        InvalidRequest: A column's type, or the case of its name, differs from the
            table's; a required column, or any with *whole*, is missing; or fields are
            new or wider without *merge*.
    """
    _refuse_other_case(table, rows)
    wider = widened_columns(table, rows)
    if wider and (widening or not merge):
        raise InvalidRequest(
            "the rows have wider types than the table: "
            + "; ".join(f"{name} is {has}, not {type_}" for name, has, type_ in wider)
            + ". Cast the columns, or "
            + (widening or "set mergeSchema=true to widen those of the table")
        )
    changed = [
        f"{name} is {has}, not {wanted}"
        for name, has, wanted in _changes(table, rows)
        if not is_widening(has, wanted) and not is_widening(wanted, has)
    ]
    if changed:
        raise InvalidRequest(
            "the table's column types differ: "
            + "; ".join(changed)
            + ". Cast the columns, or write to another table"
        )
    missing = [
        field.name
        for field in table
        if not field.nullable and field.name not in rows.names
    ]
    if missing:
        raise InvalidRequest(
            f"the table requires the columns {', '.join(missing)}, which the rows lack"
        )
    lacking = [name for name in table.names if name not in rows.names] if whole else []
    if lacking:
        raise InvalidRequest(
            f"the rows lack the table's columns {', '.join(lacking)}: an upsert "
            "replaces whole rows, so add the columns"
        )
    added = pa.schema(list(_added(table, rows)))
    if len(added) and not merge:
        raise InvalidRequest(
            f"the table has no columns {', '.join(added.names)}; set "
            "mergeSchema=true to add them"
        )
    return added


def widened_columns(table: pa.Schema, rows: pa.Schema) -> list[tuple[str, Any, Any]]:
    """Return the columns of *table* that are wider in *rows*, and their two types."""
    return [each for each in _changes(table, rows) if is_widening(each[1], each[2])]


def is_widening(has: Any, wanted: Any) -> bool:
    """Return whether *wanted* is a wider type of numbers with all values of *has*."""
    if types.is_decimal(has) and types.is_decimal(wanted):
        return bool(has.scale == wanted.scale and has.precision < wanted.precision)
    return any(
        is_kind(has) and is_kind(wanted) and has.bit_width < wanted.bit_width
        for is_kind in (types.is_signed_integer, types.is_floating)
    )


def stored_schema(table: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return *rows* with the numbers of *table*, which has all columns of *rows*."""
    return pa.schema([_stored(table.field(each.name), each) for each in rows])


def _stored(has: Any, field: Any) -> Any:
    if types.is_struct(field.type):
        inner = [_stored(has.type.field(each.name), each) for each in field.type]
        return field.with_type(pa.struct(inner))
    is_narrower = is_widening(field.type, has.type)
    return field.with_type(has.type) if is_narrower else field


def with_nullability(table: Any, rows: Iterable[Any]) -> pa.Schema:
    """Return *rows* with required fields where *table* has them."""
    return pa.schema([_as_nullable(table, each) for each in rows])


def _as_nullable(table: Any, field: Any) -> Any:
    at = table.get_field_index(field.name)
    if at < 0:
        return field
    has, kind = table.field(at), field.type
    if types.is_struct(kind):
        kind = pa.struct([_as_nullable(has.type, each) for each in kind])
    elif types.is_nested(kind):
        # Only the nullability of what is inside may differ.
        kind = has.type
    return pa.field(field.name, kind, has.nullable)


def plain_type(has: Any, *, keep: bool = False) -> Any:  # noqa: PLR0911
    """
    Return *has* without what only Arrow distinguishes, such as offset widths.

    With *keep*, nested fields keep their metadata and nullability.
    """

    def inner(field: Any, name: str) -> Any:
        plain = plain_type(field.type, keep=keep)
        if not keep:
            return pa.field(name, plain)
        return pa.field(name, plain, field.nullable, field.metadata)

    if types.is_dictionary(has):
        return plain_type(has.value_type)
    if types.is_large_string(has) or types.is_string_view(has):
        return pa.string()
    if types.is_large_binary(has) or types.is_binary_view(has):
        return pa.binary()
    if types.is_list(has) or types.is_large_list(has):
        return pa.list_(inner(has.value_field, "element"))
    if types.is_map(has):
        key = inner(has.key_field, "key").with_nullable(False)
        return pa.map_(key, inner(has.item_field, "value"))
    if types.is_struct(has):
        return pa.struct([inner(each, each.name) for each in has])
    if types.is_timestamp(has):
        return pa.timestamp("us", None if has.tz is None else "UTC")
    return has


def plain_schema(schema: pa.Schema, *, keep: bool = False) -> pa.Schema:
    """Return *schema* with plain types and unchanged nullability; see plain_type."""
    return pa.schema(
        [
            pa.field(
                each.name,
                plain_type(each.type, keep=keep),
                each.nullable,
                each.metadata if keep else None,
            )
            for each in schema
        ]
    )


def rows_schema(schema: pa.Schema) -> pa.Schema:
    """Return *schema* with plain, nullable types, as rows from Spark have them."""
    return pa.schema([field.with_nullable(True) for field in plain_schema(schema)])


def _refuse_other_case(table: pa.Schema, rows: pa.Schema) -> None:
    """Raise if names differ in case only: readers do not agree on their identity."""
    known: dict[str, str] = {}
    for name in [*table.names, *rows.names]:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequest(
                f"the names of the columns {other!r} and {name!r} differ in case only; "
                "rename one"
            )
    if len(set(rows.names)) != len(rows.names):
        raise InvalidRequest(f"a column name occurs twice: {', '.join(rows.names)}")


def _changes(
    table: Any, rows: Iterable[Any], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the columns of *rows* whose types in *table* are others, and both types."""
    for field in rows:
        where = f"{path}{field.name}"
        at = table.get_field_index(field.name)
        if at < 0:
            continue
        has, wants = plain_type(table.field(at).type), plain_type(field.type)
        if types.is_struct(has) and types.is_struct(wants):
            yield from _changes(has, wants, f"{where}.")
        elif not has.equals(wants):
            yield where, has, wants


def _added(table: Iterable[Any], rows: Iterable[Any]) -> Iterator[Any]:
    known = {field.name: field for field in table}
    for field in rows:
        has = known.get(field.name)
        if has is None:
            yield pa.field(field.name, plain_type(field.type))
        elif types.is_struct(field.type):
            inner = list(_added(has.type, field.type))
            if inner:
                yield pa.field(field.name, pa.struct(inner))
