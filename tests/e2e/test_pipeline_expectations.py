"""Expectations of steps, with a real broker and real Spark."""

import json

import pytest

pyspark = pytest.importorskip("pyspark")

from deltalake import DeltaTable  # noqa: E402

from pydanube.declarations.pure.problems import InvalidDeclaration  # noqa: E402
from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from pydanube_spark.pipelines.validation import graph_with_schemas  # noqa: E402
from support.drivers.pipelines import (  # noqa: E402
    PipelineDirectory,
    read,
    send,
    unique_topic,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

PIPELINE = """\
name: expectations
fan_out: ${fan_out}
retries: {count: 3, backoff: 10ms}
parameters: {topic: "", bad: "", fan_out: false}
sources:
  messages: {topic: "${topic}"}
steps:
  orders:
    sql: >
      SELECT o.* FROM (SELECT from_json(CAST(payload AS STRING),
      'number BIGINT, customer STRING, amount DOUBLE') AS o FROM messages)
    expect:
      has_customer: {condition: customer IS NOT NULL, action: quarantine}
      is_positive: {condition: amount > 0, action: quarantine}
      is_small: {condition: amount < 1000, action: drop}
      has_number: {condition: number IS NOT NULL, action: fail}
    quarantine: {topic: "${bad}"}
  doubled:
    sql: SELECT number, customer, amount * 2 AS amount FROM orders WHERE number > 0
sinks:
  table: {input: orders, format: danube-delta, path: table}
  written: {input: doubled, format: danube-delta, path: doubled}
"""


def numbers(path):
    table = DeltaTable(str(path)).to_pyarrow_table()
    return sorted(table.column("number").to_pylist())


def order(number, customer="ada", amount=1.5):
    return {"number": number, "customer": customer, "amount": amount}


@pytest.fixture
def pipeline(client, broker_url, tmp_path):
    topic, bad = unique_topic(client), unique_topic(client)
    found = PipelineDirectory(tmp_path, broker_url, topic=topic, bad=bad)
    found.file.write_text(PIPELINE)
    return found


@pytest.mark.parametrize("fan_out", [pytest.param(False, marks=pytest.mark.soak), True])
def test_rows_that_break_expectations_are_dropped_or_quarantined_once(
    spark, client, pipeline, tmp_path, fan_out
):
    session = spark.newSession()
    topic, bad = pipeline.parameters["topic"], pipeline.parameters["bad"]
    pipeline.parameters["fan_out"] = fan_out
    broken = [order(2, customer=None), order(3, None, -1.0), order(4, amount=0.0)]
    send(client, topic, order(1), *broken, order(5, amount=5000.0))
    assert pipeline.run(session) is RunState.DONE
    queries = {each.name: each for each in pipeline.state.read_status().queries}
    shared = "table.fan_out" if fan_out else "orders.quarantine"
    pipeline.forget_commit(shared)
    send(client, topic, order(6))
    assert pipeline.run(session) is RunState.DONE

    assert numbers(tmp_path / "table") == numbers(tmp_path / "doubled") == [1, 6]
    found = read(client, bad)
    assert [json.loads(payload) for payload, _, _ in found] == [
        # JSON messages have no fields that are null.
        {name: value for name, value in row.items() if value is not None}
        for row in broken
    ]
    assert [each["x-broken-expectation"] for _, _, each in found] == [
        "has_customer",
        "has_customer, is_positive",
        "is_positive",
    ]
    assert queries.keys() == {shared, "written"} | ({"table"} - {shared[:5]})
    for each in queries.values():
        assert each.broken == {
            "orders.has_customer": 2,
            "orders.is_positive": 2,
            "orders.is_small": 1,
            "orders.has_number": 0,
        }
    line = "broken: orders.has_customer 2, orders.is_positive 2, orders.is_small 1"
    assert line in pipeline.output.getvalue()


@pytest.mark.parametrize("fan_out", [pytest.param(False, marks=pytest.mark.soak), True])
def test_broken_expectation_stops_the_pipeline_before_rows_are_written(
    spark, client, pipeline, tmp_path, fan_out
):
    session = spark.newSession()
    topic, bad = pipeline.parameters["topic"], pipeline.parameters["bad"]
    pipeline.parameters["fan_out"] = fan_out
    rows = [order(number, amount=-1.0) for number in range(1, 50)]
    send(client, topic, *rows, {"customer": "eve", "amount": 1.5})
    assert pipeline.run(session) is RunState.FAILED
    status = pipeline.state.read_status()
    assert (
        "the expectation has_number of the step orders is broken by the row "
        '{"customer":"eve","amount":1.5}'
    ) in status.error
    assert all(each.failures <= 1 for each in status.queries)
    assert read(client, bad) == []
    assert not (tmp_path / "table").exists() or numbers(tmp_path / "table") == []


FUNCTION = """\
from pathlib import Path


def write(batch, number):
    batch.count()
    found = sorted(row.number for row in batch.collect())
    Path(__file__).with_name("written").write_text(str(found))
"""


def test_function_gets_no_rows_if_one_must_not_occur(spark, client, pipeline, tmp_path):
    session = spark.newSession()
    topic = pipeline.parameters["topic"]
    sinks = 'sinks: {out: {input: orders, python: "functions.py:write"}}'
    pipeline.file.write_text(PIPELINE.partition("sinks:")[0] + sinks)
    (tmp_path / "functions.py").write_text(FUNCTION)
    send(client, topic, order(1), order(2, amount=5000.0))
    assert pipeline.run(session) is RunState.DONE
    assert (tmp_path / "written").read_text() == "[1]"
    [found] = [
        each for each in pipeline.state.read_status().queries if each.name == "out"
    ]
    assert found.broken["orders.is_small"] == 1

    send(client, topic, order(3), order(None))
    assert pipeline.run(session) is RunState.FAILED
    assert (tmp_path / "written").read_text() == "[1]"


TABLES = """\
name: tables
sources:
  orders: {files: orders.csv, format: csv, read: table, schema: "number INT, at INT"}
steps:
  checked:
    sql: SELECT * FROM orders
    expect: {has_number: {condition: number IS NOT NULL, action: ACTION}}
sinks:
  files: {input: checked, format: parquet, path: out, mode: overwrite}
  table: {input: checked, format: danube-delta, path: table}
"""


def test_bounded_rows_are_checked_before_old_ones_are_replaced(
    spark, broker_url, tmp_path
):
    session = spark.newSession()
    pipeline = PipelineDirectory(tmp_path, broker_url)
    (tmp_path / "orders.csv").write_text("1,1\n2,1\n,1\n")
    pipeline.file.write_text(TABLES.replace("ACTION", "drop"))
    assert pipeline.run(session) is RunState.DONE
    for each in pipeline.state.read_status().queries:
        assert each.broken == {"checked.has_number": 1}
        assert each.rows == 2

    pipeline.file.write_text(TABLES.replace("ACTION", "fail"))
    assert pipeline.run(session) is RunState.FAILED
    assert session.read.parquet(str(tmp_path / "out")).count() == 2
    assert numbers(tmp_path / "table") == [1, 2]


def test_invalid_condition_is_reported_at_its_place(spark, client, pipeline):
    text = PIPELINE.replace("amount > 0", "amont > 0").replace(
        "amount < 1000", "amount"
    )
    pipeline.file.write_text(text)
    with pytest.raises(InvalidDeclaration) as caught:
        pipeline.run(spark.newSession())
    found = {each.path: each.message for each in caught.value.problems}
    path = "steps.orders.expect.is_positive.condition"
    assert found.keys() == {path}
    assert "amont" in found[path]


def test_graph_has_the_columns_of_all_rows(spark, pipeline):
    graph = graph_with_schemas(spark.newSession(), pipeline.load())
    assert {(each.source, each.target): each.schema for each in graph.edges} == {
        ("source.messages", "step.orders"): (
            "topic:string, offset:bigint, publish_time:timestamp, key:binary, "
            "payload:binary, producer:string, schema_id:bigint, schema_version:int, "
            "partition:int"
        ),
        ("step.orders", "step.doubled"): (
            "number:bigint, customer:string, amount:double"
        ),
        ("step.orders", "sink.table"): "number:bigint, customer:string, amount:double",
        ("step.doubled", "sink.written"): (
            "number:bigint, customer:string, amount:double"
        ),
        ("step.orders", "sink.orders.quarantine"): (
            "value:struct<number:bigint,customer:string,amount:double>, "
            "attributes:map<string,string>"
        ),
    }
