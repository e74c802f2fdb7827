"""Change feeds and aggregates into tables with the current row of each key."""

import json

import pytest

pyspark = pytest.importorskip("pyspark")

from deltalake import DeltaTable  # noqa: E402

from pydanube import Schema  # noqa: E402
from pydanube.declarations.pure.problems import InvalidDeclaration  # noqa: E402
from pydanube_spark.commands.pipeline_runs import (  # noqa: E402
    with_changed_tables,
    with_mirrored_tables,
)
from pydanube_spark.pipelines.change_feeds import PLACEHOLDER  # noqa: E402
from pydanube_spark.pipelines.loading import load  # noqa: E402
from pydanube_spark.pipelines.pure.progress import RunState  # noqa: E402
from pydanube_spark.pipelines.validation import validate  # noqa: E402
from pydanube_spark.pipelines.verifying import verify_sink  # noqa: E402
from support.drivers.lake_tables import catalog_of, read, table_in  # noqa: E402
from support.drivers.pipelines import PipelineDirectory, send, unique_topic  # noqa: E402

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    # pyiceberg raises it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def session(spark):
    """Tables of one test are not seen by another."""
    return spark.newSession()


@pytest.fixture
def topic(client):
    return unique_topic(client)


def customer(number, name, city="Paris"):
    return {"id": number, "name": name, "city": city}


def event(op, at, before=None, after=None):
    return {"before": before, "after": after, "op": op, "ts_ms": at}


def wrapped(each):
    """As Debezium's JSON converter writes it by default."""
    return {"schema": {"type": "struct", "fields": []}, "payload": each}


def delta_rows(path):
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["name"], row["_op"]) for row in rows)


@pytest.mark.soak
def test_json_change_feed_to_delta_is_exactly_once(
    session, client, broker_url, topic, tmp_path
):
    send(
        client,
        topic,
        event("r", 1, after=customer(1, "ada")),
        wrapped(event("c", 2, after=customer(2, "bob"))),
        event("c", 2, after=customer(3, "eve")),
        wrapped(event("u", 3, customer(2, "bob"), customer(2, "Bob"))),
        event("m", 3),
        event("d", 4, before=customer(3, None, None)),
        b"",
    )
    pipeline = PipelineDirectory.of_template(
        "changes-to-delta", tmp_path, broker_url, topic=topic
    )
    assert pipeline.run(session) is RunState.DONE
    table = tmp_path / "tables/customers"
    assert delta_rows(table) == [(1, "ada", "r"), (2, "Bob", "u")]

    send(client, topic, event("u", 5, after=customer(1, "Ada", PLACEHOLDER)))
    send(client, topic, event("u", 4, after=customer(1, "late")))
    assert pipeline.run(session) is RunState.DONE
    expected = [(1, "Ada", "u"), (2, "Bob", "u")]
    assert delta_rows(table) == expected
    cities = DeltaTable(str(table)).to_pyarrow_table().column("city").to_pylist()
    assert cities == ["Paris", "Paris"]
    version = DeltaTable(str(table)).version()
    # As if the driver had been killed between the write and the checkpoint.
    pipeline.forget_commit("table")
    assert pipeline.run(session) is RunState.DONE
    assert (delta_rows(table), DeltaTable(str(table)).version()) == (expected, version)

    send(client, topic, {"id": 1})
    assert pipeline.run(session) is RunState.FAILED
    assert f"of {topic}: it is no change of a row" in pipeline.output.getvalue()


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "city", "type": ["null", "string"]},
    ],
}
ENVELOPE = Schema.avro(
    json.dumps(
        {
            "type": "record",
            "name": "Envelope",
            "fields": [
                {"name": "before", "type": ["null", ROW], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
            ],
        }
    )
)

AVRO = """\
name: avro-changes
parameters: {topic: "", uri: "", warehouse: ""}
sources:
  customers: {topic: "${topic}", cdc: debezium, decode: true}
steps:
  by_city: {sql: "SELECT city, count(*) AS changes FROM customers GROUP BY city"}
sinks:
  customers:
    input: customers
    format: danube-iceberg
    options: {table: db.table, catalog.type: sql, catalog.uri: "${uri}",
              catalog.name: lake, catalog.warehouse: "${warehouse}"}
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'"}
  cities:
    input: by_city
    format: danube-delta
    path: cities
    mode: update
    table: {key: place}
"""


def test_avro_change_feed_to_iceberg_and_updates_to_delta(
    session, client, broker_url, topic, tmp_path
):
    def publish(*events):
        with client.producer(topic, reliable=True, schema=ENVELOPE) as producer:
            producer.send_batch(list(events))

    publish(
        event("c", 1, after=customer(1, "ada")),
        event("c", 1, after=customer(2, "bob", "Rome")),
        event("u", 1, after=customer(1, "Ada")),
    )
    send(client, topic, b"")
    catalog = catalog_of(tmp_path)
    pipeline = PipelineDirectory(
        tmp_path,
        broker_url,
        topic=topic,
        uri=catalog["uri"],
        warehouse=catalog["warehouse"],
    )
    pipeline.file.write_text(AVRO)
    with pytest.raises(InvalidDeclaration, match="no column 'place'") as invalid:
        validate(session, pipeline.load())
    assert invalid.value.problems[0].path == "sinks.cities.table.key"
    pipeline.file.write_text(AVRO.replace("place", "city"))
    assert pipeline.run(session) is RunState.DONE

    publish(
        event("d", 2, before=customer(2, None, "Rome")),
        event("c", 3, after=customer(3, "eve", "Rome")),
    )
    assert pipeline.run(session) is RunState.DONE
    for name in ("customers", "cities"):
        pipeline.forget_commit(name)
    assert pipeline.run(session) is RunState.DONE
    rows = read(table_in(tmp_path, "iceberg")).to_pylist()
    assert sorted((row["id"], row["name"], row["_op"]) for row in rows) == [
        (1, "Ada", "u"),
        (3, "eve", "c"),
    ]
    cities = DeltaTable(str(tmp_path / "cities")).to_pyarrow_table().to_pylist()
    assert sorted((row["city"], row["changes"]) for row in cities) == [
        ("Paris", 2),
        ("Rome", 3),
    ]


TRUNCATING = """\
name: truncating
parameters: {prefix: "", uri: "", warehouse: ""}
mirrors:
  shop:
    topic: "${prefix}.{table}"
    truncate: apply
    tables:
      customers: {key: id, schema: "id BIGINT, name STRING, city STRING"}
      others: {key: id, schema: "id BIGINT, name STRING, city STRING"}
    format: danube-delta
    path: "{table}"
sources:
  decoded: {topic: "${prefix}", cdc: debezium, decode: true, truncate: apply}
sinks:
  decoded:
    input: decoded
    format: danube-iceberg
    options: {table: db.table, catalog.type: sql, catalog.uri: "${uri}",
              catalog.name: lake, catalog.warehouse: "${warehouse}"}
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'", truncate: "_op = 't'"}
"""


@pytest.mark.soak
def test_truncations_empty_the_table_that_they_name_exactly_once(
    session, client, broker_url, topic, tmp_path
):
    def publish(*events):
        with client.producer(topic, reliable=True, schema=ENVELOPE) as producer:
            producer.send_batch(list(events))
        send(client, f"{topic}.customers", *events)

    parts = {name: f"{topic}.{name}" for name in ("customers", "others")}
    client.topics.create(parts["customers"], reliable=True, partitions=2)
    client.topics.create(parts["others"], reliable=True)
    catalog = catalog_of(tmp_path)
    pipeline = PipelineDirectory(
        tmp_path,
        broker_url,
        prefix=topic,
        uri=catalog["uri"],
        warehouse=catalog["warehouse"],
    )
    pipeline.file.write_text(TRUNCATING)
    with pytest.raises(InvalidDeclaration, match="customers has 2 partitions"):
        pipeline.run(session)
    client.topics.delete(parts["customers"])
    client.topics.create(parts["customers"], reliable=True)

    ada = event("c", 1, after=customer(1, "ada"))
    publish(ada, event("c", 1, after=customer(2, "bob")))
    send(client, parts["others"], ada)
    assert pipeline.run(session) is RunState.DONE

    def tables():
        rows = read(table_in(tmp_path, "iceberg")).to_pylist()
        found = sorted((row["id"], row["name"], row["_op"]) for row in rows)
        return [delta_rows(tmp_path / "customers"), found]

    publish(
        event("u", 2, after=customer(1, "Ada")),
        event("t", 2),
        event("c", 2, after=customer(3, "eve")),
    )
    names = ["shop_customers", "decoded"]
    for _ in range(2):
        assert pipeline.run(session) is RunState.DONE
        assert tables() == [[(3, "eve", "c")]] * 2
        # As if the driver had been killed between the write and the checkpoint.
        for name in names:
            pipeline.forget_commit(name)
    # The topics have more meanwhile, also a truncation with nothing after it.
    publish(event("c", 3, after=customer(4, "joe")))
    assert pipeline.run(session) is RunState.DONE
    assert tables() == [[(3, "eve", "c"), (4, "joe", "c")]] * 2
    loaded = pipeline.load()
    for name in names:
        found = verify_sink(session, loaded, name)
        assert (found.problem, found.expected, found.is_right) == (None, 2, True)
    publish(event("t", 4))
    assert pipeline.run(session) is RunState.DONE
    assert tables() == [[]] * 2
    assert delta_rows(tmp_path / "others") == [(1, "ada", "c")]


GROWING = """\
name: growing
parameters: {prefix: ""}
trigger: continuous
mirrors:
  shop:
    topic: "${prefix}.{table}"
    tables: {"*": {key: id, schema: "id BIGINT, name STRING, city STRING"}}
    tables_max: 2
    format: danube-delta
    path: "{table}"
"""


def test_a_running_mirror_begins_again_with_changed_tables(
    session, client, broker_url, topic, tmp_path
):
    pipeline = PipelineDirectory(tmp_path, broker_url, prefix=topic)
    pipeline.file.write_text(GROWING)

    def reload(tables):
        given = {"parameters": pipeline.parameters, "tables": tables}
        return load(pipeline.file, environment=pipeline.environment, **given)

    def create(table, name):
        client.topics.create(f"{topic}.{table}", reliable=True)
        send(client, f"{topic}.{table}", event("c", 1, after=customer(1, name)))

    def rows(table):
        exists = DeltaTable.is_deltatable(str(tmp_path / table))
        return delta_rows(tmp_path / table) if exists else []

    def find_changed_tables():
        return with_changed_tables(pipeline.load(), reload)

    def run(on_poll, interval_s=0.0):
        pipeline.state.path.mkdir(parents=True, exist_ok=True)
        with_mirrored_tables(pipeline.load(), reload, is_run=True)
        return pipeline.run(
            session,
            on_poll=on_poll,
            find_changed_tables=find_changed_tables,
            tables_interval_s=interval_s,
        )

    create("a", "ada")

    def add_a_table():
        if rows("a") and not client.topics.partitions(f"{topic}.b"):
            create("b", "bob")

    assert run(add_a_table) is RunState.STARTING
    assert "the tables of mirrors have changed" in pipeline.output.getvalue()
    assert pipeline.state.read_status().state is RunState.STARTING

    def add_too_many():
        if not rows("b"):
            return
        if not client.topics.partitions(f"{topic}.c"):
            create("c", "eve")
        if "other tables of mirrors have to wait" in pipeline.output.getvalue():
            pipeline.state.request_stop()

    # More tables than there may be leave the others as they are.
    assert run(add_too_many) is RunState.STOPPED
    assert pipeline.output.getvalue().count("have to wait") == 1
    assert "tables_max" in pipeline.state.read_status().tables_problem
    assert (rows("a"), rows("b")) == ([(1, "ada", "c")], [(1, "bob", "c")])
    assert rows("c") == []

    # A table whose topic is gone fails, and must not end the others.
    client.topics.delete(f"{topic}.c")

    def delete_a_topic():
        if rows("b") == [(1, "bob", "c")]:
            send(client, f"{topic}.b", event("u", 2, after=customer(1, "Bob")))
        elif client.topics.partitions(f"{topic}.a"):
            client.topics.delete(f"{topic}.a")

    assert run(delete_a_topic, interval_s=3600.0) is RunState.STARTING

    def stop_with_b():
        names = [each.name for each in pipeline.state.read_status().queries]
        if names == ["shop_b"] and rows("b") == [(1, "Bob", "u")]:
            pipeline.state.request_stop()

    assert run(stop_with_b) is RunState.STOPPED
    assert rows("a") == [(1, "ada", "c")]


OLD = json.loads(ENVELOPE.definition)


def wider(*names, level="int"):
    """ENVELOPE, whose rows also have these columns, and a level of that type."""
    new = [{"name": each, "type": "string", "default": ""} for each in names]
    new.append({"name": "level", "type": level, "default": 0})
    row = {**ROW, "fields": [*ROW["fields"], *new]}
    before = {"name": "before", "type": ["null", row], "default": None}
    return Schema.avro(json.dumps({**OLD, "fields": [before, *OLD["fields"][1:]]}))


EVOLVING = """\
name: evolving
parameters: {topic: "", uri: "", warehouse: "", changes: fail, trigger: available-now}
trigger: "${trigger}"
sources:
  decoded: {topic: "${topic}", cdc: debezium, decode: true,
            schema_changes: "${changes}"}
  parsed: {topic: "${topic}.json", cdc: debezium, schema: "id BIGINT, name STRING",
           schema_changes: evolve, dead_letters: {topic: "${topic}.dead"}}
sinks:
  decoded:
    input: decoded
    format: danube-iceberg
    options: {table: db.table, catalog.type: sql, catalog.uri: "${uri}",
              catalog.name: lake, catalog.warehouse: "${warehouse}"}
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'"}
  parsed:
    input: parsed
    format: danube-delta
    path: parsed
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'"}
  again: {input: parsed, format: danube-delta, path: again}
"""


@pytest.mark.soak
def test_feeds_evolve_in_a_run_and_lose_nothing(
    session, client, broker_url, topic, tmp_path
):
    def publish(schema, *events):
        with client.producer(topic, reliable=True, schema=schema) as producer:
            producer.send_batch(list(events))

    parsed = f"{topic}.json"
    client.topics.create(f"{topic}.dead", reliable=True)
    catalog = catalog_of(tmp_path)
    pipeline = PipelineDirectory(
        tmp_path,
        broker_url,
        topic=topic,
        uri=catalog["uri"],
        warehouse=catalog["warehouse"],
    )
    pipeline.file.write_text(EVOLVING)
    publish(ENVELOPE, event("c", 1, after=customer(1, "ada")))
    send(client, parsed, event("c", 1, after={"id": 1, "name": "ada"}))
    assert pipeline.run(session) is RunState.DONE

    # Old and new columns in one micro-batch, and two new ones after each other.
    publish(ENVELOPE, event("c", 2, after=customer(2, "bob")))
    new = {"note": "new", "level": 7}
    publish(wider("note"), event("c", 3, after=customer(3, "eve") | new))
    send(
        client,
        parsed,
        event("c", 2, after={"id": 2, "name": "bob", "note": None}),
        event("c", 3, after={"id": 3, "name": "eve", "age": 7, "note": "new"}),
        event("c", 4, after={"id": 4, "vip": True}),
        {"id": 5},
    )
    with pytest.raises(
        InvalidDeclaration, match="no columns note, level; set mergeSchema"
    ):
        pipeline.run(session)

    pipeline.parameters |= {"changes": "evolve", "trigger": "continuous"}
    rows, polls = [], 0

    def add_a_version():
        # A new version while the query runs.
        nonlocal rows, polls
        polls += 1
        if polls % 8:
            return
        rows = read(table_in(tmp_path, "iceberg")).to_pylist()
        if len(rows) == 3:
            # Its level is wider, so that the table is widened.
            schema = wider("note", "flag", level="long")
            newest = customer(4, "joe") | {"note": "", "flag": "x", "level": 2**40}
            publish(schema, event("c", 4, after=newest))
        elif len(rows) == 4 and all(
            len(delta_rows(tmp_path / each)) == 4 for each in ("parsed", "again")
        ):
            pipeline.state.request_stop()

    assert pipeline.run(session, on_poll=add_a_version) is RunState.STOPPED
    output = pipeline.output.getvalue()
    assert "starting again with the new columns age BIGINT, note STRING" in output
    assert "decoded: starting again for version 3 of" in output
    assert sorted(
        (row["id"], row["name"], row["note"], row["level"], row["flag"]) for row in rows
    ) == [
        (1, "ada", None, None, None),
        (2, "bob", "", 0, None),
        (3, "eve", "new", 7, None),
        (4, "joe", "", 2**40, "x"),
    ]
    for each in ("parsed", "again"):
        rows = DeltaTable(str(tmp_path / each)).to_pyarrow_table().to_pylist()
        assert sorted(
            (row["id"], *(row[name] for name in ("name", "age", "note", "vip")))
            for row in rows
        ) == [
            (1, "ada", None, None, None),
            (2, "bob", None, None, None),
            (3, "eve", 7, "new", None),
            (4, None, None, None, True),
        ]
