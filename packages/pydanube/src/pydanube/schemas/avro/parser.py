"""
The parser of Avro schemas, by the rules of the specification.

Source: Apache Avro specification 1.12, "Schema Declaration" and "Names".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec

from pydanube.model.errors import InvalidSchema
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.schemas.avro.defaults import DefaultReader, TooManySteps
from pydanube.schemas.avro.leaves import Mismatch
from pydanube.schemas.avro.types import (
    DECIMAL_BYTES_MAX,
    DECIMAL_DIGITS_MAX,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX

NAME_LENGTH_MAX = 256
"""The maximum length of each part of a name; names are quoted in error messages."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_avro(text: str) -> tuple[AvroType, list[Record]]:
    """
    Return the schema that *text* declares in JSON, and its records.

    Each record comes after those that it contains.

    Raises:
        InvalidSchema: It violates a rule of the specification; the message names it.
    """
    document = document_of(text)
    parser = _Parser()
    try:
        root = parser.parse(document, _Place())
        parser.read_defaults()
    except RecursionError as error:
        raise InvalidSchema(
            "a default in the Avro schema is nested too deeply"
        ) from error
    return root, parser.records


def document_of(text: str) -> Any:
    """
    Return the JSON document *text*, or the name of a type, which needs no quotes.

    Raises:
        InvalidSchema: It is neither.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise InvalidSchema(f"the Avro schema is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the document, and the namespace of the names there."""

    path: str = ""
    namespace: str = ""
    depth: int = 0

    def inside(self, part: str | int) -> _Place:
        """Return the place of *part*, one level deeper."""
        return _Place(f"{self.path}/{part}", self.namespace, self.depth + 1)

    def refuse(self, reason: str) -> InvalidSchema:
        """Return the error that the schema is invalid here."""
        return InvalidSchema(f"{self.path or '/'}: {reason}")

    def full(self, name: str) -> str:
        """Return *name* with the namespace, unless it has one."""
        has_space = "." in name or not self.namespace
        return name if has_space else f"{self.namespace}.{name}"


class _Parser:
    """A parser of one document, with the names declared so far."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """The parsed records, each after those that it contains."""
        self._names: dict[str, Named] = {}
        self._defaults: list[tuple[_Place, Field]] = []
        self._parts = 0

    def read_defaults(self) -> None:
        """
        Set the values of all defaults, whose types are complete now.

        Raises:
            InvalidSchema: A default does not match its type.
        """
        for place, part in self._defaults:
            try:
                part.default_value = DefaultReader().read(part.default, part.type)
            except (Mismatch, TooManySteps) as error:
                raise place.refuse(
                    f"the default does not match the type: {error}"
                ) from None

    def parse(self, value: Any, place: _Place) -> AvroType:
        self._count(place)
        if place.depth > DEPTH_MAX:
            raise place.refuse(f"nested deeper than {DEPTH_MAX}")
        if isinstance(value, str):
            return self._find(value, place)
        if isinstance(value, list):
            return self._union(value, place)
        if isinstance(value, dict):
            return self._complex(value, place)
        raise place.refuse(
            f"a type must be a name, an object or a list, not {value!r:.50}"
        )

    def _find(self, name: str, place: _Place) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._names.get(place.full(name)) or self._names.get(name)
        if found is None:
            raise place.refuse(
                f"unknown type {name!r} (declared before: "
                f"{', '.join(sorted(self._names)[:10]) or 'none'})"
            )
        return found

    def _union(self, value: list[Any], place: _Place) -> Union:
        branches: dict[str, AvroType] = {}
        for index, each in enumerate(value):
            where = place.inside(index)
            branch = self.parse(each, where)
            if isinstance(branch, Union):
                raise where.refuse("a union directly inside a union")
            key = branch.name if isinstance(branch, Named) else branch.kind
            if key in branches:
                raise where.refuse(f"the union has the branch {key} twice")
            branches[key] = branch
        return Union(tuple(branches.values()))

    def _complex(self, value: dict[str, Any], place: _Place) -> AvroType:
        if "type" not in value:
            raise place.refuse("the object has no type")
        match value["type"]:
            case "record" | "error":
                return self._record(value, place)
            case "enum":
                return self._enum(value, place)
            case "fixed":
                return self._fixed(value, place)
            case "array":
                return Array(self._inner(value, "items", place))
            case "map":
                return Map(self._inner(value, "values", place))
        inner = self.parse(value["type"], replace(place, depth=place.depth + 1))
        if isinstance(inner, Primitive) and inner.logical is None:
            return Primitive(inner.name, _logical_of(value, inner.name, None))
        return inner

    def _inner(self, value: dict[str, Any], what: str, place: _Place) -> AvroType:
        if what not in value:
            raise place.refuse(f"{value['type']} without {what}")
        return self.parse(value[what], place.inside(what))

    def _record(self, value: dict[str, Any], place: _Place) -> Record:
        name, place = self._declare(value, place)
        record = Record(name, _aliases_of(value, place))
        self._names[name] = record
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise place.refuse(f"record {name} has no list of fields")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise InvalidSchema(
                    f"{place.path}/fields: a field of {name} is not an object with a "
                    "name"
                )
            where = place.inside(f"fields/{each['name']:.{NAME_LENGTH_MAX}}")
            _check_name(each["name"], where)
            if each["name"] in seen:
                raise where.refuse("the field is declared twice")
            seen.add(each["name"])
            record.fields.append(self._field(each, where))
        self.records.append(record)
        return record

    def _field(self, value: dict[str, Any], place: _Place) -> Field:
        if "type" not in value:
            raise place.refuse("the field has no type")
        avro_type = self.parse(value["type"], place)
        aliases = _aliases_of(value, replace(place, namespace=""))
        parsed = Field(value["name"], avro_type, aliases)
        if "default" in value:
            parsed.default = value["default"]
            self._defaults.append((place, parsed))
        return parsed

    def _enum(self, value: dict[str, Any], place: _Place) -> Enum:
        name, place = self._declare(value, place)
        symbols: Any = value.get("symbols")
        if not _are_strings(symbols) or len(set(symbols)) != len(symbols):
            raise place.refuse(f"enum {name} needs a list of different symbols")
        for symbol in symbols:
            self._count(place)
            _check_name(symbol, place)
        default = value.get("default")
        if default is not None and default not in symbols:
            raise place.refuse(
                f"the default {default!r} is not a symbol of enum {name}"
            )
        parsed = Enum(name, _aliases_of(value, place), tuple(symbols), default)
        self._names[name] = parsed
        return parsed

    def _fixed(self, value: dict[str, Any], place: _Place) -> Fixed:
        name, place = self._declare(value, place)
        size: Any = value.get("size")
        if not _is_count(size):
            raise place.refuse(f"fixed {name} needs a size")
        logical = _logical_of(value, "fixed", size)
        parsed = Fixed(name, _aliases_of(value, place), size, logical)
        self._names[name] = parsed
        return parsed

    def _declare(self, value: dict[str, Any], place: _Place) -> tuple[str, _Place]:
        """Return the full name that *value* declares, and its place and namespace."""
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise place.refuse(f"a {value['type']} without a name")
        space = value.get("namespace", place.namespace)
        if not isinstance(space, str):
            raise place.refuse("the namespace is not text")
        if "." in name:
            space = name.rpartition(".")[0]
        place = replace(place, namespace=space)
        full = place.full(name)
        for part in full.split("."):
            _check_name(part, place)
        if full in self._names or full in PRIMITIVES:
            raise place.refuse(f"the name {full} is declared twice")
        return full, place

    def _count(self, place: _Place) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise place.refuse(f"the schema has more than {PARTS_MAX} parts")


def _check_name(name: str, place: _Place) -> None:
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidSchema(
            f"{place.path[-200:] or '/'}: the name {name!r:.50} has {len(name)} "
            f"characters; at most {NAME_LENGTH_MAX} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise place.refuse(
            f"{name!r:.50} is not a valid name (letters, digits and '_', not beginning "
            "with a digit)"
        )


def _aliases_of(value: dict[str, Any], place: _Place) -> tuple[str, ...]:
    aliases = value.get("aliases", [])
    if not _are_strings(aliases):
        raise place.refuse("aliases must be a list of names")
    return tuple(map(place.full, aliases))


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    },
    "string": {"uuid"},
    "bytes": {"decimal"},
    "fixed": {"decimal", "duration", "uuid"},
}


def _logical_of(value: dict[str, Any], kind: str, size: int | None) -> Logical | None:
    """Return the logical type; unknown and invalid ones are ignored, as specified."""
    name = value.get("logicalType")
    if not isinstance(name, str) or name not in _LOGICAL.get(kind, ()):
        return None
    if name == "decimal":
        precision: Any = value.get("precision")
        _check_decimal(precision, size)
        scale: Any = value.get("scale", 0)
        if not _is_count(precision) or not _is_count(scale) or scale > precision:
            return None
        if size is not None and precision > _digits_of(size):
            return None
        return Logical(name, precision, scale) if precision else None
    if size is not None and size != {"duration": 12, "uuid": 16}[name]:
        return None
    return Logical(name)


def _check_decimal(precision: Any, size: int | None) -> None:
    """Refuse decimals that are expensive to convert, also those that are ignored."""
    if isinstance(precision, int) and precision > DECIMAL_DIGITS_MAX:
        raise InvalidSchema(
            f"a decimal has the precision {precision}; the maximum is "
            f"{DECIMAL_DIGITS_MAX}"
        )
    if size is not None and size > DECIMAL_BYTES_MAX:
        raise InvalidSchema(
            f"a decimal is a fixed of {size} bytes; the maximum is {DECIMAL_BYTES_MAX}"
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _digits_of(size: int) -> int:
    """Return the number of decimal digits that fit into *size* bytes."""
    # log10(2) is a little more than 0.30102.
    return (8 * size - 1) * 30102 // 100000 if size else 0
