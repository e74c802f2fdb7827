"""Protobuf messages as Arrow columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor import FieldDescriptor as Type

from pydanube.schemas.language import Column, Convert, PartCounter, TooManyParts
from pydanube.schemas.protobuf.values import (
    JSON,
    TIMESTAMP,
    WRAPPERS,
    dict_converter,
    enum_names,
    is_map,
    timestamp_value,
    to_list,
    to_map,
    unwrap,
)

_SCALARS = {
    Type.TYPE_DOUBLE: pa.float64(),
    Type.TYPE_FLOAT: pa.float32(),
    Type.TYPE_INT64: pa.int64(),
    Type.TYPE_SINT64: pa.int64(),
    Type.TYPE_SFIXED64: pa.int64(),
    Type.TYPE_UINT64: pa.uint64(),
    Type.TYPE_FIXED64: pa.uint64(),
    Type.TYPE_INT32: pa.int32(),
    Type.TYPE_SINT32: pa.int32(),
    Type.TYPE_SFIXED32: pa.int32(),
    Type.TYPE_UINT32: pa.uint32(),
    Type.TYPE_FIXED32: pa.uint32(),
    Type.TYPE_BOOL: pa.bool_(),
    Type.TYPE_STRING: pa.string(),
    Type.TYPE_BYTES: pa.binary(),
    Type.TYPE_ENUM: pa.string(),
}


def column_of(message: Descriptor, written: Descriptor | None = None) -> Column:
    """
    Return the column of values of *message*.

    A message inside itself, a message that expands to more than ``PARTS_MAX`` parts or
    ``DEPTH_MAX`` nested messages, and the JSON types become JSON text; an enum becomes
    the names of its values.  Absent fields are as for ``plain_values_of``; fields that
    *written*, the writer's message, does not have are None.
    """
    try:
        return _message_column(message, (), written, PartCounter())
    except TooManyParts:
        return _JSON_TEXT


def _message_column(
    message: Descriptor,
    inside: tuple[str, ...],
    written: Descriptor | None,
    parts: PartCounter,
) -> Column:
    name = message.full_name
    if name == TIMESTAMP:
        return Column(pa.timestamp("us", tz="UTC"), timestamp_value)
    if name in WRAPPERS:
        return Column(_SCALARS[message.fields_by_name["value"].type], unwrap)
    if name in JSON or name in inside:
        return _JSON_TEXT
    columns = [
        _field_column(field, (*inside, name), written, parts)
        for field in message.fields
    ]
    named = zip(message.fields, columns, strict=True)
    return Column(
        pa.struct([pa.field(field.name, column.type) for field, column in named]),
        dict_converter(message, [column.convert for column in columns]),
    )


def _field_column(
    field: FieldDescriptor,
    inside: tuple[str, ...],
    written: Descriptor | None,
    parts: PartCounter,
) -> Column:
    parts.add(len(inside))
    other = _field_of(written, field.number)
    if is_map(field):
        assert field.message_type is not None
        key, value = (field.message_type.fields_by_number[number] for number in (1, 2))
        inner = _field_of(None if other is None else other.message_type, value.number)
        values, convert = _single_column(value, inside, inner, parts)
        arrow_type = pa.map_(_SCALARS[key.type], values)
        convert = partial(_to_pairs, convert)
    else:
        arrow_type, convert = _single_column(field, inside, other, parts)
        if field.is_repeated:
            arrow_type, convert = pa.list_(arrow_type), partial(to_list, convert)
    if written is not None and other is None:
        convert = _to_nothing
    return Column(arrow_type, convert)


def _single_column(
    field: FieldDescriptor,
    inside: tuple[str, ...],
    written: FieldDescriptor | None,
    parts: PartCounter,
) -> Column:
    if field.message_type is None:
        return Column(_SCALARS[field.type], enum_names(field))
    inner = None if written is None else written.message_type
    return _message_column(field.message_type, inside, inner, parts)


def _field_of(message: Descriptor | None, number: int) -> FieldDescriptor | None:
    return None if message is None else message.fields_by_number.get(number)


def _to_pairs(convert: Convert | None, values: Any) -> list[tuple[Any, Any]]:
    return list(to_map(convert, values).items())


def _to_json_text(message: Any) -> str:
    value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return msgspec.json.encode(value).decode()


def _to_nothing(_value: Any) -> None:
    return None


_JSON_TEXT = Column(pa.string(), _to_json_text)
