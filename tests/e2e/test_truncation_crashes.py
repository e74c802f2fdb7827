"""
Drivers that are killed at each step of micro-batches with truncations.

The next driver writes the micro-batch again, divided into other tasks.  The rows are
those of a change feed, cut into micro-batches and tasks in any way, with truncations,
deletions and new columns among them.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.sinks.postgres import PostgresSink
from pydanube_spark.tables.pure.table_options import WriteOptions, parse_partition_by
from pydanube_spark.tables.staged_rows import StagingLocation
from pydanube_spark.tables.table_sink import LakeSink
from support.drivers.lake_tables import catalog_of, data_files, read, table_in
from support.fakes.dying_drivers import (
    Driver,
    DyingDelta,
    DyingIceberg,
    Killed,
)
from support.servers.postgres import PostgresProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    # pyiceberg raises it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

COLUMNS = UpsertColumns(
    keys=("id",), order=("at", "place"), delete="gone", truncate="cut"
)
KEYS = 5
COLUMN_EVERY = 5
"""The number of micro-batches after which a new column comes."""
FOREVER = 1 << 30
ENDS = 3
"""The number of micro-batches without a kill after which a test ends."""
STEPS_MIN = {"delta": 8, "iceberg": 16}


class Feed:
    """The rows of a change feed, and the table that they make."""

    def __init__(self, seed):
        self._chance = random.Random(seed)
        self._place = 0
        self.table = {}

    def next(self, number):
        """The schema and the rows of a micro-batch with a truncation."""
        added = [f"added_{n}" for n in range(number // COLUMN_EVERY)]
        rows = [self._row(added) for _ in range(self._chance.choice([1, 2, 9]))]
        rows.insert(self._chance.randrange(len(rows) + 1), self._truncation())
        # In the order in which they come.
        places = sorted(each["place"] for each in rows)
        for row, place in zip(rows, places, strict=True):
            row["place"] = place
            # Null is the least of all.
            row["at"] = None if number == 0 else place // 3
        for row in rows:
            if row.get("cut"):
                self.table.clear()
                continue
            self.table.pop(row["id"], None)
            if not row["gone"]:
                self.table[row["id"]] = {
                    name: value
                    for name, value in row.items()
                    if name != "gone" and value is not None
                }
        names = [("id", pa.int64()), ("at", pa.int64()), ("place", pa.int64())]
        names += [(name, pa.string()) for name in added]
        schema = pa.schema([*names, ("gone", pa.bool_()), ("cut", pa.bool_())])
        return schema, rows

    def tasks(self, rows):
        """*rows* as those of several tasks, whose order says nothing."""
        count = self._chance.choice([0, 1, 2])
        cuts = [0, *sorted(self._chance.choices(range(len(rows)), k=count)), len(rows)]
        tasks = [rows[begin:end] for begin, end in itertools.pairwise(cuts)]
        self._chance.shuffle(tasks)
        return tasks

    def _row(self, added):
        self._place += 1
        row = {"id": self._chance.randrange(KEYS), "place": self._place}
        row |= {name: self._chance.choice([None, "", name]) for name in added}
        return row | {"gone": self._chance.random() < 0.2}

    def _truncation(self):
        self._place += 1
        return {"id": None, "place": self._place, "cut": True}


class LakeTarget:
    """A table of a lakehouse, and the sinks that write to it."""

    def __init__(self, directory, kind):
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._kind = kind
        self._table = table_in(directory, kind)

    def sink(self, schema, driver):
        how = {"wait": lambda _: None, "driver": driver}
        if self._kind == "delta":
            table = DyingDelta(self._table.name, {}, **how)
        else:
            catalog = catalog_of(self._directory)
            table = DyingIceberg(self._table.name, catalog, rewrite_bytes_max=0, **how)
        stored = pa.schema([e for e in schema if e.name not in COLUMNS.not_written])
        staged = pa.schema([e for e in schema if e.name != COLUMNS.truncate])
        options = WriteOptions(
            merge_schema=True,
            # Only one of them has partitions.
            partition_by=parse_partition_by("id" if self._kind == "delta" else ""),
            upsert=COLUMNS,
        )
        location = StagingLocation(table.prepare(stored, options), staged)
        return LakeSink(table, location, file_bytes_max=1 << 20, upsert=COLUMNS)

    def rows(self):
        return [] if self._table.schema() is None else read(self._table).to_pylist()

    def check_end(self):
        """Check that what killed drivers have left can be deleted."""
        rows = self.rows()
        self._table.clean(older_than_s=0, now=time.time_ns() / 1e9 + 3600)
        assert self.rows() == rows
        assert not [each for each in data_files(self._directory) if "-query-" in each]


class PostgresTarget:
    """A table of PostgreSQL, and the sinks that write to it."""

    def __init__(self, server):
        self._server = server

    def sink(self, schema, driver):
        options = {
            "uri": self._server.uri,
            "table": "changed",
            "keyColumns": "id",
            "orderColumns": "at,place",
            "deleteColumn": "gone",
            "truncateColumn": "cut",
            "createTable": "true",
            "mergeSchema": "true",
        }
        return replace(PostgresSink.parse(options, schema), connect=driver.connect)

    def rows(self):
        if self._server.query("SELECT to_regclass('changed') IS NULL") == [(True,)]:
            return []
        found = self._server.query("SELECT row_to_json(changed)::text FROM changed")
        return [json.loads(text) for (text,) in found]

    def check_end(self):
        """Check that nothing is left of killed drivers."""
        tables = self._server.query(
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND "
            "starts_with(relname::text, '_danube_')"
        )
        assert tables == []


def write(target, driver, number, schema, tasks):
    """Write a micro-batch as *driver*."""
    sink = target.sink(schema, driver)
    key = BatchKey("app", number, "query")
    outputs = [
        sink.write(
            TaskKey(key, index, 0),
            iter([pa.RecordBatch.from_pylist(rows, schema)]),
        )
        for index, rows in enumerate(tasks)
    ]
    sink.commit(key, outputs)


def state(target):
    """The rows of the table by key, without columns that are null."""
    rows = target.rows()
    found = {
        row["id"]: {name: value for name, value in row.items() if value is not None}
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def kill_at_every_step(targets, *, steps_min, stride=1):
    """
    Write micro-batches to *targets* until several have fewer steps than were tried.

    The driver of each is killed *stride* steps later than that of the one before.
    """
    feed, ends = Feed(31), 0
    for number in itertools.count():
        at = 1 + number * stride
        before = feed.table.copy()
        schema, rows = feed.next(number)
        driver = Driver(at)
        with suppress(Killed):
            for target in targets:
                write(target, driver, number, schema, feed.tasks(rows))
        ends += not driver.is_killed
        for target in targets:
            assert state(target) in (before, feed.table), at
        for _ in range(1 + number % 2):
            for target in targets:
                write(target, Driver(FOREVER), number, schema, feed.tasks(rows))
                assert state(target) == feed.table, at
        if ends == ENDS:
            break
    assert at > steps_min
    for target in targets:
        target.check_end()


# The long test tries every step.
@pytest.mark.rotated
@pytest.mark.parametrize(("kind", "stride"), [("delta", 1), ("iceberg", 4)])
def test_a_lakehouse_table_is_right_wherever_its_driver_is_killed(
    tmp_path, kind, stride
):
    target = LakeTarget(tmp_path, kind)
    kill_at_every_step([target], steps_min=STEPS_MIN[kind], stride=stride)


@pytest.mark.rotated
def test_a_table_of_postgres_is_right_wherever_its_driver_is_killed():
    with PostgresProcess() as server:
        kill_at_every_step([PostgresTarget(server)], steps_min=30, stride=9)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_several_sinks_of_one_query_are_right_wherever_it_is_killed(tmp_path):
    with PostgresProcess() as server:
        kill_at_every_step(
            [
                LakeTarget(tmp_path / "delta", "delta"),
                PostgresTarget(server),
                LakeTarget(tmp_path / "iceberg", "iceberg"),
            ],
            steps_min=60,
        )
