"""
The canonical form of Avro schemas.

It is the specification's Parsing Canonical Form, with the attributes that also affect
how data is read: aliases, defaults and logical types.  It leaves out documentation, the
order of keys and unknown keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

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


def canonical_form(avro_type: AvroType) -> bytes:
    """Return bytes that are equal for schemas with the same meaning."""
    return msgspec.json.encode(_form(avro_type, set()), order="deterministic")


def _form(avro_type: AvroType, declared: set[str]) -> Any:
    match avro_type:
        case Primitive(name, logical):
            return name if logical is None else {"type": name, **_logical(logical)}
        case Array(items):
            return {"type": "array", "items": _form(items, declared)}
        case Map(values):
            return {"type": "map", "values": _form(values, declared)}
        case Union(branches):
            return [_form(branch, declared) for branch in branches]
    if avro_type.name in declared:
        return avro_type.name
    declared.add(avro_type.name)
    form: dict[str, Any] = {"name": avro_type.name}
    if avro_type.aliases:
        form["aliases"] = sorted(avro_type.aliases)
    match avro_type:
        case Record(fields=fields):
            form["type"] = "record"
            parts = []
            for field in fields:
                part: dict[str, Any] = {
                    "name": field.name,
                    "type": _form(field.type, declared),
                }
                if field.aliases:
                    part["aliases"] = sorted(field.aliases)
                if field.has_default:
                    part["default"] = field.default
                parts.append(part)
            form["fields"] = parts
        case Enum(symbols=symbols, default=default):
            form |= {"type": "enum", "symbols": list(symbols)}
            if default is not None:
                form["default"] = default
        case Fixed(size=size, logical=logical):
            form |= {"type": "fixed", "size": size}
            form |= {} if logical is None else _logical(logical)
    return form


def _logical(logical: Logical) -> dict[str, Any]:
    form: dict[str, Any] = {"logicalType": logical.name}
    if logical.precision is not None:
        form |= {"precision": logical.precision, "scale": logical.scale}
    return form
