"""
Arrow columns as JSON, with Arrow's own functions on whole columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.errors import InvalidConfig
from pydanube.schemas.json_schema.column_writer import (
    quote,
    scalar_schema,
    scalar_texts,
)


def is_writable(kind: pa.DataType) -> bool:
    """Return whether values of the type *kind* can be written as JSON."""
    if pa.types.is_struct(kind):
        return all(is_writable(field.type) for field in kind)
    if pa.types.is_map(kind):
        return is_writable(kind.key_type) and is_writable(kind.item_type)
    if pa.types.is_list(kind):
        return is_writable(kind.value_type)
    return scalar_schema(kind) is not None or bool(pa.types.is_time(kind))


def texts(column: Any) -> Any:
    """
    Return the values of *column* as JSON; null stays null.

    NaN and the infinities, which JSON lacks, become null.

    Raises:
        InvalidConfig: The column's type has no JSON form.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        inner = _object([f.name for f in kind], column.flatten(), len(column))
    elif pa.types.is_map(kind):
        pairs = _join(_name_texts(column.keys), ":", _filled(column.items))
        inner = _sequence(column, pairs, "{", "}")
    elif pa.types.is_list(kind):
        inner = _sequence(column, _filled(column.values), "[", "]")
    else:
        return _scalars(column)
    return pc.if_else(column.is_valid(), inner, pa.scalar(None, pa.string()))


def _scalars(column: Any) -> Any:
    kind = column.type
    if not is_writable(kind):
        raise InvalidConfig(f"values of the type {kind} cannot be written as JSON")
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))
    if pa.types.is_time(kind):
        return _join('"', column.cast(pa.string()), '"')
    return scalar_texts(column)


def _object(names: list[str], columns: list[Any], row_count: int) -> Any:
    if not names:
        return pa.repeat("{}", row_count)
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        [label] = quote(pa.array([name])).to_pylist()
        parts += [f"{',' if index else '{'}{label}:", _filled(column)]
    return _join(*parts, "}")


def _sequence(column: Any, elements: Any, opening: str, closing: str) -> Any:
    lists = pa.ListArray.from_arrays(column.offsets, elements)
    return _join(opening, pc.binary_join(lists, ","), closing)


def _name_texts(keys: Any) -> Any:
    """Return *keys*, of any type, as JSON strings."""
    found = texts(keys)
    return pc.if_else(pc.starts_with(found, '"'), found, _join('"', found, '"'))


def _filled(column: Any) -> Any:
    return pc.fill_null(texts(column), "null")


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")
