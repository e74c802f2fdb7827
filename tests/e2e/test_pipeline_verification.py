"""Sinks compared with their topics, with a real broker and real Spark."""

import json
import time
from datetime import UTC, datetime

import pytest

pyspark = pytest.importorskip("pyspark")

import pyarrow.compute as pc  # noqa: E402
from deltalake import DeltaTable, write_deltalake  # noqa: E402

from pydanube import Retention, Schema  # noqa: E402
from pydanube_spark.pipelines.display import LineDisplay  # noqa: E402
from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from pydanube_spark.pipelines.running import PipelineRun  # noqa: E402
from pydanube_spark.pipelines.shadows import backfill_of, shadow_of  # noqa: E402
from pydanube_spark.pipelines.verifying import compare_sinks, verify_sink  # noqa: E402
from support.drivers.pipelines import (  # noqa: E402
    POLLS_MAX,
    PipelineDirectory,
    send,
    unique_topic,
)
from support.servers.postgres import PostgresProcess  # noqa: E402

SEAL_BYTES = 64 * 1024

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

PIPELINE = """\
name: verified
parameters: {topic: "", out: "", catalog: ""}
sources:
  messages: {topic: "${topic}"}
steps:
  orders:
    sql: >
      SELECT o.*, timestamp_micros(1700000000000001 + o.number) AS at,
      named_struct('local', CAST(timestamp_micros(1) AS TIMESTAMP_NTZ)) AS times,
      topic, partition, offset FROM (SELECT *, from_json(
      CAST(payload AS STRING), 'number BIGINT, customer STRING, amount DOUBLE') AS o
      FROM messages)
    expect: {is_positive: {condition: amount > 0, action: drop}}
  totals:
    sql: SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
  values:
    sql: SELECT customer AS key, number, amount FROM orders
sinks:
  table:
    input: orders
    format: danube-delta
    path: table
    options: {partitionBy: customer}
  state:
    input: orders
    format: danube-iceberg
    table: {key: number, order: offset, delete: amount > 100}
    options:
      table: shop.state
      catalog.type: sql
      catalog.uri: "sqlite:///${catalog}/catalog.db"
      catalog.warehouse: "file://${catalog}"
  totals:
    input: totals
    format: danube-delta
    path: totals
    mode: update
    table: {key: customer}
  out: {input: values, topic: "${out}"}
  function: {input: orders, python: "functions.py:ignore"}
"""


def order(number, customer="ada", amount=1.5):
    return {"number": number, "customer": customer, "amount": amount}


@pytest.fixture
def pipeline(client, broker_url, tmp_path):
    topic, out = unique_topic(client), unique_topic(client)
    found = PipelineDirectory(
        tmp_path, broker_url, topic=topic, out=out, catalog=tmp_path
    )
    found.file.write_text(PIPELINE)
    (tmp_path / "functions.py").write_text("def ignore(batch, number): pass\n")
    return found


def test_missing_repeated_and_changed_rows_are_found(spark, client, pipeline, tmp_path):
    session = spark.newSession()
    topic, out = pipeline.parameters["topic"], pipeline.parameters["out"]
    send(client, topic, order(1), order(2, "bob", 2.0), order(3, "bob", -1.0))
    assert pipeline.run(session) is RunState.DONE
    send(client, topic, order(1, "ada", 4.0), order(2, "bob", 500.0), order(4, "eve"))
    assert pipeline.run(session) is RunState.DONE
    # Messages of later are not compared.
    send(client, topic, order(9))

    loaded = pipeline.load()
    found = {name: verify_sink(session, loaded, name) for name in loaded.spec.sinks}
    problem = found.pop("function").problem
    assert problem.startswith("only topics, Delta and Iceberg tables and PostgreSQL")
    for each in found.values():
        assert each.is_right, each
        assert each.offsets == {topic: 6}
    rows = {name: each.expected for name, each in found.items()}
    assert rows == {"table": 5, "state": 2, "totals": 3, "out": 5}

    table = DeltaTable(str(tmp_path / "table"))
    table.delete("number = 4")
    table.update(
        updates={"at": "at + INTERVAL '1 microsecond'"}, predicate="offset = 0"
    )
    again = table.to_pyarrow_table().filter(pc.field("offset") == 1)
    write_deltalake(table, again, mode="append")
    send(client, out, {"number": 1, "amount": 1.5}, b"{")
    found = verify_sink(session, loaded, "table")
    assert (found.expected, found.missing, found.unexpected) == (5, 2, 2)
    missing = sorted(json.loads(row)["offset"] for row in found.missing_rows)
    unexpected = sorted(json.loads(row)["offset"] for row in found.unexpected_rows)
    assert (missing, unexpected) == ([0, 5], [0, 1])
    assert any(
        '"at":"2023-11-14T22:13:20.000003Z"' in row for row in found.unexpected_rows
    )
    found = verify_sink(session, loaded, "out")
    assert (found.expected, found.missing, found.unexpected) == (5, 0, 2)


def test_sink_that_was_never_written_cannot_be_verified(spark, pipeline):
    found = verify_sink(spark.newSession(), pipeline.load(), "table")
    assert not found.is_right
    assert "there is no committed micro-batch" in found.problem


def large(number):
    """A message that is large enough to be sealed at once, with those after it."""
    return [number, "x" * SEAL_BYTES]


COPY = """\
name: copied
parameters: {topic: ""}
sources: {messages: {topic: "${topic}"}}
sinks: {table: {input: messages, format: danube-delta, path: table}}
"""

POSTGRES = """\
name: verified
parameters: {topic: "", uri: ""}
sources: {messages: {topic: "${topic}"}}
steps:
  rows:
    sql: >
      SELECT topic, partition, offset, CAST(payload AS STRING) AS text FROM messages
sinks:
  rows:
    input: rows
    format: danube-postgres
    options: {uri: "${uri}", table: rows, createTable: true}
"""


@pytest.mark.soak
def test_rows_of_messages_that_were_dropped_are_not_compared(
    spark, client, broker_url, tmp_path
):
    session = spark.newSession()
    topic = unique_topic(client)
    send(client, topic, *map(large, range(4)))
    with PostgresProcess() as postgres:
        pipeline = PipelineDirectory(
            tmp_path, broker_url, topic=topic, uri=postgres.uri
        )
        pipeline.file.write_text(POSTGRES)
        assert pipeline.run(session) is RunState.DONE
        send(client, topic, *map(large, range(4, 7)))
        client.topics.configure(topic, retention=Retention(bytes_max=1))
        # The last segment stays, once the last messages are in one.
        [dropped] = client.topics.apply_retention(topic)
        polls = 0
        while dropped.base_offset < 4:
            polls += 1
            assert polls < POLLS_MAX
            [dropped] = client.topics.apply_retention(topic)
        assert pipeline.run(session) is RunState.DONE

        found = verify_sink(session, pipeline.load(), "rows")
        assert found.is_right, found
        assert (found.expected, found.not_checked) == (3, 4)
        assert found.dropped == {topic: 4}
        postgres.execute('DELETE FROM rows WHERE "offset" = 5')
        found = verify_sink(session, pipeline.load(), "rows")
        assert (found.missing, found.unexpected) == (1, 0)


WINDOWS = """\
name: windows
parameters: {topic: ""}
sources:
  clicks: {topic: "${topic}"}
steps:
  times:
    sql: >
      SELECT timestamp_seconds(CAST(CAST(payload AS STRING) AS INT)) AS at FROM clicks
    watermark: {column: at, delay: 10 seconds}
  minutes:
    sql: >
      SELECT window(at, '1 minute') AS minute, count(*) AS clicks FROM times
      GROUP BY window(at, '1 minute')
  stays:
    sql: >
      SELECT DISTINCT at, named_struct('start', at, 'end', at + INTERVAL 1 HOUR) AS stay
      FROM times
sinks:
  minutes: {input: minutes, format: danube-delta, path: minutes}
  stays: {input: stays, format: danube-delta, path: stays}
"""


@pytest.mark.soak
def test_windows_that_are_complete_are_compared(spark, client, broker_url, tmp_path):
    session = spark.newSession()
    topic = unique_topic(client)
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(WINDOWS)
    send(client, topic, 5, 30, 59, 65, 100, 200)
    assert pipeline.run(session) is RunState.DONE
    table = DeltaTable(str(tmp_path / "minutes"))
    assert table.to_pyarrow_table().num_rows == 2
    found = verify_sink(session, pipeline.load(), "minutes")
    assert found.is_right, found
    assert found.expected == 2
    # These have a start and an end, and are no windows.
    found = verify_sink(session, pipeline.load(), "stays")
    assert found.is_right, found
    assert found.expected == 5
    table.delete("clicks = 3")
    found = verify_sink(session, pipeline.load(), "minutes")
    assert (found.missing, found.unexpected) == (1, 0)


@pytest.mark.soak
def test_backfill_has_its_own_targets_and_can_be_compared(
    spark, client, broker_url, tmp_path
):
    session = spark.newSession()
    topic, out = unique_topic(client), unique_topic(client)
    client.topics.create(f"{out}-again")
    file = PIPELINE.replace("  function: {input: orders, python", "  # {python")
    pipeline = PipelineDirectory(
        tmp_path, broker_url, topic=topic, out=out, catalog=tmp_path
    )
    pipeline.file.write_text(file)
    send(client, topic, order(1), order(2, "bob", 2.0), order(2, "bob", 3.0), order(4))
    assert pipeline.run(session) is RunState.DONE
    table = DeltaTable(str(tmp_path / "table"))
    table.update(updates={"amount": "7.0"}, predicate="offset = 1")

    loaded = pipeline.load()
    shadow = shadow_of(loaded, "again").pipeline
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(2):
        backfill = backfill_of(shadow, "earliest", "3", now)
        with backfill.state.locked("a test"):
            run = PipelineRun(session, backfill, LineDisplay(pipeline.output))
            assert run.execute() is RunState.DONE
    assert backfill.state.path != loaded.state.path

    found = {
        name: compare_sinks(session, loaded, shadow, name) for name in loaded.spec.sinks
    }
    rows = {
        name: (each.expected, each.missing, each.unexpected, each.problem)
        for name, each in found.items()
    }
    assert rows == {
        "table": (3, 1, 2, None),
        "state": (2, 0, 1, None),
        "totals": (2, 1, 1, None),
        # A repeated backfill adds to a topic.
        "out": (6, 3, 1, None),
    }


@pytest.mark.soak
def test_backfill_leaves_the_segments_to_spark(
    spark, client, broker_url, tmp_path, caplog
):
    caplog.set_level("INFO", logger="pydanube_spark.topic_table")
    topic = unique_topic(client)
    send(client, topic, *map(large, range(4)))
    for _ in range(POLLS_MAX):
        if client.topics.describe(topic).segment_count:
            break
        time.sleep(0.05)
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(COPY)
    shadow = shadow_of(pipeline.load(), "again").pipeline
    now = datetime(2026, 1, 1, tzinfo=UTC)
    backfill = backfill_of(shadow, "earliest", "latest", now)
    with backfill.state.locked("a test"):
        run = PipelineRun(spark.newSession(), backfill, LineDisplay(pipeline.output))
        assert run.execute() is RunState.DONE
    assert DeltaTable(str(tmp_path / "table-again")).to_pyarrow_table().num_rows == 4
    holds = client.topics.describe(topic).holds
    assert [each.reason for each in holds] == ["read by Spark"]
    assert not [each for each in caplog.messages if "in Python" in each]


GROWING = """\
name: growing
parameters: {topic: ""}
sources:
  orders:
    {topic: "${topic}", cdc: debezium, decode: true, schema_changes: evolve}
sinks:
  table:
    input: orders
    format: danube-delta
    path: table
    table: {key: number, order: [_ts, _offset], delete: "_op = 'd'"}
"""


def change_event(*fields):
    """The schema of change events whose rows have *fields* besides the number."""
    fields = [{"name": "number", "type": "long"}, *fields]
    row = {"type": "record", "name": "Order", "fields": fields}
    sides = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Order"], "default": None},
    ]
    rest = [{"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}]
    event = {"type": "record", "name": "Event", "fields": [*sides, *rest]}
    return Schema.avro(json.dumps(event))


@pytest.mark.soak
def test_rows_from_before_a_column_with_a_default_are_right(
    spark, client, broker_url, tmp_path
):
    def publish(schema, **row):
        with client.producer(topic, schema=schema) as producer:
            producer.send({"before": None, "after": row, "op": "c", "ts_ms": 1})

    session, topic = spark.newSession(), unique_topic(client)
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(GROWING)
    publish(change_event(), number=1)
    assert pipeline.run(session) is RunState.DONE
    publish(change_event(), number=2)
    note = {"name": "note", "type": "string", "default": "none"}
    publish(change_event(note), number=3, note="new")
    assert pipeline.run(session) is RunState.DONE
    table = DeltaTable(str(tmp_path / "table"))
    rows = table.to_pyarrow_table().sort_by("number").column("note").to_pylist()
    assert rows == [None, "none", "new"]
    found = verify_sink(session, pipeline.load(), "table")
    assert (found.problem, found.expected, found.is_right) == (None, 3, True)
    # Another value is still found.
    table.update(updates={"note": "NULL"}, predicate="number = 3")
    found = verify_sink(session, pipeline.load(), "table")
    assert (found.missing, found.unexpected) == (1, 1)
