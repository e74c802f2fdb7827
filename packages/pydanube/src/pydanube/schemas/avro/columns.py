"""Avro types as Arrow types, for columns of decoded values."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from pydanube.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
)
from pydanube.schemas.language import (
    Column,
    Convert,
    PartCounter,
    TooManyParts,
    convert_fields,
    convert_items,
)

DECIMAL_DIGITS_MAX = 38

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def column_of(
    avro_type: AvroType,
    inside: tuple[Record, ...] = (),
    parts: PartCounter | None = None,
) -> Column:
    """
    Return the column of values of *avro_type*, which is in the records *inside*.

    A union of null and one type has that type.  Other unions, a record inside itself,
    and a record that expands to more than ``PARTS_MAX`` parts or ``DEPTH_MAX`` nested
    records, become JSON text.
    """
    if parts is not None:
        parts.add(len(inside))
    match avro_type:
        case Primitive(name, logical):
            return _scalar(logical, _PRIMITIVES[name])
        case Fixed(size=size, logical=logical):
            return _scalar(logical, pa.binary(size))
        case Enum():
            return Column(pa.string())
        case Array(items):
            item, convert = column_of(items, inside, parts)
            if convert is not None:
                convert = partial(convert_items, convert)
            return Column(pa.list_(item), convert)
        case Map(values):
            value, convert = column_of(values, inside, parts)
            return Column(pa.map_(pa.string(), value), partial(_convert_map, convert))
        case Union():
            alone = _only_branch(avro_type)
            return _JSON_TEXT if alone is None else column_of(alone, inside, parts)
        case Record():
            if avro_type in inside:
                return _JSON_TEXT
            if parts is not None:
                return _struct(avro_type, inside, parts)
            try:
                return _struct(avro_type, inside, PartCounter())
            except TooManyParts:
                return _JSON_TEXT


def _struct(record: Record, inside: tuple[Record, ...], parts: PartCounter) -> Column:
    columns = {
        each.name: column_of(each.type, (*inside, record), parts)
        for each in record.fields
    }
    converters = {
        name: column.convert
        for name, column in columns.items()
        if column.convert is not None
    }
    return Column(
        pa.struct([pa.field(name, column.type) for name, column in columns.items()]),
        partial(convert_fields, converters) if converters else None,
    )


def _scalar(logical: Logical | None, plain: pa.DataType) -> Column:
    if logical is None:
        return Column(plain)
    arrow_type = _LOGICAL.get(logical.name, plain)
    if logical.name == "decimal":
        is_long = (logical.precision or 0) > DECIMAL_DIGITS_MAX
        arrow_type = (
            pa.string() if is_long else pa.decimal128(logical.precision, logical.scale)
        )
    return Column(arrow_type, str if arrow_type == pa.string() else None)


def _only_branch(union: Union) -> AvroType | None:
    """Return the branch that is not null, if there is exactly one."""
    branches = [each for each in union.branches if each != Primitive("null")]
    if not branches:
        return Primitive("null")
    return branches[0] if len(branches) == 1 else None


def _convert_map(convert: Convert | None, value: dict[str, Any]) -> list[Any]:
    if convert is None:
        return list(value.items())
    return [
        (key, None if each is None else convert(each)) for key, each in value.items()
    ]


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_JSON_TEXT = Column(pa.string(), _to_json)
