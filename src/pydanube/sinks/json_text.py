"""
Arrow columns as JSON, with Arrow's own functions on whole columns.

Only bytes, which become Base64, are encoded one by one.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidConfig

_CONTROLS = "[\\x00-\\x1f]"


def is_writable(kind: pa.DataType) -> bool:
    """Return whether values of the type *kind* can be written as JSON."""
    if pa.types.is_struct(kind):
        return all(is_writable(field.type) for field in kind)
    if pa.types.is_map(kind):
        return is_writable(kind.key_type) and is_writable(kind.item_type)
    if pa.types.is_list(kind):
        return is_writable(kind.value_type)
    return not (pa.types.is_duration(kind) or pa.types.is_interval(kind))


def row_texts(batch: pa.RecordBatch) -> Any:
    """
    Return each row of *batch* as one JSON object, with all columns in order.

    Raises:
        InvalidConfig: A column's type has no JSON form.
    """
    return _object(batch.schema.names, batch.columns, batch.num_rows)


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


def _scalars(column: Any) -> Any:  # noqa: PLR0911  # One for each kind of value.
    kind = column.type
    if pa.types.is_string(kind):
        return _quoted(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(
            pc.is_finite(column), column.cast(pa.string()), pa.scalar(None, pa.string())
        )
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(
            column.cast(pa.string()), " ", "T", max_replacements=1
        )
        return _join('"', text, '"')
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _join('"', column.cast(pa.string()), '"')
    if pa.types.is_binary(kind):
        encoded = [
            None if value is None else b64encode(value).decode()
            for value in column.to_pylist()
        ]
        return _join('"', pa.array(encoded, pa.string()), '"')
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    raise InvalidConfig(f"values of the type {kind} cannot be written as JSON")


def _object(names: list[str], columns: list[Any], row_count: int) -> Any:
    if not names:
        return pa.repeat("{}", row_count)
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        [label] = _quoted(pa.array([name])).to_pylist()
        parts += [f"{',' if index else '{'}{label}:", _filled(column)]
    return _join(*parts, "}")


def _sequence(column: Any, elements: Any, opening: str, closing: str) -> Any:
    lists = pa.ListArray.from_arrays(column.offsets, elements)
    return _join(opening, pc.binary_join(lists, ","), closing)


def _name_texts(keys: Any) -> Any:
    """Return *keys*, of any type, as JSON strings."""
    if pa.types.is_string(keys.type):
        return _quoted(keys)
    return pc.if_else(
        pc.starts_with(texts(keys), '"'), texts(keys), _join('"', texts(keys), '"')
    )


def _filled(column: Any) -> Any:
    return pc.fill_null(texts(column), "null")


def _quoted(column: Any) -> Any:
    escaped = pc.replace_substring(column, "\\", "\\\\")
    escaped = pc.replace_substring(escaped, '"', '\\"')
    if pc.any(pc.match_substring_regex(escaped, _CONTROLS)).as_py():
        for code in range(0x20):
            escaped = pc.replace_substring(escaped, chr(code), f"\\u{code:04x}")
    return _join('"', escaped, '"')


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")
