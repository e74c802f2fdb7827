"""Protobuf messages as Python values and as Arrow columns."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from google.protobuf import json_format, struct_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor import FieldDescriptor as Type

from pydanube.model.positions import to_datetime
from pydanube.schemas.language import Column, Convert, PartCounter, TooManyParts

_TIMESTAMP = "google.protobuf.Timestamp"
_JSON, _WRAPPERS = (
    {each.full_name for each in file.message_types_by_name.values()}
    for file in (struct_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
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
    if name == _TIMESTAMP:
        return Column(pa.timestamp("us", tz="UTC"), _to_datetime)
    if name in _WRAPPERS:
        return Column(_SCALARS[message.fields_by_name["value"].type], _unwrap)
    if name in _JSON or name in inside:
        return _JSON_TEXT
    columns = [
        _field_column(field, (*inside, name), written, parts)
        for field in message.fields
    ]
    named = zip(message.fields, columns, strict=True)
    return Column(
        pa.struct([pa.field(field.name, column.type) for field, column in named]),
        _dict_converter(message, [column.convert for column in columns]),
    )


def _field_column(
    field: FieldDescriptor,
    inside: tuple[str, ...],
    written: Descriptor | None,
    parts: PartCounter,
) -> Column:
    parts.add(len(inside))
    other = _field_of(written, field.number)
    if _is_map(field):
        assert field.message_type is not None
        key, value = (field.message_type.fields_by_number[number] for number in (1, 2))
        inner = _field_of(None if other is None else other.message_type, value.number)
        values, convert = _single_column(value, inside, inner, parts)
        arrow_type = pa.map_(_SCALARS[key.type], values)
        convert = partial(_to_pairs, convert)
    else:
        arrow_type, convert = _single_column(field, inside, other, parts)
        if field.is_repeated:
            arrow_type, convert = pa.list_(arrow_type), partial(_to_list, convert)
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
        return Column(_SCALARS[field.type], _enum_names(field))
    inner = None if written is None else written.message_type
    return _message_column(field.message_type, inside, inner, parts)


def _field_of(message: Descriptor | None, number: int) -> FieldDescriptor | None:
    return None if message is None else message.fields_by_number.get(number)


def plain_values_of(message: Descriptor) -> Convert:
    """
    Return a function that converts a message into a dict by the fields' names.

    A field without presence that is absent has its default; other absent fields are
    None.
    """
    return partial(_PlainValues().convert, message)


class _PlainValues:
    """
    A converter of messages into plain values.

    The functions for a type of message are made once, when it first occurs: a schema
    may refer to types that expand without end.
    """

    def __init__(self) -> None:
        self._known: dict[str, Convert] = {
            _TIMESTAMP: _to_datetime,
            **dict.fromkeys(_JSON, json_format.MessageToDict),
            **dict.fromkeys(_WRAPPERS, _unwrap),
        }

    def convert(self, message: Descriptor, value: Any) -> Any:
        name = message.full_name
        convert = self._known.get(name)
        if convert is None:
            converters = [self._of_field(field) for field in message.fields]
            convert = self._known[name] = _dict_converter(message, converters)
        return convert(value)

    def _of_field(self, field: FieldDescriptor) -> Convert | None:
        if _is_map(field):
            assert field.message_type is not None
            value = field.message_type.fields_by_name["value"]
            return partial(_to_map, self._of_single(value))
        convert = self._of_single(field)
        return partial(_to_list, convert) if field.is_repeated else convert

    def _of_single(self, field: FieldDescriptor) -> Convert | None:
        if field.message_type is not None:
            return partial(self.convert, field.message_type)
        return _enum_names(field)


def _enum_names(field: FieldDescriptor) -> Convert | None:
    if field.enum_type is None:
        return None
    names = {value.number: value.name for value in field.enum_type.values}
    return lambda number: names.get(number, str(number))


def _dict_converter(message: Descriptor, converters: list[Convert | None]) -> Convert:
    fields = [
        (field.name, field.has_presence and not field.is_repeated, convert)
        for field, convert in zip(message.fields, converters, strict=True)
    ]
    return partial(_to_dict, fields)


def _to_dict(
    fields: list[tuple[str, bool, Convert | None]], message: Any
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, has_presence, convert in fields:
        if has_presence and not message.HasField(name):
            values[name] = None
            continue
        value = getattr(message, name)
        values[name] = value if convert is None else convert(value)
    return values


def _to_list(convert: Convert | None, values: Any) -> list[Any]:
    return list(values) if convert is None else [convert(each) for each in values]


def _to_map(convert: Convert | None, values: Any) -> dict[Any, Any]:
    if convert is None:
        return dict(values)
    return {key: convert(value) for key, value in values.items()}


def _to_pairs(convert: Convert | None, values: Any) -> list[tuple[Any, Any]]:
    return list(_to_map(convert, values).items())


def _to_datetime(message: Any) -> datetime:
    return to_datetime(message.seconds * 1_000_000 + message.nanos // 1000)


def _to_json_text(message: Any) -> str:
    value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return msgspec.json.encode(value).decode()


def _to_nothing(_value: Any) -> None:
    return None


def _unwrap(message: Any) -> Any:
    return message.value


def _is_map(field: FieldDescriptor) -> bool:
    return (
        field.message_type is not None
        and field.is_repeated
        and field.message_type.GetOptions().map_entry
    )


_JSON_TEXT = Column(pa.string(), _to_json_text)
