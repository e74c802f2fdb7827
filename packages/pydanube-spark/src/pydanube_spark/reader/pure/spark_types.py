"""
The conversion of Arrow types and columns to those that Spark supports.

Spark has fewer types than Arrow, and takes columns only in exactly the type of the
plan.  That type may have fewer, more or wider fields than the values.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest

Converter = Callable[[Any], Any]
"""Converts an array to another type; raises ArrowInvalid if a value does not fit."""

_DIRECT: dict[Any, Any] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    # No sink can write a column of Spark's type void.
    pa.null(): pa.string(),
}


def spark_type(has: Any) -> Any:  # noqa: PLR0911  # One for each kind of type.
    """
    Return the Arrow type of Spark's column for values of the type *has*.

    Unsigned numbers become the next larger signed ones, a time of day becomes its text,
    and a struct without fields becomes the text ``{}``.
    """
    if types.is_struct(has):
        if not has.num_fields:
            return pa.string()
        return pa.struct([pa.field(each.name, spark_type(each.type)) for each in has])
    if types.is_list(has):
        return pa.list_(pa.field("element", spark_type(has.value_type)))
    if types.is_map(has):
        return pa.map_(spark_type(has.key_type), spark_type(has.item_type))
    if types.is_fixed_size_binary(has):
        return pa.binary()
    if types.is_time(has):
        return pa.string()
    if types.is_timestamp(has):
        return pa.timestamp("us", None if has.tz is None else "UTC")
    return _DIRECT.get(has, has)


def converter(  # noqa: PLR0911  # The same.
    has: Any, wanted: Any, *, allows_missing: bool, path: str = "value"
) -> Converter:
    """
    Return a function that converts arrays of the type *has* to the type *wanted*.

    It drops fields that *wanted* does not have.  With *allows_missing* fields that
    *has* does not have become null.

    Raises:
        InvalidRequest: The types are incompatible; the message says where and why.
    """
    if has.equals(wanted, check_metadata=True):
        return lambda array: array
    if types.is_null(has):
        return partial(_nulls, wanted)
    if types.is_struct(has) and types.is_struct(wanted):
        return _struct_converter(has, wanted, allows_missing=allows_missing, path=path)
    if types.is_list(has) and types.is_list(wanted):
        inner = converter(
            has.value_type,
            wanted.value_type,
            allows_missing=allows_missing,
            path=f"{path}[]",
        )
        return partial(_convert_list, inner, wanted)
    if types.is_map(has) and types.is_map(wanted):
        keys, items = (
            converter(inner, outer, allows_missing=allows_missing, path=f"{path}{{}}")
            for inner, outer in (
                (has.key_type, wanted.key_type),
                (has.item_type, wanted.item_type),
            )
        )
        return partial(_convert_map, keys, items, wanted)
    if types.is_struct(has) and not has.num_fields and wanted == pa.string():
        missing = pa.scalar(None, pa.string())
        return lambda array: pc.if_else(array.is_null(), missing, "{}")
    if _may_cast(has, wanted):
        # Reading an integer as a float may round it.
        is_safe = not types.is_floating(wanted)
        return lambda array: array.cast(wanted, safe=is_safe)
    raise InvalidRequest(f"{path} is of type {has} and cannot be read as {wanted}")


def _may_cast(has: Any, wanted: Any) -> bool:
    plain = spark_type(has)
    if plain == wanted:
        return True
    if _is_number(has) and _is_number(wanted):
        return True
    if types.is_decimal(has) and types.is_decimal(wanted):
        return True
    if types.is_timestamp(has) and types.is_timestamp(wanted):
        return bool((has.tz is None) == (wanted.tz is None))
    texts = (pa.string(), pa.binary())
    return plain in texts and wanted in texts


def _is_number(has: Any) -> bool:
    return bool(types.is_integer(has) or types.is_floating(has))


def _struct_converter(
    has: Any, wanted: Any, *, allows_missing: bool, path: str
) -> Converter:
    names = [field.name for field in has]
    parts: list[tuple[int, Converter]] = []
    for field in wanted:
        where = f"{path}.{field.name}"
        if field.name in names:
            at = names.index(field.name)
            convert = converter(
                has[at].type, field.type, allows_missing=allows_missing, path=where
            )
            parts.append((at, convert))
        elif allows_missing:
            parts.append((-1, partial(_nulls, field.type)))
        else:
            raise InvalidRequest(
                f"there is no {where}; {path} has {', '.join(names) or 'no fields'}"
            )
    return partial(_convert_struct, parts, wanted)


def _convert_struct(parts: list[tuple[int, Converter]], wanted: Any, array: Any) -> Any:
    columns = [convert(array if at < 0 else array.field(at)) for at, convert in parts]
    return pa.StructArray.from_arrays(
        columns, fields=list(wanted), mask=array.is_null()
    )


def _convert_list(convert: Converter, wanted: Any, array: Any) -> Any:
    array = _from_zero(array)
    return pa.ListArray.from_arrays(
        array.offsets, convert(array.values), type=wanted, mask=array.is_null()
    )


def _convert_map(
    convert_keys: Converter, convert_items: Converter, wanted: Any, array: Any
) -> Any:
    array = _from_zero(array)
    return pa.MapArray.from_arrays(
        array.offsets,
        convert_keys(array.keys),
        convert_items(array.items),
        type=wanted,
        mask=array.is_null(),
    )


def _from_zero(array: Any) -> Any:
    """Copy *array* if it has an offset, with which Arrow does not take null masks."""
    if not array.offset:
        return array
    return array.take(pa.array(range(len(array)), pa.int64()))


def _nulls(wanted: Any, array: Any) -> Any:
    return pa.nulls(len(array), wanted)
