"""Avro types as Arrow types, for columns of decoded values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
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
from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX

Convert = Callable[[Any], Any]

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


def arrow_type_of(avro_type: AvroType, inside: tuple[Record, ...] = ()) -> pa.DataType:
    """
    Return the Arrow type of a column of *avro_type*.

    A union of null and one type has that type.  Other unions, a record inside itself,
    and a record that expands to more than ``PARTS_MAX`` parts or ``DEPTH_MAX`` nested
    records, become JSON text.
    """
    match avro_type:
        case Primitive(name, logical):
            return _scalar(logical, _PRIMITIVES[name])
        case Fixed(size=size, logical=logical):
            return _scalar(logical, pa.binary(size))
        case Enum():
            return pa.string()
        case Array(items):
            return pa.list_(arrow_type_of(items, inside))
        case Map(values):
            return pa.map_(pa.string(), arrow_type_of(values, inside))
        case Union():
            alone = _only_branch(avro_type)
            return pa.string() if alone is None else arrow_type_of(alone, inside)
        case Record(fields=fields):
            if avro_type in inside or _is_endless(avro_type, inside):
                return pa.string()
            return pa.struct(
                [
                    pa.field(each.name, arrow_type_of(each.type, (*inside, avro_type)))
                    for each in fields
                ]
            )


def converter_of(
    avro_type: AvroType, inside: tuple[Record, ...] = ()
) -> Convert | None:
    """
    Return a function that converts decoded values for Arrow; None if none is needed.
    """
    match avro_type:
        case Primitive(_, logical) | Fixed(logical=logical):
            return str if arrow_type_of(avro_type) == pa.string() and logical else None
        case Enum():
            return None
        case Array(items):
            convert = converter_of(items, inside)
            return None if convert is None else partial(_convert_list, convert)
        case Map(values):
            return partial(_convert_map, converter_of(values, inside))
        case Union():
            alone = _only_branch(avro_type)
            return _to_json if alone is None else converter_of(alone, inside)
        case Record(fields=fields):
            if avro_type in inside or _is_endless(avro_type, inside):
                return _to_json
            converters = {
                each.name: convert
                for each in fields
                if (convert := converter_of(each.type, (*inside, avro_type)))
                is not None
            }
            return partial(_convert_record, converters) if converters else None


def _is_endless(record: Record, inside: tuple[Record, ...]) -> bool:
    """Return whether *record*, an outermost one, has too many parts for a column."""
    if inside:
        return False
    parts = 0
    pending: list[tuple[AvroType, tuple[Record, ...]]] = [(record, ())]
    while pending:
        avro_type, around = pending.pop()
        parts += 1
        match avro_type:
            case Array(inner) | Map(inner):
                pending.append((inner, around))
            case Union():
                alone = _only_branch(avro_type)
                if alone is not None:
                    pending.append((alone, around))
            case Record(fields=fields) if avro_type not in around:
                around = (*around, avro_type)
                pending += [(each.type, around) for each in fields]
        if parts > PARTS_MAX or len(around) > DEPTH_MAX:
            return True
    return False


def _scalar(logical: Logical | None, plain: pa.DataType) -> pa.DataType:
    if logical is None:
        return plain
    if logical.name == "decimal":
        if (logical.precision or 0) > DECIMAL_DIGITS_MAX:
            return pa.string()
        return pa.decimal128(logical.precision, logical.scale)
    return _LOGICAL.get(logical.name, plain)


def _only_branch(union: Union) -> AvroType | None:
    """Return the branch that is not null, if there is exactly one."""
    branches = [each for each in union.branches if each != Primitive("null")]
    if not branches:
        return Primitive("null")
    return branches[0] if len(branches) == 1 else None


def _convert_list(convert: Convert, value: list[Any]) -> list[Any]:
    return [None if each is None else convert(each) for each in value]


def _convert_map(convert: Convert | None, value: dict[str, Any]) -> list[Any]:
    if convert is None:
        return list(value.items())
    return [
        (key, None if each is None else convert(each)) for key, each in value.items()
    ]


def _convert_record(
    converters: dict[str, Convert], value: dict[str, Any]
) -> dict[str, Any]:
    converted = dict(value)
    for name, convert in converters.items():
        if converted[name] is not None:
            converted[name] = convert(converted[name])
    return converted


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal | date | datetime | time):
        return str(value)
    return repr(value)
