"""Tests of what is specific to Iceberg tables."""

import datetime as dt

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from pydanube.model.errors import Conflict, InvalidConfig, InvalidRequest
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.staged_rows import MemoryChanges
from support.drivers.lake_tables import opened, options, read, stage, table_in

pytestmark = pytest.mark.slow

MOMENTS = [
    dt.datetime(year, month, day, hour, tzinfo=dt.UTC)
    for year, month, day, hour in [
        (1969, 12, 31, 23),
        (2024, 2, 29, 0),
        (2024, 2, 29, 23),
        (2024, 3, 1, 1),
    ]
]
ROWS = pa.table(
    {
        "n": pa.array(range(4), pa.int64()),
        "text": ["apple", "apply", "banana", None],
        "moment": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def table(tmp_path):
    return table_in(tmp_path, "iceberg")


def add(table, rows=ROWS, transactions=(), **how):
    _, files = stage(table, rows, **how)
    table.commit(files, transactions)
    return files


@pytest.mark.parametrize(
    ("partition_by", "count"),
    [
        ("year(moment)", 2),
        ("month(moment)", 3),
        ("day(moment)", 3),
        ("hour(moment)", 4),
        ("truncate(3, text)", 3),
        ("bucket(2, n)", 2),
        ("bucket(3, moment),text", 4),
    ],
)
def test_files_are_pruned_by_partition(table, partition_by, count):
    files = add(table, partition_by=partition_by)
    assert len({each.partition for each in files}) == count
    for number in range(4):
        with opened(table) as iceberg:
            found = iceberg.scan(f"n = {number}").to_arrow().to_pylist()
            moment = MOMENTS[number].isoformat()
            by_time = iceberg.scan(f"moment = '{moment}'").to_arrow().to_pylist()
        assert [row["n"] for row in found] == [number]
        assert [row["n"] for row in by_time] == [number]
    with opened(table) as iceberg:
        assert iceberg.scan("text = 'banana'").to_arrow().num_rows == 1


def test_app_versions_outlive_snapshots(table):
    for version in range(3):
        add(table, transactions=[AppTransaction("app", version)])
    with opened(table) as iceberg:
        old = [each.snapshot_id for each in iceberg.snapshots()][:-1]
        iceberg.maintenance.expire_snapshots().by_ids(old).commit()
    assert table.app_versions(["app"]) == {"app": 2}
    with opened(table) as iceberg:
        [snapshot] = iceberg.snapshots()
    assert snapshot is not None


def test_snapshot_names_its_application_and_batch(table):
    _, files = stage(table, ROWS)
    table.commit(files, [], note={"danube.app": "app", "danube.batch": "7"})
    with opened(table) as iceberg:
        said = iceberg.current_snapshot().summary.additional_properties
    assert said["danube.batch"] == "7"


@pytest.mark.parametrize("wide", ["n", "other"])
def test_required_columns_stay_required(table, wide):
    """Also if they are widened; pyiceberg would make them optional."""
    properties = dict(table.connection)
    catalog = load_catalog(properties.pop("name"), **properties)
    catalog.create_namespace("db")
    inner = [NestedField(4, "x", IntegerType(), required=True)]
    fields = [
        NestedField(1, "n", IntegerType(), required=True),
        NestedField(2, "s", StructType(*inner), required=False),
        NestedField(3, "l", ListType(5, StringType(), element_required=True)),
    ]
    catalog.create_table("db.table", IcebergSchema(*fields, identifier_field_ids=[1]))
    catalog.close()
    rows = pa.schema(
        {
            "n": pa.int32(),
            "s": pa.struct([("x", pa.int32()), ("y", pa.int32())]),
            "l": pa.list_(pa.string()),
        }
        | {wide: pa.int64()}
    )
    table.prepare(rows, options(merge=True))
    with opened(table) as found:
        columns = found.schema()
    assert columns.identifier_field_ids == [1]
    assert columns.find_field("n").required
    assert columns.find_field("s.x").required
    assert not columns.find_field("s.y").required
    assert columns.find_field("l.element").required
    assert columns.find_field(wide).field_type == LongType()


def test_manifests_without_files_do_not_accumulate(table):
    """Only the last commit says which files it has deleted."""
    for number in range(5):
        _, files = stage(table, pa.table({"number": [number]}))
        table.commit(files, [], replace=True)
        with opened(table) as found:
            manifests = found.current_snapshot().manifests(found.io)
        assert len(manifests) <= 2
    assert read(table).column("number").to_pylist() == [4]


def test_conflicting_commit_is_retried_a_bounded_number_of_times(table):
    _, files = stage(table, ROWS)
    others = iter(range(100))

    class Overtaken(AppTransaction):
        times = 1

        def is_reached(self, now):
            if Overtaken.times:
                Overtaken.times -= 1
                table.commit([], [AppTransaction("other", next(others))])
            return super().is_reached(now)

    assert table.commit(files, [Overtaken("app", 0)])
    Overtaken.times = 1000
    _, files = stage(table, ROWS)
    with pytest.raises(Conflict, match="conflicted with other writers"):
        table.commit(files, [Overtaken("app", 1)])
    assert read(table).num_rows == 4


def test_required_columns_of_existing_table_stay_required(table, tmp_path):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    other = table_in(tmp_path, "iceberg", "other")
    add(other)
    with opened(other) as iceberg:
        iceberg.catalog.create_table("db.table", schema)
    assert not table.schema().field("n").nullable
    add(table, pa.table({"n": pa.array([1], pa.int64())}))
    with pytest.raises(InvalidRequest, match="requires a value"):
        stage(table, pa.table({"n": pa.array([None], pa.int64())}))


def test_compaction_skips_files_from_before_a_column_rename(table):
    add(table)
    add(table)
    with opened(table) as iceberg, iceberg.update_schema() as update:
        update.rename_column("text", "word")
    assert table.compact(file_bytes=1 << 30).files_before == 0
    assert "word" in read(table).column_names


def test_compaction_fills_later_columns_with_null(table):
    add(table)
    more = ROWS.append_column("more", pa.array(["x"] * 4))
    add(table, more, merge=True)
    assert table.compact(file_bytes=1 << 30).files_after == 1
    assert sorted(read(table).column("more").to_pylist(), key=str) == [
        *[None] * 4,
        *["x"] * 4,
    ]


def test_unknown_catalog_is_refused(tmp_path):
    table = IcebergLakeTable("db.table", {"name": "nobody", "type": "sql"})
    with pytest.raises(InvalidConfig, match="catalog"):
        table.check(ROWS.schema, options())


def test_merge_leaves_files_without_changed_keys_alone(table):
    columns = UpsertColumns(keys=("n",))
    for base in (0, 1000, 2000):
        add(table, pa.table({"n": pa.array(range(base, base + 500), pa.int64())}))
    for changed in ([1001, 1002], range(1000, 1400)):
        before = paths(table)
        rows = pa.table({"n": pa.array(changed, pa.int64())})
        table.merge(MemoryChanges(rows), columns, [])
        assert len(before & paths(table)) == 2
    assert read(table).num_rows == 1500


def paths(table):
    with opened(table) as iceberg:
        return {task.file.file_path for task in iceberg.scan().plan_files()}


def test_merge_is_one_snapshot_with_the_batch_in_its_summary(table):
    add(table)
    table.merge(
        MemoryChanges(ROWS), UpsertColumns(keys=("n",)), [], note={"danube.batch": "7"}
    )
    with opened(table) as iceberg:
        assert len(iceberg.snapshots()) == 2
        summary = iceberg.current_snapshot().summary
        assert summary["danube.batch"] == "7"
        assert summary.operation.value == "overwrite"


def test_merge_refuses_files_from_before_a_column_was_renamed(table):
    add(table)
    with opened(table) as iceberg, iceberg.update_schema() as update:
        update.rename_column("text", "name")
    renamed = ROWS.rename_columns(["n", "name", "moment"])
    with pytest.raises(InvalidRequest, match="changed columns"):
        table.merge(MemoryChanges(renamed), UpsertColumns(keys=("n",)), [])


@pytest.mark.parametrize("is_named", [False, True])
def test_deletion_is_reported_only_if_it_was_committed(table, monkeypatch, is_named):
    add(table)
    gone = ROWS.append_column("gone", pa.array([True] * 4))
    columns = UpsertColumns(keys=("n",), delete="gone")
    transactions = [AppTransaction("app", 1)] if is_named else []

    def lost(*_):
        raise CommitStateUnknownException("gateway timeout")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lost)
        with pytest.raises(CommitStateUnknownException):
            table.merge(MemoryChanges(gone), columns, transactions)
    assert len(read(table)) == 4
    assert table.merge(MemoryChanges(gone), columns, transactions)
    assert len(read(table)) == 0
