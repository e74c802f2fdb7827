"""JSON Schemas as Arrow types, for columns of decoded values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.json_schema.document import find_target
from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX

Convert = Callable[[Any], Any]

COLUMN_DEPTH_MAX = DEPTH_MAX // 8
"""Values nested deeper become JSON text; a schema may contain itself."""

_SCALARS: dict[str, tuple[pa.DataType, type | tuple[type, ...]]] = {
    "string": (pa.string(), str),
    "integer": (pa.int64(), int),
    "number": (pa.float64(), (int, float)),
    "boolean": (pa.bool_(), bool),
    "null": (pa.null(), type(None)),
}


def arrow_type_of(schema: Any, document: Any, depth: int = 0) -> pa.DataType:
    """
    Return the Arrow type of a column of *schema*.

    An object with named properties is a struct, and a list of one type is a list.
    Values that may have several types, and values nested deeper than
    ``COLUMN_DEPTH_MAX``, are JSON text; so is the whole value if its references expand
    to more than ``PARTS_MAX`` parts.
    """
    name, schema = single_type(schema, document)
    if _is_text(schema, document, depth):
        return pa.string()
    if name in _SCALARS:
        return _SCALARS[name][0]
    if name == "array" and isinstance(schema.get("items"), dict):
        return pa.list_(arrow_type_of(schema["items"], document, depth + 1))
    if name == "object" and schema.get("properties"):
        return pa.struct(
            [
                pa.field(key, arrow_type_of(inner, document, depth + 1))
                for key, inner in schema["properties"].items()
            ]
        )
    return pa.string()


def converter_of(schema: Any, document: Any, depth: int = 0) -> Convert:
    """
    Return a function that converts decoded values for their column.

    It raises InvalidPayload if a value does not have the column's type.
    """
    name, schema = single_type(schema, document)
    if _is_text(schema, document, depth):
        return _to_json
    if name in _SCALARS:
        return partial(_scalar, name, _SCALARS[name][1])
    if name == "array" and isinstance(schema.get("items"), dict):
        return partial(_list, converter_of(schema["items"], document, depth + 1))
    if name == "object" and schema.get("properties"):
        return partial(
            _struct,
            {
                key: converter_of(inner, document, depth + 1)
                for key, inner in schema["properties"].items()
            },
        )
    return _to_json


def is_plain_object(schema: Any, document: Any) -> bool:
    """Return whether *schema* is an object without parts that become JSON text."""
    name, schema = single_type(schema, document)
    return name == "object" and _is_plain(schema, document, 0)


def _is_plain(schema: Any, document: Any, depth: int) -> bool:
    name, schema = single_type(schema, document)
    if _is_text(schema, document, depth):
        return False
    match name:
        case "array":
            items = schema.get("items")
            return isinstance(items, dict) and _is_plain(items, document, depth + 1)
        case "object":
            properties = schema.get("properties", {})
            return bool(properties) and all(
                _is_plain(inner, document, depth + 1) for inner in properties.values()
            )
        case _:
            return name in _SCALARS


def _is_text(schema: Any, document: Any, depth: int) -> bool:
    if depth:
        return depth > COLUMN_DEPTH_MAX
    return _unfolded(schema, document, 0, {}) > PARTS_MAX


def _unfolded(
    schema: Any, document: Any, depth: int, known: dict[tuple[int, int], int]
) -> int:
    """Return the number of parts of *schema* with all references expanded."""
    name, schema = single_type(schema, document)
    if depth > COLUMN_DEPTH_MAX or name not in ("array", "object"):
        return 1
    place = id(schema), depth
    if place not in known:
        inner = list(schema.get("properties", {}).values())
        if name == "array":
            inner = [schema.get("items")]
        known[place] = 1 + sum(
            _unfolded(each, document, depth + 1, known) for each in inner
        )
    return known[place]


def single_type(schema: Any, document: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the only type besides null that *schema* allows, and its schema."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, dict):
            return None, {}
        if "$ref" in schema:
            schema = find_target(document, schema["$ref"])
            continue
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            others = [each for each in branches if each != {"type": "null"}]
            if len(others) != 1:
                return None, {}
            schema = others[0]
            continue
        types = schema.get("type")
        if isinstance(types, list):
            types = [each for each in types if each != "null"]
            return (types[0] if len(types) == 1 else None), schema
        return types, schema
    return None, {}


def _scalar(name: str, kinds: type | tuple[type, ...], value: Any) -> Any:
    is_other = name != "boolean" and isinstance(value, bool)
    if is_other or not isinstance(value, kinds):
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        raise InvalidPayload(f"{value!r:.50} is not a valid {name}")
    if name == "number":
        assert isinstance(value, int | float)
        # Arrow refuses integers that a float would round.
        return float(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidPayload(f"{value} does not fit into 64 bits")
    return value


def _list(convert: Convert, value: Any) -> Any:
    if not isinstance(value, list):
        raise InvalidPayload(f"{value!r:.50} is not an array")
    return [None if each is None else convert(each) for each in value]


def _struct(converters: dict[str, Convert], value: Any) -> Any:
    if not isinstance(value, dict):
        raise InvalidPayload(f"{value!r:.50} is not an object")
    return {
        name: None if (inner := value.get(name)) is None else convert(inner)
        for name, convert in converters.items()
    }


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
