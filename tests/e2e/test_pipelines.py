"""The example pipelines, each with a real broker, real Spark and a real sink."""

import json
import os
import re
import signal
import socket
import time

import pytest

pyspark = pytest.importorskip("pyspark")

from typer.testing import CliRunner  # noqa: E402

from pydanube import Schema  # noqa: E402
from pydanube.declarations.pure.problems import InvalidDeclaration  # noqa: E402
from pydanube.model.positions import to_datetime  # noqa: E402
from pydanube_cli.main import app  # noqa: E402
from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from pydanube_spark.pipelines.pure.run_records import RunRecord  # noqa: E402
from pydanube_spark.pipelines.state import process_start_time, utc_text  # noqa: E402
from pydanube_spark.pipelines.stop_requests import StopRequest, signals_to  # noqa: E402
from pydanube_spark.pipelines.validation import validate  # noqa: E402
from support.drivers.pipelines import (  # noqa: E402
    PipelineDirectory,
    read,
    read_json,
    send,
    unique_topic,
)
from support.project import ROOT  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

ORDER = Schema.json_schema(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "number": {"type": "integer"},
                "customer": {"type": "string"},
                "amount": {"type": "number"},
            },
        }
    )
)


GUIDE = (ROOT / "docs/guide/pipelines.md").read_text(encoding="utf-8")
FIRST_FILE = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0]
LARGE_ONES = """\
def large_ones(orders, customers, at_least):
    return orders.join(customers, "customer").where(f"amount >= {at_least}")
"""


@pytest.fixture
def session(spark):
    """Tables of one test are not seen by another."""
    return spark.newSession()


@pytest.fixture
def topic(client):
    return unique_topic(client)


def order(number, customer="ada", amount=1.5):
    return {"number": number, "customer": customer, "amount": amount}


def delta_rows(path, *columns):
    from deltalake import DeltaTable

    rows = DeltaTable(str(path)).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in rows)


def test_first_file_of_the_guide_is_valid_and_runs(
    session, client, broker_url, topic, tmp_path
):
    large = unique_topic(client)
    text = FIRST_FILE.replace("danube://127.0.0.1:6651", broker_url)
    text = text.replace("{every: 10s}", "available-now")
    text = text.replace("/default/large-orders", large)
    pipeline = PipelineDirectory(tmp_path, broker_url)
    pipeline.file.write_text(text.replace("/default/orders", topic))
    (tmp_path / "functions.py").write_text(LARGE_ONES)
    (tmp_path / "customers.csv").write_text("ada,UK\n")
    send(client, topic, order(1, amount=20.5), order(2))
    assert pipeline.run(session) is RunState.DONE
    wanted = {"customer": "ada", "number": 1, "amount": 20.5, "country": "UK"}
    assert read_json(client, large) == [wanted]


def test_rows_of_positions_are_messages_with_them(
    session, client, broker_url, topic, tmp_path
):
    target = unique_topic(client)
    pipeline = PipelineDirectory(tmp_path, broker_url)
    pipeline.file.write_text(f"""\
name: positions
sources: {{rows: {{topic: {topic}}}}}
steps:
  ends: {{sql: "SELECT topic, 3 AS partition, offset FROM rows"}}
  copies: {{sql: "SELECT payload, topic, 3 AS partition FROM rows"}}
sinks:
  ends: {{input: ends, topic: {target}}}
  copies: {{input: copies, topic: {target}}}
""")
    send(client, topic, {"a": 1})
    assert pipeline.run(session) is RunState.DONE
    found = sorted(read_json(client, target), key=len)
    assert found == [{"a": 1}, {"topic": topic, "partition": 3, "offset": 0}]


def test_topic_to_delta_is_exactly_once_over_several_runs(
    session, client, broker_url, topic, tmp_path
):
    send(client, topic, *map(order, range(5)))
    pipeline = PipelineDirectory.of_template(
        "topic-to-delta", tmp_path, broker_url, topic=topic
    )
    assert pipeline.run(session) is RunState.DONE
    send(client, topic, *map(order, range(5, 8)))
    assert pipeline.run(session) is RunState.DONE
    status = pipeline.state.read_status()
    assert status.state is RunState.DONE
    [query] = status.queries
    assert (query.name, query.writes_to, query.lag) == ("table", "danube-delta", 0)
    assert query.batch == 1
    assert "table: done, batch 0, 5 rows" in pipeline.output.getvalue()

    pipeline.forget_commit("table")
    assert pipeline.run(session) is RunState.DONE
    found = delta_rows(tmp_path / "tables/orders", "offset", "number", "customer")
    assert found == [(number, number, "ada") for number in range(8)]


def test_topic_with_schema_to_iceberg(session, client, broker_url, topic, tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog

    with client.producer(topic, reliable=True, schema=ORDER) as producer:
        producer.send_batch([order(number) for number in range(4)])
    catalog = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    pipeline = PipelineDirectory.of_template(
        "topic-to-iceberg",
        tmp_path,
        broker_url,
        topic=topic,
        catalog=catalog["uri"],
        warehouse=catalog["warehouse"],
    )
    assert pipeline.run(session) is RunState.DONE
    open_catalog = SqlCatalog("default", **catalog)
    rows = open_catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    open_catalog.close()
    assert sorted((row["offset"], row["number"]) for row in rows) == [
        (number, number) for number in range(4)
    ]


def test_files_to_topic_continues_with_new_files(
    session, client, broker_url, topic, tmp_path
):
    pipeline = PipelineDirectory.of_template(
        "files-to-topic", tmp_path, broker_url, topic=topic
    )
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    for run in range(2):
        lines = [json.dumps(order(run * 2 + each)) for each in range(2)]
        (incoming / f"{run}.json").write_text("\n".join(lines))
        assert pipeline.run(session) is RunState.DONE
    found = read(client, topic)
    assert sorted(json.loads(payload)["number"] for payload, _, _ in found) == [
        *range(4)
    ]
    assert {key for _, key, _ in found} == {"ada"}


def test_stream_is_joined_with_a_table_into_a_topic(
    session, client, broker_url, topic, tmp_path
):
    enriched = unique_topic(client)
    send(
        client,
        topic,
        order(0, "Ada", 20.0),
        order(1, "bob", 5.0),
        order(2, "eve", 30.0),
    )
    pipeline = PipelineDirectory.of_template(
        "enrich", tmp_path, broker_url, topic=topic, enriched=enriched
    )
    assert pipeline.run(session) is RunState.DONE
    found = sorted(read_json(client, enriched), key=lambda each: each["number"])
    assert found == [
        {"number": 0, "customer": "ada", "amount": 20.0, "country": "GB"},
        {"number": 2, "customer": "eve", "amount": 30.0},
    ]


def measurement(at, amount=1.0, sensor="a"):
    return {"sensor": sensor, "amount": amount, "at": at}


def test_windows_are_appended_once_when_closed(
    session, client, broker_url, topic, tmp_path
):
    send(client, topic, *(measurement(at) for at in (0, 5, 12, 100)))
    pipeline = PipelineDirectory.of_template(
        "windows", tmp_path, broker_url, topic=topic
    )
    assert pipeline.run(session) is RunState.DONE
    send(client, topic, measurement(8), measurement(105), measurement(200))
    assert pipeline.run(session) is RunState.DONE
    rows = session.read.parquet(str(tmp_path / "windows")).orderBy("start").collect()
    assert [(row.sensor, row.measurements) for row in rows] == [
        ("a", 2),
        ("a", 1),
        ("a", 2),
    ]


def test_windows_are_updated_in_a_database(
    session, client, broker_url, topic, tmp_path
):
    from support.servers.postgres import PostgresProcess

    send(client, topic, measurement(0), measurement(5), measurement(12))
    with PostgresProcess() as database:
        pipeline = PipelineDirectory.of_template(
            "windows-to-postgres", tmp_path, broker_url, topic=topic
        )
        pipeline.environment["POSTGRES_URI"] = database.uri
        assert pipeline.run(session) is RunState.DONE
        send(client, topic, measurement(6, 2.0))
        assert pipeline.run(session) is RunState.DONE
        pipeline.forget_commit("database")
        assert pipeline.run(session) is RunState.DONE
        rows = database.query("SELECT measurements, amount FROM windows ORDER BY start")
    assert rows == [(3, 4.0), (1, 1.0)]
    kept = b"".join(
        path.read_bytes() for path in pipeline.state.path.rglob("*") if path.is_file()
    )
    assert database.uri.encode() not in kept


TOTALS = """\
name: totals
parameters: {topic: "", database: "", driver: ""}
sources: {messages: {topic: "${topic}"}}
steps:
  totals:
    sql: >
      SELECT CAST(payload AS STRING) AS name, count(*) AS total FROM messages GROUP BY 1
sinks:
  database:
    input: totals
    format: jdbc
    mode: complete
    options: {url: "${database}", dbtable: totals, driver: "${driver}"}
"""


def test_whole_aggregate_replaces_the_rows_of_a_database_table(
    session, client, broker_url, topic, tmp_path
):
    session._jvm.System.setProperty(
        "derby.stream.error.file", str(tmp_path / "derby.log")
    )
    pipeline = PipelineDirectory(
        tmp_path,
        broker_url,
        topic=topic,
        database=f"jdbc:derby:memory:{topic.rpartition('/')[2]};create=true",
        driver="org.apache.derby.iapi.jdbc.AutoloadedDriver",
    )
    pipeline.file.write_text(TOTALS)
    for values in ((b"a", b"b"), (b"a", b"c")):
        send(client, topic, *values)
        assert pipeline.run(session) is RunState.DONE
    rows = session.read.format("jdbc").options(
        url=pipeline.parameters["database"],
        dbtable="totals",
        driver=pipeline.parameters["driver"],
    )
    found = rows.load().collect()
    assert sorted(map(tuple, found)) == [("a", 2), ("b", 1), ("c", 1)]


def test_dead_letters_have_origin_and_reason(
    session, client, broker_url, topic, tmp_path
):
    dead = unique_topic(client)
    with client.producer(topic, reliable=True, schema=ORDER) as producer:
        producer.send_batch([order(0), order(1)])
    send(client, topic, b"no order")
    with client.producer(topic, reliable=True, schema=ORDER) as producer:
        producer.send_batch([order(3)])
    pipeline = PipelineDirectory.of_template(
        "dead-letters", tmp_path, broker_url, topic=topic, dead_letters=dead
    )
    for _ in range(2):
        assert pipeline.run(session) is RunState.DONE
        for query in ("table", "payments.dead_letters"):
            pipeline.forget_commit(query)
    assert delta_rows(tmp_path / "tables/payments", "offset", "number") == [
        (0, 0),
        (1, 1),
        (3, 3),
    ]
    [(payload, key, attributes)] = read(client, dead)
    assert (payload, key) == (b"no order", None)
    assert attributes["x-original-topic"] == topic
    assert attributes["x-original-topic-offset"] == "2"
    assert "without a schema" in attributes["x-failure-reason"]


def test_database_table_to_topic(session, client, broker_url, topic, tmp_path):
    database = f"jdbc:derby:memory:{topic.rpartition('/')[2]}"
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    # Derby would write its log to the working directory of the tests.
    session._jvm.System.setProperty(
        "derby.stream.error.file", str(tmp_path / "derby.log")
    )
    rows = [("Ada", "GB"), ("Bob", "FR")]
    session.createDataFrame(rows, "name string, country string").write.jdbc(
        f"{database};create=true", "customers", properties={"driver": driver}
    )
    pipeline = PipelineDirectory.of_template(
        "jdbc", tmp_path, broker_url, topic=topic, database=database
    )
    pipeline.environment |= {"DATABASE_USER": "app", "DATABASE_PASSWORD": "s3cret"}
    assert pipeline.run(session) is RunState.DONE
    assert sorted(each["country"] for each in read_json(client, topic)) == ["FR", "GB"]
    [query] = pipeline.state.read_status().queries
    assert query.rows == 2


INVALID = """\
name: wrong
parameters: {topic: ""}
sources:
  messages: {topic: "${topic}"}
  missing: {topic: /default/never-there}
  undecided: {topic: "${topic}", decode: true}
  nothing: {files: nowhere.csv, format: csv, read: table}
  unparsed: {files: ., format: csv, schema: "a nonsense"}
steps:
  columns: {sql: SELECT ofset FROM messages}
  after_columns: {sql: SELECT * FROM columns}
  syntax: {sql: SELEC 1}
  strange: {sql: SELECT * FROM strangers}
  fails: {python: "functions.py:fails", inputs: [messages]}
  returns: {python: "functions.py:returns", inputs: [messages]}
  late: {sql: SELECT * FROM messages, watermark: {column: at, delay: 1 minute}}
  counts: {sql: "SELECT key, count(*) AS n FROM messages GROUP BY key"}
  numbers: {sql: SELECT 1 AS one}
sinks:
  no_mode: {input: counts, format: parquet, path: out}
  no_topic: {input: messages, topic: /default/not-there-either}
  no_option:
    {input: messages, format: danube-delta, path: o, options: {partitionBy: gone}}
  no_format: {input: messages, format: parqet, path: out}
  no_stream: {input: numbers, format: noop, trigger: continuous}
  overwrites: {input: messages, format: noop, mode: overwrite}
  after_missing: {input: missing, format: noop}
"""

FUNCTIONS = """\
def fails(frame):
    return frame.select(frame.nothing)


def returns(frame):
    return frame.columns
"""


def test_validation_finds_all_problems_before_the_start(
    session, broker_url, topic, tmp_path
):
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(INVALID)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    with pytest.raises(InvalidDeclaration) as caught:
        validate(session, pipeline.load())
    found = {each.path: each.message for each in caught.value.problems}
    expected = {
        "sources.missing.topic": "there is no topic /default/never-there",
        "sources.undecided": "not bound to a schema subject",
        "sources.nothing.files": "nowhere.csv",
        "sources.unparsed.schema": "NONSENSE",
        "steps.columns.sql": "offset",
        "steps.syntax.sql": "SELEC",
        "steps.strange.sql": "there is no table strangers",
        "steps.fails.python": "line 2 of functions.py",
        "steps.returns.python": "must return a DataFrame, and returned a list",
        "steps.late.watermark.column": "there is no column at",
        "sinks.no_mode.mode": "watermark",
        "sinks.no_topic": "/default/not-there-either",
        "sinks.no_option.options.partitionBy": "gone",
        "sinks.no_format.format": "did you mean 'parquet'?",
        "sinks.no_stream": "must be available-now",
        "sinks.overwrites.mode": "not overwrite",
    }
    assert found.keys() == expected.keys()
    for path, words in expected.items():
        assert words in found[path], found[path]
    assert all(each.line for each in caught.value.problems)
    assert not (tmp_path / ".danube").exists()


def test_unreachable_broker_is_named(session, tmp_path):
    pipeline = PipelineDirectory.of_template(
        "topic-to-delta", tmp_path, "danube://127.0.0.1:1"
    )
    with pytest.raises(InvalidDeclaration, match="no broker answers at danube://127"):
        validate(session, pipeline.load())


FAILS_ONCE = """\
name: again
parameters: {topic: ""}
retries: {count: 2, backoff: 1ms}
sources: {messages: {topic: "${topic}"}}
sinks: {out: {input: messages, python: "functions.py:write"}}
"""

WRITE = """\
from pathlib import Path

HERE = Path(__file__).parent


def write(batch, number):
    tries = HERE / "tries"
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    if len(tries.read_text()) < (HERE / "good").stat().st_size:
        raise ValueError("not yet")
    (HERE / f"batch-{number}").write_text(str(batch.count()))
"""


@pytest.mark.parametrize("good_try", [2, 4])
def test_failed_query_is_retried(session, client, broker_url, tmp_path, good_try):
    topic = unique_topic(client)
    send(client, topic, order(0), order(1))
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(FAILS_ONCE)
    (tmp_path / "functions.py").write_text(WRITE)
    (tmp_path / "good").write_text("x" * good_try)
    last_state = pipeline.run(session)
    [query] = pipeline.state.read_status().queries
    assert "not yet" in query.error
    if good_try == 2:
        assert last_state is RunState.DONE
        assert (query.failures, query.rows) == (1, 2)
        assert (tmp_path / "batch-0").read_text() == "2"
    else:
        assert last_state is RunState.FAILED
        assert query.failures == 3
        assert "out: ValueError: not yet" in pipeline.state.read_status().error


ENDLESS = """\
name: endless
parameters: {topic: "", start: earliest}
trigger: continuous
sources: {messages: {topic: "${topic}", start: "${start}"}}
sinks:
  files: {input: messages, format: parquet, path: out}
  others: {input: messages, format: noop, trigger: {every: 500ms}}
"""

ENDING = ENDLESS.replace("continuous", "available-now").replace(
    "{every: 500ms}", "available-now"
)


class Visitor:
    """Does one thing after the other to a run, each when all rows are there."""

    def __init__(self, pipeline, *things):
        self.pipeline = pipeline
        self.things = list(things)
        self.rows = 0

    def __call__(self):
        queries = self.pipeline.state.read_status().queries
        if self.things and all(query.rows >= self.rows for query in queries):
            self.things.pop(0)()


def offsets_in(session, path):
    return sorted(row.offset for row in session.read.parquet(str(path)).collect())


def test_run_stops_on_request_and_resumes(session, client, broker_url, topic, tmp_path):
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic)
    pipeline.file.write_text(ENDLESS)
    send(client, topic, order(0))

    def more():
        send(client, topic, order(1), order(2))
        visitor.rows = 3

    def stop():
        # As `danube pipeline run` does.
        record = RunRecord(
            pipeline="endless",
            file=str(pipeline.file),
            pid=os.getpid(),
            mark=process_start_time(os.getpid()),
            host=socket.gethostname(),
            since=utc_text(),
        )
        pipeline.state.write_record(record)
        given = [f"{name}={value}" for name, value in pipeline.parameters.items()]
        where = [
            str(pipeline.file),
            *(word for each in given for word in ("--set", each)),
        ]
        command = ["pipeline", "status", *where, "--format", "json"]
        shown = CliRunner().invoke(app, command)
        assert shown.exit_code == 0, shown.output
        answer = json.loads(shown.stdout)
        assert (answer["state"], answer["is_running"]) == ("running", True)
        command = ["pipeline", "stop", *where, "--timeout", "0s"]
        assert CliRunner().invoke(app, command).exit_code == 0

    visitor = Visitor(pipeline, lambda: None, more, stop)
    visitor.rows = 1
    last_state = pipeline.run(session, on_poll=visitor)
    assert last_state is RunState.STOPPED
    assert "stop was requested: finishing the running" in (pipeline.output.getvalue())

    stop_request = StopRequest()
    visitor = Visitor(pipeline, lambda: os.kill(os.getpid(), signal.SIGTERM))
    visitor.rows = 1
    send(client, topic, order(3))
    with signals_to(stop_request):
        last_state = pipeline.run(session, on_poll=visitor, stop_request=stop_request)
    assert (last_state, stop_request.number) == (RunState.STOPPED, signal.SIGTERM)
    assert offsets_in(session, tmp_path / "out") == [0, 1, 2, 3]


@pytest.mark.parametrize("start", ["latest", "now"])
def test_start_is_one_offset_for_all_queries_of_a_source(
    session, client, broker_url, tmp_path, start
):
    topic = unique_topic(client, partitions=2)
    send(client, topic, order(0))
    if start == "now":
        start = to_datetime(time.time_ns() // 1000).isoformat()
    pipeline = PipelineDirectory(tmp_path, broker_url, topic=topic, start=start)
    pipeline.file.write_text(ENDING)
    assert pipeline.run(session) is RunState.DONE
    send(client, topic, order(1))
    assert pipeline.run(session) is RunState.DONE
    rows = session.read.parquet(str(tmp_path / "out")).collect()
    assert [json.loads(row.payload)["number"] for row in rows] == [1]
