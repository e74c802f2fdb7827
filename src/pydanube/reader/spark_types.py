"""
Arrow columns as Spark has them: which type a column becomes, and how its values do.

Spark has fewer types than Arrow, and takes columns of exactly the type that the plan
says; that may have fewer fields than the values, or more, or wider ones.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest

Fit = Callable[[Any], Any]
"""An array of one type to one of another; raises ArrowInvalid if a value is too big."""

_DIRECT: dict[Any, Any] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    # A column of Spark's void cannot be written anywhere.
    pa.null(): pa.string(),
}


def spark_type(has: Any) -> Any:  # noqa: PLR0911  # One for each kind of type.
    """
    The Arrow type of Spark's column for values of the type *has*.

    Unsigned numbers become the next larger signed ones, a time of day its text, and a
    struct without fields the text ``{}``.
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


def fitter(  # noqa: PLR0911  # The same.
    has: Any, wanted: Any, *, may_lack: bool, path: str = "value"
) -> Fit:
    """
    What makes arrays of the type *has* arrays of the type *wanted*.

    Fields that are not wanted are left out.  With *may_lack* those that are not
    there are null.

    Raises:
        InvalidRequest: That cannot be; the message says where and why.
    """
    if has.equals(wanted, check_metadata=True):
        return _same
    if types.is_null(has):
        return partial(_nulls, wanted)
    if types.is_struct(has) and types.is_struct(wanted):
        return _struct_fitter(has, wanted, may_lack=may_lack, path=path)
    if types.is_list(has) and types.is_list(wanted):
        inner = fitter(
            has.value_type, wanted.value_type, may_lack=may_lack, path=f"{path}[]"
        )
        return partial(_fit_list, inner, wanted)
    if types.is_map(has) and types.is_map(wanted):
        keys, items = (
            fitter(inner, outer, may_lack=may_lack, path=f"{path}{{}}")
            for inner, outer in (
                (has.key_type, wanted.key_type),
                (has.item_type, wanted.item_type),
            )
        )
        return partial(_fit_map, keys, items, wanted)
    if types.is_struct(has) and not has.num_fields and wanted == pa.string():
        return _fit_empty
    if _may_cast(has, wanted):
        # Whoever reads an integer as a float accepts that it is rounded.
        is_safe = not types.is_floating(wanted)
        return lambda array: array.cast(wanted, safe=is_safe)
    raise InvalidRequest(f"{path} is {has} and cannot be read as {wanted}")


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


def _struct_fitter(has: Any, wanted: Any, *, may_lack: bool, path: str) -> Fit:
    names = [field.name for field in has]
    parts: list[tuple[int, Fit]] = []
    for field in wanted:
        where = f"{path}.{field.name}"
        if field.name in names:
            at = names.index(field.name)
            fit = fitter(has[at].type, field.type, may_lack=may_lack, path=where)
            parts.append((at, fit))
        elif may_lack:
            parts.append((-1, partial(_nulls, field.type)))
        else:
            raise InvalidRequest(
                f"there is no {where}; {path} has {', '.join(names) or 'no fields'}"
            )
    return partial(_fit_struct, parts, wanted)


def _fit_struct(parts: list[tuple[int, Fit]], wanted: Any, array: Any) -> Any:
    columns = [fit(array if at < 0 else array.field(at)) for at, fit in parts]
    return pa.StructArray.from_arrays(
        columns, fields=list(wanted), mask=array.is_null()
    )


def _fit_list(fit: Fit, wanted: Any, array: Any) -> Any:
    array = _from_zero(array)
    return pa.ListArray.from_arrays(
        array.offsets, fit(array.values), type=wanted, mask=array.is_null()
    )


def _fit_map(fit_keys: Fit, fit_items: Fit, wanted: Any, array: Any) -> Any:
    array = _from_zero(array)
    return pa.MapArray.from_arrays(
        array.offsets,
        fit_keys(array.keys),
        fit_items(array.items),
        type=wanted,
        mask=array.is_null(),
    )


def _from_zero(array: Any) -> Any:
    """*array* without what lies before it: Arrow takes no nulls with other offsets."""
    if not array.offset:
        return array
    return array.take(pa.array(range(len(array)), pa.int64()))


def _fit_empty(array: Any) -> Any:
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), "{}")


def _nulls(wanted: Any, array: Any) -> Any:
    return pa.nulls(len(array), wanted)


def _same(array: Any) -> Any:
    return array
