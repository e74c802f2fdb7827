"""Protobuf messages as Python values and as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Type

from pydanube.schemas.format import PARTS_MAX

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Extract = Callable[[Any], Any]
"""A message, or a value of a field, to a plain Python value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = "google.protobuf.Timestamp"
_JSON = {
    "google.protobuf.Struct",
    "google.protobuf.Value",
    "google.protobuf.ListValue",
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32"),
        *("Bool", "String", "Bytes"),
    )
}
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


def arrow_type_of(message: Descriptor, inside: tuple[str, ...] = ()) -> pa.DataType:
    """
    The Arrow type of a column of *message*.

    A message inside itself, one that unfolds to more than ``PARTS_MAX`` parts, and
    the JSON types become JSON text; an enum becomes the names of its values.
    """
    name = message.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if name in _JSON or name in inside or _is_endless(message, inside):
        return pa.string()
    if name in _WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    return pa.struct(
        [
            pa.field(field.name, _field_type(field, (*inside, name)))
            for field in message.fields
        ]
    )


def _is_endless(message: Descriptor, inside: tuple[str, ...]) -> bool:
    """Whether *message*, the outermost, has too many parts for a column."""
    return not inside and _unfolded(message, {}) > PARTS_MAX


def _unfolded(message: Descriptor, known: dict[str, int]) -> int:
    """How many parts a message has when every name is what it stands for."""
    name = message.full_name
    if name not in known:
        known[name] = 1
        known[name] = sum(
            1 if field.message_type is None else _unfolded(field.message_type, known)
            for field in message.fields
        )
    return known[name]


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        assert field.message_type is not None
        entry = field.message_type.fields_by_name
        key, value = (_single_type(entry[each], inside) for each in ("key", "value"))
        return pa.map_(key, value)
    single = _single_type(field, inside)
    return pa.list_(single) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return arrow_type_of(field.message_type, inside)
    return _SCALARS[field.type]


def extractor_of(
    message: Descriptor,
    *,
    is_column: bool,
    inside: tuple[str, ...] = (),
    written: Descriptor | None = None,
) -> Extract:
    """
    What makes a message a plain value: a dict by the fields' names.

    What a field does not tell from being left out is its default, the rest is None.
    With *is_column* the values are those of ``arrow_type_of``.  A field that
    *written*, the message as its writer knew it, does not have is None.
    """
    name = message.full_name
    if name == _TIMESTAMP:
        return _to_datetime
    if name in _JSON:
        return _to_json_text if is_column else json_format.MessageToDict
    if name in _WRAPPERS:
        return _unwrap
    if is_column and (name in inside or _is_endless(message, inside)):
        return _to_json_text
    if name in inside:
        # Made when it is needed: the type has no end.
        return partial(_extract_later, message)
    extracts = tuple(
        (
            field.name,
            field.has_presence and not field.is_repeated,
            _field_extractor(
                field, is_column=is_column, inside=(*inside, name), written=written
            ),
        )
        for field in message.fields
    )
    return partial(_to_dict, extracts)


def _extract_later(message: Descriptor, value: Any) -> Any:
    return extractor_of(message, is_column=False)(value)


def _field_extractor(
    field: FieldDescriptor,
    *,
    is_column: bool,
    inside: tuple[str, ...],
    written: Descriptor | None,
) -> Extract | None:
    """What a field's value goes through; None: it is plain already."""
    inner = _written_as(field, written)
    if written is not None and inner is None:
        return _to_nothing
    if _is_map(field):
        assert field.message_type is not None
        value = field.message_type.fields_by_name["value"]
        inner = _written_as(value, None if inner is None else inner.message_type)
        extract = _single_extractor(value, inner, is_column=is_column, inside=inside)
        return partial(_to_pairs if is_column else _to_map, extract)
    extract = _single_extractor(field, inner, is_column=is_column, inside=inside)
    return partial(_to_list, extract) if field.is_repeated else extract


def _written_as(
    field: FieldDescriptor, written: Descriptor | None
) -> FieldDescriptor | None:
    return None if written is None else written.fields_by_number.get(field.number)


def _single_extractor(
    field: FieldDescriptor,
    written: FieldDescriptor | None,
    *,
    is_column: bool,
    inside: tuple[str, ...],
) -> Extract | None:
    if field.message_type is not None:
        return extractor_of(
            field.message_type,
            is_column=is_column,
            inside=inside,
            written=None if written is None else written.message_type,
        )
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    return None


def _to_dict(extracts: Any, message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, has_presence, extract in extracts:
        if has_presence and not message.HasField(name):
            values[name] = None
            continue
        value = getattr(message, name)
        values[name] = value if extract is None else extract(value)
    return values


def _to_list(extract: Extract | None, values: Any) -> list[Any]:
    return list(values) if extract is None else [extract(each) for each in values]


def _to_map(extract: Extract | None, values: Any) -> dict[Any, Any]:
    if extract is None:
        return dict(values)
    return {key: extract(value) for key, value in values.items()}


def _to_pairs(extract: Extract | None, values: Any) -> list[tuple[Any, Any]]:
    return list(_to_map(extract, values).items())


def _to_datetime(message: Any) -> datetime:
    return _EPOCH + timedelta(
        seconds=message.seconds, microseconds=message.nanos // 1000
    )


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
