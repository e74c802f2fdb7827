"""
A YAML reader that records the line of each value.

Text that looks like a date stays text.  Duplicate keys are refused, and so is anything
but mappings, lists, strings, numbers and booleans.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path as FilePath
from typing import Any

import yaml

from pydanube.declarations.pure.problems import (
    InvalidDeclaration,
    Path,
    Problem,
    dotted,
)
from pydanube.model.lazy_dataclasses import dataclass

VALUES_MAX = 100_000
"""The maximum number of values in a file after expanding its aliases."""

_KEPT = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "null")}


@dataclass(slots=True)
class Document:
    """The values of a file, and their lines."""

    tree: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)
    """The line of each key by path, from 1."""

    def line_of(self, path: Path) -> int | None:
        """Return the line of *path*, or of its nearest ancestor."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def read_file(file: FilePath) -> Document:
    """
    Read and parse *file*.

    Raises:
        InvalidDeclaration: It cannot be read, is not YAML, or not a mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidDeclaration(str(file), [Problem("", message)]) from error
    return read_document(text, str(file))


def read_document(text: str, file: str) -> Document:
    """
    Parse *text*, the content of *file*.

    Raises:
        InvalidDeclaration: It is not YAML, or not a mapping.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        reader = _Reader(loader, file)
        tree = {} if node is None else reader.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        reason = ", ".join(each for each in (error.context, error.problem) if each)
        problem = Problem("", f"not YAML: {reason}", line)
        raise InvalidDeclaration(file, [problem]) from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidDeclaration(file, [Problem("", f"not YAML: {reason}")]) from error
    finally:
        loader.dispose()
    if not isinstance(tree, dict):
        found = "the file must be a mapping, such as 'name: orders'"
        raise InvalidDeclaration(file, [Problem("", found, 1)])
    return Document(tree, reader.lines if node is not None else {})


class _Reader:
    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self.lines: dict[Path, int] = {}
        self._loader = loader
        self._file = file
        self._count = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        if self._count > VALUES_MAX or len(path) > 50:
            raise self._refused(path[:3], "too large or too deep", node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, path)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        merged = {id(value) for _, value in node.value}
        self._loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            # Merged keys come first, and the mapping's own keys override them.
            is_own = id(value_node) in merged
            if is_own and key in own:
                raise self._refused((*path, key), "duplicate key", key_node)
            if is_own:
                own.add(key)
            self.lines[(*path, key)] = _line(key_node)
            found[key] = self.value(value_node, (*path, key))
        return found

    def _key(self, node: yaml.Node, path: Path) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._refused(path, "a key must be a string", node)
        return str(node.value)

    def _sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        values = []
        for index, each in enumerate(node.value):
            self.lines[(*path, index)] = _line(each)
            values.append(self.value(each, (*path, index)))
        return values

    def _scalar(self, node: yaml.Node) -> Any:
        return (
            self._loader.construct_object(node)
            if node.tag in _KEPT
            else str(node.value)
        )

    def _refused(self, path: Path, reason: str, node: yaml.Node) -> InvalidDeclaration:
        return InvalidDeclaration(
            self._file, [Problem(dotted(path), reason, _line(node))]
        )


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
