"""
The columns of change events that a source does not declare, and their types.  Pure.

An event of JSON says the types of its columns if Debezium's converter adds the schema.
Otherwise the first value of a column that is not null decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import structs

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.pure.json_messages import quote
from pydanube_spark.pipelines.pure.spec import SchemaChanges, Spec

COLUMNS_MAX = 1000
"""How many columns a source may get: an event's names may be values, such as ids."""

PLAIN_VALUES = (
    (r'\{\s*"\$number(?:Int|Long|Double)"\s*:\s*"([-0-9][-+0-9.eE]*)"\s*\}', "$1"),
    (
        (
            r'\{\s*"\$(?:oid|numberDouble|numberDecimal|uuid|date)"\s*:\s*'
            r'("[^"\\]*"|[-0-9]+)\s*\}'
        ),
        "$1",
    ),
    (r'\{\s*"\$binary"\s*:\s*("[^"\\]*")\s*,\s*"\$type"[^{}]*\}', "$1"),
    (
        r'\{\s*"\$binary"\s*:\s*\{\s*"base64"\s*:\s*("[^"\\]*")[^{}]*\}\s*\}',
        "$1",
    ),
)
"""
Patterns of extended JSON in their order, and the plain JSON that replaces them.

A quotation mark inside of a text follows a backslash, so no text matches.
"""

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TYPES = {
    "int8": "INT",
    "int16": "INT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "float32": "FLOAT",
    "double": "DOUBLE",
    "float64": "DOUBLE",
    "boolean": "BOOLEAN",
    "bytes": "BINARY",
}
_INT64 = range(-(2**63), 2**63)

_WORD = re.compile(
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[<>(),]|[^\s`'<>(),:]+|.", re.DOTALL
)
"""A word of a schema: a name, text, number or sign."""


def with_new_columns(spec: Spec, known: Mapping[str, Mapping[str, str]]) -> Spec:
    """Return *spec* whose sources also have the columns *known*, by source."""
    sources = {}
    for name, source in spec.sources.items():
        new = known.get(name)
        evolves = source.schema_changes is SchemaChanges.EVOLVE
        if new and evolves and source.schema is not None:
            # The user may have added some to the schema since.
            declared = declared_names(source.schema)
            more = [
                f"{quote(each)} {kind}"
                for each, kind in new.items()
                if each not in source.optional_columns and each.lower() not in declared
            ]
            schema = ", ".join([source.schema, *more])
            sources[name] = structs.replace(source, schema=schema)
    return structs.replace(spec, sources={**spec.sources, **sources})


def declared_names(schema: str) -> set[str]:
    """Return the names of the columns of *schema*, in lower case, without fields."""
    names, depth, is_first = set(), 0, True
    for word in _WORD.findall(schema):
        if word.isspace():
            continue
        if is_first:
            is_quoted = word.startswith("`") and len(word) > 1
            name = word[1:-1].replace("``", "`") if is_quoted else word
            names.add(name.lower())
        depth += (word in "<(") - (word in ">)")
        is_first = word == "," and depth == 0
    return names


def columns_of_event(payload: bytes, names: Collection[str]) -> dict[str, str]:
    """
    Return the types of the columns *names* in the row of the event in *payload*.

    Columns that are null, or not in the event, are left out.

    Raises:
        InvalidRequest: The payload is no change event.
    """
    try:
        event = json.loads(payload)
        schema: Any = {}
        if isinstance(event.get("payload"), dict):
            schema, event = event.get("schema"), event["payload"]
        side = "before" if event["op"] == "d" else "after"
        row = event[side]
        row = json.loads(_plain(row)) if isinstance(row, str) else row
        declared = _declared(schema, side)
        return {
            name: _type_of(declared.get(name), row[name])
            for name in names
            if row.get(name) is not None
        }
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InvalidRequest(
            f"it is no change of a row by Debezium: {error}"
        ) from error


def _plain(document: str) -> str:
    """Return *document*, in extended JSON, as plain JSON."""
    for pattern, replacement in PLAIN_VALUES:
        document = re.sub(pattern, replacement.replace("$", "\\"), document)
    return document


def _declared(schema: Any, side: str) -> dict[str, Any]:
    """Return the schemas of the columns in that of an event; none if it has none."""
    sides = (schema or {}).get("fields") or []
    found: Any = next((each for each in sides if each.get("field") == side), {})
    return {each["field"]: each for each in found.get("fields") or []}


def _type_of(schema: Mapping[str, Any] | None, value: Any) -> str:
    return _type_of_value(value) if schema is None else _type_of_schema(schema)


def _type_of_schema(schema: Mapping[str, Any]) -> str:
    """Return the type of values in JSON with Kafka Connect's *schema*."""
    kind = schema["type"]
    if schema.get("name") == _DECIMAL:
        # Base64 of the unscaled value, as the guide says.
        return "STRING"
    if kind == "array":
        return f"ARRAY<{_type_of_schema(schema['items'])}>"
    if kind == "map" and schema["keys"]["type"] == "string":
        return f"MAP<STRING, {_type_of_schema(schema['values'])}>"
    # Nested fields would be lost if only later events had them: they stay JSON.
    return _TYPES.get(kind, "STRING")


def _type_of_value(value: Any) -> str:
    if isinstance(value, list):
        kinds = {
            # Nested ones stay JSON, however deep they are.
            "ARRAY" if isinstance(each, list) else _type_of_value(each)
            for each in value
            if each is not None
        }
        if kinds == {"BIGINT", "DOUBLE"}:
            kinds = {"DOUBLE"}
        is_plain = len(kinds) == 1 and "ARRAY" not in kinds
        return f"ARRAY<{kinds.pop() if is_plain else 'STRING'}>"
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        # Spark would round later values to the scale of a decimal number.
        return "BIGINT" if value in _INT64 else "STRING"
    return "DOUBLE" if isinstance(value, float) else "STRING"
