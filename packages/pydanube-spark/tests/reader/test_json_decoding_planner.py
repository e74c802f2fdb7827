"""The schemas of queries whose values become JSON."""

import json
import pickle

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_spark.reader.decoding_planner import DecodingPlanner
from pydanube_spark.reader.json_decoding import AS_JSON
from pydanube_spark.reader.json_decoding_planner import JsonDecodingPlanner, planner_for
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import ValueOptions
from support.fakes.topic_directory import TopicDirectory

A, B, C = "/default/a", "/default/b", "/default/c"
OPTIONS = ValueOptions(as_json=True)


def objects(**properties):
    named = {name: {"type": type_} for name, type_ in properties.items()}
    return json.dumps({"type": "object", "properties": named})


@pytest.fixture
def topics(tmp_path):
    directory = TopicDirectory(tmp_path)
    for topic, subject in ((A, "orders"), (B, "parts"), (C, "orders")):
        directory.create(topic)
        directory.bound[topic] = subject
    directory.register("orders", objects(id="integer"), objects(id="number"))
    directory.register("parts", objects(name="string"), schema_id=2)
    return directory


def test_plan_has_all_versions_of_all_subjects(topics):
    planner = pickle.loads(pickle.dumps(JsonDecodingPlanner(OPTIONS, topics)))
    assert planner.plan([A, B, C]) == AS_JSON
    assert planner.column_type(AS_JSON) == pa.string()
    found = planner.decoding([A, B, C], AS_JSON).definitions
    assert found.keys() == {(1, 1), (1, 2), (2, 1)}
    assert planner.decoding([B], AS_JSON).definitions.keys() == {(2, 1)}


def test_topic_without_a_subject_is_named(topics):
    topics.bound[B] = None
    with pytest.raises(
        InvalidRequest, match="not bound to a schema subject: /default/b"
    ):
        JsonDecodingPlanner(OPTIONS, topics).plan([A, B])


def test_stream_with_columns_cannot_continue_as_json(topics):
    recorded = ReaderSchema(subject="orders", schema_id=1, version=1)
    with pytest.raises(InvalidConfig, match="start with a new checkpoint"):
        JsonDecodingPlanner(OPTIONS, topics).resume([A], recorded)
    with pytest.raises(InvalidConfig, match="start with a new checkpoint"):
        DecodingPlanner(ValueOptions(), topics).resume([A], AS_JSON)
    assert JsonDecodingPlanner(OPTIONS, topics).resume([A], AS_JSON) == AS_JSON


def test_planner_depends_on_the_options(topics):
    assert type(planner_for(OPTIONS, topics)) is JsonDecodingPlanner
    assert type(planner_for(ValueOptions(), topics)) is DecodingPlanner
    with pytest.raises(InvalidRequest, match="the column value is a string"):
        planner_for(OPTIONS, topics, pa.int64())
