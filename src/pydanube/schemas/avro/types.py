"""
Avro schemas as values, parsed by the rules of the specification.

Source: Apache Avro specification 1.12, "Schema Declaration" and "Names".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

NAME_LENGTH_MAX = 256
"""The maximum length of each part of a name; names are quoted in error messages."""
DEFAULT_STEPS_MAX = 100_000
"""The maximum number of comparisons to check one default value."""
DECIMAL_BYTES_MAX = 1024
"""The maximum size of one decimal; converting it takes quadratic time."""
DECIMAL_DIGITS_MAX = 1000
"""The maximum precision of a decimal."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
        return parser.parse(document, "", "", 0), parser.records
    except RecursionError as error:
        raise InvalidSchema(
            "a default in the Avro schema is nested too deeply"
        ) from error


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


class _Parser:
    """A parser of one document, with the names declared so far."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """The parsed records, each after those that it contains."""
        self._names: dict[str, Named] = {}
        self._parts = 0

    def parse(self, value: Any, namespace: str, path: str, depth: int) -> AvroType:
        self._count(path)
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"{path}: nested deeper than {DEPTH_MAX}")
        if isinstance(value, str):
            return self._find(value, namespace, path)
        if isinstance(value, list):
            return self._union(value, namespace, path, depth)
        if isinstance(value, dict):
            return self._complex(value, namespace, path, depth)
        raise InvalidSchema(
            f"{path or '/'}: a type must be a name, an object or a list, not "
            f"{value!r:.50}"
        )

    def _find(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise InvalidSchema(
                f"{path or '/'}: unknown type {name!r} (declared before: "
                f"{', '.join(sorted(self._names)[:10]) or 'none'})"
            )
        return found

    def _union(self, value: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches = []
        seen: set[str] = set()
        for index, each in enumerate(value):
            where = f"{path}/{index}"
            branch = self.parse(each, namespace, where, depth + 1)
            if isinstance(branch, Union):
                raise InvalidSchema(f"{where}: a union directly inside a union")
            key = branch.name if isinstance(branch, Named) else branch.kind
            if key in seen:
                raise InvalidSchema(f"{where}: the union has the branch {key} twice")
            seen.add(key)
            branches.append(branch)
        return Union(tuple(branches))

    def _complex(
        self, value: dict[str, Any], namespace: str, path: str, depth: int
    ) -> AvroType:
        kind = value.get("type", _MISSING)
        if kind is _MISSING:
            raise InvalidSchema(f"{path or '/'}: the object has no type")
        match kind:
            case "record" | "error":
                return self._record(value, namespace, path, depth)
            case "enum":
                return self._enum(value, namespace, path)
            case "fixed":
                return self._fixed(value, namespace, path)
            case "array":
                return Array(self._inner(value, "items", namespace, path, depth))
            case "map":
                return Map(self._inner(value, "values", namespace, path, depth))
        inner = self.parse(kind, namespace, path, depth + 1)
        if isinstance(inner, Primitive) and inner.logical is None:
            return Primitive(inner.name, _logical_of(value, inner.name, None))
        return inner

    def _inner(
        self, value: dict[str, Any], what: str, namespace: str, path: str, depth: int
    ) -> AvroType:
        if what not in value:
            raise InvalidSchema(f"{path or '/'}: {value['type']} without {what}")
        return self.parse(value[what], namespace, f"{path}/{what}", depth + 1)

    def _record(
        self, value: dict[str, Any], namespace: str, path: str, depth: int
    ) -> Record:
        name, space = self._declare(value, namespace, path)
        record = Record(name, _aliases_of(value, space, path))
        self._names[name] = record
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{path or '/'}: record {name} has no list of fields")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise InvalidSchema(
                    f"{path}/fields: a field of {name} is not an object with a name"
                )
            where = f"{path}/fields/{each['name']:.{NAME_LENGTH_MAX}}"
            _check_name(each["name"], where)
            if each["name"] in seen:
                raise InvalidSchema(f"{where}: the field is declared twice")
            seen.add(each["name"])
            if "type" not in each:
                raise InvalidSchema(f"{where}: the field has no type")
            record.fields.append(self._field(each, space, where, depth))
        self.records.append(record)
        return record

    def _field(
        self, value: dict[str, Any], namespace: str, path: str, depth: int
    ) -> Field:
        avro_type = self.parse(value["type"], namespace, path, depth + 1)
        aliases = value.get("aliases", [])
        if not _are_strings(aliases):
            raise InvalidSchema(f"{path}: aliases must be a list of names")
        parsed = Field(value["name"], avro_type, tuple(aliases))
        if "default" in value:
            parsed.default = value["default"]
            reason = _DefaultCheck(path).why_not(parsed.default, avro_type)
            if reason is not None:
                raise InvalidSchema(
                    f"{path}: the default does not match the type: {reason}"
                )
        return parsed

    def _enum(self, value: dict[str, Any], namespace: str, path: str) -> Enum:
        name, space = self._declare(value, namespace, path)
        symbols: Any = value.get("symbols")
        if not _are_strings(symbols) or len(set(symbols)) != len(symbols):
            raise InvalidSchema(
                f"{path or '/'}: enum {name} needs a list of different symbols"
            )
        for symbol in symbols:
            self._count(path)
            _check_name(symbol, path)
        default = value.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchema(
                f"{path or '/'}: the default {default!r} is not a symbol of enum {name}"
            )
        parsed = Enum(name, _aliases_of(value, space, path), tuple(symbols), default)
        self._names[name] = parsed
        return parsed

    def _fixed(self, value: dict[str, Any], namespace: str, path: str) -> Fixed:
        name, space = self._declare(value, namespace, path)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidSchema(f"{path or '/'}: fixed {name} needs a size")
        parsed = Fixed(
            name,
            _aliases_of(value, space, path),
            size,
            _logical_of(value, "fixed", size),
        )
        self._names[name] = parsed
        return parsed

    def _declare(
        self, value: dict[str, Any], namespace: str, path: str
    ) -> tuple[str, str]:
        """Return the full name that *value* declares, and the namespace inside it."""
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"{path or '/'}: a {value['type']} without a name")
        space = value.get("namespace", namespace)
        if not isinstance(space, str):
            raise InvalidSchema(f"{path or '/'}: the namespace is not text")
        if "." in name:
            space = name.rpartition(".")[0]
        full = name if "." in name or not space else f"{space}.{name}"
        for part in full.split("."):
            _check_name(part, path)
        if full in self._names or full in PRIMITIVES:
            raise InvalidSchema(f"{path or '/'}: the name {full} is declared twice")
        return full, space

    def _count(self, path: str) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise InvalidSchema(
                f"{path or '/'}: the schema has more than {PARTS_MAX} parts"
            )


def _check_name(name: str, path: str) -> None:
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidSchema(
            f"{path[-200:] or '/'}: the name {name!r:.50} has {len(name)} characters; "
            f"at most {NAME_LENGTH_MAX} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise InvalidSchema(
            f"{path or '/'}: {name!r:.50} is not a valid name (letters, digits and "
            "'_', not beginning with a digit)"
        )


def _aliases_of(value: dict[str, Any], namespace: str, path: str) -> tuple[str, ...]:
    aliases = value.get("aliases", [])
    if not _are_strings(aliases):
        raise InvalidSchema(f"{path or '/'}: aliases must be a list of names")
    return tuple(
        alias if "." in alias or not namespace else f"{namespace}.{alias}"
        for alias in aliases
    )


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


_TYPES_UNDER = ("type", "items", "values", "fields")


def without_wrong_decimals(document: Any) -> Any:
    """Return *document* without the invalid decimals that a schema ignores."""
    if isinstance(document, list):
        return [without_wrong_decimals(each) for each in document]
    if not isinstance(document, dict):
        return document
    right = {
        name: without_wrong_decimals(each) if name in _TYPES_UNDER else each
        for name, each in document.items()
    }
    if document.get("logicalType") == "decimal":
        kind, size = document.get("type"), document.get("size")
        is_fixed = kind == "fixed"
        if _logical_of(document, str(kind), size if is_fixed else None) is None:
            del right["logicalType"]
    return right


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


class _DefaultCheck:
    """A check of one default value; tries the branches of a union in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._steps = 0

    def why_not(self, value: Any, avro_type: AvroType) -> str | None:
        """
        Return why the JSON *value* is not a default for *avro_type*; None if it is.

        Raises:
            InvalidSchema: The check takes more than ``DEFAULT_STEPS_MAX`` steps.
        """
        self._steps += 1
        if self._steps > DEFAULT_STEPS_MAX:
            raise InvalidSchema(
                f"{self._path}: checking the default takes more than "
                f"{DEFAULT_STEPS_MAX} steps"
            )
        match avro_type:
            case Union(branches):
                reasons = (self.why_not(value, branch) for branch in branches)
                if None in reasons:
                    return None
                return "it matches no branch of the union"
            case Array(items):
                if not isinstance(value, list):
                    return f"{value!r:.50} is not a list"
                return _first(self.why_not(each, items) for each in value)
            case Map(values):
                if not isinstance(value, dict):
                    return f"{value!r:.50} is not an object"
                return _first(self.why_not(each, values) for each in value.values())
            case Record():
                return self._why_no_record(value, avro_type)
            case Enum():
                is_symbol = isinstance(value, str) and value in avro_type.symbols
                return None if is_symbol else f"{value!r:.50} is not a symbol"
            case Fixed(size=size):
                is_bytes = _are_bytes(value) and len(value) == size
                return None if is_bytes else f"{value!r:.50} is not {size} bytes"
            case Primitive(name):
                is_one = _is_primitive(value, name)
                return None if is_one else f"{value!r:.50} is not a valid {name}"

    def _why_no_record(self, value: Any, record: Record) -> str | None:
        if not isinstance(value, dict):
            return f"{value!r:.50} is not an object"
        for part in record.fields:
            if part.name in value:
                reason = self.why_not(value[part.name], part.type)
                if reason is not None:
                    return f"{part.name}: {reason}"
            elif not part.has_default:
                return f"the field {part.name} is missing"
        return None


def _is_primitive(value: Any, name: str) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return is_number and value == int(value) and -(2**31) <= value < 2**31
        case "long":
            return is_number and value == int(value) and -(2**63) <= value < 2**63
        case "float" | "double":
            return is_number or value in ("NaN", "Infinity", "-Infinity")
        case "bytes":
            return _are_bytes(value)
        case _:
            return isinstance(value, str)


def _are_bytes(value: Any) -> bool:
    """Return whether *value* is bytes in JSON: text of the characters 0 to 255."""
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


def _first(reasons: Iterator[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)


def canonical_form(avro_type: AvroType) -> bytes:
    """
    Return bytes that are equal for schemas with the same meaning.

    They are the specification's Parsing Canonical Form, with the attributes that also
    affect how data is read: aliases, defaults and logical types.  They leave out
    documentation, the order of keys and unknown keys.
    """
    return msgspec.json.encode(_form(avro_type, set()), order="deterministic")


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
    form: dict[str, Any] = {"name": avro_type.name, "type": avro_type.kind}
    if avro_type.aliases:
        form["aliases"] = sorted(avro_type.aliases)
    match avro_type:
        case Record(fields=fields):
            parts = []
            for each in fields:
                part: dict[str, Any] = {
                    "name": each.name,
                    "type": _form(each.type, declared),
                }
                if each.aliases:
                    part["aliases"] = sorted(each.aliases)
                if each.has_default:
                    part["default"] = each.default
                parts.append(part)
            form["fields"] = parts
        case Enum(symbols=symbols, default=default):
            form["symbols"] = list(symbols)
            if default is not None:
                form["default"] = default
        case Fixed(size=size, logical=logical):
            form["size"] = size
            form |= {} if logical is None else _logical_form(logical)
    return form


def _logical_form(logical: Logical) -> dict[str, Any]:
    form: dict[str, Any] = {"logicalType": logical.name}
    if logical.precision is not None:
        form |= {"precision": logical.precision, "scale": logical.scale}
    return form
