"""
Batches that are run again after a crash, at each point where it may happen.

The sinks are driven as Spark drives them, without Spark: what one run has left is met
by the next one, which spreads the same rows over other tasks.
"""

import random
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import Unavailable
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.sinks.clickhouse import ClickHouseSink
from pydanube_spark.sinks.lance_database import Database
from pydanube_spark.sinks.lancedb import LanceSink
from pydanube_spark.sinks.postgres import PostgresSink
from support.servers.clickhouse import PASSWORD, ClickHouseProcess
from support.servers.http_server import Broken, LocalServer
from support.servers.postgres import PostgresProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})
ROWS = range(30)


def key(number, query="query"):
    return BatchKey("app", number, query)


def stage(sink, number, task_count, rows=ROWS):
    """The pieces of a batch whose rows are spread over so many tasks."""
    found = []
    for task in range(task_count):
        own = list(rows)[task::task_count]
        batch = pa.record_batch([own, [str(each) for each in own]], schema=SCHEMA)
        found.append(sink.write(TaskKey(key(number), task, task), iter([batch])))
    return found


def write(sink, number, task_count=2, rows=ROWS):
    sink.commit(key(number), stage(sink, number, task_count, rows))


# PostgreSQL


@pytest.fixture(scope="module")
def postgres():
    with PostgresProcess() as server:
        yield server


def postgres_sink(server, table, **options):
    options = {"uri": server.uri, "table": table, "retryIntervalMs": "20"} | options
    return PostgresSink.parse({"createTable": "true"} | options, SCHEMA)


def staged_in(server):
    question = (
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND "
        "starts_with(relname::text, '_danube_')"
    )
    return [name for (name,) in server.query(question)]


def test_rows_lost_in_postgres_crash_are_rewritten():
    with PostgresProcess() as server:
        sink = postgres_sink(server, "t")
        write(sink, 0)
        pieces = stage(sink, 1, 3)
        server.crash()
        server.start()
        with pytest.raises(Unavailable, match="lost the staged rows"):
            sink.commit(key(1), pieces)
        assert server.query("SELECT count(*) FROM t") == [(30,)]
        write(sink, 1)
        assert server.query("SELECT count(*) FROM t") == [(60,)]
        assert staged_in(server) == []


def test_concurrent_drivers_write_a_postgres_batch_once(postgres):
    sinks = [postgres_sink(postgres, "twice") for _ in range(4)]
    # Neither the table nor the table of commit records exists.
    pieces = [stage(sink, 0, at + 1) for at, sink in enumerate(sinks)]
    threads = [
        threading.Thread(target=sink.commit, args=(key(0), each))
        for sink, each in zip(sinks, pieces, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert postgres.query("SELECT count(*), count(DISTINCT id) FROM twice") == [
        (30, 30)
    ]


def test_postgres_staging_of_killed_attempts_is_dropped(postgres):
    sink = postgres_sink(postgres, "left")
    stage(sink, 0, 2)
    ahead = stage(sink, 2, 1)
    forgotten, unknown = "_danube_0123456789ab_3_17_01234567", "_danube_of_a_user"
    postgres.execute(f"CREATE TABLE {forgotten} ()", f"CREATE TABLE {unknown} ()")
    write(sink, 1)
    assert sorted(staged_in(postgres)) == sorted([ahead[0].staging, unknown])
    sink.abort(key(2), ahead)
    assert staged_in(postgres) == [unknown]


def test_latest_row_wins_and_replay_is_idempotent(postgres):
    rows = pa.record_batch(
        {"id": [1, 2, 1, 2], "text": ["a", "b", "c", "d"], "at": [5, 5, 4, None]}
    )
    sink = PostgresSink.parse(
        {
            "uri": postgres.uri,
            "table": "keyed",
            "createTable": "true",
            "keyColumns": "id",
            "orderColumns": "at",
        },
        rows.schema,
    )
    for cut in (2, 3, 1):
        pieces = [
            sink.write(TaskKey(key(0), task, task), iter([part]))
            for task, part in enumerate([rows.slice(0, cut), rows.slice(cut)])
        ]
        sink.commit(key(0), pieces)
        found = postgres.query("SELECT id, text FROM keyed ORDER BY id")
        assert found == [(1, "a"), (2, "b")]


def test_truncations_delete_all_earlier_rows_of_postgres(postgres):
    """The rows of a topic, cut into batches and tasks in any way, some run again."""
    chance = random.Random(17)
    schema = pa.schema(
        {
            "id": pa.int64(),
            "at": pa.int64(),
            "place": pa.int64(),
            "cut": pa.bool_(),
            "gone": pa.bool_(),
        }
    )
    options = {
        "table": "truncated",
        "keyColumns": "id",
        "orderColumns": "at,place",
        "truncateColumn": "cut",
        "deleteColumn": "gone",
        "createTable": "true",
    }
    sink = PostgresSink.parse({"uri": postgres.uri} | options, schema)
    wanted, place = {}, 0
    for number in range(12):
        rows = []
        for _ in range(chance.choice([1, 2, 9])):
            place += 1
            # Null is the least of all.
            at = None if number == 0 else place // 3
            row = {"id": chance.randrange(5), "at": at, "place": place}
            if chance.random() < 0.25:
                rows.append({**row, "id": None, "cut": True})
                wanted.clear()
                continue
            is_gone = chance.random() < 0.2
            rows.append({**row, "gone": is_gone})
            wanted.pop(row["id"], None)
            if not is_gone:
                wanted[row["id"]] = place
        cut = chance.randrange(len(rows) + 1)
        for tasks in ([rows[cut:], rows[:cut]], [rows]):
            batches = [pa.RecordBatch.from_pylist(each, schema) for each in tasks]
            pieces = [
                sink.write(TaskKey(key(number), task, task), iter([batch]))
                for task, batch in enumerate(batches)
            ]
            sink.commit(key(number), pieces)
            found = postgres.query("SELECT id, place FROM truncated")
            assert dict(found) == wanted
    assert wanted, "the last truncation has rows after it"


# ClickHouse


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory):
    with ClickHouseProcess(tmp_path_factory.mktemp("clickhouse")) as engine:
        yield engine


@pytest.mark.soak
def test_clickhouse_commit_can_be_interrupted_anywhere(
    clickhouse,
):
    with LocalServer(clickhouse.forward) as proxy:
        options = {"url": proxy.url, "password": PASSWORD, "table": "cut"}
        sink = ClickHouseSink.parse(
            options | {"createTable": "true", "retries": "0"}, SCHEMA
        )
        number, is_cut = 0, True
        while is_cut:
            pieces = stage(sink, number, 2)
            # A lost response is equivalent to an interruption before the next request.
            proxy.faults.extend([*[None] * number, Broken.BEFORE])
            with suppress(Unavailable):
                sink.commit(key(number), pieces)
            is_cut = not proxy.faults
            proxy.faults.clear()
            # The driver has ended, so nothing is aborted; the next run has other tasks.
            write(sink, number, task_count=3)
            found = clickhouse.query("SELECT count() FROM cut GROUP BY id")
            assert found == [[str(number + 1)]] * 30
            staged = "SELECT name FROM system.tables WHERE startsWith(name, '_danube_')"
            assert clickhouse.query(staged) == []
            number += 1
        assert number > 8, "the commit has more steps than were tried"


# LanceDB


class Killed(BaseException):
    """The driver ends here."""


class DyingDatabase(Database):
    """A database whose driver is killed at a certain operation."""

    def __init__(self, uri, storage, at):
        self.left = at
        super().__init__(uri, storage)

    @contextmanager
    def translated_errors(self):
        self.left -= 1
        if self.left == 0:
            raise Killed
        with super().translated_errors():
            yield


@pytest.mark.parametrize("keys", ["", "id"])
def test_lancedb_commit_can_be_interrupted_anywhere(tmp_path, keys):
    at = 1
    while True:
        options = {"uri": str(tmp_path / str(at)), "table": "t", "createTable": "true"}
        options |= {"keyColumns": keys} if keys else {}
        sink = LanceSink.parse(options, SCHEMA)
        pieces = stage(sink, 0, 2)
        dying = []

        def connect(uri, storage, at=at, dying=dying):
            dying.append(DyingDatabase(uri, storage, at))
            return dying[-1]

        with suppress(Killed):
            replace(sink, connect=connect).commit(key(0), pieces)
        write(sink, 0, task_count=3)
        table = Database(options["uri"], {}).open("t")
        found = sorted(table.to_arrow()["id"].to_pylist())
        assert found == list(ROWS), at
        assert Database(options["uri"], {}).names("_danube_") == []
        if dying and dying[0].left > 0:
            break
        at += 1
    assert at > 5, "the commit has more steps than were tried"
