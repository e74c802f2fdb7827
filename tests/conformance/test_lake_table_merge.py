"""Upserts, which Delta and Iceberg tables do alike."""

import datetime as dt
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from conformance.test_lake_table import EVERYTHING
from pydanube.model.errors import InvalidPayload, InvalidRequest
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.schema_evolution import rows_schema
from pydanube_spark.tables.pure.table_options import WriteOptions, parse_partition_by
from pydanube_spark.tables.staged_rows import (
    MemoryChanges,
    StagedChanges,
    StagingLocation,
    stage_rows,
)
from pydanube_spark.tables.table_sink import LakeSink
from support.drivers.lake_tables import (
    KINDS,
    data_files,
    options,
    read,
    read_with_polars,
    stage,
    table_in,
)

pytestmark = [
    pytest.mark.slow,
    # pyiceberg raises it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROWS = pa.schema(
    [
        ("Key", pa.int64()),
        ('part "1"', pa.string()),
        ("at", pa.int32()),
        ("time", pa.timestamp("us", "UTC")),
        ("value", pa.string()),
        ("gone", pa.bool_()),
    ]
)
COLUMNS = UpsertColumns(keys=("Key", 'part "1"'), order=("at", "time"), delete="gone")


MARKING = "iceberg, with marks in all files"


@pytest.fixture(params=[*KINDS, pytest.param(MARKING, marks=pytest.mark.rotated)])
def kind(request):
    return request.param


@pytest.fixture
def table(kind, tmp_path):
    if kind == MARKING:
        return replace(table_in(tmp_path, "iceberg"), rewrite_bytes_max=0)
    return table_in(tmp_path, kind)


def sink_to(table, schema=ROWS, columns=COLUMNS, partition_by=""):
    """A sink that upserts rows of *schema*."""
    stored = pa.schema([e for e in schema if e.name not in columns.not_written])
    how = WriteOptions(partition_by=parse_partition_by(partition_by), upsert=columns)
    staged = pa.schema([each for each in schema if each.name != columns.truncate])
    location = StagingLocation(table.prepare(stored, how), rows_schema(staged))
    return LakeSink(table, location, file_bytes_max=1 << 20, upsert=columns)


def upsert(sink, number, *tasks, schema=ROWS):
    """Write the rows of all *tasks* as batch *number*."""
    key = BatchKey("query", number, "query")
    outputs = [
        sink.write(
            TaskKey(key, index, 0),
            iter([pa.RecordBatch.from_pylist(rows, schema=schema)]),
        )
        for index, rows in enumerate(tasks)
    ]
    sink.commit(key, outputs)


def row(key, at, value=None, part="p", *, time=None, gone=None):
    times = {"at": at, "time": time and dt.datetime.fromtimestamp(time, dt.UTC)}
    return {"Key": key, 'part "1"': part, **times, "value": value, "gone": gone}


def contents(table):
    """The rows by key, as another program sees them."""
    found = read_with_polars(table).to_pylist()
    by_key = {
        (each["Key"], each['part "1"']): (each["at"], each["value"]) for each in found
    }
    assert len(by_key) == len(found)
    return by_key


def apply(state, tasks):
    """Apply the rows to *state* one after the other, which gives the same result."""
    latest = {}
    for each in (each for rows in tasks for each in rows):
        key = each["Key"], each['part "1"']
        if key not in latest or _order(each) >= _order(latest[key]):
            latest[key] = each
    for key, each in latest.items():
        if key in state and _order(state[key]) > _order(each):
            continue
        state.pop(key, None)
        if not each["gone"]:
            state[key] = each


def _order(each):
    return [(each[name] is not None, each[name]) for name in COLUMNS.order]


@pytest.mark.parametrize("partition_by", ["", "value"])
def test_table_holds_the_latest_row_of_each_key(table, partition_by):
    chance = random.Random(7)
    sink, state = sink_to(table, partition_by=partition_by), {}
    for number in range(8):
        tasks = [
            [
                row(
                    chance.randrange(12),
                    chance.choice([None, *range(number * 2, number * 2 + 5)]),
                    chance.choice("abc"),
                    chance.choice("xy"),
                    time=chance.choice([None, 1, 2, 3]),
                    gone=chance.choice([None, False, False, True]),
                )
                for _ in range(chance.randrange(1, 10))
            ]
            for _ in range(3)
        ]
        upsert(sink, number, *tasks)
        apply(state, tasks)
        assert contents(table) == {
            key: (each["at"], each["value"]) for key, each in state.items()
        }


def test_repeated_micro_batch_changes_nothing(table, tmp_path):
    sink = sink_to(table)
    upsert(sink, 0, [row(1, 1, "a"), row(2, 1, "b")])
    upsert(sink, 1, [row(1, 2, "c"), row(2, 2, gone=True)])
    files = data_files(tmp_path)
    # Without the mark, the batch would restore the first value.
    upsert(sink, 0, [row(1, 3, "a"), row(2, 3, "b")])
    upsert(sink, 1, [row(1, 3, "a"), row(2, 3, "b")])
    assert contents(table) == {(1, "p"): (2, "c")}
    assert data_files(tmp_path) == files


def test_batch_without_effect_is_recorded(table):
    sink = sink_to(table)
    upsert(sink, 0, [row(1, 5, "new")])
    upsert(sink, 1, [row(1, 4, "old"), row(2, 4, gone=True)])
    assert contents(table) == {(1, "p"): (5, "new")}
    assert table.app_versions(["query"]) == {"query": 1}


def test_equal_order_is_replaced_and_without_order_the_last_row_wins(table):
    sink = sink_to(table)
    upsert(sink, 0, [row(1, 5, "first")])
    upsert(sink, 1, [row(1, 5, "second")], [row(1, 5, "third")])
    assert contents(table) == {(1, "p"): (5, "third")}
    unordered = sink_to(table, columns=UpsertColumns(keys=COLUMNS.keys, delete="gone"))
    upsert(unordered, 2, [row(1, 1, "last")])
    assert contents(table) == {(1, "p"): (1, "last")}


def test_row_without_key_is_refused_and_leaves_no_file(table, tmp_path):
    sink = sink_to(table)
    with pytest.raises(InvalidPayload, match="'Key' is null"):
        upsert(sink, 0, [row(1, 1), row(None, 1)])
    assert data_files(tmp_path) == []


def test_failed_batch_leaves_no_file(table, tmp_path):
    sink, key = sink_to(table), BatchKey("query", 0, "query")
    rows = pa.RecordBatch.from_pylist([row(1, 1)], schema=ROWS)
    sink.abort(key, [sink.write(TaskKey(key, 0, 0), iter([rows]))])
    assert data_files(tmp_path) == []


def test_merge_after_a_concurrent_commit_sees_its_rows(table):
    """The other writer commits after the table was looked at, before the merge."""
    sink = sink_to(table)
    upsert(sink, 0, [row(1, 1, "a"), row(2, 1, "b")])
    mine = pa.Table.from_pylist([row(1, 2, "mine"), row(3, 2, "mine")], schema=ROWS)
    changes = MemoryChanges(mine)

    class Overtaken(AppTransaction):
        def is_reached(self, now):
            if now is None and table.app_versions(["query"])["query"] == 0:
                upsert(sink, 1, [row(1, 3, "theirs"), row(2, 3, "theirs")])
            return super().is_reached(now)

    assert table.merge(changes, COLUMNS, [Overtaken("other", 0)])
    assert contents(table) == {
        (1, "p"): (3, "theirs"),
        (2, "p"): (3, "theirs"),
        (3, "p"): (2, "mine"),
    }
    assert not table.merge(changes, COLUMNS, [AppTransaction("other", 0)])


def test_rows_that_stay_keep_all_their_values(table):
    rows = EVERYTHING.append_column("key", pa.array([1, 2, 3], pa.int64()))
    _, files = stage(table, rows)
    table.commit(files, [])
    changed = rows.slice(1, 1)
    table.merge(MemoryChanges(changed), UpsertColumns(keys=("key",)), [])
    assert len(read(table)) == 3
    # Not with pyiceberg, which reads a null list as an empty one.
    assert (
        read_with_polars(table)
        .sort_by("key")
        .select(rows.column_names)
        .cast(rows.schema)
        .equals(rows)
    )


def test_columns_that_the_rows_lack_are_named(table):
    table.prepare(pa.schema([("k", pa.int64()), ("a", pa.int64())]), options())
    how = WriteOptions(upsert=UpsertColumns(keys=("k",)))
    with pytest.raises(InvalidRequest, match="lack the table's columns a"):
        table.check(pa.schema([("k", pa.int64())]), how)


def test_old_rows_lack_columns_that_were_added_later(table):
    columns = UpsertColumns(keys=("k",), order=("at",))
    _, files = stage(table, pa.table({"k": pa.array([1, 2], pa.int64())}))
    table.commit(files, [])
    wider = pa.table(
        {"k": pa.array([2, 3], pa.int64()), "at": pa.array([None, 1], pa.int64())}
    )
    how = WriteOptions(merge_schema=True, upsert=columns)
    table.prepare(wider.schema, how)
    table.merge(MemoryChanges(wider), columns, [])
    assert sorted(map(str, read(table).to_pylist())) == [
        "{'k': 1, 'at': None}",
        "{'k': 2, 'at': None}",
        "{'k': 3, 'at': 1}",
    ]


@pytest.mark.parametrize("partition_by", ["", "k", "bucket(3, k)"])
def test_keys_and_orders_are_compared_in_the_widened_type(table, kind, partition_by):
    if kind == "delta":
        # Only Iceberg tables are widened, also if they are partitioned by the key.
        partition_by = ""
    columns = UpsertColumns(keys=("k",), order=("at",))

    def rows_of(kinds, *these):
        return pa.table(
            [
                pa.array(each, kind)
                for each, kind in zip(zip(*these, strict=True), kinds, strict=True)
            ],
            names=["k", "at", "real"],
        )

    narrow = (pa.int32(), pa.int32(), pa.float32())
    wide = (pa.int64(), pa.int64(), pa.float64())
    first, second = (wide, narrow) if kind == "delta" else (narrow, wide)
    old = rows_of(first, (1, 5, 0.5), (2, 5, 1.5), (3, 5, 2.5))
    _, files = stage(table, old, partition_by)
    table.commit(files, [])
    new = rows_of(second, (1, 4, 9.0), (2, 6, 0.25), (4, 1, 4.5))
    how = WriteOptions(merge_schema=True, upsert=columns)
    table.prepare(new.schema, how)
    table.merge(
        MemoryChanges(
            new.cast(pa.schema(list(zip(new.column_names, wide, strict=True))))
        ),
        columns,
        [],
    )
    wanted = rows_of(wide, (1, 5, 0.5), (2, 6, 0.25), (3, 5, 2.5), (4, 1, 4.5))
    for found in (read(table), read_with_polars(table)):
        assert found.sort_by("k").to_pylist() == wanted.to_pylist()
    assert table.schema().equals(wanted.schema)


def test_changes_are_merged_part_by_part(table, tmp_path):
    """The parts are so small that each has a few keys."""
    chance = random.Random(11)
    sink, state = sink_to(table, partition_by="value"), {}
    for number in range(3):
        tasks = [
            [
                row(
                    chance.randrange(40),
                    chance.choice([None, 1, 2, 3]),
                    chance.choice("abc"),
                    chance.choice(["x", "yy", ""]),
                    gone=chance.choice([None, False, True]),
                )
                for _ in range(60)
            ]
            for _ in range(2)
        ]
        key = BatchKey("query", number, "query")
        files = [
            file
            for index, rows in enumerate(tasks)
            for file in stage_rows(
                sink.location,
                iter([pa.RecordBatch.from_pylist(rows, schema=ROWS)]),
                f"{number}-{index}",
                COLUMNS,
                file_bytes_max=1,
                # The second file has fewer parts than the merge.
                group_bytes=[100, 1 << 20][index],
            )
        ]
        changes = StagedChanges(sink.location, tuple(files), COLUMNS, part_bytes=500)
        assert changes.part_count > 4
        assert table.merge(changes, COLUMNS, [AppTransaction(key.app, number)])
        for file in files:
            sink.location.delete(file.path)
        apply(state, tasks)
        assert contents(table) == {
            key: (each["at"], each["value"]) for key, each in state.items()
        }
    # Nothing is left of what the jobs passed to one another.
    assert not [name for name in data_files(tmp_path) if "keys" in name]


TRUNCATED = pa.schema([*ROWS, ("truncated", pa.bool_())])
TRUNCATING = replace(COLUMNS, truncate="truncated")


def truncation(at, time=None):
    return row(None, at, part=None, time=time) | {"truncated": True}


def apply_in_order(state, rows):
    """Apply *rows*, whose order is that in which they come, to *state*."""
    for each in rows:
        if each.get("truncated"):
            state.clear()
        else:
            apply(state, [[each]])


@pytest.mark.parametrize("partition_by", ["", "value"])
def test_truncations_delete_all_earlier_rows(table, tmp_path, partition_by):
    """The rows of a topic, cut into batches and tasks in any way."""
    chance = random.Random(13)
    sink, state = sink_to(table, TRUNCATED, TRUNCATING, partition_by), {}
    at = 0
    for number in range(12):
        rows = []
        for _ in range(chance.choice([1, 2, 9])):
            at += chance.randrange(2)
            rows.append(
                truncation(at, len(rows))
                if chance.random() < 0.2
                else row(
                    chance.randrange(6),
                    at,
                    chance.choice("ab"),
                    chance.choice("xy"),
                    time=len(rows),
                    gone=chance.choice([None, False, True]),
                )
            )
        at += 1
        cut = chance.randrange(len(rows) + 1)
        tasks = [rows[cut:], rows[:cut]]
        upsert(sink, number, *tasks, schema=TRUNCATED)
        apply_in_order(state, rows)
        assert contents(table) == {
            key: (each["at"], each["value"]) for key, each in state.items()
        }
        if number % 3 == 0:
            # As if the driver had been killed after the commit.
            upsert(sink, number, rows, schema=TRUNCATED)
            assert len(contents(table)) == len(state)
    assert not [name for name in data_files(tmp_path) if "-query-" in name]


def test_a_truncation_empties_a_table_and_parts_are_written_after_it(table):
    sink = sink_to(table, TRUNCATED, TRUNCATING)
    first = [row(n, 1, "old") for n in range(40)]
    upsert(sink, 0, first, schema=TRUNCATED)
    # A truncation alone, in a task of its own, with no row after it.
    upsert(sink, 1, [row(1, 2, "late")], [truncation(3)], schema=TRUNCATED)
    assert contents(table) == {}
    assert table.app_versions(["query"]) == {"query": 1}
    rows = [truncation(None), *(row(n, 4, "new") for n in range(40)), truncation(4, 1)]
    rows += [row(n, 4, "newest", time=2) for n in range(40)]
    batch = pa.RecordBatch.from_pylist(rows, schema=TRUNCATED)
    files = stage_rows(
        sink.location,
        iter([batch]),
        "z",
        TRUNCATING,
        file_bytes_max=1,
        group_bytes=100,
    )
    sink.commit(BatchKey("query", 2, "query"), [files])
    assert contents(table) == {(n, "p"): (4, "newest") for n in range(40)}


def test_a_batch_that_cannot_be_committed_deletes_what_it_has_written(table, tmp_path):
    sink = sink_to(table, TRUNCATED, TRUNCATING)
    upsert(sink, 0, [row(1, 1, "old")], schema=TRUNCATED)
    before = data_files(tmp_path)
    # Another writer has reached a later batch.
    upsert(sink, 0, [truncation(2), row(2, 3, "new")], schema=TRUNCATED)
    assert data_files(tmp_path) == before
    assert contents(table) == {(1, "p"): (1, "old")}


CHANGES = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("doc", pa.string()),
        ("list", pa.list_(pa.int32())),
        ("at", pa.int64()),
        ("gone", pa.bool_()),
        ("lacks", pa.list_(pa.string())),
    ]
)
CHANGED = UpsertColumns(keys=("id",), order=("at",), delete="gone", unavailable="lacks")


def change(key, at, *, doc=None, numbers=None, lacks=(), gone=False):
    name = f"{key} at {at}"
    row = {"id": key, "name": name, "doc": doc, "list": numbers, "at": at}
    return {**row, "gone": gone, "lacks": list(lacks)}


def changed_sink(table, columns=CHANGED):
    stored = pa.schema([e for e in CHANGES if e.name not in columns.not_written])
    location = table.prepare(stored, WriteOptions(upsert=columns))
    staging = StagingLocation(location, rows_schema(CHANGES))
    return LakeSink(table, staging, file_bytes_max=1 << 20, upsert=columns)


def documents(table):
    rows = read_with_polars(table).to_pylist()
    return {row["id"]: (row["at"], row["doc"], row["list"]) for row in rows}


def test_values_that_a_change_lacks_are_kept(table):
    sink = changed_sink(table)
    first = [change(1, 1, doc="a", numbers=[1]), change(2, 1, doc="b", numbers=[2])]
    upsert(sink, 0, [*first, change(3, 1, doc="c")], schema=CHANGES)
    upsert(
        sink,
        1,
        [
            change(1, 2, doc="new", lacks=["list"]),
            change(2, 3, numbers=[3], lacks=["doc"]),
            change(3, 2, lacks=["doc"], gone=True),
        ],
        # Another task wrote these rows; some come before those above.
        [change(2, 2, lacks=["doc", "list"]), change(4, 1, doc="d", numbers=[])],
        [change(1, 3, lacks=["doc", "list"]), change(4, 2, lacks=["doc", "list"])],
        [change(1, 0, doc="late", lacks=["list"])],
        schema=CHANGES,
    )
    assert documents(table) == {
        1: (3, "new", [1]),
        2: (3, "b", [3]),
        4: (2, "d", []),
    }
    # A late change does not replace the row, and needs none of its values.
    upsert(sink, 2, [change(1, 1, lacks=["doc"])], schema=CHANGES)
    assert documents(table)[1] == (3, "new", [1])


def test_new_row_without_a_value_is_refused_or_null(table):
    sink = changed_sink(table)
    rows = [change(1, 1, lacks=["doc"], numbers=[1])]
    with pytest.raises(InvalidPayload, match=r"\{'id': 1\} has no value .* doc"):
        upsert(sink, 0, rows, schema=CHANGES)
    assert documents(table) == {}
    allowed = replace(CHANGED, is_null_allowed=True)
    upsert(changed_sink(table, allowed), 0, rows, schema=CHANGES)
    assert documents(table) == {1: (1, None, [1])}


def test_values_that_changes_in_several_parts_lack_are_kept(table, tmp_path):
    sink = changed_sink(table)
    first = [change(n, 1, doc=f"doc {n}", numbers=[n]) for n in range(40)]
    upsert(sink, 0, first, schema=CHANGES)
    second = [change(n, 2, numbers=[-n], lacks=["doc"]) for n in range(0, 40, 2)]
    batch = pa.RecordBatch.from_pylist(second, schema=CHANGES)
    files = stage_rows(
        sink.location, iter([batch]), "x", CHANGED, file_bytes_max=1, group_bytes=100
    )
    changes = StagedChanges(sink.location, tuple(files), CHANGED, part_bytes=500)
    assert changes.part_count > 1
    assert table.merge(changes, CHANGED, [])
    assert documents(table) == {
        n: (1, f"doc {n}", [n]) if n % 2 else (2, f"doc {n}", [-n]) for n in range(40)
    }
    # A part that fails raises what the merge of one part would.
    batch = pa.RecordBatch.from_pylist(
        [change(n, 3, lacks=["doc"]) for n in range(100, 140)], schema=CHANGES
    )
    files = stage_rows(
        sink.location, iter([batch]), "y", CHANGED, file_bytes_max=1, group_bytes=100
    )
    changes = StagedChanges(sink.location, tuple(files), CHANGED, part_bytes=500)
    with pytest.raises(InvalidPayload, match="has no value for the column doc"):
        table.merge(changes, CHANGED, [])
