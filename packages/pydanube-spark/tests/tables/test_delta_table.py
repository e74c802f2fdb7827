"""Tests of what is specific to Delta tables."""

import datetime as dt

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.table_options import WriteOptions
from pydanube_spark.tables.staged_rows import MemoryChanges
from support.drivers.lake_tables import options, read, stage, table_in

pytestmark = pytest.mark.slow

ROWS = pa.table({"n": pa.array([1], pa.int64())})


@pytest.fixture
def table(tmp_path):
    return table_in(tmp_path, "delta")


def test_table_with_unsupported_writer_requirements_is_refused(table):
    table.prepare(ROWS.schema, options())
    DeltaTable(table.name).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(InvalidRequest, match="requires delta"):
        table.check(ROWS.schema, options())


def test_required_column_refuses_null(table):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    DeltaTable.create(table.name, Schema.from_arrow(schema))
    stage(table, ROWS)
    with pytest.raises(InvalidRequest, match="the column n has 1 nulls"):
        stage(table, pa.table({"n": pa.array([None], pa.int64())}))


def test_unsupported_type_is_refused(table):
    schema = pa.schema([("n", pa.month_day_nano_interval())])
    with pytest.raises(InvalidRequest, match="cannot have the column n"):
        table.check(schema, options())


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_maps_with_times_need_a_time_zone(table, zone):
    """The package deltalake creates no table for the others."""
    times = pa.list_(pa.map_(pa.string(), pa.timestamp("us", zone)))
    schema = pa.schema([("n", pa.int64()), ("times", times)])
    if zone is not None:
        table.prepare(schema, options())
        return
    with pytest.raises(InvalidRequest, match="column times: a map has times without"):
        table.check(schema, options())
    # Other columns may have them, and then a map, too.
    local = pa.schema([("n", pa.timestamp("us"))])
    table.prepare(local, options())
    more = pa.schema([*local, ("times", times)])
    table.prepare(more, options(merge=True))
    stage(table, pa.table({"n": [None], "times": [[]]}, schema=more))


def test_properties_are_set_at_creation(table):
    assert table.properties() == {}
    table.prepare(ROWS.schema, options(), {"danube.export": "raw"})
    table.prepare(ROWS.schema, options(), {"danube.export": "typed"})
    assert table.properties()["danube.export"] == "raw"


def test_partition_values_round_trip(table):
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "n": pa.array([1, 2], pa.int64()),
            "day": pa.array([dt.date(2024, 2, 29), None], pa.date32()),
            "yes": pa.array([True, None]),
            "text": pa.array(["a/b=%20 ä", None]),
            "moment": pa.array([moment, None], pa.timestamp("us", "UTC")),
        }
    )
    _, files = stage(table, rows, partition_by="day,yes,text,moment")
    table.commit(files, [])
    assert read(table).select(rows.column_names).sort_by("n").to_pylist() == (
        rows.to_pylist()
    )


def test_readers_skip_files_by_statistics(table):
    for number in range(3):
        _, files = stage(table, pa.table({"n": pa.array([number], pa.int64())}))
        table.commit(files, [])
    actions = pa.table(DeltaTable(table.name).get_add_actions(flatten=True))
    assert sorted(actions.column("min.n").to_pylist()) == [0, 1, 2]
    assert actions.column("num_records").to_pylist() == [1, 1, 1]


def test_upserts_into_a_table_of_appends_only_are_refused(table):
    table.prepare(ROWS.schema, options(), {"delta.appendOnly": "true"})
    table.check(ROWS.schema, options())
    with pytest.raises(InvalidRequest, match=r"delta\.appendOnly"):
        table.check(ROWS.schema, WriteOptions(upsert=UpsertColumns(keys=("n",))))


def test_merge_leaves_files_without_changed_keys_alone(table):
    columns = UpsertColumns(keys=("n",))
    for base in (0, 10, 20):
        rows = pa.table({"n": pa.array(range(base, base + 5), pa.int64())})
        _, files = stage(table, rows)
        table.commit(files, [])
    before = set(DeltaTable(table.name).file_uris())
    rows = pa.table({"n": pa.array([11, 12], pa.int64())})
    table.merge(MemoryChanges(rows), columns, [])
    assert len(before & set(DeltaTable(table.name).file_uris())) == 2


def test_a_table_that_was_rewritten_with_wider_columns_keeps_what_is_written(table):
    """As the guide says; the numbers of the batches stay in the table."""
    narrow = pa.table({"n": pa.array([1, 2], pa.int32())})
    _, files = stage(table, narrow)
    table.commit(files, [AppTransaction("app", 7)])
    rows = DeltaTable(table.name).to_pyarrow_table()
    wider = rows.cast(pa.schema([("n", pa.int64())]))
    write_deltalake(table.name, wider, mode="overwrite", schema_mode="overwrite")
    assert table.app_versions(["app"]) == {"app": 7}
    for rows in (pa.table({"n": pa.array([2**40], pa.int64())}), narrow.slice(0, 1)):
        _, files = stage(table, rows)
        table.commit(files, ())
    assert sorted(read(table)["n"].to_pylist()) == [1, 1, 2, 2**40]
