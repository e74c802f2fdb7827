"""Tests of the mapping of records to messages."""

import pytest

from pydanube.model.schemas import SchemaType
from pydanube_connect.pure.mapping import InvalidRecord, RecordMapping, to_payload
from pydanube_connect.pure.records import Record, RecordSchema
from pydanube_connect.pure.spec import Mapping

TOPIC = "/default/orders"
ORDER = {"id": 7, "customer": {"name": "ada"}, "amount": 20.5}


def draft(record, *, has_schema=False, uses_ids=False, **fields):
    mapping = RecordMapping(
        Mapping(**fields), TOPIC, has_schema=has_schema, uses_ids=uses_ids
    )
    return mapping.draft(record)


def test_bytes_and_text_stay_and_other_values_become_json():
    assert to_payload(b"\xff") == b"\xff"
    assert to_payload("ä") == "ä".encode()
    assert to_payload({"a": [1]}) == b'{"a":[1]}'
    nested = []
    for _ in range(100_000):
        nested = [nested]
    for value in (object(), nested, "\ud800"):
        with pytest.raises(InvalidRecord, match="cannot be JSON"):
            to_payload(value)


def test_schemas_count_unless_the_connector_makes_other_values():
    record = Record(value=b'{"id": 7}', schema=RecordSchema(SchemaType.AVRO, ("{}",)))
    assert draft(record).schema is record.schema
    assert draft(record, key="id").schema is record.schema
    assert draft(record, payload="id").schema is None
    assert draft(record, has_schema=True).schema is None
    transformed = RecordMapping(Mapping(), TOPIC, keeps_schemas=False)
    assert transformed.draft(record).schema is None


def test_fields_become_key_attributes_and_payload():
    found = draft(
        Record(value=ORDER, attributes={"source": "shop"}),
        key="customer.name",
        payload="amount",
        attributes={"order": "id", "absent": "nothing.here"},
    )
    assert (found.topic, found.value, found.key) == (TOPIC, b"20.5", b"ada")
    assert found.attributes == {"source": "shop", "order": "7"}


def test_fields_are_found_in_json_of_a_record_too():
    found = draft(Record(value=b'{"customer": {"name": 5}}'), key="customer.name")
    assert found.key == b"5"
    assert found.value == b'{"customer": {"name": 5}}'
    with pytest.raises(InvalidRecord, match="not JSON"):
        draft(Record(value=b"ada"), key="customer.name")


def test_record_has_its_own_topic_and_key():
    found = draft(Record(value=ORDER, key="k", topic="/default/other"), key="no.field")
    assert (found.topic, found.key) == ("/default/other", b"k")


def test_ids_are_used_only_if_the_topic_deduplicates():
    assert draft(Record(value=ORDER, id="a")).id is None
    assert draft(Record(value=ORDER, id="a"), uses_ids=True).id == "a"
    assert draft(Record(value=ORDER, id="a"), id="id", uses_ids=True).id == "7"
    with pytest.raises(InvalidRecord, match="no field number, which is the id"):
        draft(Record(value=ORDER), id="number", uses_ids=True)


def test_value_is_not_encoded_if_there_is_a_schema():
    assert draft(Record(value=ORDER), has_schema=True).value is ORDER
    assert draft(Record(value=b'{"a": 1}'), has_schema=True).value == {"a": 1}


def test_value_that_is_nested_too_deeply_is_invalid():
    with pytest.raises(InvalidRecord, match="not JSON"):
        draft(Record(value=b"[" * 100_000), key="a")
