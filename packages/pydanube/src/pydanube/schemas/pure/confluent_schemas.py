"""
Schemas as clients of Confluent's registry know them: ids, types and references.

Their registry numbers schemas; ours numbers subjects and their versions, so an id has
both numbers.  It is positive and has 31 bits, as the prefix of payloads requires.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydanube.model.errors import InvalidSchema, SchemaNotFound
from pydanube.model.schemas import SchemaType
from pydanube.schemas.pure.proto_files import (
    Files,
    ProtoFile,
    join_files,
    split_files,
)

VERSION_BITS = 14
"""A subject has at most 10,000 versions."""
SUBJECT_ID_MAX = (1 << 31 - VERSION_BITS) - 1
"""The last subject whose schemas have ids for these clients."""
DEPTH_MAX = 64
"""The deepest schema in which references are replaced."""

_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords of JSON Schema whose values are no schemas."""
_NAMED = frozenset(
    {
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    }
)
"""Those whose values have schemas by names, which may be the names of keywords."""

_SLASH = "%2F"
"""A slash in the name of a subject, whose names in the registry have none."""

TYPES = {
    "AVRO": SchemaType.AVRO,
    "JSON": SchemaType.JSON_SCHEMA,
    "PROTOBUF": SchemaType.PROTOBUF,
}
NAMES = {value: name for name, value in TYPES.items()}


def id_of(schema_id: int, version: int) -> int:
    """
    Return the id of a *version* of the subject with *schema_id*.

    Raises:
        InvalidSchema: The subject's number is too large for such an id.
    """
    if schema_id > SUBJECT_ID_MAX:
        raise InvalidSchema(
            f"the subject has the number {schema_id}, and ids of 31 bits have room for "
            f"{SUBJECT_ID_MAX}: use the registry of Danube's own clients"
        )
    assert 0 < version < 1 << VERSION_BITS
    return schema_id << VERSION_BITS | version


def parts_of(number: int) -> tuple[int, int]:
    """
    Return the number of the subject and the version that an id has.

    Raises:
        SchemaNotFound: No schema has this id.
    """
    schema_id, version = number >> VERSION_BITS, number & (1 << VERSION_BITS) - 1
    if not 0 < schema_id <= SUBJECT_ID_MAX or not version:
        raise SchemaNotFound(f"Schema not found for ID: {number}")
    return schema_id, version


def stored_name(subject: str) -> str:
    """Return the name in the registry of a subject, which may be the path of a file."""
    return subject.replace("/", _SLASH)


def shown_name(subject: str) -> str:
    """Return the name of a subject of the registry as clients know it."""
    return subject.replace(_SLASH, "/")


def with_json_references(definition: str, referenced: Mapping[str, str]) -> str:
    """
    Return a JSON schema with the *referenced* ones in ``$defs``.

    References to them by name become pointers into the schema, which is so complete
    without others.

    Raises:
        InvalidSchema: A definition is no JSON object, or too deep.
    """
    if not referenced:
        return definition
    schema = _parse_object("the schema", definition)
    definitions = schema.get("$defs", {})
    if not isinstance(definitions, dict):
        raise InvalidSchema("the schema has $defs that are no object")
    keys, taken = dict[str, str](), set(definitions)
    for name in referenced:
        keys[name] = name
        while keys[name] in taken:
            keys[name] += "_"
        taken.add(keys[name])
    places = {name: "#/$defs/" + _escaped(key) for name, key in keys.items()}
    base = str(schema.get("$id", ""))
    for name in referenced:
        # Names are relative to the schema, as references are.
        places.setdefault(_absolute(base, name), places[name])
    complete = _point(schema, lambda to: _place_of(to, base, places), 0)
    complete["$defs"] = complete.get("$defs", {}) | {
        keys[name]: _embedded(_parse_object(name, text), places[name])
        for name, text in referenced.items()
    }
    return json.dumps(complete)


def _parse_object(what: str, text: str) -> dict[str, Any]:
    found = _parse(what, text)
    if not isinstance(found, dict):
        raise InvalidSchema(f"{what} is no JSON object")
    return found


def _escaped(key: str) -> str:
    """Return *key* as a part of a JSON pointer in a reference."""
    return key.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _absolute(base: str, name: str) -> str:
    """Return *name*, which may be relative to the address *base*."""
    return name if ":" in name else base[: base.rfind("/") + 1] + name


def _place_of(reference: str, base: str, places: Mapping[str, str]) -> str:
    name, _, pointer = reference.partition("#")
    place = places.get(name) or places.get(_absolute(base, name))
    if not name or place is None:
        return reference
    # An anchor is one of the whole document.
    is_anchor = pointer and not pointer.startswith("/")
    return f"#{pointer}" if is_anchor else place + pointer


def _embedded(schema: dict[str, Any], place: str) -> Any:
    """Return a schema as a part of another one, at *place*."""
    own = {key: each for key, each in schema.items() if key not in ("$id", "$schema")}

    def place_of(reference: str) -> str:
        is_pointer = reference == "#" or reference.startswith("#/")
        return place + reference[1:] if is_pointer else reference

    return _point(own, place_of, 0)


def _point(node: Any, place_of: Callable[[str], str], depth: int) -> Any:
    """Return *node* with other references."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"the schema is nested more than {DEPTH_MAX} deep")
    if isinstance(node, list):
        return [_point(each, place_of, depth + 1) for each in node]
    if not isinstance(node, dict):
        return node
    found = dict(node)
    for key, each in node.items():
        if key == "$ref" and isinstance(each, str):
            found[key] = place_of(each)
        elif key in _NAMED and isinstance(each, dict):
            found[key] = {
                name: _point(schema, place_of, depth + 2)
                for name, schema in each.items()
            }
        elif key not in _VALUES:
            found[key] = _point(each, place_of, depth + 1)
    return found


def with_proto_references(main: str, referenced: Files) -> str:
    """
    Return a Protobuf definition of *main* with the *referenced* files and theirs.

    If a referenced file needs another version of a file that *main* refers to, it gets
    the one of *main*.

    Raises:
        InvalidSchema: Files have the same name and differ, or have names that are not
            allowed.
    """
    texts: dict[str, str] = {}
    parts = [(file, *split_files(text)) for file, text in referenced.items()]
    for file, _, text in parts:
        _add_file(texts, file.name, text)
    direct = {file.name: file for file in referenced}
    for _, others, _ in parts:
        for each, text in others.items():
            if each.name not in direct:
                _add_file(texts, each.name, text)
    files = {direct.get(name) or ProtoFile(name): text for name, text in texts.items()}
    return join_files(files, main)


def _add_file(texts: dict[str, str], name: str, text: str) -> None:
    if texts.setdefault(name, text) != text:
        raise InvalidSchema(
            f"the schemas that it refers to have different files {name!r:.100}: refer "
            "to one of them directly"
        )


def proto_references(definition: str) -> tuple[str, list[dict[str, object]]]:
    """
    Return the main file of a Protobuf definition, and the references that it needs.

    Raises:
        InvalidSchema: It has files that are no versions of subjects.
    """
    files, main = split_files(definition)
    found: list[dict[str, object]] = [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in files
        if each.subject
    ]
    if files and not found:
        raise InvalidSchema(
            "the schema has files that are not registered as subjects, which Kafka's "
            "clients cannot read"
        )
    return main, found


def with_references(definition: str, referenced: Mapping[str, str]) -> str:
    """
    Return an Avro *definition* in which the *referenced* types are defined.

    The first use of each name is replaced by its definition, so that the schema is
    complete without others.

    Raises:
        InvalidSchema: A definition is not JSON, or too deep.
    """
    if not referenced:
        return definition
    pending = {name: _parse(name, text) for name, text in referenced.items()}
    return json.dumps(_define(_parse("the schema", definition), "", pending, 0))


def _parse(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"{what} is not JSON: {error}") from None


def _define(node: Any, namespace: str, pending: dict[str, Any], depth: int) -> Any:
    """Return *node* with the *pending* types defined; takes those away."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"the schema is nested more than {DEPTH_MAX} deep")
    if isinstance(node, str):
        full = f"{namespace}.{node}" if namespace and "." not in node else node
        for name in (full, node):
            if name in pending:
                return _define(pending.pop(name), "", pending, depth + 1)
        return node
    if isinstance(node, list):
        return [_define(each, namespace, pending, depth + 1) for each in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("name", ""))
    own = name.rpartition(".")[0] or str(node.get("namespace", namespace))
    found = dict(node)
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = _define(found[key], own, pending, depth + 1)
    fields = found.get("fields")
    if isinstance(fields, list):
        found["fields"] = [
            each | {"type": _define(each["type"], own, pending, depth + 1)}
            if isinstance(each, dict) and "type" in each
            else each
            for each in fields
        ]
    return found
