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

from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Extract = Callable[[Any], Any]
"""Converts a message, or a value of a field, into a plain Python value."""

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
    Return the Arrow type of a column of *message*.

    A message inside itself, a message that expands to more than ``PARTS_MAX`` parts or
    ``DEPTH_MAX`` nested messages, and the JSON types become JSON text; an enum becomes
    the names of its values.
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
    """Return whether *message*, the outermost, has too many parts for a column."""
    if inside:
        return False
    parts = 0
    pending: list[tuple[Descriptor, tuple[str, ...]]] = [(message, ())]
    while pending:
        found, around = pending.pop()
        parts += len(found.fields)
        if found.full_name in around or found.full_name in _JSON:
            continue
        around = (*around, found.full_name)
        if parts > PARTS_MAX or len(around) > DEPTH_MAX:
            return True
        pending += [
            (field.message_type, around)
            for field in found.fields
            if field.message_type is not None
        ]
    return False


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
    Return a function that converts a message into a dict by the fields' names.

    A field without presence that is absent has its default; other absent fields are
    None.  With *is_column* the values are those of ``arrow_type_of``.  Fields that
    *written*, the writer's message, does not have are None.
    """
    if not is_column:
        return partial(_PlainValues().extract, message)
    name = message.full_name
    known = _well_known(name, is_column=True)
    if known is not None:
        return known
    if name in inside or _is_endless(message, inside):
        return _to_json_text
    extracts = tuple(
        (
            field.name,
            field.has_presence and not field.is_repeated,
            _field_extractor(field, inside=(*inside, name), written=written),
        )
        for field in message.fields
    )
    return partial(_to_dict, extracts)


class _PlainValues:
    """
    A converter of messages into plain values.

    The functions for a type of message are made once, when it first occurs: a schema
    may refer to types that expand without end.
    """

    def __init__(self) -> None:
        self._known: dict[str, Extract] = {}

    def extract(self, message: Descriptor, value: Any) -> Any:
        """Return the plain value of *value*, which is a *message*."""
        name = message.full_name
        extract = self._known.get(name)
        if extract is None:
            extract = self._known[name] = self._prepare(message)
        return extract(value)

    def _prepare(self, message: Descriptor) -> Extract:
        known = _well_known(message.full_name, is_column=False)
        if known is not None:
            return known
        return partial(
            _to_dict,
            tuple(
                (
                    field.name,
                    field.has_presence and not field.is_repeated,
                    self._of_field(field),
                )
                for field in message.fields
            ),
        )

    def _of_field(self, field: FieldDescriptor) -> Extract | None:
        if _is_map(field):
            assert field.message_type is not None
            value = field.message_type.fields_by_name["value"]
            return partial(_to_map, self._of_single(value))
        extract = self._of_single(field)
        return partial(_to_list, extract) if field.is_repeated else extract

    def _of_single(self, field: FieldDescriptor) -> Extract | None:
        if field.message_type is not None:
            return partial(self.extract, field.message_type)
        return _enum_extractor(field)


def _well_known(name: str, *, is_column: bool) -> Extract | None:
    """Return the function for a well-known type; None for other types."""
    if name == _TIMESTAMP:
        return _to_datetime
    if name in _JSON:
        return _to_json_text if is_column else json_format.MessageToDict
    return _unwrap if name in _WRAPPERS else None


def _field_extractor(
    field: FieldDescriptor, *, inside: tuple[str, ...], written: Descriptor | None
) -> Extract | None:
    """
    Return the function for a field of a column; None if its value is plain already.
    """
    inner = _written_as(field, written)
    if written is not None and inner is None:
        return _to_nothing
    if _is_map(field):
        assert field.message_type is not None
        value = field.message_type.fields_by_name["value"]
        inner = _written_as(value, None if inner is None else inner.message_type)
        return partial(_to_pairs, _single_extractor(value, inner, inside=inside))
    extract = _single_extractor(field, inner, inside=inside)
    return partial(_to_list, extract) if field.is_repeated else extract


def _written_as(
    field: FieldDescriptor, written: Descriptor | None
) -> FieldDescriptor | None:
    return None if written is None else written.fields_by_number.get(field.number)


def _single_extractor(
    field: FieldDescriptor,
    written: FieldDescriptor | None,
    *,
    inside: tuple[str, ...],
) -> Extract | None:
    if field.message_type is not None:
        return extractor_of(
            field.message_type,
            is_column=True,
            inside=inside,
            written=None if written is None else written.message_type,
        )
    return _enum_extractor(field)


def _enum_extractor(field: FieldDescriptor) -> Extract | None:
    if field.enum_type is None:
        return None
    names = {value.number: value.name for value in field.enum_type.values}
    return lambda number: names.get(number, str(number))


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
