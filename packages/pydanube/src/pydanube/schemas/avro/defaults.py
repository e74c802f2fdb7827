"""
Defaults of fields, which schemas have in JSON, as values.

Source: Apache Avro specification 1.12, "Complex Types", the table of default values.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydanube.schemas.avro.leaves import (
    Leaf,
    Mismatch,
    decimal_of,
    json_converter,
    leaf_converter,
    mismatch,
    python_types,
)
from pydanube.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

DEFAULT_STEPS_MAX = 100_000
"""The maximum number of parts to read one default."""

_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""Texts that stand for numbers which JSON does not have."""


class TooManySteps(Exception):
    """Reading a default takes too long."""


class DefaultReader:
    """A reader of one default; it tries the branches of a union in order."""

    def __init__(self) -> None:
        self._steps = 0

    def read(self, default: Any, avro_type: AvroType) -> Any:
        """
        Return the value of *avro_type* that the JSON value *default* stands for.

        Raises:
            Mismatch: It stands for none.
            TooManySteps: It takes more than ``DEFAULT_STEPS_MAX`` steps.
            RecursionError: It is nested too deeply, perhaps without end.
        """
        self._steps += 1
        if self._steps > DEFAULT_STEPS_MAX:
            raise TooManySteps(f"reading it takes more than {DEFAULT_STEPS_MAX} steps")
        match avro_type:
            case Union(branches):
                return self._of_union(default, branches)
            case Array(items):
                if not isinstance(default, list):
                    raise mismatch(default, "a list")
                return [self.read(each, items) for each in default]
            case Map(values):
                if not isinstance(default, dict):
                    raise mismatch(default, "an object")
                return {key: self.read(each, values) for key, each in default.items()}
            case Record():
                return self._of_record(default, avro_type)
        return _leaf(default, avro_type)

    def _of_union(self, default: Any, branches: tuple[AvroType, ...]) -> Any:
        for branch in branches:
            try:
                return self.read(default, branch)
            except Mismatch:
                continue
        raise mismatch(default, "of a branch of the union")

    def _of_record(self, default: Any, record: Record) -> dict[str, Any]:
        if not isinstance(default, dict):
            raise mismatch(default, "an object")
        found = {}
        for part in record.fields:
            if part.name not in default and not part.has_default:
                raise Mismatch(f"the field {part.name} is missing")
            value = default.get(part.name, part.default)
            try:
                found[part.name] = self.read(value, part.type)
            except Mismatch as error:
                raise error.inside(part.name) from None
        return found


def _leaf(default: Any, leaf: Leaf) -> Any:
    value = default
    if isinstance(leaf, Fixed) or leaf == Primitive("bytes", _logical(leaf)):
        value = _of_bytes(_latin_bytes(default), leaf)
    elif _is_floating(leaf) and default in _NO_NUMBERS:
        value = float(default)
    elif isinstance(default, int) and not isinstance(default, bool):
        # The number of a time.
        convert = json_converter(leaf)
        try:
            value = default if convert is None else convert(default)
        except (OverflowError, ValueError):
            raise mismatch(default, "a time of its type") from None
    elif python_types(leaf)[0] is UUID and isinstance(default, str):
        leaf_converter(leaf)(default)
        value = UUID(default)
    converted = leaf_converter(leaf)(value)
    return converted if _is_floating(leaf) else value


def _of_bytes(data: bytes, leaf: Leaf) -> Any:
    assert not isinstance(leaf, Enum)
    match leaf.logical.name if leaf.logical is not None else "":
        case "decimal":
            assert leaf.logical is not None
            try:
                return decimal_of(
                    data, leaf.logical.precision or 0, leaf.logical.scale or 0
                )
            except ValueError as error:
                raise Mismatch(str(error)) from None
        case "uuid" if isinstance(leaf, Fixed) and len(data) == leaf.size:
            return UUID(bytes=data)
    return data


def _latin_bytes(default: Any) -> bytes:
    """Return bytes that JSON has as text, a character for each byte."""
    try:
        return default.encode("latin-1")  # type: ignore[no-any-return]
    except (AttributeError, UnicodeEncodeError):
        raise mismatch(default, "a text of the characters 0 to 255") from None


def _logical(leaf: Leaf) -> Any:
    return None if isinstance(leaf, Enum) else leaf.logical


def _is_floating(leaf: Leaf) -> bool:
    return leaf in (Primitive("float"), Primitive("double"))
