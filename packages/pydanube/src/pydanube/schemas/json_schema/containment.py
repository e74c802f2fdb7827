"""
Containment: whether one JSON Schema allows all values that another allows.

``jsonschema_rs`` proves this for whole schemas.  If it cannot, this module compares
them keyword by keyword and property by property, to find *where* two schemas differ,
and to prove containment of schemas that contain themselves.  A schema is the
conjunction of its keywords, so it covers a writer if each of its keywords does;
keywords that cannot be proven count as not covered.

One assumption is not in the specification: a writer whose schema names properties, and
says nothing about others, writes no others.  Otherwise no property could ever be added,
because an old value might have anything under its name.  ``additionalProperties: true``
removes the assumption.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import jsonschema_rs
import msgspec

from pydanube.schemas.json_schema.document import find_target, regex_of
from pydanube.schemas.language import ComparedPairs, Incompatibility, nested_values

STEPS_MAX = 20_000
"""A comparison that takes more steps is given up."""

QUICK_PARTS_MAX = 500
QUICK_ALTERNATIVES_MAX = 24
"""Smaller schemas with fewer alternatives are compared in this process."""

_READER = "urn:danube:reader"
_WRITER = "urn:danube:writer"
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
# These keywords multiply the number of comparisons.
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
# Keywords whose meaning depends on each other are compared together.
_TOGETHER = {
    keyword: group
    for group in (
        ("properties", "patternProperties", "additionalProperties"),
        ("contains", "minContains", "maxContains"),
        ("if", "then", "else"),
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    )
    for keyword in group
} | {
    "patternProperties": ("patternProperties",),
    "items": ("prefixItems", "items"),
    "additionalItems": ("items", "additionalItems"),
}
_RULES = {
    keyword: rule
    for rule, keywords in (
        ("type_changed", ("type",)),
        ("enum_narrowed", ("enum", "const")),
        ("required_added", ("required",)),
        ("property_narrowed", ("properties",)),
        (
            "additional_properties_narrowed",
            ("additionalProperties", "unevaluatedProperties"),
        ),
        ("items_narrowed", ("items", "prefixItems")),
        ("bound_narrowed", ("minimum", "maximum")),
        ("bound_narrowed", ("exclusiveMinimum", "exclusiveMaximum")),
        ("multiple_of_narrowed", ("multipleOf",)),
        ("length_narrowed", ("minLength", "maxLength", "minItems", "maxItems")),
        ("length_narrowed", ("minProperties", "maxProperties")),
        ("pattern_changed", ("pattern",)),
        ("format_changed", ("format",)),
        ("no_alternative_fits", ("anyOf", "oneOf")),
    )
    for keyword in keywords
}
# With these keywords, an object has more rules for its properties than `properties`.
_APPLICATORS = (_SLOW - {"unevaluatedItems"}) | {
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "additionalProperties",
}


def is_quick_to_compare(reader: Any, writer: Any) -> bool:
    """Return whether comparing the documents certainly takes few steps."""
    alternatives = 0
    for parts, value in enumerate(nested_values([reader, writer])):
        if parts > QUICK_PARTS_MAX:
            return False
        if isinstance(value, dict):
            if not _SLOW.isdisjoint(value):
                return False
            for keyword in ("anyOf", "oneOf", "enum", "type"):
                choices = value.get(keyword)
                alternatives += len(choices) if isinstance(choices, list) else 0
    return alternatives <= QUICK_ALTERNATIVES_MAX


def find_incompatibilities(reader: Any, writer: Any) -> list[Incompatibility]:
    """Return why *reader* does not allow some value that *writer* allows."""
    documents = {
        _READER: _absolute(reader, _READER),
        _WRITER: _absolute(writer, _WRITER),
    }
    draft = _draft_of(reader) or _draft_of(writer)
    return _Containment(documents, draft).compare(
        documents[_READER], documents[_WRITER], "$"
    )


class _Containment:
    """A comparison of two documents."""

    def __init__(self, documents: dict[str, Any], draft: int | None) -> None:
        self._documents = documents
        self._draft = draft
        self._registry = jsonschema_rs.Registry([*documents.items()], draft=draft)
        self._compared = ComparedPairs()
        self._steps = 0

    def compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        """Return why *reader*, a part of its document, does not cover *writer*."""
        if self._covers(reader, writer):
            return []
        pair = msgspec.json.encode((reader, writer), order="deterministic")
        find = partial(self._take_apart, reader, writer, path)
        return self._compared.compare(pair, find)

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
            text = "the writer may have written a value, and the reader allows none"
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
        # All other keywords of the writer's schema only restrict its values further.
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
        # The properties that the reader does not name remain.
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
        """Return whether no value can match two of *branches*."""
        canonical = map(self._canonical, branches)
        return all(
            str(one.intersect(other).satisfiability()) == "no"
            for one, other in combinations(canonical, 2)
        )

    def _covers(self, reader: Any, writer: Any) -> bool:
        self._steps += 1
        if self._steps > STEPS_MAX:
            return False
        try:
            verdict = self._canonical(reader).covers(self._canonical(writer))
        # Schemas without a canonical form cannot be proven.
        except (ValueError, TypeError, jsonschema_rs.ValidationError):
            return False
        return str(verdict) == "yes"

    def _canonical(self, schema: Any) -> Any:
        return jsonschema_rs.canonicalize(
            schema,
            draft=self._draft,
            validate_formats=True,
            pattern_options=regex_of(1),
            registry=self._registry,
            offline=True,
        )

    def _resolved(self, schema: Any) -> Any:
        """Return *schema*, or the target if it is only a reference."""
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
        """Return *writer* without unnamed properties; see the module's assumption."""
        if not writer.get("properties") or _applied(writer):
            return writer
        required = dict.fromkeys(writer.get("required", ()), True)
        closed = {
            **writer,
            "properties": {**required, **writer["properties"]},
            "additionalProperties": False,
        }
        # Every other schema would cover a schema that allows nothing.
        is_empty = str(self._canonical(closed).satisfiability()) == "no"
        return writer if is_empty else closed

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return an ``allOf`` of plain objects as one object; others unchanged."""
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
    """Return the alternatives of a value of *writer*, if it has any."""
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
        f"{_short(written)}: the reader may not allow everything that was written",
    )


def _short(value: Any) -> str:
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


def _absolute(value: Any, uri: str) -> Any:
    """Return a document whose references name *uri* as their document."""
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
