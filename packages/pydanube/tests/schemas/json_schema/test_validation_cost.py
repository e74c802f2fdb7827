"""The number of steps that JSON Schemas take to validate a payload."""

from __future__ import annotations

import itertools
import json

import pytest

from pydanube.model.errors import InvalidSchema
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.json_schema.validation_cost import (
    EXPANDED_MAX,
    UNBOUNDED,
    ValidationCost,
)
from pydanube.schemas.parsed_schema import STEPS_IN_PROCESS_MAX
from support.drivers.limited import run_limited

PLAIN = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}},
    },
    "required": ["id"],
}
TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
}
EXPRESSION = {
    "oneOf": [
        {"type": "number"},
        {"properties": {"op": {"const": "+"}, "left": {"$ref": "#"}}},
        {"properties": {"op": {"const": "-"}, "left": {"$ref": "#"}}},
    ]
}


def doubled(depth, keyword="anyOf"):
    """Return a schema that refers to another one twice, and so on."""
    parts = {
        f"d{number}": {keyword: [{"$ref": f"#/$defs/d{number + 1}"}] * 2}
        for number in range(depth)
    }
    parts[f"d{depth}"] = {"type": "string"}
    return {"$ref": "#/$defs/d0", "$defs": parts}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_references_that_double_are_refused(keyword):
    with pytest.raises(InvalidSchema, match=f"more than {EXPANDED_MAX} keywords"):
        JsonSchema(json.dumps(doubled(40, keyword)))


def test_cost_doubles_with_each_pair_of_references():
    weights = [ValidationCost(doubled(depth)).steps for depth in range(3, 9)]
    for lighter, heavier in itertools.pairwise(weights):
        assert lighter * 2 <= heavier <= lighter * 2 + 10


def test_doubling_below_a_value_counts_like_doubling_in_place():
    schema = {"type": "string"}
    for _ in range(12):
        part = {"properties": {"a": schema}}
        schema = {"allOf": [part, part]}
    assert ValidationCost(schema).steps >= 2**12


def test_typical_schemas_have_a_low_cost():
    assert ValidationCost(PLAIN).steps < 20
    assert ValidationCost({"type": "string"}).steps < 5
    assert ValidationCost(True).steps == 1


def test_recursive_tree_costs_as_much_as_a_node():
    tree = ValidationCost(TREE)
    assert tree.is_recursive
    assert tree.steps < 20


@pytest.mark.parametrize(
    "document",
    [
        EXPRESSION,
        {"$ref": "#"},
        {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2},
        {"items": {"$ref": "#"}, "uniqueItems": True},
        {"unevaluatedProperties": False},
        {"$dynamicRef": "#here", "$defs": {"here": {"$dynamicAnchor": "here"}}},
        {"format": "regex"},
    ],
)
def test_schemas_with_superlinear_cost_have_no_bound(document):
    schema = JsonSchema(json.dumps(document))
    assert schema.steps_per_byte == UNBOUNDED
    assert schema.validator().quick_bytes_max == -1


@pytest.mark.parametrize(
    ("pattern", "is_linear"),
    [
        ("^[a-z0-9-]{1,63}$", True),
        ("^\\d{4}-\\d{2}$", True),
        ("^(?=.*[A-Z]).*$", False),
        ("^(a)\\1$", False),
        ("[a-z]{1000}", False),
    ],
)
def test_patterns_that_can_backtrack_have_no_bound(pattern, is_linear):
    schema = JsonSchema(json.dumps({"pattern": pattern}))
    assert (schema.steps_per_byte < STEPS_IN_PROCESS_MAX) is is_linear


def test_dangling_reference_is_refused_with_its_name():
    with pytest.raises(InvalidSchema, match="nothing"):
        JsonSchema('{"$ref": "#/$defs/nothing"}')


@pytest.mark.slow
def test_the_heaviest_payload_for_this_process_takes_256_mib_and_few_seconds():
    run_limited(
        """
        import json
        from pydanube.schemas.json_schema import JsonSchema

        parts = {
            f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(9)
        }
        parts["d9"] = {"type": "string"}
        heavy = {"items": {"$ref": "#/$defs/d0"}, "$defs": parts}
        strings = {"type": "array", "items": {"pattern": "^([a-z]+-?)*$"}}
        for document, item in ((heavy, "1"), (strings, json.dumps("a-" * 30 + "!"))):
            schema = JsonSchema(json.dumps(document))
            limit = schema.validator().quick_bytes_max
            assert 0 < limit
            count = min(limit, 2_000_000) // (len(item) + 1) - 1
            payload = ("[" + ",".join([item] * count) + "]").encode()
            assert len(payload) <= limit
            assert schema.validator()([payload])
        """,
        memory_mib=350 + 256,
        cpu_s=15,
    )
