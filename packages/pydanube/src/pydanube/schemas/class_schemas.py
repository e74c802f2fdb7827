"""
Schemas of Python types: dataclasses, TypedDicts, pydantic models and the like.

``msgspec`` reads the annotations and generates the JSON Schema; this module generates
the Avro schema from the types that msgspec found.  A field with a default may be absent
in JSON, and has that default in Avro, so adding one is a compatible change.

================================  ======================  ========================
annotation                        JSON                    Avro
================================  ======================  ========================
int, float, bool, str             the same                long, double, boolean,
                                                          string
bytes                             base64                  bytes
datetime                          RFC 3339                timestamp-micros, UTC
date                              RFC 3339                date
time                              RFC 3339                time-micros
timedelta                         ISO 8601                string, ISO 8601
UUID                              string                  string, uuid
Decimal                           string                  string
Enum, Literal                     its value               enum; or string, long
X | None                          null                    a union with null
list, set, tuple                  array                   array
dict                              object                  map
dataclass, TypedDict              object                  record
================================  ======================  ========================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect

from pydanube.model.errors import InvalidSchema
from pydanube.model.positions import EPOCH, to_microseconds
from pydanube.schemas.language import error_text, nested_values

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EMPTY: dict[Any, Any] = {
    **{cls: [] for cls in (list, set, frozenset, tuple)},
    dict: {},
}

_AVRO: dict[type[inspect.Type], Any] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.DecimalType: "string",
    inspect.TimeDeltaType: "string",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
}

_KEPT = (bytes, bytearray, datetime, date, time)
"""Types of defaults that Avro and JSON represent differently."""

_Record = (
    inspect.DataclassType
    | inspect.TypedDictType
    | inspect.StructType
    | inspect.NamedTupleType
)


def is_pydantic(cls: Any) -> bool:
    """Return whether *cls* is a pydantic model, without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def is_protobuf(cls: Any) -> bool:
    """Return whether *cls* is a class that the Protobuf compiler generated."""
    return isinstance(cls, type) and hasattr(cls, "DESCRIPTOR")


def inspect_type(cls: Any) -> inspect.Type:
    """
    Return the type that the annotations of *cls* describe.

    Raises:
        InvalidSchema: An annotation has no counterpart in any schema, or names an
            unknown type.
    """
    with _refusing(cls):
        return inspect.type_info(cls)


def json_schema_of(cls: Any) -> str:
    """
    Return the JSON Schema of *cls*; named types are under ``$defs``.

    Raises:
        InvalidSchema: A part of *cls* has no counterpart in JSON.
    """
    if is_pydantic(cls):
        document = cls.model_json_schema(mode="validation")
    else:
        inspect_type(cls)
        with _refusing(cls):
            document = msgspec.json.schema(cls)
        _drop_durations(document)
    return msgspec.json.encode(document).decode()


def avro_schema_of(cls: Any, *, namespace: str = "") -> str:
    """
    Return the Avro schema of *cls*; records and enums have the names of their classes.

    Raises:
        InvalidSchema: A part of *cls* has no counterpart in Avro.
    """
    if is_pydantic(cls):
        raise InvalidSchema(
            f"{_name_of(cls)} is a pydantic model, which becomes a JSON Schema; for "
            "Avro, use a dataclass"
        )
    schema = _AvroTypes().schema_of(inspect_type(cls), _name_of(cls))
    if namespace and isinstance(schema, dict) and "name" in schema:
        schema = {**schema, "namespace": namespace}
    return msgspec.json.encode(schema).decode()


class _AvroTypes:
    """A generator of one Avro schema; a named type is defined where it occurs first."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def schema_of(self, found: inspect.Type, path: str) -> Any:
        """Return the Avro schema of one type; *path* is its place in the class."""
        if type(found) in _AVRO:
            return _AVRO[type(found)]
        match found:
            case inspect.Metadata():
                return self.schema_of(found.type, path)
            case inspect.EnumType():
                values = [each.value for each in found.cls]
                return self._choice(found.cls, found.cls.__name__, values, path)
            case inspect.LiteralType():
                return self._choice(None, path.replace(".", "_"), found.values, path)
            case inspect.UnionType():
                return self._union(found, path)
            case (
                inspect.ListType()
                | inspect.SetType()
                | inspect.FrozenSetType()
                | inspect.VarTupleType()
            ):
                items = self.schema_of(found.item_type, f"{path}.items")
                return {"type": "array", "items": items}
            case inspect.TupleType():
                return self._tuple(found, path)
            case inspect.DictType():
                return self._map(found, path)
            case _ if isinstance(found, _Record):
                return self._record(found, path)
            case _:
                raise _no_counterpart(path, found)

    def _record(self, found: _Record, path: str) -> Any:
        cls = found.cls
        if cls in self._names:
            return self._names[cls]
        if isinstance(found, inspect.NamedTupleType) or (
            isinstance(found, inspect.StructType)
            and (found.tag is not None or found.array_like)
        ):
            raise InvalidSchema(
                f"{path}: {_name_of(cls)} is encoded without the names of its fields, "
                "which has no counterpart in Avro; use a dataclass"
            )
        name = self._names[cls] = self._free_name(_name_of(cls))
        return {
            "type": "record",
            "name": name,
            "fields": [
                self._field(field, f"{name}.{field.name}", found)
                for field in found.fields
            ],
        }

    def _field(self, field: inspect.Field, path: str, owner: _Record) -> dict[str, Any]:
        if isinstance(owner, inspect.TypedDictType) and not field.required:
            raise InvalidSchema(
                f"{path}: Avro has no optional keys; use X | None instead of "
                "NotRequired"
            )
        if not _NAME.fullmatch(field.encode_name):
            raise InvalidSchema(f"{path}: not a valid name of a field in Avro")
        schema = self.schema_of(field.type, path)
        made: dict[str, Any] = {"name": field.encode_name, "type": schema}
        if field.default is not msgspec.NODEFAULT:
            default = _default(field.default, path)
            made["default"] = default
            if default is not None and isinstance(schema, list) and "null" in schema:
                # A default must be a value of the first branch.
                made["type"] = [each for each in schema if each != "null"] + ["null"]
        elif field.default_factory in _EMPTY:
            made["default"] = _EMPTY[field.default_factory]
        return made

    def _union(self, found: inspect.UnionType, path: str) -> list[Any]:
        members = [self.schema_of(each, path) for each in found.types]
        rest = [each for each in members if each != "null"]
        return ["null", *rest] if len(rest) < len(members) else rest

    def _choice(self, cls: Any, name: str, values: Any, path: str) -> Any:
        """Return the schema of an Enum or a Literal, whose values may include None."""
        present = [each for each in values if each is not None]
        if all(isinstance(each, str) for each in present):
            schema: Any = "string"
            if all(map(_NAME.fullmatch, present)):
                schema = self._enum(cls, name, present)
        elif all(isinstance(each, int) for each in present):
            schema = "long"
        else:
            raise InvalidSchema(
                f"{path}: the values are neither all text nor all whole numbers, "
                "which has no counterpart in Avro"
            )
        return schema if len(present) == len(values) else ["null", schema]

    def _enum(self, cls: Any, name: str, symbols: list[str]) -> Any:
        if cls is not None and cls in self._names:
            return self._names[cls]
        name = self._free_name(name)
        # Without a class, no other type refers to this enum.
        self._names[name if cls is None else cls] = name
        return {"type": "enum", "name": name, "symbols": symbols}

    def _tuple(self, found: inspect.TupleType, path: str) -> Any:
        items = [
            self.schema_of(each, f"{path}[{index}]")
            for index, each in enumerate(found.item_types)
        ]
        if not items or any(each != items[0] for each in items):
            raise InvalidSchema(
                f"{path}: a tuple of several types has no counterpart in Avro; use a "
                "dataclass"
            )
        return {"type": "array", "items": items[0]}

    def _map(self, found: inspect.DictType, path: str) -> Any:
        if not isinstance(found.key_type, inspect.StrType):
            raise InvalidSchema(f"{path}: the keys of an Avro map must be text")
        values = self.schema_of(found.value_type, f"{path}.values")
        return {"type": "map", "values": values}

    def _free_name(self, wanted: str) -> str:
        """Return *wanted* as a valid Avro name, with a number if the name is taken."""
        name = plain = re.sub(r"[^A-Za-z0-9_]+", "_", wanted).strip("_") or "Record"
        number = 2
        while name in self._names.values():
            name, number = f"{plain}_{number}", number + 1
        return name


def _default(value: Any, path: str) -> Any:
    """Return the default of a field as an Avro schema represents it."""
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case bytes() | bytearray():
            return value.decode("latin-1")
        case datetime():
            if value.tzinfo is None:
                raise InvalidSchema(f"{path}: the default has no time zone")
            return to_microseconds(value)
        case date():
            return (value - EPOCH.date()).days
        case time():
            at = datetime.combine(EPOCH.date(), value.replace(tzinfo=UTC))
            return to_microseconds(at)
        case list() | tuple():
            return [_default(each, path) for each in value]
        case dict():
            return {name: _default(each, path) for name, each in value.items()}
    try:
        plain = msgspec.to_builtins(value, builtin_types=_KEPT)
    except TypeError as error:
        raise InvalidSchema(
            f"{path}: the default {value!r:.50} cannot be written"
        ) from error
    return _default(plain, path)


def _drop_durations(document: Any) -> None:
    """
    Accept any text as a duration.

    msgspec writes fractions and signs, which the standard's grammar excludes.
    """
    for value in nested_values(document):
        if isinstance(value, dict) and (
            (value.get("format"), value.get("type")) == ("duration", "string")
        ):
            del value["format"]


def _name_of(cls: Any) -> str:
    return str(getattr(cls, "__name__", None) or cls)


@contextmanager
def _refusing(cls: Any) -> Iterator[None]:
    """Convert the errors of msgspec about *cls*."""
    try:
        yield
    except (TypeError, NameError, ValueError, RecursionError) as error:
        reason = error_text(error)
        raise InvalidSchema(f"{_name_of(cls)} cannot be a schema: {reason}") from error


def _no_counterpart(path: str, found: inspect.Type) -> InvalidSchema:
    cls = getattr(found, "cls", None)
    what = "Any" if isinstance(found, inspect.AnyType) else _name_of(cls or found)
    return InvalidSchema(f"{path}: {what} has no counterpart in Avro")
