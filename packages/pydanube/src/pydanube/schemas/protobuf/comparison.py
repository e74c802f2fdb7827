"""
Whether data written with one Protobuf message can be read with another.

Source: Protocol Buffers language guides, "Updating A Message Type", "Oneof" and
"Reserved", and the encoding's rules on wire types.  Some changes that the guides call
compatible lose data silently; they are incompatible here: a list read as a single
value, bytes read as text, and a field that has moved to another number.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    OneofDescriptor,
)
from google.protobuf.descriptor import FieldDescriptor as Type
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from pydanube.schemas.language import Incompatibility

_GROUPS: tuple[set[int], ...] = (
    {
        Type.TYPE_INT32,
        Type.TYPE_INT64,
        Type.TYPE_UINT32,
        Type.TYPE_UINT64,
        Type.TYPE_BOOL,
        Type.TYPE_ENUM,
    },
    {Type.TYPE_SINT32, Type.TYPE_SINT64},
    {Type.TYPE_FIXED32, Type.TYPE_SFIXED32},
    {Type.TYPE_FIXED64, Type.TYPE_SFIXED64},
)
"""Types with the same encoding, so that one may be read as another."""

_AS_BYTES = (Type.TYPE_STRING, Type.TYPE_MESSAGE, Type.TYPE_BYTES)

TYPE_NAMES = {
    getattr(Type, name): name.removeprefix("TYPE_").lower()
    for name in dir(Type)
    if name.startswith("TYPE_")
}
"""The name of each type in the language, by its number."""


def find_incompatibilities(
    reader: Descriptor, writer: Descriptor
) -> list[Incompatibility]:
    """Return why *reader* cannot read some data that *writer* allows."""
    found = []
    if reader.name != writer.name:
        found.append(
            Incompatibility(
                path=reader.full_name,
                rule="message_changed",
                text=f"the writer's message is {writer.name}, the reader's "
                f"{reader.name}",
            )
        )
    return found + list(_Comparison().messages(reader, writer, reader.name))


class _Comparison:
    """A comparison of two messages."""

    def __init__(self) -> None:
        # Each pair of messages is compared once; repeated results would be the same.
        self._seen: set[tuple[str, str]] = set()

    def messages(
        self, reader: Descriptor, writer: Descriptor, path: str
    ) -> Iterator[Incompatibility]:
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return
        self._seen.add(pair)
        numbers = {field.name: field.number for field in writer.fields}
        for field in reader.fields:
            where = f"{path}.{field.name}"
            written = writer.fields_by_number.get(field.number)
            moved = numbers.get(field.name, field.number)
            if moved != field.number:
                yield Incompatibility(
                    path=where,
                    rule="field_number_changed",
                    text=f"{field.name} is number {moved} for the writer, "
                    f"{field.number} for the reader",
                )
            if written is not None:
                yield from self._fields(field, written, where)
            elif field.is_required:
                yield Incompatibility(
                    path=where,
                    rule="required_field_missing",
                    text=f"the reader requires {field.name}, which the writer lacks",
                )
        for oneof in reader.oneofs:
            yield from _oneofs(oneof, writer, path)

    def _fields(
        self, reader: FieldDescriptor, writer: FieldDescriptor, path: str
    ) -> Iterator[Incompatibility]:
        if writer.is_repeated and not reader.is_repeated:
            yield Incompatibility(
                path=path,
                rule="repeated_read_as_single",
                text="the writer may have written several values, of which the reader "
                "sees only the last",
            )
        if reader.is_required and not writer.is_required:
            yield Incompatibility(
                path=path,
                rule="required_field_missing",
                text=f"the reader requires {reader.name}, which the writer may leave "
                "out",
            )
        if reader.message_type is not None and reader.type == writer.type:
            assert writer.message_type is not None
            yield from self.messages(reader.message_type, writer.message_type, path)
        elif not _is_readable(reader.type, writer.type):
            yield Incompatibility(
                path=path,
                rule="type_changed",
                text=f"the writer's {TYPE_NAMES[writer.type]} cannot be read as "
                f"{TYPE_NAMES[reader.type]}",
            )
        elif reader.enum_type is not None and writer.enum_type is not None:
            yield from _enums(reader.enum_type, writer.enum_type, path)


def _is_readable(reader: int, writer: int) -> bool:
    if reader == writer:
        return True
    if reader == Type.TYPE_BYTES:
        return writer in _AS_BYTES
    return any(reader in group and writer in group for group in _GROUPS)


def _enums(
    reader: EnumDescriptor, writer: EnumDescriptor, path: str
) -> Iterator[Incompatibility]:
    """Compare closed enums, which lose numbers that they have no name for."""
    if not reader.is_closed:
        return
    known = reader.values_by_number
    missing = [value.name for value in writer.values if value.number not in known]
    if missing:
        yield Incompatibility(
            path=path,
            rule="enum_value_missing",
            text=f"the reader's closed enum {reader.name} lacks "
            f"{', '.join(missing[:10])}",
        )


def _oneofs(
    reader: OneofDescriptor, writer: Descriptor, path: str
) -> Iterator[Incompatibility]:
    if _is_synthetic(reader):
        return
    where = f"{path}.{reader.name}"
    members = [
        written
        for field in reader.fields
        if (written := writer.fields_by_number.get(field.number)) is not None
    ]
    owners = {_oneof_of(member) or f"field {member.number}" for member in members}
    if len(owners) > 1:
        yield Incompatibility(
            path=where,
            rule="fields_moved_into_oneof",
            text=f"the writer may have written {', '.join(m.name for m in members)} "
            "together, of which the reader keeps only the last",
        )
    written_oneof = writer.oneofs_by_name.get(reader.name)
    if written_oneof is None:
        return
    numbers = {field.number for field in reader.containing_type.fields}
    missing = [
        field.name for field in written_oneof.fields if field.number not in numbers
    ]
    if missing:
        yield Incompatibility(
            path=where,
            rule="oneof_field_missing",
            text=f"the writer may have written {', '.join(missing)}, and "
            f"{reader.name} would be empty for the reader",
        )


def _oneof_of(field: FieldDescriptor) -> str | None:
    oneof = field.containing_oneof
    return None if oneof is None or _is_synthetic(oneof) else oneof.name


def _is_synthetic(oneof: OneofDescriptor) -> bool:
    """Return whether *oneof* only represents the presence of an optional field."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def find_reuses(newer: Descriptor, older: Descriptor) -> list[Incompatibility]:
    """
    Return where *newer* uses numbers that *older* reserves.

    Data of even older versions may have something else under them.  To reserve the
    number of a field that is deleted is what the language guide asks for, so the
    opposite is no fault.
    """
    return list(_reuses(newer, older, newer.name, set()))


def _reuses(
    newer: Descriptor, older: Descriptor, path: str, seen: set[tuple[str, str]]
) -> Iterator[Incompatibility]:
    pair = (newer.full_name, older.full_name)
    if pair in seen:
        return
    seen.add(pair)
    proto = DescriptorProto()
    older.CopyToProto(proto)
    reserved = [range(each.start, each.end) for each in proto.reserved_range]
    for field in newer.fields:
        where = f"{path}.{field.name}"
        before = older.fields_by_number.get(field.number)
        if before is None:
            yield from _reuse(where, field.number, "field", reserved)
            continue
        if field.message_type is not None and before.message_type is not None:
            yield from _reuses(field.message_type, before.message_type, where, seen)
        if field.enum_type is not None and before.enum_type is not None:
            yield from _reused_values(field.enum_type, before.enum_type, where)


def _reused_values(
    newer: EnumDescriptor, older: EnumDescriptor, path: str
) -> Iterator[Incompatibility]:
    proto = EnumDescriptorProto()
    older.CopyToProto(proto)
    # Unlike those of messages, these ranges include their ends.
    reserved = [range(each.start, each.end + 1) for each in proto.reserved_range]
    for value in newer.values:
        if value.number not in older.values_by_number:
            where = f"{path}.{value.name}"
            yield from _reuse(where, value.number, "value", reserved)


def _reuse(
    path: str, number: int, what: str, reserved: list[range]
) -> Iterator[Incompatibility]:
    if any(number in each for each in reserved):
        yield Incompatibility(
            path=path,
            rule="reserved_number_used",
            text=f"the older schema reserves number {number}: older data may have "
            f"another {what} under it",
        )
