"""
Avro schemas as values, and their canonical form.

Source: Apache Avro specification 1.12, "Schema Declaration".
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

from pydanube.model.lazy_dataclasses import dataclass

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

DECIMAL_BYTES_MAX = 1024
"""The maximum size of one decimal; converting it takes quadratic time."""
DECIMAL_DIGITS_MAX = 1000
"""The maximum precision of a decimal."""

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type."""

    name: str
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        if self.precision is None:
            return self.name
        return f"{self.name}({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Primitive:
    """``null``, ``boolean``, numbers, ``bytes`` and ``string``."""

    name: str
    logical: Logical | None = None

    @property
    def kind(self) -> str:
        """The name of the type in the specification, as for the other types."""
        return self.name


@dataclass(frozen=True, slots=True)
class Array:
    """An array."""

    kind: ClassVar = "array"
    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    """A map from strings to values of one type."""

    kind: ClassVar = "map"
    values: AvroType


@dataclass(frozen=True, slots=True)
class Union:
    """A union of types."""

    kind: ClassVar = "union"
    branches: tuple[AvroType, ...]


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = _MISSING
    """The default in JSON."""
    default_value: Any = None
    """The default as decoded values are; the parser sets it last."""

    @property
    def has_default(self) -> bool:
        """Return whether the field may be missing in the writer's schema."""
        return self.default is not _MISSING


@dataclass(slots=True, eq=False)
class Record:
    """A record; it may contain itself, so records are compared by identity."""

    kind: ClassVar = "record"
    name: str
    aliases: tuple[str, ...]
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Enum:
    """An enum."""

    kind: ClassVar = "enum"
    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(slots=True, eq=False)
class Fixed:
    """A fixed number of bytes."""

    kind: ClassVar = "fixed"
    name: str
    aliases: tuple[str, ...]
    size: int
    logical: Logical | None


AvroType = Primitive | Array | Map | Union | Record | Enum | Fixed
Named = Record | Enum | Fixed


def canonical_form(avro_type: AvroType) -> Any:
    """
    Return a JSON document that is equal for schemas with the same meaning.

    It is the specification's Parsing Canonical Form, with the attributes that also
    affect how data is read: aliases, defaults and logical types.  It leaves out
    documentation, unknown keys, and logical types that are not valid.
    """
    return _form(avro_type, set())


def _form(avro_type: AvroType, declared: set[str]) -> Any:
    match avro_type:
        case Primitive(name, logical):
            return name if logical is None else {"type": name, **_logical_form(logical)}
        case Array(items):
            return {"type": "array", "items": _form(items, declared)}
        case Map(values):
            return {"type": "map", "values": _form(values, declared)}
        case Union(branches):
            return [_form(branch, declared) for branch in branches]
    if avro_type.name in declared:
        return avro_type.name
    declared.add(avro_type.name)
    form = {**_named_form(avro_type), "type": avro_type.kind}
    match avro_type:
        case Record(fields=fields):
            form["fields"] = [
                {
                    **_named_form(each),
                    "type": _form(each.type, declared),
                    **({"default": each.default} if each.has_default else {}),
                }
                for each in fields
            ]
        case Enum(symbols=symbols, default=default):
            form["symbols"] = list(symbols)
            form |= {} if default is None else {"default": default}
        case Fixed(size=size, logical=logical):
            form["size"] = size
            form |= {} if logical is None else _logical_form(logical)
    return form


def _named_form(named: Named | Field) -> dict[str, Any]:
    aliases = {"aliases": sorted(named.aliases)} if named.aliases else {}
    return {"name": named.name, **aliases}


def _logical_form(logical: Logical) -> dict[str, Any]:
    form: dict[str, Any] = {"logicalType": logical.name}
    if logical.precision is not None:
        form |= {"precision": logical.precision, "scale": logical.scale}
    return form
