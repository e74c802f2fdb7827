"""Rows that merges mark as deleted, as other readers see them."""

import itertools
import pickle
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydanube_spark.jobs import Runner
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables import iceberg_deletes, iceberg_merge
from pydanube_spark.tables.iceberg_files import referenced
from pydanube_spark.tables.iceberg_merge import DELETED_PART_MAX
from pydanube_spark.tables.merge_runners import MergeRunners
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.staged_rows import MemoryChanges
from support.drivers.duckdb_iceberg import connect_duckdb
from support.drivers.lake_tables import (
    data_files,
    opened,
    options,
    read,
    read_with_polars,
    stage,
    table_in,
)
from support.fakes.dying_drivers import Driver, DyingIceberg, Killed

pytestmark = pytest.mark.slow

COUNT = 400
COLUMNS = UpsertColumns(keys=("n",), order=("at",), delete="gone")
STEPS_MIN = 30
"""A merge into two files has more steps."""


@pytest.fixture
def table(tmp_path):
    """A table in which small files are not rewritten either."""
    return replace(table_in(tmp_path, "iceberg"), rewrite_bytes_max=0)


def rows(numbers, at, gone=None):
    numbers = list(numbers)
    columns = {
        "n": pa.array(numbers, pa.int64()),
        "at": pa.array([at] * len(numbers), pa.int64()),
        "text": [f"{number} at {at}" for number in numbers],
    }
    return pa.table(columns | ({} if gone is None else {"gone": gone}))


def changed_rows(numbers, at, gone=()):
    return rows(numbers, at, [number in gone for number in numbers])


def changes(numbers, at, gone=()):
    return MemoryChanges(changed_rows(numbers, at, gone))


def add(table, found, partition_by=""):
    _, files = stage(table, found, partition_by)
    table.commit(files, ())


def numbers_at(found):
    return dict(zip(found["n"].to_pylist(), found["at"].to_pylist(), strict=True))


def tasks_of(table):
    with opened(table) as iceberg:
        return list(iceberg.scan().plan_files())


def own_rows(table):
    version = table.data_version()
    return pa.concat_tables(
        pa.Table.from_batches(table.read_file(version, index))
        for index in range(table.file_count(version))
    )


@pytest.mark.parametrize("partition_by", ["", "bucket(2, n)"])
def test_merges_mark_rows_of_files_that_stay(table, partition_by):
    add(table, rows(range(COUNT), 1), partition_by)
    first = {task.file.file_path for task in tasks_of(table)}
    expected = dict.fromkeys(range(COUNT), 1)
    for at in range(2, 6):
        numbers = [at, at * 10, COUNT + at]
        table.merge(changes(numbers, at, gone=[at]), COLUMNS, [])
        expected |= dict.fromkeys(numbers, at)
        del expected[at]
        for found in (read(table), read_with_polars(table), own_rows(table)):
            assert numbers_at(found) == expected
            assert found.num_rows == len(expected)
    tasks = tasks_of(table)
    assert first <= {task.file.file_path for task in tasks}
    # A file of positions replaces the one before.
    assert all(len(task.delete_files) <= 1 for task in tasks)
    with opened(table) as iceberg:
        total = sum(len(task.delete_files) for task in tasks)
        summary = iceberg.current_snapshot().summary
        assert summary["total-delete-files"] == str(total)
        manifests = iceberg.current_snapshot().manifests(iceberg.io)
        entries = [
            each.data_file.file_path
            for manifest in manifests
            for each in manifest.fetch_manifest_entry(iceberg.io)
        ]
        assert len(entries) == len(set(entries)) == len(tasks) + total


@pytest.mark.rotated
def test_another_engine_leaves_marked_rows_out(table, tmp_path):
    add(table, rows(range(COUNT), 1))
    table.merge(changes([1, 2, COUNT], 2, gone=[1]), COLUMNS, [])
    (tmp_path / "duckdb").mkdir()
    with opened(table) as iceberg, connect_duckdb(tmp_path / "duckdb") as duckdb:
        query = f"SELECT n, \"at\" FROM iceberg_scan('{iceberg.metadata_location}')"
        found = duckdb.execute(query).fetchall()
    expected = dict.fromkeys(range(COUNT), 1) | {2: 2, COUNT: 2}
    del expected[1]
    assert (dict(found), len(found)) == (expected, len(expected))


def test_rows_that_are_later_stay_and_deleted_ones_do_not_count(table):
    add(table, rows(range(COUNT), 5))
    table.merge(changes([1, 2], 9, gone=[1]), COLUMNS, [])
    # The deleted row of 1 was at 5, which is later than this change.
    table.merge(changes([1, 2, 3], 4), COLUMNS, [])
    found = numbers_at(read(table))
    assert (found[1], found[2], found[3]) == (4, 9, 5)


def test_files_with_many_deleted_rows_are_rewritten(table):
    add(table, rows(range(COUNT), 1))
    [first] = tasks_of(table)
    part = COUNT // DELETED_PART_MAX
    table.merge(changes(range(part), 2), COLUMNS, [])
    assert first.file.file_path in {task.file.file_path for task in tasks_of(table)}
    table.merge(changes([part], 2), COLUMNS, [])
    tasks = tasks_of(table)
    assert first.file.file_path not in {task.file.file_path for task in tasks}
    assert not any(task.delete_files for task in tasks)
    with opened(table) as iceberg:
        assert iceberg.current_snapshot().summary["total-delete-files"] == "0"
    assert numbers_at(read(table)) == {
        number: 2 if number <= part else 1 for number in range(COUNT)
    }


def test_values_that_changes_lack_are_read_in_small_batches(table, monkeypatch):
    """They are large, and there may be as many changes as rows."""
    add(table, rows(range(COUNT), 1))
    counts, read_batches = [], iceberg_merge.read_batches

    def reading(*given, **options):
        for batch in read_batches(*given, **options):
            counts.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(iceberg_merge, "read_batches", reading)
    merging = partial(iceberg_merge.merge_rows, batch_rows=10)
    monkeypatch.setattr(iceberg_merge, "merge_rows", merging)
    part = COUNT // DELETED_PART_MAX
    nulls = pa.nulls(part, pa.string())
    found = changed_rows(range(part), 2).set_column(2, "text", nulls)
    found = found.append_column("lacks", pa.array([["text"]] * part))
    table.merge(MemoryChanges(found), replace(COLUMNS, unavailable="lacks"), [])
    assert max(counts) == 10
    stored = read(table)
    assert set(stored["text"].to_pylist()) == {f"{n} at 1" for n in range(COUNT)}
    assert numbers_at(stored)[0] == 2


class PicklingRunner(Runner):
    """Runs jobs as another process would, some of them twice."""

    width = 3

    def __init__(self):
        self.counts = []

    def _map(self, jobs, work):
        sent = [pickle.dumps((work, job)) for job in jobs]
        self.counts.append(len(sent))
        found = []
        for text in (*sent, sent[0]):
            function, job = pickle.loads(text)
            found.append(pickle.loads(pickle.dumps(function(job))))
        return [found[-1], *found[1:-1]]


class PicklingRunners(MergeRunners):
    def __init__(self):
        super().__init__()
        self.runner = PicklingRunner()

    def of(self, byte_count):
        return self.runner


def test_jobs_run_in_other_processes_and_may_run_twice(table, tmp_path):
    for start in range(0, 3 * COUNT, COUNT):
        add(table, rows(range(start, start + COUNT), 1))
    runners = PicklingRunners()
    numbers = [1, 2, COUNT, 2 * COUNT + 1, 3 * COUNT, *range(COUNT, COUNT * 3 // 2)]
    batch = changes(dict.fromkeys(numbers), 2, gone=[1])
    table.merge(batch, COLUMNS, [AppTransaction("a", 0)], runners=runners)
    expected = dict.fromkeys(range(3 * COUNT), 1) | dict.fromkeys(numbers, 2)
    del expected[1]
    found = read(table)
    assert (numbers_at(found), found.num_rows) == (expected, len(expected))
    assert runners.runner.counts[1] > 1
    # What the first of each two attempts wrote is left over.
    with opened(table) as iceberg:
        known = {path.rpartition("/")[2] for path in referenced(iceberg)}
    left = set(data_files(tmp_path)) - known
    assert left
    gone = table.clean(older_than_s=0, now=1e11)
    assert {path.rpartition("/")[2] for path in gone} == left


def test_compaction_removes_marked_rows(table):
    add(table, rows(range(COUNT), 1))
    table.merge(changes(range(0, COUNT, 8), 2, gone=[0]), COLUMNS, [])
    before = numbers_at(read(table))
    # The file itself is larger than those that are merged because of their size.
    result = table.compact(file_bytes=1)
    assert (result.files_before, numbers_at(read(table))) == (1, before)
    assert not any(task.delete_files for task in tasks_of(table))


def test_replacing_all_rows_removes_positions(table):
    add(table, rows(range(COUNT), 1))
    table.merge(changes([1, 2, COUNT], 2, gone=[1]), COLUMNS, [])
    _, files = stage(table, rows([7], 3))
    assert table.commit(files, (), replace=True)
    assert numbers_at(read(table)) == {7: 3}
    with opened(table) as iceberg:
        summary = iceberg.current_snapshot().summary
        assert summary["total-delete-files"] == "0"
        assert summary["total-data-files"] == "1"
        manifests = iceberg.current_snapshot().manifests(iceberg.io)
        live = [
            each.data_file.file_path
            for manifest in manifests
            for each in manifest.fetch_manifest_entry(iceberg.io)
        ]
        assert live == [files[0].path]
    assert table.commit([], (), replace=True)
    assert read(table).num_rows == 0


@pytest.mark.parametrize(
    "properties", [{"write.merge.mode": "copy-on-write"}, {"format-version": "1"}]
)
def test_tables_without_deleted_rows_are_rewritten(table, properties):
    found = rows(range(COUNT), 1)
    table.prepare(found.schema, options(), properties)
    add(table, found)
    table.merge(changes([1], 2), COLUMNS, [])
    assert not any(task.delete_files for task in tasks_of(table))
    assert numbers_at(read(table))[1] == 2


def test_files_of_an_earlier_partitioning_are_rewritten(table):
    add(table, rows(range(COUNT), 1), "bucket(2, n)")
    table.merge(changes([1], 2), COLUMNS, [])
    with opened(table) as iceberg, iceberg.update_spec() as spec:
        spec.add_field("at", "identity")
    for at in (3, 4):
        table.merge(changes([2, at * 10], at, gone=[at * 10]), COLUMNS, [])
    found = numbers_at(read(table))
    expected = dict.fromkeys(range(COUNT), 1) | {1: 2, 2: 4}
    del expected[30], expected[40]
    assert found == expected


def test_a_merge_that_fails_leaves_no_files(table, tmp_path, monkeypatch):
    add(table, rows(range(COUNT), 1))
    before = data_files(tmp_path)

    def fail(*_):
        raise OSError("no space is left")

    monkeypatch.setattr("pydanube_spark.tables.iceberg_merge.write_deletes", fail)
    with pytest.raises(OSError, match="no space"):
        table.merge(changes([1, COUNT], 2), COLUMNS, [])
    assert data_files(tmp_path) == before


def test_positions_of_several_files_of_others_count(table):
    """Other programs write files of positions for several data files."""
    add(table, rows(range(COUNT), 1))
    [task] = tasks_of(table)
    with opened(table) as iceberg:
        location = table.prepare(rows([0], 1).schema, options())
        live = np.ones(COUNT, np.bool_)
        live[:3] = False
        file = iceberg_deletes.write_deletes(location, task.file, live)
        file.details.lower_bounds.clear()
        with iceberg.transaction() as transaction:
            iceberg_deletes.exchange(
                transaction, {}, replaced=[], added=[], changed=[(task, file)]
            )
    table.merge(changes([3, 4], 2), COLUMNS, [])
    [task, *_] = [each for each in tasks_of(table) if each.delete_files]
    assert len(task.delete_files) == 2
    found = numbers_at(read(table))
    assert found == {number: 2 if number < 5 else 1 for number in range(3, COUNT)}
    assert pc.count_distinct(own_rows(table)["n"]).as_py() == COUNT - 3


STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), unique=True, min_size=1),
        st.integers(0, 5),
        st.sets(st.integers(0, 30)),
        st.booleans(),
    ),
    max_size=5,
)


@pytest.mark.rotated
@settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_merges_have_the_rows_of_a_dictionary(tmp_path_factory, steps):
    table = replace(
        table_in(tmp_path_factory.mktemp("t"), "iceberg"), rewrite_bytes_max=0
    )
    add(table, rows(range(20), 2))
    expected = dict.fromkeys(range(20), 2)
    for numbers, at, gone, compacts in steps:
        table.merge(changes(numbers, at, gone), COLUMNS, [])
        for number in numbers:
            if expected.get(number, -1) > at:
                continue
            expected[number] = at
            if number in gone:
                del expected[number]
        if compacts:
            table.compact(file_bytes=1 << 20)
        found = read(table)
        assert (numbers_at(found), found.num_rows) == (expected, len(expected))


@pytest.mark.soak
def test_a_merge_that_dies_at_any_step_is_repeated_once(tmp_path_factory):
    for step in itertools.count(1):
        table = replace(
            table_in(tmp_path_factory.mktemp("t"), "iceberg"), rewrite_bytes_max=0
        )
        add(table, rows(range(COUNT), 1))
        add(table, rows(range(COUNT, 2 * COUNT), 1))
        table.merge(changes([1, 2], 2, gone=[1]), COLUMNS, [AppTransaction("a", 0)])
        batch = changes([2, 3, COUNT + 1, -1], 3, gone=[3])
        driver = Driver(step)
        dying = DyingIceberg(
            table.name, table.connection, rewrite_bytes_max=0, driver=driver
        )
        with suppress(Killed):
            dying.merge(batch, COLUMNS, [AppTransaction("a", 1)])
        was_written = table.app_versions(["a"]) == {"a": 1}
        assert table.merge(batch, COLUMNS, [AppTransaction("a", 1)]) is not was_written
        expected = dict.fromkeys(range(2 * COUNT), 1) | {2: 3, COUNT + 1: 3, -1: 3}
        del expected[1], expected[3]
        found = read(table)
        assert (numbers_at(found), found.num_rows) == (expected, len(expected))
        if not driver.is_killed:
            break
    # Files of positions and rows, manifests, and what the catalog reads and writes.
    assert step > STEPS_MIN
