"""Several sinks of one query."""

import pytest

pyspark = pytest.importorskip("pyspark")

from deltalake import DeltaTable  # noqa: E402

from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from support.drivers.pipelines import (  # noqa: E402
    PipelineDirectory,
    read,
    read_json,
    send,
    unique_topic,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

PIPELINE = """\
name: fan-out
fan_out: true
retries: {count: 3, backoff: 10ms}
parameters: {topic: "", copy: ""}
sources:
  messages: {topic: "${topic}"}
steps:
  orders:
    sql: >
      SELECT o.customer AS key, o.* FROM (SELECT from_json(CAST(payload AS STRING),
      'number BIGINT, customer STRING, gone BOOLEAN') AS o FROM messages)
sinks:
  table: {input: orders, format: danube-delta, path: table}
  again:
    input: orders
    format: danube-delta
    path: table
  copy: {input: orders, topic: "${copy}"}
  function: {input: orders, python: "functions.py:fail_once"}
"""

FUNCTION = """\
from pathlib import Path


def fail_once(batch, number):
    marker = Path(__file__).with_name(f"seen-{number}")
    if not marker.exists():
        marker.touch()
        raise ValueError("the last sink failed")
    marker.write_text(str(batch.count()))
"""


@pytest.mark.soak
def test_each_sink_has_each_row_once_although_one_of_them_fails(
    spark, client, broker_url, tmp_path
):
    topic, copy = unique_topic(client), unique_topic(client)
    rows = [
        {"number": 1, "customer": "ada", "gone": False},
        {"number": 2, "customer": "bob", "gone": True},
    ]
    send(client, topic, *rows)
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic, copy=copy)
    pipeline.file.write_text(PIPELINE)
    (tmp_path / "functions.py").write_text(FUNCTION)
    session = spark.newSession()
    assert pipeline.run(session) is RunState.DONE
    assert "retrying, last error: ValueError: the last sink failed" in (
        pipeline.output.getvalue()
    )
    pipeline.forget_commit("table.fan_out")
    assert pipeline.run(session) is RunState.DONE

    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(found.column("number").to_pylist()) == [1, 1, 2, 2]
    assert read_json(client, copy) == rows
    assert [key for _, key, _ in read(client, copy)] == ["ada", "bob"]
    assert (tmp_path / "seen-0").read_text() == "2"
    [query] = pipeline.state.read_status().queries
    assert (query.name, query.writes_to) == (
        "table.fan_out",
        "table, again, copy, function",
    )
