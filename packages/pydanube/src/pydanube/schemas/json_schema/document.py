"""JSON Schema documents: limits, references and parts."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.language import DEPTH_MAX, PARTS_MAX, nested_values

LINEAR_REGEX = jsonschema_rs.RegexOptions(
    size_limit=16 * 1024, dfa_size_limit=64 * 1024
)
"""Supports fewer patterns, and matches in time proportional to the text."""
LINEAR_PATTERNS_MAX = 256
"""A document with more patterns is validated in another process: they take memory."""
ANCHORS_MAX = 100
"""The maximum number of anchors that a document refers to; each is searched for."""

PATH_LENGTH_MAX = 200
"""The maximum length of a path in error messages."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_document(document: Any) -> None:
    """
    Refuse documents that are too large or too deep, or refer to other documents.

    Raises:
        InvalidSchema: The document is refused; the message has the place.
    """
    if not isinstance(document, dict | bool):
        raise InvalidSchema(
            f"a JSON Schema must be an object, true or false, not {document!r:.50}"
        )
    parts = 0
    anchors: set[str] = set()
    pending: list[tuple[Any, str, int]] = [(document, "$", 0)]
    while pending:
        value, path, depth = pending.pop()
        parts += 1
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"{path}: nested deeper than {DEPTH_MAX}")
        if parts > PARTS_MAX:
            raise InvalidSchema(f"the schema has more than {PARTS_MAX} parts")
        # Only the end of the path is kept: names may be long, and there are many.
        path = path[-PATH_LENGTH_MAX:]
        if isinstance(value, dict):
            _check_references(value, path, anchors)
            pending += [
                (inner, f"{path}.{name:.50}", depth + 1)
                for name, inner in value.items()
            ]
        elif isinstance(value, list):
            pending += [
                (inner, f"{path}[{index}]", depth + 1)
                for index, inner in enumerate(value)
            ]


def regex_of(patterns: int) -> Any:
    """
    Return regex options that limit the memory of all *patterns* together.

    A pattern that would take longer on a payload counts as not matching.
    """
    size = min(1024 * 1024, 64 * 1024 * 1024 // max(1, patterns))
    return jsonschema_rs.FancyRegexOptions(
        backtrack_limit=100_000, size_limit=size, dfa_size_limit=4 * size
    )


def patterns_in(document: Any) -> int:
    """Return the number of regular expressions in *document*."""
    count = 0
    for value in nested_values(document):
        if isinstance(value, dict):
            count += isinstance(value.get("pattern"), str)
            named = value.get("patternProperties")
            count += len(named) if isinstance(named, dict) else 0
    return count


def _check_references(value: dict[str, Any], path: str, anchors: set[str]) -> None:
    for keyword in _REFERENCES:
        target = value.get(keyword)
        if not isinstance(target, str):
            continue
        if target.startswith("#") and target[1:2] not in ("", "/"):
            anchors.add(target)
            if len(anchors) > ANCHORS_MAX:
                raise InvalidSchema(
                    f"{path}: the schema refers to more than {ANCHORS_MAX} anchors; "
                    "use JSON pointers instead, for example #/$defs/Name"
                )
        if not target.startswith("#"):
            raise InvalidSchema(
                f"{path}: {keyword} {target!r:.100} is outside of the document; move "
                "its target to $defs"
            )
    identifier = value.get("$id", value.get("id"))
    if path != "$" and isinstance(identifier, str) and "$id" in value:
        raise InvalidSchema(
            f"{path}: an $id inside the document is not supported, because it changes "
            "the meaning of references"
        )


def find_target(document: Any, reference: str) -> Any:
    """
    Return the target of *reference*, ``#`` and a JSON pointer or an anchor.

    Raises:
        InvalidSchema: The target does not exist.
    """
    fragment = unquote(reference.removeprefix("#"))
    if fragment and not fragment.startswith("/"):
        for value in nested_values(document):
            if isinstance(value, dict) and fragment in (
                value.get("$anchor"),
                value.get("$dynamicAnchor"),
            ):
                return value
        raise InvalidSchema(f"the document has no anchor {fragment!r:.100}")
    value = document
    for part in fragment.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (LookupError, ValueError, TypeError):
            raise InvalidSchema(
                f"the document has nothing at {reference!r:.100}"
            ) from None
    return value
