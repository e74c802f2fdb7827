"""
The encoder of Avro values, by the types of the values.

It refuses values that do not match.  Of the branches of a union, it takes the first one
that the value matches, with these preferences: an integer is an ``int`` or ``long``
rather than a number of floating point, which it may also be; a dict is a record that
has its fields rather than one with more fields.

Source: Apache Avro specification 1.12, "Data Serialization and Deserialization".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydanube.schemas.avro.leaves import (
    Convert,
    Leaf,
    Mismatch,
    is_of,
    json_converter,
    leaf_converter,
    mismatch,
    python_types,
)
from pydanube.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

Write = Callable[[Any, bytearray], None]
"""Appends the encoding of a value, or raises ``Mismatch``."""

ATTEMPTS_MAX = 10_000
"""The most branches that one value, with all inside it, may fail to match."""


class AvroEncoder:
    """An encoder of the values of one schema."""

    def __init__(
        self, root: AvroType, *, takes_json: bool = False, writes_texts: bool = False
    ) -> None:
        """
        Compile *root*.

        Args:
            root: The schema.
            takes_json: Whether texts and numbers of JSON are values of types that JSON
                does not have.
            writes_texts: Whether decimals are values of strings; classes have decimals
                there, and get them back.
        """
        self._takes_json = takes_json
        self._writes_texts = writes_texts
        self._records: dict[int, Write] = {}
        self._attempts = 0
        self._write = self._writer(root)

    def encode(self, value: Any) -> bytes:
        """
        Return *value* as a datum.

        Raises:
            Mismatch: It does not match the schema, or more than ``ATTEMPTS_MAX``
                branches of unions would have to be tried.
            RecursionError: It is nested too deeply.
            UnicodeEncodeError: A text has half of a surrogate pair.
        """
        self._attempts = 0
        out = bytearray()
        self._write(value, out)
        return bytes(out)

    def _writer(self, avro_type: AvroType) -> Write:
        match avro_type:
            case Array(items):
                return self._array(items)
            case Map(values):
                return self._map(values)
            case Union(branches):
                return self._union(branches)
            case Record():
                return self._record(avro_type)
        return self._leaf(avro_type)

    def _leaf(self, leaf: Leaf) -> Write:
        convert = leaf_converter(leaf)
        if self._writes_texts and leaf == Primitive("string"):
            convert = _texts_of_decimals(convert)
        of_json = json_converter(leaf) if self._takes_json else None
        if of_json is not None:
            convert = _from_json(of_json, convert)
        return _written(leaf, convert)

    def _array(self, items: AvroType) -> Write:
        write_item = self._writer(items)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, list | tuple):
                raise mismatch(value, "an array, which is a list")
            if value:
                write_long(len(value), out)
                for index, each in enumerate(value):
                    try:
                        write_item(each, out)
                    except Mismatch as error:
                        raise error.inside(f"[{index}]") from None
            out.append(0)

        return write

    def _map(self, values: AvroType) -> Write:
        write_value = self._writer(values)

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise mismatch(value, "a map, which is a dict")
            if value:
                write_long(len(value), out)
                for key, each in value.items():
                    if not isinstance(key, str):
                        raise mismatch(key, "text, as the keys of a map are")
                    write_bytes(key.encode(), out)
                    try:
                        write_value(each, out)
                    except Mismatch as error:
                        raise error.inside(f"[{key!r:.80}]") from None
            out.append(0)

        return write

    def _record(self, record: Record) -> Write:
        if id(record) not in self._records:
            fields: dict[str, tuple[Write, Field]] = {}
            # Before its fields, which may contain the record itself.
            self._records[id(record)] = _record_writer(record, fields)
            for each in record.fields:
                fields[each.name] = (self._writer(each.type), each)
        return self._records[id(record)]

    def _union(self, branches: tuple[AvroType, ...]) -> Write:
        written = []
        for index, branch in enumerate(branches):
            prefix = bytearray()
            write_long(index, prefix)
            written.append((bytes(prefix), self._writer(branch), branch))
        text = ", ".join(map(_text, branches[:10]))
        by_type: dict[type, list[tuple[bytes, Write, AvroType]]] = {}

        def write(value: Any, out: bytearray) -> None:
            kind = type(value)
            if kind not in by_type:
                by_type[kind] = self._candidates(kind, written)
            candidates = by_type[kind]
            if isinstance(value, dict) and len(candidates) > 1:
                candidates = sorted(candidates, key=lambda each: _lacks(each[2], value))
            start = len(out)
            failure = None
            for prefix, write_branch, _ in candidates:
                out += prefix
                try:
                    write_branch(value, out)
                except Mismatch as error:
                    self._count_attempt()
                    del out[start:]
                    failure = error
                else:
                    return
            if failure is not None and len(candidates) == 1:
                raise failure
            raise mismatch(value, f"of a branch of the union [{text}]")

        return write

    def _candidates(
        self, kind: type, written: list[tuple[bytes, Write, AvroType]]
    ) -> list[tuple[bytes, Write, AvroType]]:
        """Return the branches for values of *kind*, the preferred ones first."""
        ranked = [(self._rank(kind, each[2]), each) for each in written]
        found = [(rank, each) for rank, each in ranked if rank is not None]
        return [each for _, each in sorted(found, key=lambda one: one[0])]

    def _rank(self, kind: type, branch: AvroType) -> int | None:
        """Return how well *branch* suits values of *kind*, 0 is best; None: not."""
        match branch:
            case Array():
                return 0 if issubclass(kind, list | tuple) else None
            case Map() | Record():
                return 0 if issubclass(kind, dict) else None
            case Union():
                raise AssertionError("the parser refuses unions directly in unions")
        accepted = python_types(branch)
        for rank, each in enumerate(accepted):
            if is_of(kind, each):
                # Rather a double than a float, which has less precision.
                return 2 * rank + (branch == Primitive("float"))
        if self._writes_texts and kind is Decimal and branch == Primitive("string"):
            return 8
        if self._takes_json and json_converter(branch) is not None:
            return 9 if issubclass(kind, str | int | float) else None
        return None

    def _count_attempt(self) -> None:
        self._attempts += 1
        if self._attempts > ATTEMPTS_MAX:
            # No Mismatch, after which other branches would be tried.
            raise ValueError(
                f"more than {ATTEMPTS_MAX} branches of unions had to be tried"
            )


def write_long(number: int, out: bytearray) -> None:
    """Append *number*, which has at most 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def write_bytes(data: bytes, out: bytearray) -> None:
    """Append the length of *data* and *data*."""
    write_long(len(data), out)
    out += data


def _written(leaf: Leaf, convert: Convert) -> Write:  # One for each kind.
    """Return how to append what *convert* returns, a value of *leaf*'s kind."""

    def write_null(value: Any, out: bytearray) -> None:
        convert(value)

    def write_boolean(value: Any, out: bytearray) -> None:
        out.append(convert(value))

    def write_integer(value: Any, out: bytearray) -> None:
        write_long(convert(value), out)

    def write_float(value: Any, out: bytearray) -> None:
        out += struct.pack("<f", convert(value))

    def write_double(value: Any, out: bytearray) -> None:
        out += struct.pack("<d", convert(value))

    def write_variable(value: Any, out: bytearray) -> None:
        write_bytes(convert(value), out)

    def write_text(value: Any, out: bytearray) -> None:
        write_bytes(convert(value).encode(), out)

    def write_fixed(value: Any, out: bytearray) -> None:
        out += convert(value)

    if isinstance(leaf, Enum):
        numbers = {symbol: number for number, symbol in enumerate(leaf.symbols)}
        return lambda value, out: write_long(numbers[convert(value)], out)
    if isinstance(leaf, Fixed):
        return write_fixed
    return {
        "null": write_null,
        "boolean": write_boolean,
        "int": write_integer,
        "long": write_integer,
        "float": write_float,
        "double": write_double,
        "bytes": write_variable,
        "string": write_text,
    }[leaf.name]


def _record_writer(record: Record, fields: dict[str, tuple[Write, Field]]) -> Write:
    """Return the writer of *record*; *fields* is filled in later."""

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise mismatch(value, f"a record {record.name}, which is a dict")
        present = 0
        for name, (write_field, part) in fields.items():
            if name in value:
                present += 1
                try:
                    write_field(value[name], out)
                except Mismatch as error:
                    raise error.inside(name) from None
            elif part.has_default:
                write_field(part.default_value, out)
            else:
                raise Mismatch(f"the field {name} is missing, which has no default")
        if present < len(value):
            unknown = next(name for name in value if name not in fields)
            raise Mismatch(
                f"the record {record.name} has no field {unknown!r:.80}; it has "
                f"{', '.join(list(fields)[:20]) or 'none'}"
            )

    return write


def _texts_of_decimals(convert: Convert) -> Convert:
    return lambda value: convert(str(value) if isinstance(value, Decimal) else value)


def _from_json(of_json: Convert, convert: Convert) -> Convert:
    def convert_json(value: Any) -> Any:
        try:
            return convert(of_json(value))
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, Mismatch):
                raise
            raise mismatch(value, f"a value of its type: {error}") from None

    return convert_json


def _lacks(branch: AvroType, value: dict[Any, Any]) -> bool:
    """Return whether *value* lacks fields of *branch*, which then have defaults."""
    return isinstance(branch, Record) and len(branch.fields) > len(value)


def _text(branch: AvroType) -> str:
    name = branch.name if isinstance(branch, Record | Enum | Fixed) else branch.kind
    logical = getattr(branch, "logical", None)
    return name if logical is None else f"{name} ({logical})"
