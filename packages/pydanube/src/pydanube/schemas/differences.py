"""
The differences between two schemas, whether they affect compatibility or not.

They show people what has changed; ``compatibility.py`` decides whether two schemas are
compatible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsed_schema import ParsedSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where two schemas differ."""

    path: str
    """The names of fields and keywords, separated by slashes."""
    old: str | None
    """The text in the old schema, or None if it has none."""
    new: str | None
    """The text in the new schema, or None if it has none."""


def find_differences(old: ParsedSchema, new: ParsedSchema) -> list[Difference]:
    """Return the differences between *old* and *new*, in the order of the old one."""
    if old.type is not new.type:
        return [Difference(path="/", old=old.type.value, new=new.type.value)]
    return list(_compare(_outline(old), _outline(new), ""))


def _compare(old: Any, new: Any, path: str) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            at = f"{path}/{name}"
            if name not in new:
                yield Difference(path=at, old=_text(old[name]), new=None)
            elif name not in old:
                yield Difference(path=at, old=None, new=_text(new[name]))
            else:
                yield from _compare(old[name], new[name], at)
    elif _has_parts(old) and _has_parts(new):
        numbered = (dict(enumerate(old)), dict(enumerate(new)))
        yield from _compare(*numbered, path)
    elif old != new or isinstance(old, bool) is not isinstance(new, bool):
        yield Difference(path=path or "/", old=_text(old), new=_text(new))


def _has_parts(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _outline(schema: ParsedSchema) -> Any:
    """Return the schema as mappings by name, so that order and layout do not count."""
    match schema.type:
        case SchemaType.JSON_SCHEMA:
            return _json_schema(msgspec.json.decode(schema.text))
        case SchemaType.AVRO:
            from pydanube.schemas.avro.parser import document_of  # noqa: PLC0415

            return _avro(document_of(schema.text))
        case SchemaType.PROTOBUF:
            from pydanube.schemas.protobuf import ProtobufSchema  # noqa: PLC0415

            assert isinstance(schema, ProtobufSchema)
            return _protobuf(schema.message)
        case _:
            return schema.canonical.decode()


def _json_schema(document: Any) -> Any:
    """Return the document, or the definition inside it that it only refers to."""
    if not isinstance(document, dict) or not isinstance(document.get("$defs"), dict):
        return document
    parts = dict(document["$defs"])
    rest = {name: each for name, each in document.items() if name != "$defs"}
    name = str(rest.get("$ref", "")).removeprefix("#/$defs/")
    if len(rest) == 1 and isinstance(parts.get(name), dict):
        rest = parts.pop(name)
    return {**rest, **({"$defs": parts} if parts else {})}


def _avro(document: Any) -> Any:
    if isinstance(document, list):
        return [_avro(each) for each in document]
    if not isinstance(document, dict):
        return document
    made = {
        name: _avro(each) if name in ("type", "items", "values") else each
        for name, each in document.items()
    }
    if isinstance(made.get("fields"), list):
        made["fields"] = {
            field["name"]: _avro(
                {name: each for name, each in field.items() if name != "name"}
            )
            for field in made["fields"]
        }
    return made


def _protobuf(message: Descriptor) -> Any:
    """Return the fields by name of *message* and of every message that it refers to."""
    outline: dict[str, Any] = {"message": message.full_name}
    pending, seen = [message], {message.full_name}
    while pending:
        found = pending.pop(0)
        outline[found.full_name] = {field.name: _field(field) for field in found.fields}
        for field in found.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                pending.append(inner)
            if field.enum_type is not None:
                outline[field.enum_type.full_name] = {
                    value.name: value.number for value in field.enum_type.values
                }
    return outline


def _field(field: FieldDescriptor) -> str:
    from pydanube.schemas.protobuf.comparison import TYPE_NAMES  # noqa: PLC0415

    kind = field.message_type or field.enum_type
    name = TYPE_NAMES[field.type] if kind is None else kind.full_name
    label = "repeated " if field.is_repeated else ""
    if field.is_required:
        label = "required "
    oneof = field.containing_oneof
    inside = f" in {oneof.name}" if oneof is not None else ""
    return f"{label}{name} = {field.number}{inside}"
