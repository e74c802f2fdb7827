"""
Whether every value that one JSON Schema allows is allowed by another.

``jsonschema_rs`` proves that for whole schemas.  This file takes apart what it could
not prove, keyword by keyword and property by property, for two reasons: to say
*where* two schemas differ, and to prove what contains itself.  A schema is the
conjunction of its keywords, so it covers a writer if each of its keywords does; what
is left over counts as not covered.

One assumption is made that the specification does not make: who writes by a schema
that names properties, and says nothing of others, writes no others.  Otherwise no
property could ever be added, because an old value might have had anything under its
name.  ``additionalProperties: true`` takes the assumption away.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec

from pydanube.schemas.json_schema.document import REGEX, find_target
from pydanube.schemas.language import INCOMPATIBILITIES_MAX, Incompatibility

STEPS_MAX = 20_000
"""No comparison takes more steps; schemas for which it would are not compared."""

QUICK_PARTS_MAX = 500
QUICK_ALTERNATIVES_MAX = 24
"""Smaller schemas with fewer alternatives are compared in this process."""

_READER = "urn:danube:reader"
_WRITER = "urn:danube:writer"
_ROOTS = {"$defs", "definitions"}
_ANNOTATIONS = {
    "$schema",
    "$id",
    "id",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$vocabulary",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "deprecated",
    "examples",
    "readOnly",
    "writeOnly",
}
# They multiply what has to be compared.
_SLOW = {
    "$dynamicRef",
    "$recursiveRef",
    "dependencies",
    "dependentSchemas",
    "if",
    "not",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
}
# Keywords whose meaning depends on others of the same object stay together.
_TOGETHER = {
    "properties": ("properties", "patternProperties", "additionalProperties"),
    "additionalProperties": (
        "properties",
        "patternProperties",
        "additionalProperties",
    ),
    "patternProperties": ("patternProperties",),
    "items": ("prefixItems", "items"),
    "additionalItems": ("items", "additionalItems"),
    "contains": ("contains", "minContains", "maxContains"),
    "minContains": ("contains", "minContains", "maxContains"),
    "maxContains": ("contains", "minContains", "maxContains"),
    "if": ("if", "then", "else"),
    "then": ("if", "then", "else"),
    "else": ("if", "then", "else"),
    "minimum": ("minimum", "exclusiveMinimum"),
    "exclusiveMinimum": ("minimum", "exclusiveMinimum"),
    "maximum": ("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": ("maximum", "exclusiveMaximum"),
}
_RULES = {
    "type": "type_changed",
    "enum": "enum_narrowed",
    "const": "enum_narrowed",
    "required": "required_added",
    "properties": "property_narrowed",
    "additionalProperties": "additional_properties_narrowed",
    "unevaluatedProperties": "additional_properties_narrowed",
    "items": "items_narrowed",
    "prefixItems": "items_narrowed",
    "minimum": "bound_narrowed",
    "maximum": "bound_narrowed",
    "exclusiveMinimum": "bound_narrowed",
    "exclusiveMaximum": "bound_narrowed",
    "multipleOf": "multiple_of_narrowed",
    "minLength": "length_narrowed",
    "maxLength": "length_narrowed",
    "minItems": "length_narrowed",
    "maxItems": "length_narrowed",
    "minProperties": "length_narrowed",
    "maxProperties": "length_narrowed",
    "pattern": "pattern_changed",
    "format": "format_changed",
    "anyOf": "no_alternative_fits",
    "oneOf": "no_alternative_fits",
}
# An object with these says more about its properties than `properties` does.
_APPLICATORS = {
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "not",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
}


def is_quick_to_compare(reader: Any, writer: Any) -> bool:
    """Whether comparing the documents surely takes few steps."""
    parts = alternatives = 0
    pending = [reader, writer]
    while pending:
        value = pending.pop()
        parts += 1
        if parts > QUICK_PARTS_MAX:
            return False
        if isinstance(value, dict):
            if not _SLOW.isdisjoint(value):
                return False
            for keyword in ("anyOf", "oneOf", "enum", "type"):
                choices = value.get(keyword)
                alternatives += len(choices) if isinstance(choices, list) else 0
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return alternatives <= QUICK_ALTERNATIVES_MAX


def find_incompatibilities(reader: Any, writer: Any) -> list[Incompatibility]:
    """Why some value that *writer* allows is not allowed by *reader*; documents."""
    return _Containment(reader, writer).compare(
        _absolute(reader, _READER), _absolute(writer, _WRITER), "$"
    )


class _Containment:
    """One comparison of two documents."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._documents = {
            uri: _absolute(document, uri)
            for uri, document in ((_READER, reader), (_WRITER, writer))
        }
        self._draft = _draft_of(reader) or _draft_of(writer)
        self._registry = jsonschema_rs.Registry(
            [(uri, document) for uri, document in self._documents.items()],
            draft=self._draft,
        )
        # Pairs that are being compared, or were: a schema inside itself counts as
        # covered meanwhile, and what hinders is found on the way.
        self._compared: dict[bytes, list[Incompatibility]] = {}
        self._order: list[bytes] = []
        """The same pairs, in the order in which they were begun."""
        self._steps = 0

    def compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        """Why *writer*, a part of its document, is not covered by *reader*."""
        if self._covers(reader, writer):
            return []
        pair = msgspec.json.encode((reader, writer), order="deterministic")
        if pair in self._compared:
            return self._compared[pair]
        self._compared[pair] = []
        self._order.append(pair)
        later = len(self._order)
        found = list(dict.fromkeys(self._take_apart(reader, writer, path)))
        found = found[:INCOMPATIBILITIES_MAX]
        if found:
            for judged in self._order[later:]:
                del self._compared[judged]
            del self._order[later:]
        self._compared[pair] = found
        return found

    def _take_apart(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        writer = self._resolved(writer)
        if isinstance(writer, dict):
            alternatives = _alternatives_of(writer)
            if alternatives is not None:
                found = []
                for alternative in alternatives:
                    found += self.compare(reader, alternative, path)
                return found
            writer = self._closed(self._merged(writer))
            if self._covers(reader, writer):
                return []
        reader = self._resolved(reader)
        writer = {} if writer is True else writer
        if not isinstance(reader, dict):
            text = (
                "the writer may have written something, and the reader allows nothing"
            )
            return [Incompatibility(path=path, rule="nothing_allowed", text=text)]
        return self._by_keywords(reader, writer, path)

    def _by_keywords(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        done: set[tuple[str, ...]] = set()
        for keyword, value in reader.items():
            group = _TOGETHER.get(keyword, (keyword,))
            if keyword in _ANNOTATIONS or group in done:
                continue
            done.add(group)
            part = {name: reader[name] for name in group if name in reader}
            if self._covers(part, writer):
                continue
            if keyword == "$ref":
                found += self.compare({"$ref": value}, writer, path)
            elif keyword == "allOf":
                for each in value:
                    found += self.compare(each, writer, path)
            elif keyword in ("anyOf", "oneOf"):
                found += self._alternatives(keyword, value, writer, path)
            elif "properties" in group and "properties" in part:
                found += self._properties(part, writer, path)
            elif keyword == "items" and isinstance(value, dict):
                found += self._items(part, writer, path)
            else:
                found.append(_not_covered(path, keyword, part, writer))
        return found

    def _properties(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        # Whatever else the writer's schema says only makes this narrower.
        written = writer.get("properties", {})
        others = writer.get("additionalProperties", True)
        if writer.get("patternProperties"):
            others = True
        for name, expected in reader["properties"].items():
            where = f"{path}.properties.{name:.100}"
            if name in written:
                found += self.compare(expected, written[name], where)
            elif others is not False:
                found += self.compare(expected, others, where)
        # What is left are the names that the reader does not know.
        shell = {**reader, "properties": dict.fromkeys(reader["properties"], True)}
        if self._covers(shell, writer):
            return found
        if reader.get("patternProperties"):
            return [*found, _not_covered(path, "additionalProperties", reader, writer)]
        allowed = reader.get("additionalProperties", True)
        for name in written:
            if name in reader["properties"]:
                continue
            where = f"{path}.properties.{name:.100}"
            if allowed is False:
                text = f"the writer may have written {name}, which the reader forbids"
                found.append(
                    Incompatibility(path=where, rule="property_removed", text=text)
                )
            else:
                found += self.compare(allowed, written[name], where)
        if others is not False:
            found += self.compare(allowed, others, f"{path}.additionalProperties")
        return found

    def _items(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str
    ) -> list[Incompatibility]:
        written = writer.get("items", True)
        is_plain = "prefixItems" not in reader and "prefixItems" not in writer
        if not is_plain or isinstance(written, list):
            return [_not_covered(path, "items", reader, writer)]
        return self.compare(reader["items"], written, f"{path}.items")

    def _alternatives(
        self, keyword: str, branches: list[Any], writer: dict[str, Any], path: str
    ) -> list[Incompatibility]:
        if keyword == "oneOf" and not self._are_disjoint(branches):
            return [_not_covered(path, "oneOf", {keyword: branches}, writer)]
        nearest: list[Incompatibility] | None = None
        for branch in branches:
            reasons = self.compare(branch, writer, path)
            if not reasons:
                return []
            if nearest is None or len(reasons) < len(nearest):
                nearest = reasons
        return [
            _not_covered(path, keyword, {keyword: branches}, writer),
            *(nearest or []),
        ]

    def _are_disjoint(self, branches: list[Any]) -> bool:
        """Whether no value can be of two of *branches*, surely."""
        for index, branch in enumerate(branches):
            for other in branches[:index]:
                both = self._canonical(branch).intersect(self._canonical(other))
                if str(both.satisfiability()) != "no":
                    return False
        return True

    def _covers(self, reader: Any, writer: Any) -> bool:
        self._steps += 1
        if self._steps > STEPS_MAX:
            return False
        try:
            verdict = self._canonical(reader).covers(self._canonical(writer))
        # What cannot be brought into the canonical form is not proved.
        except (ValueError, TypeError, jsonschema_rs.ValidationError):
            return False
        return str(verdict) == "yes"

    def _canonical(self, schema: Any) -> Any:
        return jsonschema_rs.canonicalize(
            schema,
            draft=self._draft,
            validate_formats=True,
            pattern_options=REGEX,
            registry=self._registry,
            offline=True,
        )

    def _resolved(self, schema: Any) -> Any:
        """*schema*, or what it stands for if it is nothing but a reference."""
        seen = set()
        while isinstance(schema, dict) and "$ref" in schema:
            reference = schema["$ref"]
            if set(schema) - _ANNOTATIONS != {"$ref"} or reference in seen:
                break
            seen.add(reference)
            uri, _, fragment = reference.partition("#")
            schema = find_target(self._documents[uri], f"#{fragment}")
        return schema

    def _closed(self, writer: dict[str, Any]) -> dict[str, Any]:
        """*writer* under the assumption of the module."""
        if not writer.get("properties") or _applied(writer):
            return writer
        required = dict.fromkeys(writer.get("required", ()), True)
        closed = {
            **writer,
            "properties": {**required, **writer["properties"]},
            "additionalProperties": False,
        }
        # A schema that nothing keeps to would be covered by every other.
        is_empty = str(self._canonical(closed).satisfiability()) == "no"
        return writer if is_empty else closed

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """An ``allOf`` of plain objects as one object, if that is what it is."""
        if "allOf" not in schema:
            return schema
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        parts = [rest, *(self._resolved(each) for each in schema["allOf"])]
        merged: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, dict) or _applied(part):
                return schema
            for name, value in part.items():
                if name in _ANNOTATIONS:
                    continue
                if name == "properties":
                    known = merged.setdefault("properties", {})
                    for key, inner in value.items():
                        both = {"allOf": [known[key], inner]} if key in known else inner
                        known[key] = both
                elif name == "required":
                    merged[name] = sorted({*merged.get(name, ()), *value})
                elif merged.setdefault(name, value) != value:
                    return schema
        return merged


def _alternatives_of(writer: dict[str, Any]) -> list[Any] | None:
    """The alternatives of which a value of *writer* is one, if it has such."""
    for keyword in ("anyOf", "oneOf"):
        branches = writer.get(keyword)
        if isinstance(branches, list):
            rest = {
                name: value
                for name, value in writer.items()
                if name != keyword and name not in _ANNOTATIONS
            }
            return [{"allOf": [rest, each]} if rest else each for each in branches]
    types = writer.get("type")
    if isinstance(types, list) and len(types) > 1:
        return [{**writer, "type": each} for each in types]
    return None


def _applied(schema: dict[str, Any]) -> bool:
    return not _APPLICATORS.isdisjoint(schema)


def _not_covered(
    path: str, keyword: str, reader: dict[str, Any], writer: dict[str, Any]
) -> Incompatibility:
    wanted = reader.get(keyword, reader)
    written = writer.get(keyword, "nothing")
    return Incompatibility(
        path=path,
        rule=_RULES.get(keyword, "not_provably_contained"),
        text=f"the reader's {keyword} is {_short(wanted)}, the writer's "
        f"{_short(written)}: not everything that was written is surely allowed",
    )


def _short(value: Any) -> str:
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


def _absolute(value: Any, uri: str) -> Any:
    """A document whose references say which of the two they are in."""
    if isinstance(value, dict):
        absolute = {name: _absolute(inner, uri) for name, inner in value.items()}
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = value.get(keyword)
            if isinstance(target, str):
                absolute[keyword] = f"{uri}{target}"
        absolute.pop("$id", None)
        return absolute
    if isinstance(value, list):
        return [_absolute(inner, uri) for inner in value]
    return value


def _draft_of(document: Any) -> int | None:
    """The number of the draft that the document names, if it does."""
    name = document.get("$schema", "") if isinstance(document, dict) else ""
    for mark, draft in (
        ("2020-12", jsonschema_rs.Draft202012),
        ("2019-09", jsonschema_rs.Draft201909),
        ("draft-07", jsonschema_rs.Draft7),
        ("draft-06", jsonschema_rs.Draft6),
        ("draft-04", jsonschema_rs.Draft4),
    ):
        if mark in name:
            return int(draft)
    return None
