"""What the values of a query are read as."""

import json
import pickle

import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidConfig, InvalidRequest, SchemaNotFound
from pydanube_spark.reader.decoding_planner import (
    DecodingPlanner,
    check_columns,
    from_metadata,
    to_metadata,
)
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import OnUndecodable, ValueOptions
from support.fakes.topic_directory import TopicDirectory

A, B = "/default/a", "/default/b"
LATEST = ValueOptions()


def objects(**properties):
    named = {name: {"type": type_} for name, type_ in properties.items()}
    return json.dumps({"type": "object", "properties": named})


def reader_schema(version, schema_id=1):
    return ReaderSchema(subject="orders", schema_id=schema_id, version=version)


@pytest.fixture
def topics(tmp_path):
    directory = TopicDirectory(tmp_path)
    for topic in (A, B):
        directory.create(topic)
        directory.bound[topic] = "orders"
    directory.register("orders", objects(id="integer"), objects(id="number"))
    return directory


def test_reader_schema_is_the_latest_or_the_given_version(topics):
    assert DecodingPlanner(LATEST, topics).plan([A, B]) == reader_schema(2)
    assert DecodingPlanner(ValueOptions(version=1), topics).plan([A]) == reader_schema(
        1
    )
    with pytest.raises(SchemaNotFound, match="no version 3; it has 1, 2"):
        DecodingPlanner(ValueOptions(version=3), topics).plan([A])


def test_planned_reader_schema_does_not_change(topics):
    values = DecodingPlanner(LATEST, topics)
    values.plan([A])
    topics.register("orders", objects(), objects(), objects())
    assert values.plan([A]) == reader_schema(2)
    assert DecodingPlanner(LATEST, topics, planned=reader_schema(1)).plan(
        [A]
    ) == reader_schema(1)


def test_reader_schema_is_stored_in_the_column_metadata(topics):
    assert from_metadata(
        json.loads(json.dumps(to_metadata(reader_schema(2))))
    ) == reader_schema(2)
    assert from_metadata({"comment": "mine"}) is None
    assert pickle.loads(pickle.dumps(DecodingPlanner(LATEST, topics))).plan(
        [A]
    ) == reader_schema(2)


def test_unbound_topic_is_refused_with_advice(topics):
    del topics.bound[B]
    with pytest.raises(InvalidRequest, match=f"not bound.*{B}.*topics.configure"):
        DecodingPlanner(LATEST, topics).plan([A, B])


def test_topics_of_different_subjects_are_refused(topics):
    topics.bound[B] = "invoices"
    with pytest.raises(InvalidRequest, match=f"{A} to orders, {B} to invoices"):
        DecodingPlanner(LATEST, topics).plan([A, B])


def test_a_topic_that_comes_later_must_be_of_the_same_subject(topics):
    values = DecodingPlanner(LATEST, topics)
    values.plan([A])
    topics.bound[B] = "invoices"
    with pytest.raises(InvalidRequest, match="different subjects"):
        values.decoding([A, B], reader_schema(2))


def test_deleted_topic_is_ignored_but_one_topic_is_required(topics):
    with pytest.raises(InvalidRequest, match="there is no topic yet"):
        DecodingPlanner(LATEST, topics).plan([])
    topics.delete(B)
    assert DecodingPlanner(LATEST, topics).plan([A, B]) == reader_schema(2)


def test_stream_keeps_the_version_of_its_checkpoint(topics):
    assert DecodingPlanner(LATEST, topics).resume([A], None) == reader_schema(2)
    assert DecodingPlanner(LATEST, topics).resume(
        [A], reader_schema(1)
    ) == reader_schema(1)


@pytest.mark.parametrize("version", [None, 2])
def test_stream_uses_the_given_version(topics, version):
    options = ValueOptions(version=version, is_version_given=True)
    assert DecodingPlanner(options, topics).resume(
        [A], reader_schema(1)
    ) == reader_schema(2)


def test_a_checkpoint_of_another_subject_is_refused(topics):
    with pytest.raises(InvalidConfig, match="start with a new checkpoint"):
        DecodingPlanner(LATEST, topics).resume([A], reader_schema(2, schema_id=9))


def test_tasks_get_versions_registered_after_the_plan(topics):
    values = DecodingPlanner(LATEST, topics)
    values.plan([A])
    texts = [objects(), objects(id="number"), objects(id="number", x="string")]
    topics.register("orders", *texts)
    found = values.decoding([A], reader_schema(2))
    assert sorted(found.definitions) == [1, 2, 3]
    assert found.definitions[3] == Schema.json_schema(texts[2])
    assert found.reader_schema == reader_schema(2)


def test_deleted_version_cannot_be_the_reader_schema(topics):
    values = DecodingPlanner(LATEST, topics)
    values.plan([A])
    del topics.subjects["orders"][0]
    with pytest.raises(SchemaNotFound, match="version 1 of orders is deleted"):
        values.decoding([A], reader_schema(1))


def test_a_repeated_micro_batch_keeps_its_version_unless_that_was_deleted(topics):
    def repeat(**options):
        found = ValueOptions(**options)
        return DecodingPlanner(found, topics).repeat([A], reader_schema(2))

    given = {"version": 1, "is_version_given": True}
    assert repeat(**given) == reader_schema(2)
    del topics.subjects["orders"][1]
    assert repeat(**given) == reader_schema(1)
    # Without the option, the query says that the version is deleted.
    assert repeat() == reader_schema(2)


def test_a_checkpoint_s_version_that_does_not_fit_the_columns_is_refused(topics):
    topics.register("orders", objects(id="string"), objects(id="integer"))
    column = DecodingPlanner(LATEST, topics).column_type(reader_schema(2))
    values = DecodingPlanner(LATEST, topics, column)
    with pytest.raises(InvalidRequest, match=r"has version 1.*schemaVersion"):
        values.decoding([A], reader_schema(1))


def test_columns_of_values_need_their_options():
    with_errors = ValueOptions(on_undecodable=OnUndecodable.NULL)
    check_columns(["offset"], None)
    check_columns(["value", "_error"], with_errors)
    for names, options in ((["value"], None), (["_error"], LATEST)):
        with pytest.raises(InvalidConfig, match="decode=true"):
            check_columns(names, options)
