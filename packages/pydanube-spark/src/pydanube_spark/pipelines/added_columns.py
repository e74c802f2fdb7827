"""
The defaults of columns that newer versions of a topic's schema have added.

A row that was written before a column was added has null there.  Computed again from
its message, with the latest version, it has the default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pydanube.client.messages.schema import Schema, schema_of
from pydanube.model.schemas import SchemaType
from pydanube_spark.reader.catalog import Catalog

Default = str | int | float


def defaults_at(catalog: Catalog, topics: Iterable[str]) -> dict[str, Default]:
    """Return ``added_defaults`` of the subject that *topics* are bound to."""
    subject = next((catalog.subject_of(each) for each in sorted(topics)), None)
    if subject is None:
        return {}
    versions = sorted(catalog.subject(subject).versions)
    return added_defaults(
        [schema_of(catalog.schema_version(subject, each)) for each in versions]
    )


def added_defaults(versions: Sequence[Schema[Any]]) -> dict[str, Default]:
    """
    Return the defaults of columns of the last of *versions* that another one lacks.

    Those that are null, lists or objects are left out.  The columns may also be those
    of a nested row, as in change events.
    """
    found = [_defaults(each) for each in versions]
    return {
        name: default
        for name, default in (found[-1] if found else {}).items()
        if isinstance(default, Default) and any(name not in each for each in found)
    }


def _defaults(schema: Schema[Any]) -> Mapping[str, Any]:
    """Return the columns of *schema* with their defaults; None: there is none."""
    if schema.type is SchemaType.AVRO:
        return dict(_avro_fields(json.loads(schema.definition)))
    if schema.type is SchemaType.PROTOBUF:
        return dict(_protobuf_fields(schema.parse().arrow_type()))
    # A value that JSON lacks is null.
    return {}


def _avro_fields(definition: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(definition, list):
        for each in definition:
            yield from _avro_fields(each)
    elif isinstance(definition, dict):
        for each in definition.get("fields", ()):
            yield each["name"], each.get("default")
            yield from _avro_fields(each["type"])
        for name in ("type", "items", "values"):
            yield from _avro_fields(definition.get(name))


def _protobuf_fields(kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    if not pa.types.is_struct(kind):
        return
    for each in kind:
        yield each.name, _zero(each.type)
        yield from _protobuf_fields(each.type)


def _zero(kind: pa.DataType) -> Default | None:
    """Return the value of a field that a message of Protobuf lacks."""
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 0
    return "" if pa.types.is_string(kind) else None
