"""Ids of schemas, and Avro and JSON schemas that use others."""

import json

import pytest

from pydanube.model.errors import InvalidSchema, SchemaNotFound
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.pure.confluent_schemas import (
    SUBJECT_ID_MAX,
    id_of,
    parts_of,
    with_json_references,
    with_references,
)
from pydanube_broker.broker.publishing.schema_registry import VERSIONS_MAX


@pytest.mark.parametrize("version", [1, 2, VERSIONS_MAX])
@pytest.mark.parametrize("schema_id", [1, 77, SUBJECT_ID_MAX])
def test_id_has_the_subject_and_the_version(schema_id, version):
    number = id_of(schema_id, version)
    assert 0 < number < 2**31
    assert parts_of(number) == (schema_id, version)


@pytest.mark.parametrize("number", [0, -1, 5, 1 << 14, 2**31 + 1, 2**40])
def test_other_numbers_are_no_ids(number):
    with pytest.raises(SchemaNotFound):
        parts_of(number)


def test_subject_with_a_large_number_has_no_id():
    with pytest.raises(InvalidSchema, match="31 bits"):
        id_of(SUBJECT_ID_MAX + 1, 1)


ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "acme",
    "fields": [{"name": "city", "type": "City"}],
}
CITY = {"type": "enum", "name": "acme.City", "symbols": ["ROME"]}


def test_references_are_defined_where_they_are_used_first():
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "acme",
        "fields": [
            {"name": "to", "type": ["null", "Address"]},
            {"name": "others", "type": {"type": "array", "items": "acme.Address"}},
            {"name": "cities", "type": {"type": "map", "values": "City"}},
        ],
    }
    referenced = {"acme.Address": json.dumps(ADDRESS), "acme.City": json.dumps(CITY)}
    text = with_references(json.dumps(order), referenced)
    AvroSchema(text)
    fields = json.loads(text)["fields"]
    assert fields[0]["type"][1]["fields"][0]["type"] == CITY
    assert fields[1]["type"]["items"] == "acme.Address"
    assert fields[2]["type"]["values"] == "City"


def test_schema_without_references_stays_as_it_is():
    assert with_references(' "string" ', {}) == ' "string" '


@pytest.mark.parametrize("text", ["{", '{"type": ' * 100 + '"A"' + "}" * 100])
def test_schema_that_cannot_be_read_is_refused(text):
    with pytest.raises(InvalidSchema):
        with_references(text, {"A": '"string"'})


def test_references_of_json_schemas_become_pointers():
    other = {"$id": "x", "$schema": "y", "items": {"$ref": "#/$defs/n"}}
    schema = {
        "properties": {"$ref": {"$ref": "o/~.json"}, "b": {"$ref": "#/c"}},
        "enum": [{"$ref": "o/~.json"}],
        "anyOf": [{"$ref": "o/~.json#/items"}, {"$ref": "unknown"}],
        "$defs": {"o/~.json": True},
    }
    found = json.loads(
        with_json_references(json.dumps(schema), {"o/~.json": json.dumps(other)})
    )
    place = "#/$defs/o~1~0.json_"
    assert found == schema | {
        "properties": {"$ref": {"$ref": place}, "b": {"$ref": "#/c"}},
        "anyOf": [{"$ref": f"{place}/items"}, {"$ref": "unknown"}],
        "$defs": {
            "o/~.json": True,
            "o/~.json_": {"items": {"$ref": f"{place}/$defs/n"}},
        },
    }


@pytest.mark.parametrize(
    "schema", ["1", '{"$defs": 1}', '{"not": ' * 70 + "{}" + "}" * 70]
)
def test_json_schemas_that_cannot_be_completed_are_refused(schema):
    with pytest.raises(InvalidSchema):
        with_json_references(schema, {"a": "{}"})


def test_names_of_properties_are_no_keywords():
    other = {"$defs": {"const": {"items": {"$ref": "#/$defs/n"}}}}
    schema = {
        "properties": {"default": {"$ref": "o"}, "enum": {"$ref": "o#here"}},
        "default": {"$ref": "o"},
    }
    found = json.loads(
        with_json_references(json.dumps(schema), {"o": json.dumps(other)})
    )
    assert found == {
        "properties": {
            "default": {"$ref": "#/$defs/o"},
            "enum": {"$ref": "#here"},
        },
        "default": {"$ref": "o"},
        "$defs": {"o": {"$defs": {"const": {"items": {"$ref": "#/$defs/o/$defs/n"}}}}},
    }


def test_schemas_with_similar_names_have_places_of_their_own():
    schema = {"$defs": {"a": True}, "anyOf": [{"$ref": "a"}, {"$ref": "a_"}]}
    referenced = {"a": '{"type": "string"}', "a_": '{"type": "null"}'}
    found = json.loads(with_json_references(json.dumps(schema), referenced))
    targets = [each["$ref"].removeprefix("#/$defs/") for each in found["anyOf"]]
    assert [found["$defs"][each]["type"] for each in targets] == ["string", "null"]
