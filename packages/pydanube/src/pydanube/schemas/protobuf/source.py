"""Generation of ``.proto`` text from descriptors."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import DecodeError

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.protobuf.comparison import TYPE_NAMES

_WELL_KNOWN = "google/protobuf/"
_NUMBER_MAX = 536_870_911
"""The last number of a range of field numbers without an upper limit."""


def source_of_descriptor(data: bytes, names: Container[str] = ()) -> str:
    """
    Return the ``.proto`` text of a serialized ``FileDescriptorProto``.

    Raises:
        InvalidSchema: It is none, or as ``source_of``.
    """
    try:
        return source_of(FileDescriptorProto.FromString(data), names)
    except DecodeError:
        raise InvalidSchema("the schema is neither text nor a descriptor") from None


def source_of(
    file: FileDescriptor | FileDescriptorProto, names: Container[str] = ()
) -> str:
    """
    Return the ``.proto`` text of *file*: its messages and enums, without services.

    Raises:
        InvalidSchema: It imports files other than the well-known types and those with
            *names*, or has groups or an edition, which are not supported.
    """
    if isinstance(file, FileDescriptorProto):
        proto = file
    else:
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
    if proto.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchema(
            f"{proto.name} uses an edition, which is not supported; "
            "use proto2 or proto3"
        )
    for name in proto.dependency:
        if not name.startswith(_WELL_KNOWN) and name not in names:
            raise InvalidSchema(
                f"{proto.name} imports {name}; only the well-known types in "
                f"{_WELL_KNOWN.rstrip('/')} can be imported, and files that it refers "
                "to"
            )
    is_proto3 = proto.syntax == "proto3"
    lines = [f'syntax = "{"proto3" if is_proto3 else "proto2"}";', ""]
    if proto.package:
        lines += [f"package {proto.package};", ""]
    if proto.dependency:
        public = {proto.dependency[index] for index in proto.public_dependency}
        lines += [
            f'import {"public " if name in public else ""}"{name}";'
            for name in proto.dependency
        ]
        lines.append("")
    for enum in proto.enum_type:
        lines += [*_enum_lines(enum), ""]
    for message in proto.message_type:
        lines += [*_message_lines(message, is_proto3=is_proto3), ""]
    return "\n".join(lines)


def _message_lines(message: DescriptorProto, *, is_proto3: bool) -> Iterator[str]:
    maps = {
        nested.name: nested
        for nested in message.nested_type
        if nested.options.map_entry
    }
    inside: list[str] = []
    for enum in message.enum_type:
        inside += _enum_lines(enum)
    for nested in message.nested_type:
        if nested.name not in maps:
            inside += _message_lines(nested, is_proto3=is_proto3)
    inside += _reserved_lines(message.reserved_range, message.reserved_name, 1)
    inside += [
        f"extensions {_range(each.start, each.end - 1)};"
        for each in message.extension_range
    ]
    for index, fields in groupby(message.field, key=_oneof_of):
        if index is not None:
            lines = [_field_line(field, maps, label="") for field in fields]
            name = message.oneof_decl[index].name
            inside += [f"oneof {name} {{", *_indented(lines), "}"]
            continue
        for field in fields:
            label = _label(field, is_proto3=is_proto3)
            inside.append(_field_line(field, maps, label=label))
    yield f"message {message.name} {{"
    yield from _indented(inside)
    yield "}"


def _oneof_of(field: FieldDescriptorProto) -> int | None:
    """Return the index of the field's oneof; fields of a oneof are adjacent."""
    if field.HasField("oneof_index") and not field.proto3_optional:
        return field.oneof_index
    return None


def _label(field: FieldDescriptorProto, *, is_proto3: bool) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated "
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return "required "
    return "optional " if not is_proto3 or field.proto3_optional else ""


def _field_line(
    field: FieldDescriptorProto, maps: dict[str, DescriptorProto], *, label: str
) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None and label == "repeated ":
        key, value = entry.field
        return f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number};"
    options = []
    if field.HasField("default_value"):
        options.append(f"default = {_default(field)}")
    if field.options.HasField("packed"):
        options.append(f"packed = {str(field.options.packed).lower()}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name.encode())}")
    said = f" [{', '.join(options)}]" if options else ""
    return f"{label}{_type(field)} {field.name} = {field.number}{said};"


def _type(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_GROUP:
        raise InvalidSchema(
            f"the field {field.name} is a group, which is not supported"
        )
    if field.type_name:
        return field.type_name
    return TYPE_NAMES[field.type]


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return _quoted(field.default_value.encode())
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        # The descriptor has the value escaped already.
        return f'"{field.default_value}"'
    return field.default_value


def _enum_lines(enum: EnumDescriptorProto) -> Iterator[str]:
    inside = ["option allow_alias = true;"] if enum.options.allow_alias else []
    inside += [f"{each.name} = {each.number};" for each in enum.value]
    inside += _reserved_lines(enum.reserved_range, enum.reserved_name, 0)
    yield f"enum {enum.name} {{"
    yield from _indented(inside)
    yield "}"


def _reserved_lines(
    ranges: Iterable[Any], names: Iterable[str], excess: int
) -> Iterator[str]:
    """
    Return the lines; *excess* is the distance of a range's end from its last number.
    """
    for each in ranges:
        yield f"reserved {_range(each.start, each.end - excess)};"
    for name in names:
        yield f'reserved "{name}";'


def _range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= _NUMBER_MAX else last}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def _quoted(data: bytes) -> str:
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"\"'\\" else f"\\{byte:03o}"
        for byte in data
    )
    return f'"{escaped}"'


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
