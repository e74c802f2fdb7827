"""
The number of steps that validating a payload with a JSON Schema takes.

A validator evaluates, for each value in a payload, all schemas that apply to it: those
that apply to the same value as another one (``allOf``, ``anyOf``, ``$ref``, …), and
those that several of them have for the same part of a value.  If references occur twice
on the way, this number grows exponentially with the size of the schema; if a schema
refers to itself more than once for the same part, with the depth of the payload.
``ValidationCost`` computes an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.json_schema.document import find_target
from pydanube.schemas.language import nested_values

EXPANDED_MAX = 100_000
"""The maximum number of keywords that a schema may expand to for one value."""
UNBOUNDED = 2**62
"""The cost of a schema without a useful bound."""

_ROUNDS_MAX = 16
"""Recursive schemas with a bound converge in a few rounds."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")
_PATTERN_STEPS = 8
"""Per byte, a pattern takes an automaton longer than a keyword."""
_UNIQUE_STEPS = 16
"""Up to this number of items are compared with each other; more are hashed."""
_UNBOUNDED_KEYWORDS = (
    "$dynamicRef",
    "$recursiveRef",
    # To find unevaluated parts, a validator evaluates other keywords again.
    "unevaluatedProperties",
    "unevaluatedItems",
)
_UNBOUNDED_FORMATS = ("regex", "idn-hostname", "idn-email")


class ValidationCost:
    """The validation cost of one document."""

    def __init__(self, document: Any) -> None:
        """
        Compute the cost of *document*.

        Raises:
            InvalidSchema: It expands to more than ``EXPANDED_MAX`` keywords.
        """
        self._document = document
        self._steps: dict[int, tuple[int, int]] = {}
        """By schema: the steps for a value itself, and for the costliest part of it."""
        self._targets: dict[str, Any] = {}
        self._is_unbounded = False
        self._has_unique = False
        self.is_recursive = False
        """Whether a schema applies itself, to the same value or a part of it."""
        order = self._post_order()
        self._own_steps = {id(schema): self._own_cost(schema) for schema in order}
        self._compute(order)
        self.steps = self._cost_of(document)
        """The maximum number of steps per byte of a payload, or ``UNBOUNDED``."""
        if self._is_unbounded or (self._has_unique and self.is_recursive):
            self.steps = UNBOUNDED

    def _post_order(self) -> list[dict[str, Any]]:
        """Return all schemas in the document, each after those that it applies."""
        order: list[dict[str, Any]] = []
        finished: dict[int, bool] = {}
        pending: list[tuple[Any, bool]] = [(self._document, False)]
        while pending:
            schema, is_finished = pending.pop()
            if is_finished:
                order.append(schema)
                finished[id(schema)] = True
            elif isinstance(schema, dict) and id(schema) in finished:
                self.is_recursive |= not finished[id(schema)]
            elif isinstance(schema, dict):
                finished[id(schema)] = False
                pending.append((schema, True))
                pending += [(each, False) for each in self._applied(schema)]
        return order

    def _compute(self, order: list[dict[str, Any]]) -> None:
        for _ in range(_ROUNDS_MAX):
            changes = [self._update(schema) for schema in order]
            if not any(changes):
                return
        self._is_unbounded = True

    def _update(self, schema: dict[str, Any]) -> bool:
        """Compute the cost from that of the parts; return whether it has changed."""
        in_place, below = self._own_steps[id(schema)], self._part_cost(schema)
        for each in self._applied_in_place(schema):
            steps = self._steps.get(id(each), (1, 0))
            in_place, below = in_place + steps[0], below + steps[1]
        if in_place > EXPANDED_MAX:
            raise InvalidSchema(
                f"the schema expands to more than {EXPANDED_MAX} keywords for one "
                "value; use fewer alternatives, or refer to each of them once"
            )
        new = in_place, min(below, UNBOUNDED)
        has_changed = self._steps.get(id(schema)) != new
        self._steps[id(schema)] = new
        return has_changed

    def _own_cost(self, schema: dict[str, Any]) -> int:
        """Return the steps of the keywords of *schema* themselves."""
        steps = 1 + len(schema)
        for keyword in ("properties", "required"):
            value = schema.get(keyword)
            steps += len(value) if isinstance(value, dict | list) else 0
        for keyword in ("enum", "const", "dependentRequired"):
            steps += _size(schema.get(keyword))
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            steps += _PATTERN_STEPS * len(patterns)
        if isinstance(schema.get("pattern"), str):
            steps += _PATTERN_STEPS
        if schema.get("uniqueItems") is True:
            self._has_unique = True
            steps += _UNIQUE_STEPS
        if any(keyword in schema for keyword in _UNBOUNDED_KEYWORDS) or (
            schema.get("format") in _UNBOUNDED_FORMATS
        ):
            self._is_unbounded = True
        return steps

    def _part_cost(self, schema: dict[str, Any]) -> int:
        """Return the steps for the part of a value that takes most."""
        named = self._max_cost(schema, "properties", "additionalProperties")
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict):
            named += sum(map(self._cost_of, patterns.values()))
        items = self._max_cost(schema, "prefixItems", "items", "additionalItems")
        items += self._cost_of(schema.get("contains"))
        return max(named, items, self._cost_of(schema.get("propertyNames")))

    def _max_cost(self, schema: dict[str, Any], *keywords: str) -> int:
        """Return the highest cost under *keywords*, which exclude each other."""
        return max(
            (
                self._cost_of(each)
                for keyword in keywords
                for each in _schemas_in(schema.get(keyword), keyword)
            ),
            default=0,
        )

    def _cost_of(self, schema: Any) -> int:
        if schema is None:
            return 0
        return max(self._steps.get(id(schema), (1, 0)))

    def _applied_in_place(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Return the schemas that apply to the same value as *schema*."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield self._target(reference)
        for keyword in (*_LISTS, *_SINGLE, *_MAPS):
            yield from _schemas_in(schema.get(keyword), keyword)

    def _applied(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Return the schemas that *schema* applies to a value or to a part of it."""
        yield from self._applied_in_place(schema)
        for keyword in (
            "properties",
            "additionalProperties",
            "patternProperties",
            "prefixItems",
            "items",
            "additionalItems",
            "contains",
            "propertyNames",
        ):
            yield from _schemas_in(schema.get(keyword), keyword)

    def _target(self, reference: str) -> Any:
        if reference not in self._targets:
            try:
                self._targets[reference] = find_target(self._document, reference)
            except InvalidSchema:
                # jsonschema_rs reports what is wrong with the reference.
                self._targets[reference] = None
        return self._targets[reference]


def _schemas_in(value: Any, keyword: str) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict) and keyword in (
        "properties",
        "patternProperties",
        *_MAPS,
    ):
        yield from value.values()
    elif value is not None and keyword not in _LISTS:
        yield value


def _size(value: Any) -> int:
    return sum(
        len(each) for each in nested_values(value) if isinstance(each, dict | list)
    )
