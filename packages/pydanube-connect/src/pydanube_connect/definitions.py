"""
The definitions of connectors that a broker stores: from files, and for workers.

A definition is the section of one connector, with the values of parameters and with
references to secrets, as JSON.  A worker reads the secrets when it runs the connector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from pydanube.client.client import Client
from pydanube.client.producers.typed_producer import default_subject
from pydanube.declarations.loading import DeclaredFile, open_document
from pydanube.declarations.pure.literal_secrets import literal_secrets
from pydanube.declarations.pure.parameters import has_reference
from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.reading import Document, read_document, read_file
from pydanube.model.stored_connectors import StoredConnector
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube_connect.connector import Source
from pydanube_connect.loading import DeclaredConnector, connectors_of
from pydanube_connect.pure.spec import ConnectorSpec
from pydanube_connect.sinks.spark import SparkSink

_LITERAL = (
    "is a secret in plain text, which a broker does not store: write ${file:NAME} or "
    "${env:NAME}, and give the secret to the workers"
)
_BROKER = (
    "a stored connector uses the broker that stores it: leave this out, and apply the "
    "file with --url"
)
_FILE = (
    "names a file of yours, which only 'danube connect apply' can check: apply it there"
)
_FUNCTION = re.compile(r"\.py:\w+$")
_SPARK = (
    "runs with Spark, whose checkpoints are on one machine: run it with 'danube "
    "connect run'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a connector."""

    name: str
    kind: str
    topic: str
    text: str
    """A JSON object, sorted by name."""
    declared: DeclaredConnector
    """The connector, with references instead of secrets: it cannot run."""


def read_definitions(
    file: Path, parameters: Mapping[str, str] | None = None
) -> list[Definition]:
    """
    Return the definitions in *file*, checked as far as it goes without the secrets.

    Raises:
        InvalidDeclaration: The file is invalid, or has what cannot be stored; the error
            has all problems.
    """
    file = file.resolve()
    return _definitions_in(read_file(file), file, parameters or {})


def parse_definitions(
    text: str, directory: Path, *, may_name_files: bool = True
) -> list[Definition]:
    """
    Return the definitions in *text*, the content of a file in *directory*.

    Unless they *may_name_files*, files of users are refused before one is opened.

    Raises: As ``read_definitions``.
    """
    name = "the definition"
    document = read_document(text, name)
    return _definitions_in(
        document, directory / name, {}, may_name_files=may_name_files
    )


def file_of(name: str, definition: str) -> str:
    """Return a definition as a file that can be applied."""
    fields = fields_of(definition)
    first = {each: fields[each] for each in ("kind", "topic")}
    connectors = {"connectors": {name: {**first, **fields}}}
    text: str = yaml.safe_dump(connectors, sort_keys=False, allow_unicode=True)
    return text.rstrip()


def files_in(tree: Any, path: SpecPath = ()) -> Iterator[SpecPath]:
    """Yield the places that name files or modules of users, which checks open."""
    if isinstance(tree, dict):
        for name, each in tree.items():
            is_named = name in {"function", "file"} and len(path) != 1
            # Such as certificate_file.
            is_named |= name.endswith("_file") and path[2:] == ("options",)
            is_kind = name == "kind" and isinstance(each, str) and ":" in each
            if is_named or is_kind:
                yield (*path, name)
            else:
                yield from files_in(each, (*path, name))
    elif isinstance(tree, list):
        for number, each in enumerate(tree):
            yield from files_in(each, (*path, number))
    elif isinstance(tree, str) and _FUNCTION.search(tree):
        yield path


def load_definition(
    stored: StoredConnector,
    directory: Path,
    environment: Mapping[str, str],
    broker: str,
) -> DeclaredConnector:
    """
    Return the connector of a definition, with the secrets of *environment*.

    Relative paths and functions refer to *directory*.

    Raises:
        InvalidDeclaration: It is invalid here, for example because a secret is missing.
    """
    fields = msgspec.json.decode(stored.definition, type=dict[str, Any])
    document = Document({"connectors": {stored.name: fields}})
    name = f"the definition of {stored.name}"
    declared = open_document(document, directory / name, {}, environment)
    tree = declared.substitution.substitute(document.tree)
    found = connectors_of(declared, tree, broker)
    _refuse_unstorable(declared, document.tree, found)
    declared.refuse()
    return found[0]


def fields_of(definition: str) -> dict[str, Any]:
    """Return a definition as the section of a file."""
    found: dict[str, Any] = msgspec.json.decode(definition)
    return found


def changes_of(before: str, after: str) -> list[str]:
    """Return in words in what the definition *after* differs from *before*."""
    old, new = _leaves(fields_of(before)), _leaves(fields_of(after))
    return [
        f"{name}: {_shown(old, name)} → {_shown(new, name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def accesses_of(declared: DeclaredConnector) -> list[tuple[Permission, str]]:
    """Return the permissions that a connector needs on topics that exist."""
    spec = declared.spec
    needs: list[tuple[Permission, str]] = []
    if declared.is_source:
        needs += accesses_to_publish(declared.spec, spec.topic)
        assert issubclass(declared.kind, Source)
        if declared.kind.has_positions:
            topic = declared.positions_topic
            needs += [(Permission.PRODUCE, topic), (Permission.CONSUME, topic)]
    else:
        needs.append((Permission.CONSUME, spec.topic))
    if spec.dead_letters is not None:
        needs.append((Permission.PRODUCE, spec.dead_letters))
    return needs


def accesses_to_publish(
    spec: ConnectorSpec, topic: str
) -> list[tuple[Permission, str]]:
    """Return the permissions that a source needs on a *topic* of its messages."""
    needs = [(Permission.PRODUCE, topic)]
    if spec.deduplicate is not None:
        # It sets the window of a topic that has none.
        needs.append((Permission.MANAGE, topic))
    return needs


async def access_to_subject(
    client: Client, declared: DeclaredConnector, topic: str
) -> tuple[Permission, str] | None:
    """Return the permission that schemas of a source need, and on which subject."""
    schema, kind = declared.spec.schema, declared.kind
    if schema is not None:
        reads = schema.file is None
    elif issubclass(kind, Source) and kind.finds_schemas(declared.options):
        reads = False
    else:
        return None
    permission = Permission.SCHEMA_READ if reads else Permission.SCHEMA_WRITE
    subject = await default_subject(client.schemas, topic)
    return permission, str(Resource.subject(subject))


def _definitions_in(
    document: Document,
    file: Path,
    parameters: Mapping[str, str],
    *,
    may_name_files: bool = True,
) -> list[Definition]:
    declared = open_document(document, file, parameters, {}, keeps_references=True)
    tree = declared.substitution.substitute(document.tree)
    if not may_name_files:
        # Parameters may have put the names together.
        for path in files_in(tree):
            declared.problems.add(path, _FILE)
        declared.refuse()
    found = connectors_of(declared, tree, "")
    # Only the workers know the values.
    declared.problems.leave_out_values(
        lambda path: has_reference(_value_at(tree, path))
    )
    _refuse_unstorable(declared, tree, found)
    sections = tree.get("connectors") or {}
    for name in sections.keys() - {each.name for each in found}:
        path = ("connectors", name)
        if not declared.problems.under(path):
            text = "a required option that is a number cannot be a reference"
            declared.problems.add((*path, "options"), text)
    declared.refuse()
    return [
        Definition(
            name=each.name,
            kind=each.spec.kind,
            topic=each.spec.topic,
            text=msgspec.json.encode(sections[each.name], order="sorted").decode(),
            declared=each,
        )
        for each in found
    ]


def _refuse_unstorable(
    declared: DeclaredFile, tree: dict[str, Any], found: list[DeclaredConnector]
) -> None:
    """Add the problems of what cannot be stored to those of *declared*."""
    problems = declared.problems
    if "broker" in tree:
        problems.add(("broker",), _BROKER)
    for each in found:
        base: SpecPath = ("connectors", each.name)
        section = tree["connectors"][each.name]
        if "broker" in section:
            problems.add((*base, "broker"), _BROKER)
        if issubclass(each.kind, SparkSink):
            problems.add((*base, "kind"), f"{each.spec.kind} {_SPARK}")
        for path in literal_secrets(section.get("options")):
            problems.add((*base, "options", *path), _LITERAL)


def _value_at(tree: Any, path: SpecPath) -> Any:
    """Return the value at *path*, or the last one on the way that is text."""
    for each in path:
        try:
            tree = tree[each]
        except (KeyError, IndexError, TypeError):
            return tree if isinstance(tree, str) else None
    # What is wrong with a whole section has another reason.
    return None if isinstance(tree, dict) else tree


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return the values in nested sections by their dotted names."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    found: dict[str, Any] = {}
    for name, each in value.items():
        found |= _leaves(each, f"{path}.{name}".removeprefix("."))
    return found


def _shown(leaves: dict[str, Any], name: str) -> str:
    if name not in leaves:
        return "not given"
    return msgspec.json.encode(leaves[name]).decode()
