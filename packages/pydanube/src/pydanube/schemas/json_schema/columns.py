"""JSON Schemas as Arrow types, for columns of decoded values."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pydanube.model.errors import InvalidPayload
from pydanube.schemas.json_schema.document import find_target
from pydanube.schemas.language import DEPTH_MAX, Convert, PartCounter, TooManyParts

COLUMN_DEPTH_MAX = DEPTH_MAX // 8
"""Values nested deeper become JSON text; a schema may contain itself."""

_SCALARS: dict[str, tuple[pa.DataType, type | tuple[type, ...]]] = {
    "string": (pa.string(), str),
    "integer": (pa.int64(), int),
    "number": (pa.float64(), (int, float)),
    "boolean": (pa.bool_(), bool),
    "null": (pa.null(), type(None)),
}


class JsonColumn(NamedTuple):
    """A column of decoded values."""

    type: pa.DataType
    convert: Convert
    """Raises InvalidPayload if a value does not have the column's type."""
    is_plain: bool
    """Whether no part becomes JSON text."""


def column_of(document: Any) -> JsonColumn:
    """
    Return the column of values of *document*.

    An object with named properties is a struct, and a list of one type is a list.
    Values that may have several types, and values nested deeper than
    ``COLUMN_DEPTH_MAX``, are JSON text; so is the whole value if its references expand
    to more than ``PARTS_MAX`` parts.
    """
    try:
        return _column_of(document, document, 0, PartCounter())
    except TooManyParts:
        return _JSON_TEXT


def _column_of(
    schema: Any, document: Any, depth: int, parts: PartCounter
) -> JsonColumn:
    parts.add(depth)
    name, schema = single_type(schema, document)
    if depth > COLUMN_DEPTH_MAX:
        return _JSON_TEXT
    if name in _SCALARS:
        arrow_type, kinds = _SCALARS[name]
        return JsonColumn(arrow_type, partial(_scalar, name, kinds), is_plain=True)
    if name == "array" and isinstance(schema.get("items"), dict):
        items = _column_of(schema["items"], document, depth + 1, parts)
        convert = partial(_list, items.convert)
        return JsonColumn(pa.list_(items.type), convert, items.is_plain)
    if name == "object" and schema.get("properties"):
        columns = {
            key: _column_of(inner, document, depth + 1, parts)
            for key, inner in schema["properties"].items()
        }
        return JsonColumn(
            pa.struct([pa.field(key, each.type) for key, each in columns.items()]),
            partial(_struct, {key: each.convert for key, each in columns.items()}),
            all(each.is_plain for each in columns.values()),
        )
    return _JSON_TEXT


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


_JSON_TEXT = JsonColumn(pa.string(), _to_json, is_plain=False)
