"""Tests of the pipelines that run connectors whose kind is a Spark format."""

import pytest

pytest.importorskip("pyspark")

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_connect.commands.connector_pipelines import pipeline_of, tree_of
from pydanube_spark.pipelines.pure.spec import TriggerKind
from support.drivers.connectors import declared

URL = "danube://127.0.0.1:1"


def connector(fields, directory, kind="delta-sink"):
    text = f"""connectors:
  orders:
    kind: {kind}
    topic: /default/orders
    {fields}
"""
    [found] = declared(text, URL, directory)
    return found


def problems_of(fields, directory):
    with pytest.raises(InvalidDeclaration) as caught:
        pipeline_of(connector(fields, directory))
    return [str(each) for each in caught.value.problems]


def test_pipeline_reads_the_topic_and_writes_to_one_sink(tmp_path):
    pipeline = pipeline_of(
        connector("options: {sink: {path: t, mergeSchema: true}}", tmp_path)
    )
    assert pipeline.name == "orders"
    assert pipeline.broker == URL
    assert pipeline.trigger.every_s == 10
    assert pipeline.state.path == tmp_path / ".danube/pipelines/orders"
    assert pipeline.spec.sources["messages"].topic == "/default/orders"
    assert not pipeline.spec.steps
    sink = pipeline.spec.sinks["table"]
    assert (sink.input, sink.format, sink.path) == ("messages", "danube-delta", "t")
    assert sink.options == {"mergeSchema": True}


def test_every_field_has_its_place_in_the_pipeline(tmp_path):
    found = connector(
        """start: latest
    dead_letters: /default/dead
    options:
      sql: SELECT value.* FROM messages
      decode: true
      trigger: available-now
      master: local[1]
      settings: {spark.x: 1}
      sink: {database: d, table: t}""",
        tmp_path,
        kind="clickhouse-sink",
    )
    assert tree_of(found) == {
        "name": "orders",
        "trigger": "available-now",
        "spark": {"master": "local[1]", "settings": {"spark.x": 1}},
        "sources": {
            "messages": {
                "topic": "/default/orders",
                "start": "latest",
                "decode": True,
                "dead_letters": {"topic": "/default/dead"},
            }
        },
        "steps": {"rows": {"sql": "SELECT value.* FROM messages"}},
        "sinks": {
            "table": {
                "input": "rows",
                "format": "danube-clickhouse",
                "options": {"database": "d", "table": "t"},
            }
        },
    }
    assert pipeline_of(found).trigger.kind is TriggerKind.AVAILABLE_NOW


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            "options: {sink: {pathx: t}}",
            "line 5: connectors.orders.options.sink.pathx: unknown option 'pathx'",
        ),
        (
            "options: {sink: {path: t}, trigger: 1y}",
            "line 5: connectors.orders.options.trigger: '1y' is not a duration",
        ),
        ("options: {sink: {}}", "line 5: connectors.orders.options.sink: "),
        (
            "dead_letters: /default/dead\n    options: {sink: {path: t}}",
            "line 5: connectors.orders.dead_letters: ",
        ),
    ],
)
def test_problems_are_at_their_place_in_the_file(tmp_path, fields, problem):
    [found, *_] = problems_of(fields, tmp_path)
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "field", ["type: shared", "subscription: s", "batch: {messages: 5}"]
)
def test_fields_without_a_meaning_for_spark_are_refused(tmp_path, field):
    with pytest.raises(InvalidDeclaration, match="Spark reads the topic"):
        connector(f"options: {{sink: {{path: t}}}}\n    {field}", tmp_path)
