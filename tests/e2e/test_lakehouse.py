"""Export of topics to tables, through failures and concurrent writers."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from pydanube import Schema
from pydanube.model.errors import BrokerError, InvalidPayload, InvalidRequest
from pydanube_cli import main
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.export.exporter import Exporter, ExportOptions
from pydanube_spark.tables.export.zero_copy import ZeroCopyExporter
from pydanube_spark.tables.pure.table_options import UndecodablePolicy
from support.drivers.lake_tables import (
    KINDS,
    data_files,
    opened,
    read,
    read_with_polars,
    table_in,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

COUNT = 5000


@dataclass
class Order:
    number: int
    customer: str


@dataclass
class NewOrder(Order):
    currency: str = "EUR"


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def table(kind, tmp_path):
    return table_in(tmp_path, kind)


@pytest.fixture
def topic(request):
    name = request.node.name.replace("[", "-").replace("]", "")
    return f"/default/{name.replace('_', '-')[-60:].strip('-')}"


def exporter(url, topic, table, *, runner=None, dead_letters=None, **options):
    return Exporter(
        ExportOptions(url=url, topic=topic, **options),
        table,
        runner or ThreadRunner(2),
        dead_letters=dead_letters,
    )


def export_all(one):
    reports = [one.export_round()]
    while not reports[-1].is_last:
        reports.append(one.export_round())
    return reports


def publish(client, topic, first, count=1000, **options):
    numbers = range(first, first + count)
    payloads = pa.array([f"{n:0100}".encode() for n in numbers], pa.binary())
    keys = pa.array([str(n % 7).encode() for n in numbers], pa.binary())
    with client.producer(topic, **options) as producer:
        producer.send_batch(pa.record_batch({"key": keys, "payload": payloads}))


def test_history_and_tail_are_exported_once(client, broker_url, topic, table):
    publish(client, topic, 0)
    # A round ends with a segment.
    _wait_until_sealed(client, topic)
    for first in range(1000, COUNT, 1000):
        publish(client, topic, first)
    one = exporter(broker_url, topic, table, round_bytes_max=1, task_bytes_max=1000)
    plan = one.plan()
    assert plan.waiting_count == COUNT
    assert table.schema() is None
    first = export_all(one)
    assert len(first) > 1
    publish(client, topic, COUNT)
    # Another process continues at the offset in the table.
    [second] = export_all(exporter(broker_url, topic, table))
    assert second.message_count == 1000
    assert exporter(broker_url, topic, table).export_round().message_count == 0
    found = read(table).sort_by("offset")
    assert found.column("offset").to_pylist() == list(range(COUNT + 1000))
    assert found.column("payload").to_pylist() == [
        f"{n:0100}".encode() for n in range(COUNT + 1000)
    ]
    assert found.column("key")[8].as_py() == b"1"
    assert "partition" not in found.column_names


def test_values_become_columns_and_new_versions_add_some(
    client, broker_url, topic, table
):
    with client.producer(topic, schema=Order) as producer:
        producer.send_batch([Order(n, "ada") for n in range(1000)])
    export_all(exporter(broker_url, topic, table))
    with client.producer(topic, schema=NewOrder) as producer:
        producer.send_batch([NewOrder(n, "bob") for n in range(1000, 2000)])
    plan = exporter(broker_url, topic, table).plan()
    assert plan.new_columns == ("currency",)
    export_all(exporter(broker_url, topic, table))
    rows = read(table).sort_by("number").to_pylist()
    assert [row["number"] for row in rows] == list(range(2000))
    assert {(row["customer"], row["currency"]) for row in rows} == {
        ("ada", None),
        ("bob", "EUR"),
    }
    assert [row["_offset"] for row in rows] == list(range(2000))
    assert read_with_polars(table).num_rows == 2000


def numbers_of(kind):
    field = {"name": "number", "type": kind}
    return Schema.avro(
        json.dumps({"type": "record", "name": "Numbers", "fields": [field]})
    )


def test_wider_numbers_widen_the_table_or_wait_until_it_is_written_anew(
    client, broker_url, topic, kind, table
):
    with client.producer(topic, schema=numbers_of("int")) as producer:
        producer.send({"number": 1})
    export_all(exporter(broker_url, topic, table))
    with client.producer(topic, schema=numbers_of("int")) as producer:
        producer.send({"number": 2})
    with client.producer(topic, schema=numbers_of("long")) as producer:
        producer.send({"number": 2**40})
    if kind == "delta":
        with pytest.raises(InvalidRequest, match=r"number.*delta\.md, section New col"):
            export_all(exporter(broker_url, topic, table))
        # As that section does.
        rows = DeltaTable(table.name).to_pyarrow_table()
        at = rows.schema.get_field_index("number")
        wider = rows.schema.set(at, pa.field("number", pa.int64()))
        write_deltalake(
            table.name, rows.cast(wider), mode="overwrite", schema_mode="overwrite"
        )
    export_all(exporter(broker_url, topic, table))
    rows = read(table).sort_by("_offset").to_pylist()
    assert [row["number"] for row in rows] == [1, 2, 2**40]
    assert [row["_offset"] for row in rows] == [0, 1, 2]


def test_partitions_become_one_table(client, broker_url, topic, table):
    client.topics.create(topic, partitions=3)
    publish(client, topic, 0)
    export_all(exporter(broker_url, topic, table))
    publish(client, topic, 1000)
    export_all(exporter(broker_url, topic, table))
    found = read(table)
    assert sorted(found.column("payload").to_pylist()) == [
        f"{n:0100}".encode() for n in range(2000)
    ]
    assert set(found.column("partition").to_pylist()) == {0, 1, 2}


def test_undecodable_messages_follow_the_policy(
    client, broker_url, topic, kind, tmp_path
):
    table = table_in(tmp_path, kind)
    with client.producer(topic, schema=Order) as producer:
        producer.send_batch([Order(n, "ada") for n in range(10)])
    with client.producer(topic) as producer:
        producer.send("nonsense")
    with client.producer(topic, schema=Order) as producer:
        producer.send_batch([Order(n, "ada") for n in range(10, 20)])
    with pytest.raises(InvalidPayload):
        exporter(broker_url, topic, table).export_round()
    assert data_files(tmp_path) == []

    nulls = table_in(tmp_path, kind, "nulls")
    export_all(exporter(broker_url, topic, nulls, undecodable=UndecodablePolicy.NULL))
    rows = read(nulls).sort_by("_offset").to_pylist()
    assert rows[10]["number"] is None
    assert rows[10]["_payload"] == b"nonsense"
    assert "without a schema" in rows[10]["_error"]
    assert rows[11]["_payload"] is None

    letters = table_in(tmp_path, kind, "letters")
    for _ in range(2):
        # The second run finds the dead letters, but no rows, in their tables.
        rest = table_in(tmp_path, kind, f"rest{_}")
        export_all(
            exporter(
                broker_url,
                topic,
                rest,
                undecodable=UndecodablePolicy.DEAD_LETTER,
                dead_letters=letters,
            )
        )
        assert sorted(read(rest).column("number").to_pylist()) == list(range(20))
        [letter] = read(letters).to_pylist()
        assert (letter["offset"], letter["payload"]) == (10, b"nonsense")


def test_failed_round_leaves_nothing(client, broker_url, topic, table, tmp_path):
    for first in range(0, COUNT, 1000):
        publish(client, topic, first)

    class BreakingRunner(ThreadRunner):
        def outcomes(self, jobs, work):
            def breaking(job):
                if job.scan.base:
                    raise RuntimeError("the machine is gone")
                return work(job)

            return super().outcomes(jobs, breaking)

    one = exporter(
        broker_url, topic, table, runner=BreakingRunner(2), task_bytes_max=1000
    )
    with pytest.raises(RuntimeError):
        one.export_round()
    export_all(exporter(broker_url, topic, table))
    assert sorted(read(table).column("offset").to_pylist()) == list(range(COUNT))


def test_concurrent_exports_do_no_harm(client, broker_url, topic, table, tmp_path):
    publish(client, topic, 0)
    others = exporter(broker_url, topic, table)
    calls = []

    class OvertakenRunner(ThreadRunner):
        def outcomes(self, jobs, work):
            if not calls:
                calls.append(jobs)
                assert others.export_round().message_count == 1000
                publish(client, topic, 1000)
            return super().outcomes(jobs, work)

    one = exporter(broker_url, topic, table, runner=OvertakenRunner(2))
    report = one.export_round()
    assert report.message_count == 1000
    assert sorted(read(table).column("offset").to_pylist()) == list(range(2000))
    assert len(data_files(tmp_path)) == 2


def test_recreated_topic_is_not_exported_to_the_old_table(
    client, broker_url, topic, table
):
    publish(client, topic, 0)
    export_all(exporter(broker_url, topic, table))
    client.topics.delete(topic)
    publish(client, topic, 0)
    with pytest.raises(InvalidRequest, match="an earlier"):
        exporter(broker_url, topic, table).export_round()


def test_table_keeps_its_layout(client, broker_url, topic, table):
    with client.producer(topic, schema=Order) as producer:
        producer.send_batch([Order(1, "ada")])
    export_all(exporter(broker_url, topic, table, is_raw=True))
    # The layout of the table does not change.
    assert exporter(broker_url, topic, table).plan().columns.layout.value == "raw"
    assert json.loads(read(table).column("payload")[0].as_py())["number"] == 1


def test_zero_copy_table_protects_its_segments(client, broker_url, topic, tmp_path):
    table = table_in(tmp_path, "iceberg")
    for first in range(0, COUNT, 1000):
        publish(client, topic, first)
    one = ZeroCopyExporter(broker_url, topic, table)
    _wait_until_sealed(client, topic)
    [planned] = one.plan()
    assert planned.segments
    assert one.export_round().message_count >= planned.end
    [stands] = one.export_round().topics
    found = read(table).sort_by("offset")
    count = stands.exported
    assert found.column("offset").to_pylist() == list(range(count))
    assert found.column("payload")[7].as_py() == b"%0100d" % 7
    assert read_with_polars(table).num_rows == count
    with opened(table) as iceberg:
        [hit] = iceberg.scan("offset = 7").to_arrow().to_pylist()
    assert hit["publish_time"].tzinfo is not None
    # Nothing was copied, and no segment may be removed.
    assert data_files(tmp_path) == []
    segments = {each.url for each in client.storage.segments(topic).segments}
    with opened(table) as iceberg:
        files = {task.file.file_path for task in iceberg.scan().plan_files()}
    assert files <= segments
    assert [each.name for each in client.topics.describe(topic).holds] == [
        "lakehouse db.table"
    ]
    with pytest.raises(BrokerError, match="lakehouse db"):
        client.topics.delete(topic)
    assert table.compact(file_bytes=1 << 30).files_before == 0
    one.release()
    assert client.topics.describe(topic).holds == ()


def test_zero_copy_table_has_all_partitions(client, broker_url, topic, tmp_path):
    table = table_in(tmp_path, "iceberg")
    client.topics.create(topic, partitions=2)
    for first in range(0, 2 * COUNT, 1000):
        publish(client, topic, first)
    for number in range(2):
        _wait_until_sealed(client, f"{topic}-part-{number}")
    ZeroCopyExporter(broker_url, topic, table).export_round()
    found = read(table)
    assert set(found.column("partition").to_pylist()) == {0, 1}
    assert len(set(found.column("payload").to_pylist())) == found.num_rows
    with opened(table) as iceberg:
        some = iceberg.scan("partition = 1").to_arrow()
    assert set(some.column("partition").to_pylist()) == {1}


def test_typed_table_does_not_become_zero_copy(client, broker_url, topic, tmp_path):
    table = table_in(tmp_path, "iceberg")
    publish(client, topic, 0)
    export_all(exporter(broker_url, topic, table))
    with pytest.raises(InvalidRequest, match="the layout raw"):
        ZeroCopyExporter(broker_url, topic, table).plan()


def _wait_until_sealed(client, topic):
    import time

    while not client.storage.segments(topic).segments:
        time.sleep(0.05)


def danube(*words):
    return CliRunner().invoke(main.app, words)


def test_the_command_exports_plans_compacts_and_cleans(
    client, broker_url, topic, tmp_path
):
    publish(client, topic, 0)
    target = str(tmp_path / "table")
    words = ("lakehouse", "export", topic, "--to", "delta", "--table", target)
    asked = ("--url", broker_url, "--format", "json")
    planned = json.loads(danube(*words, *asked, "--plan").stdout)
    assert planned["waiting_count"] == 1000
    assert not (tmp_path / "table").exists()
    done = json.loads(danube(*words, *asked).stdout)
    assert done["topics"] == [{"topic": topic, "exported": 1000}]
    publish(client, topic, 1000)
    text = danube(*words, "--url", broker_url)
    assert "1,000" in text.stdout
    assert "1,000 messages in 1 file" in text.stderr
    compacted = danube("lakehouse", "compact", target, "--kind", "delta")
    assert "2 files" in compacted.stdout
    cleaned = danube("lakehouse", "clean", target, "--kind", "delta", "--plan")
    assert "0 files to delete" in cleaned.stderr
    failed = danube(*words, "--url", broker_url, "--catalog", "x=y")
    assert failed.exit_code == 2
    assert "--catalog is for Iceberg" in failed.stderr


def test_following_export_ends_cleanly_on_a_signal(client, broker_url, topic, tmp_path):
    publish(client, topic, 0)
    words = ("lakehouse", "export", topic, "--to", "delta", "--table", tmp_path / "t")
    command = [sys.executable, "-m", "pydanube_cli.main", *map(str, words)]
    asked = ["--url", broker_url, "--every", "100ms", "--format", "json"]
    with subprocess.Popen(
        [*command, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert json.loads(following.stdout.readline())["message_count"] == 1000
        publish(client, topic, 1000)
        assert json.loads(following.stdout.readline())["message_count"] == 1000
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=120)
    assert following.returncode == 130
    assert "Traceback" not in errors
    found = read(table_in(tmp_path, "delta", "t"))
    assert sorted(found.column("offset").to_pylist()) == list(range(2000))
