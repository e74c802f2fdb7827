"""JSON Schema: accepted documents, containment, and decoded payloads."""

from __future__ import annotations

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.schemas.json_schema import JsonSchema
from support.fakes.corpora import pairs_of

PAIRS = pairs_of("json_schema")


def schema_of(document):
    return JsonSchema(json.dumps(document))


ORDER = schema_of(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "who": {"type": "string", "minLength": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
        },
        "required": ["id"],
    }
)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_corpus_of_containment(pair):
    old, new = schema_of(pair.old), schema_of(pair.new)
    for reader, writer, expected in (
        (new, old, pair.backward),
        (old, new, pair.forward),
    ):
        found = reader.incompatibilities(writer)
        if expected == "ok":
            assert [str(each) for each in found] == []
        else:
            assert expected in {each.rule for each in found}


def test_corpus_is_large_enough():
    assert len(PAIRS) >= 60
    assert len({pair.what for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_schema_covers_itself(pair):
    for document in (pair.old, pair.new):
        again = JsonSchema(json.dumps(document, indent=3, sort_keys=True))
        assert again.incompatibilities(schema_of(document)) == []
        assert again.fingerprint == schema_of(document).fingerprint


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 3},
        {"type": "integer"},
        {"type": "integer", "minimum": 2},
        {"type": "number", "maximum": 5},
        {"type": "null"},
        {"enum": ["a", 1]},
        {"type": ["string", "null"]},
        {},
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, closed: {
                "type": "object",
                "properties": properties,
                "required": [name for name in required if name in properties],
                **({"additionalProperties": False} if closed else {}),
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.sets(st.sampled_from("abc")),
            st.booleans(),
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.builds(lambda one, two: {"allOf": [one, two]}, inner, inner),
        st.builds(lambda one, two: {"oneOf": [one, two]}, inner, inner),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 3, 7, 2.5, "", "a", "abcd"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    max_leaves=5,
)


@given(reader=SCHEMAS, writer=SCHEMAS, values=st.lists(VALUES, max_size=20))
@settings(max_examples=150, deadline=None)
def test_reader_allows_values_of_a_covered_writer(reader, writer, values):
    """The result `compatible` is never wrong, for values with named properties only."""
    reading, writing = schema_of(reader), schema_of(writer)
    if reading.incompatibilities(writing):
        return
    is_exact = "properties" not in json.dumps(writer)
    payloads = [msgspec.json.encode(value) for value in values]
    bad_for_writer = {index for index, _ in writing.validator()(payloads)}
    bad_for_reader = {index for index, _ in reading.validator()(payloads)}
    for index in bad_for_reader - bad_for_writer:
        assert not is_exact
        # Only because of a property that the writer's schema left open.
        assert has_unnamed(writer, values[index])


def has_unnamed(document, value):
    """
    Return whether an object in *value* has a property that its schema does not name.
    """
    if not isinstance(document, dict):
        return False
    for keyword in ("anyOf", "allOf", "oneOf"):
        if any(has_unnamed(each, value) for each in document.get(keyword, ())):
            return True
    if isinstance(value, dict) and "properties" in document:
        properties = document["properties"]
        return any(
            name not in properties or has_unnamed(properties[name], inner)
            for name, inner in value.items()
        )
    if isinstance(value, list) and "items" in document:
        return any(has_unnamed(document["items"], each) for each in value)
    return False


def test_an_incompatibility_names_the_path_and_the_rule():
    old = schema_of({"properties": {"a": {"properties": {"b": {"type": "string"}}}}})
    new = schema_of({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}})
    [found] = new.incompatibilities(old)
    assert found.path == "$.properties.a.properties.b"
    assert found.rule == "type_changed"
    assert "integer" in found.text
    assert "string" in found.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "object, true or false"),
        ('{"type": "text"}', "not a JSON Schema"),
        ('{"required": "a"}', "not a JSON Schema"),
        ('{"$ref": "http://example.com/x"}', "outside of the document"),
        ('{"$ref": "other.json#/a"}', "outside of the document"),
        ('{"properties": {"a": {"$id": "urn:x"}}}', "changes the meaning"),
        ('{"pattern": "(", "type": "string"}', "not a JSON Schema"),
        ('{"$ref": "#/nothing"}', "not a JSON Schema"),
    ],
)
def test_invalid_schema_is_refused_with_the_reason(text, words):
    with pytest.raises(InvalidSchema, match=words):
        JsonSchema(text)


def test_size_depth_and_count_are_bounded():
    with pytest.raises(InvalidSchema, match="the maximum is"):
        JsonSchema(" " * (1024 * 1024 + 1))
    with pytest.raises(InvalidSchema, match="deeper"):
        JsonSchema('{"items":' * 100 + "true" + "}" * 100)
    with pytest.raises(InvalidSchema, match="not JSON"):
        JsonSchema("[" * 500_000)
    with pytest.raises(InvalidSchema, match="parts"):
        schema_of({"enum": list(range(20_000))})


def test_a_pattern_that_would_take_for_ever_is_given_up():
    schema = schema_of({"type": "string", "pattern": "^(?=a)(a+)+$"})
    [(_, reason)] = schema.validator()([json.dumps("a" * 60 + "!").encode()])
    assert "pattern" in reason or "match" in reason or "limit" in reason.lower()


def test_bad_payloads_are_found_with_their_index_and_reason():
    good = b'{"id": 1}'
    bad = dict(ORDER.validator()([good, b"{", b'{"id": "x"}', b'{"who": "me"}']))
    assert list(bad) == [1, 2, 3]
    assert bad[1].startswith("not JSON")
    assert bad[2] == """['id']: "x" is not of type "integer\""""
    assert "id" in bad[3]


def test_values_are_decoded_and_encoded():
    values = [{"id": number, "who": "me"} for number in range(10)]
    payloads = ORDER.encoder()(values)
    assert ORDER.decoder()(payloads) == values
    with pytest.raises(InvalidPayload, match="message 1 of the batch"):
        ORDER.decoder()([b"{}", b"{"])
    with pytest.raises(InvalidPayload, match=r"message 1 .*not of type"):
        ORDER.encoder()([{"id": 1}, {"id": "x"}])


def test_a_column_has_arrows_types():
    column = ORDER.column_decoder()(
        pa.array([b'{"id": 1, "tags": ["a", "b"], "extra": 1}', None, b'{"id": 2}'])
    )
    assert column.type == pa.struct(
        [
            pa.field("id", pa.int64()),
            pa.field("who", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("note", pa.string()),
        ]
    )
    first, second, third = column.to_pylist()
    assert first == {"id": 1, "who": None, "tags": ["a", "b"], "note": None}
    assert second is None
    assert third["tags"] is None
    with pytest.raises(InvalidPayload, match="message 0 of the batch"):
        ORDER.column_decoder()(pa.array([b'{"id": "x"}']))


def test_value_of_several_types_is_a_column_of_json():
    schema = schema_of(
        {
            "properties": {
                "any": {"type": ["string", "integer"]},
                "self": {"$ref": "#"},
                "free": {"type": "object"},
            },
            "type": "object",
        }
    )
    payload = {"any": 1, "free": {"x": 1}}
    [value] = schema.column_decoder()(
        pa.array([json.dumps(payload).encode()])
    ).to_pylist()
    assert value["any"] == "1"
    assert value["free"] == '{"x":1}'


def test_endlessly_expanding_schema_is_a_column_of_json():
    parts = {name: {"$ref": "#/$defs/n"} for name in "abcde"}
    schema = schema_of(
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": parts}}}
    )
    assert schema.arrow_type() == pa.string()
    [value] = schema.column_decoder()(pa.array([b'{"a": {"b": {}}}'])).to_pylist()
    assert json.loads(value) == {"a": {"b": {}}}


EXPRESSION = json.dumps(
    {
        "oneOf": [
            {"properties": {"left": {"$ref": "#"}, "op": {"const": op}}} for op in "+-"
        ]
    }
)


def test_errors_are_listed_only_if_that_takes_few_steps():
    """The library collects the errors of all alternatives at all depths: 2 ** 200."""
    validate = JsonSchema(EXPRESSION).validator_in_process()
    payload = b'{"left":' * 200 + b"1" + b',"op":"*"}' * 200
    [(_, reason)] = validate([payload])
    assert "too large or too deep" in reason
    tree = JsonSchema(
        '{"items": {"$ref": "#"}, "type": "array"}'
    ).validator_in_process()
    [(_, reason)] = tree([b"[[], [1]]"])
    assert 'is not of type "array"' in reason


def test_the_reason_why_a_payload_is_bad_is_short():
    schema = JsonSchema('{"type": "object"}')
    [(_, reason)] = schema.validator()([json.dumps("x" * 100_000).encode()])
    assert len(reason) < 1000
