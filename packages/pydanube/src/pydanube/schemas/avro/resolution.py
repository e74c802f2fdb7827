"""
Schema resolution: whether data written with one Avro schema can be read with another.

Source: Apache Avro specification 1.12, "Schema Resolution".  Rules of the specification
that depend on the data (the branch of a union, the symbol of an enum) are checked for
all possible data.  Two rules are stricter than the specification, which leaves the
meaning to the reader: different logical types, and different units, do not match.
"""

from __future__ import annotations

from functools import partial

from pydanube.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from pydanube.schemas.language import ComparedPairs, Incompatibility

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The types that a writer's type can be promoted to."""

STEPS_MAX = 100_000
"""A comparison that takes more steps is given up."""

SYMBOLS_PER_STEP = 16

_TOO_COMPLEX = (
    f"the comparison takes more than {STEPS_MAX} steps, so it is not known whether the "
    "writer's data can be read"
)


def find_incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Return why *reader* cannot read some data that *writer* allows."""
    return _Resolution().compare(reader, writer, "")


class _Resolution:
    """A comparison of two schemas."""

    def __init__(self) -> None:
        self._compared = ComparedPairs()
        self._fields: dict[int, dict[str, AvroType]] = {}
        self._steps = 0

    def compare(
        self, reader: AvroType, writer: AvroType, path: str
    ) -> list[Incompatibility]:
        self._steps += 1
        if self._steps > STEPS_MAX:
            return _found("/", "too_complex", _TOO_COMPLEX)
        if isinstance(writer, Union):
            return self._of_writers_union(reader, writer, path)
        if isinstance(reader, Union):
            return self._with_readers_union(reader, writer, path)
        match reader, writer:
            case Record(), Record():
                pair = (id(reader), id(writer))
                find = partial(self._compare_fields, reader, writer, path)
                return _names(reader, writer, path) or self._compared.compare(
                    pair, find
                )
            case Enum(), Enum():
                symbols = len(reader.symbols) + len(writer.symbols)
                self._steps += symbols // SYMBOLS_PER_STEP
                return _names(reader, writer, path) or _enums(reader, writer, path)
            case Fixed(), Fixed():
                return _names(reader, writer, path) or _fixed(reader, writer, path)
            case Array(), Array():
                return self.compare(reader.items, writer.items, f"{path}/items")
            case Map(), Map():
                return self.compare(reader.values, writer.values, f"{path}/values")
            case Primitive(), Primitive():
                return _primitives(reader, writer, path)
        return _type_changed(reader, writer, path)

    def _of_writers_union(
        self, reader: AvroType, writer: Union, path: str
    ) -> list[Incompatibility]:
        found = []
        for branch in writer.branches:
            reasons = self.compare(reader, branch, path)
            if reasons and not isinstance(reader, Union):
                found += _found(
                    path,
                    "writer_union_branch_unreadable",
                    f"the writer may have written {_text(branch)}, which "
                    f"cannot be read as {_text(reader)}",
                )
            found += reasons
        return found

    def _with_readers_union(
        self, reader: Union, writer: AvroType, path: str
    ) -> list[Incompatibility]:
        nearest: list[Incompatibility] = []
        for branch in reader.branches:
            reasons = self.compare(branch, writer, path)
            if not reasons:
                return []
            if branch.kind == writer.kind:
                nearest = reasons
        text = f"the writer's {_text(writer)} fits no branch of the reader's union"
        return _found(path, "reader_union_lacks_branch", text) + nearest

    def _compare_fields(
        self, reader: Record, writer: Record, path: str
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        if id(writer) not in self._fields:
            self._fields[id(writer)] = {each.name: each.type for each in writer.fields}
        fields = self._fields[id(writer)]
        for part in reader.fields:
            where = f"{path}/fields/{part.name}"
            names = [name for name in (part.name, *part.aliases) if name in fields]
            if names:
                found += self.compare(part.type, fields[names[0]], where)
            elif not part.has_default:
                text = (
                    f"the writer has no field {part.name}, and the reader has no "
                    "default for it"
                )
                found += _found(where, "reader_field_missing_default", text)
        return found


def _names(reader: Named, writer: Named, path: str) -> list[Incompatibility]:
    """Compare the last parts of the names, and the reader's aliases."""
    if _last(reader.name) == _last(writer.name) or writer.name in reader.aliases:
        return []
    return _found(
        path,
        "name_changed",
        f"the writer's {writer.kind} is called {writer.name}, the "
        f"reader's {reader.name}, which has no such alias",
    )


def _enums(reader: Enum, writer: Enum, path: str) -> list[Incompatibility]:
    if reader.symbols == writer.symbols:
        return []
    known = frozenset(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not None:
        return []
    return _found(
        f"{path}/symbols",
        "enum_symbols_missing",
        f"the reader's enum {reader.name} lacks {', '.join(missing[:10])}, "
        "and has no default",
    )


def _fixed(reader: Fixed, writer: Fixed, path: str) -> list[Incompatibility]:
    if reader.size != writer.size:
        return _found(
            f"{path}/size",
            "fixed_size_changed",
            f"fixed {writer.name} has {writer.size} bytes for the writer, "
            f"{reader.size} for the reader",
        )
    return _logical(reader.logical, writer.logical, path)


def _primitives(
    reader: Primitive, writer: Primitive, path: str
) -> list[Incompatibility]:
    if reader.name != writer.name and reader.name not in PROMOTIONS.get(
        writer.name, ()
    ):
        return _type_changed(reader, writer, path)
    return _logical(reader.logical, writer.logical, path)


def _logical(
    reader: Logical | None, writer: Logical | None, path: str
) -> list[Incompatibility]:
    if reader is None or writer is None or reader == writer:
        return []
    return _found(
        path,
        "logical_type_changed",
        f"the writer means {writer}, the reader {reader}",
    )


def _type_changed(
    reader: AvroType, writer: AvroType, path: str
) -> list[Incompatibility]:
    return _found(
        path,
        "type_changed",
        f"the writer's {_text(writer)} cannot be read as {_text(reader)}",
    )


def _found(path: str, rule: str, text: str) -> list[Incompatibility]:
    return [Incompatibility(path=path or "/", rule=rule, text=text)]


def _text(avro_type: AvroType) -> str:
    if isinstance(avro_type, Named):
        return f"{avro_type.kind} {avro_type.name}"
    return avro_type.kind


def _last(name: str) -> str:
    return name.rpartition(".")[2]
