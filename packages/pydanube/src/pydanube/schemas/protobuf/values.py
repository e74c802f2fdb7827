"""Protobuf messages as Python values."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from google.protobuf import json_format, struct_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pydanube.model.positions import to_datetime
from pydanube.schemas.language import Convert

TIMESTAMP = "google.protobuf.Timestamp"
JSON, WRAPPERS = (
    {each.full_name for each in file.message_types_by_name.values()}
    for file in (struct_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
)


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
            TIMESTAMP: timestamp_value,
            **dict.fromkeys(JSON, json_format.MessageToDict),
            **dict.fromkeys(WRAPPERS, unwrap),
        }

    def convert(self, message: Descriptor, value: Any) -> Any:
        name = message.full_name
        convert = self._known.get(name)
        if convert is None:
            converters = [self._of_field(field) for field in message.fields]
            convert = self._known[name] = dict_converter(message, converters)
        return convert(value)

    def _of_field(self, field: FieldDescriptor) -> Convert | None:
        if is_map(field):
            assert field.message_type is not None
            value = field.message_type.fields_by_name["value"]
            return partial(to_map, self._of_single(value))
        convert = self._of_single(field)
        return partial(to_list, convert) if field.is_repeated else convert

    def _of_single(self, field: FieldDescriptor) -> Convert | None:
        if field.message_type is not None:
            return partial(self.convert, field.message_type)
        return enum_names(field)


def enum_names(field: FieldDescriptor) -> Convert | None:
    if field.enum_type is None:
        return None
    names = {value.number: value.name for value in field.enum_type.values}
    return lambda number: names.get(number, str(number))


def dict_converter(message: Descriptor, converters: list[Convert | None]) -> Convert:
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


def to_list(convert: Convert | None, values: Any) -> list[Any]:
    return list(values) if convert is None else [convert(each) for each in values]


def to_map(convert: Convert | None, values: Any) -> dict[Any, Any]:
    if convert is None:
        return dict(values)
    return {key: convert(value) for key, value in values.items()}


def timestamp_value(message: Any) -> datetime:
    return to_datetime(message.seconds * 1_000_000 + message.nanos // 1000)


def unwrap(message: Any) -> Any:
    return message.value


def is_map(field: FieldDescriptor) -> bool:
    return (
        field.message_type is not None
        and field.is_repeated
        and field.message_type.GetOptions().map_entry
    )
