"""The behaviour that Delta and Iceberg tables share."""

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from pydanube.model.errors import Conflict, InvalidRequest, NotFound
from pydanube_spark.tables.data_files import write_files
from pydanube_spark.tables.pure.app_transactions import AppTransaction
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

NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)

EVERYTHING = pa.table(
    {
        "whole": pa.array([1, None, -3], pa.int64()),
        "small": pa.array([1, 2, None], pa.int32()),
        "real": pa.array([1.5, None, 2.5], pa.float64()),
        "yes": pa.array([True, False, None], pa.bool_()),
        "text": pa.array(["ä", None, ""], pa.string()),
        "bytes": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "money": pa.array(
            [Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(12, 2)
        ),
        "huge": pa.array([Decimal(1) * 10**30, None, Decimal(0)], pa.decimal128(38, 0)),
        "day": pa.array(
            [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)], pa.date32()
        ),
        "moment": pa.array(
            [NOON, None, dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "local": pa.array([NOON.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "names": pa.array([["a", None], None, []], pa.list_(pa.string())),
        "labels": pa.array(
            [[("k", "v"), ("n", None)], None, []], pa.map_(pa.string(), pa.string())
        ),
        "inner": pa.array(
            [{"x": 1, "deep": [{"y": "z"}]}, None, {"x": None, "deep": None}],
            pa.struct(
                [
                    ("x", pa.int32()),
                    ("deep", pa.list_(pa.struct([("y", pa.string())]))),
                ]
            ),
        ),
    }
)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def table(kind, tmp_path):
    return table_in(tmp_path, kind)


def rows(*numbers, **columns):
    return pa.table({"n": pa.array(numbers, pa.int64()), **columns})


def add(table, these, transactions=(), **how):
    _, files = stage(table, these, **how)
    return table.commit(files, transactions)


def numbers(table):
    return sorted(read(table).column("n").to_pylist())


def test_every_spark_type_round_trips(table):
    add(table, EVERYTHING)
    wanted = EVERYTHING.sort_by("whole")
    # pyiceberg reads a null list of structs as an empty one.
    flat = wanted.drop_columns("inner")
    assert read(table).sort_by("whole").select(flat.column_names).equals(flat)
    polars = read_with_polars(table).sort_by("whole")
    assert polars.column("huge").to_pylist() == [0, 10**30, None]
    assert polars.column("inner").to_pylist() == wanted.column("inner").to_pylist()


def test_files_are_invisible_before_commit(table):
    stage(table, rows(1, 2))
    assert numbers(table) == []


def test_missing_table_has_no_schema(table):
    assert table.schema() is None
    assert table.app_versions(["app"]) == {"app": None}
    with pytest.raises(NotFound):
        table.compact(file_bytes=1)


def test_repeated_commit_changes_nothing(table):
    assert add(table, rows(1), [AppTransaction("app", 7)])
    assert table.app_versions(["app"]) == {"app": 7}
    assert not add(table, rows(1), [AppTransaction("app", 7)])
    assert not add(table, rows(1), [AppTransaction("app", 3)])
    assert add(table, rows(1), [AppTransaction("other", 3)])
    assert numbers(table) == [1, 1]


def test_app_version_advances_without_files(table):
    add(table, rows(1))
    assert table.commit([], [AppTransaction("app", 5, after=-1)])
    assert table.commit([], [AppTransaction("app", 9, after=5)])
    assert table.app_versions(["app"]) == {"app": 9}


def test_app_version_changed_by_another_writer_is_a_conflict(table):
    add(table, rows(1), [AppTransaction("app", 5, after=-1)])
    for after in (-1, 4, 6):
        with pytest.raises(Conflict, match="app is at 5"):
            add(table, rows(2), [AppTransaction("app", 9, after=after)])
    assert numbers(table) == [1]


def test_one_of_two_equal_concurrent_commits_takes_effect(table):
    """The second has looked for the mark before the first moved it."""
    _, mine = stage(table, rows(1))
    _, others = stage(table, rows(1))

    class Overtaken(AppTransaction):
        """Somebody else is faster, after it was looked at and before the commit."""

        def is_reached(self, now):
            found = super().is_reached(now)
            if now is None:
                assert table.commit(others, [AppTransaction("app", 0)])
            return found

    assert not table.commit(mine, [Overtaken("app", 0)])
    assert numbers(table) == [1]


def test_replace_removes_old_rows(table):
    add(table, rows(1, 2))
    _, files = stage(table, rows(3))
    assert table.commit(files, [AppTransaction("app", 1)], replace=True)
    assert numbers(table) == [3]
    _, files = stage(table, rows(4))
    assert not table.commit(files, [AppTransaction("app", 1)], replace=True)
    assert numbers(table) == [3]
    assert table.commit([], [AppTransaction("app", 2)], replace=True)
    assert numbers(table) == []


def test_new_columns_need_merge_schema(table):
    inner = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    more = pa.array(
        [{"x": 2, "y": "b"}], pa.struct([("x", pa.int32()), ("y", pa.string())])
    )
    add(table, rows(1, inner=inner))
    wider = rows(2, inner=more, text=pa.array(["new"]))
    # Constants are never null in Spark, but the table's column is nullable.
    never_null = wider.schema.field("text").with_nullable(False)
    wider = wider.cast(wider.schema.set(2, never_null))
    with pytest.raises(InvalidRequest, match="no columns inner, text"):
        stage(table, wider)
    add(table, wider, merge=True)
    add(table, rows(3))
    found = read(table).sort_by("n").to_pylist()
    assert [row["text"] for row in found] == [None, "new", None]
    assert [row["inner"] for row in found] == [
        {"x": 1, "y": None},
        {"x": 2, "y": "b"},
        None,
    ]


def test_column_types_never_change(table):
    add(table, rows(1))
    other = pa.table({"n": pa.array(["1"])})
    for merge in (False, True):
        with pytest.raises(InvalidRequest, match="n is int64, not string"):
            stage(table, other, merge=merge)
    with pytest.raises(InvalidRequest, match="differ in case only"):
        stage(table, pa.table({"N": pa.array([1])}), merge=True)


NARROW = pa.table(
    {
        "n": pa.array([1, 2], pa.int32()),
        "real": pa.array([0.5, None], pa.float32()),
        "money": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        "inner": pa.array([{"x": 1}, None], pa.struct([("x", pa.int16())])),
    }
)
WIDE = pa.table(
    {
        "n": pa.array([2**40], pa.int64()),
        "real": pa.array([1e300], pa.float64()),
        "money": pa.array([Decimal("123456789.25")], pa.decimal128(12, 2)),
        "inner": pa.array([{"x": 2**40}], pa.struct([("x", pa.int64())])),
    }
)


def test_numbers_of_rows_may_be_narrower_than_those_of_the_table(table):
    add(table, WIDE)
    add(table, NARROW)
    wanted = pa.concat_tables([NARROW.cast(WIDE.schema), WIDE])
    for found in (read(table), read_with_polars(table)):
        assert found.sort_by("n").to_pylist() == wanted.to_pylist()
    assert table.schema().equals(WIDE.schema)
    unfit = pa.table({"n": pa.array([1.0], pa.float64())})
    with pytest.raises(InvalidRequest, match="n is int64, not double"):
        stage(table, unfit, merge=True)


def test_wider_numbers_widen_the_table_or_the_error_says_what_to_do(table, kind):
    add(table, NARROW)
    with pytest.raises(InvalidRequest, match="n is int32, not int64; real is float, n"):
        stage(table, WIDE)
    if kind == "delta":
        with pytest.raises(InvalidRequest, match=r"n is int32.*delta\.md, section New"):
            stage(table, WIDE, merge=True)
        assert numbers(table) == [1, 2]
        return
    add(table, WIDE, merge=True)
    add(table, NARROW.slice(0, 1))
    wanted = [*NARROW.to_pylist(), NARROW.to_pylist()[0], *WIDE.to_pylist()]
    for found in (read(table), read_with_polars(table)):
        assert sorted(found.to_pylist(), key=str) == sorted(wanted, key=str)
    assert table.schema().equals(WIDE.schema)
    # Files from before are read and rewritten as others are.
    assert table.compact(file_bytes=1 << 20).files_before == 3
    assert table.file_count(table.data_version()) == 1
    assert sorted(read_with_polars(table).to_pylist(), key=str) == sorted(
        wanted, key=str
    )


def test_check_changes_nothing(table):
    table.check(rows(1).schema, options())
    assert table.schema() is None
    add(table, rows(1))
    with pytest.raises(InvalidRequest):
        table.check(pa.schema([("other", pa.int64())]), options())
    assert table.schema().names == ["n"]


def test_rows_are_written_to_their_partitions(table):
    text = pa.array(["a", "b", None, "a"])
    add(table, rows(1, 2, 3, 4, text=text), partition_by="text")
    assert len(read(table)) == 4
    # Later writers need not repeat it.
    add(table, rows(5, text=pa.array(["a"])))
    found = read(table).sort_by("n").to_pylist()
    assert [row["text"] for row in found] == ["a", "b", None, "a", "a"]
    assert read_with_polars(table).num_rows == 5
    with pytest.raises(InvalidRequest, match="partitioned by text, not by n"):
        stage(table, rows(5, text=pa.array(["a"])), partition_by="n")
    with pytest.raises(InvalidRequest, match="text"):
        stage(table, rows(5))


FIRST = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
ENDS = pa.array([FIRST, LAST, None], pa.timestamp("us", "UTC"))
PARTITIONS = {
    "bool": pa.array([True, False, None]),
    "byte": pa.array([-128, 127, None], pa.int32()),
    "whole": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "text": pa.array(["a=b/c %41", "ä'\"", None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "time": ENDS,
    "local": ENDS.cast(pa.timestamp("us")),
    "bytes": pa.array([b"ada", b"\x00\xff", None]),
    "money": pa.array([Decimal("-2.78"), Decimal("0.05"), None], pa.decimal128(10, 2)),
    "tiny": pa.array([Decimal("-1E-38"), Decimal(0), None], pa.decimal128(38, 38)),
    "real": pa.array([1.5, -0.0, None]),
}
REFUSED = {"delta": {"bytes", "money", "tiny", "real"}, "iceberg": {"real"}}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_of_each_type_are_kept_or_refused(table, kind, name):
    values = rows(1, 2, 3, part=PARTITIONS[name])
    if name in REFUSED[kind]:
        with pytest.raises(InvalidRequest, match="partitionBy: the column part is"):
            add(table, values, partition_by="part")
        assert table.schema() is None
        return
    add(table, values, partition_by="part")
    wanted = values.sort_by("n").column("part").to_pylist()
    for found in (read(table), read_with_polars(table)):
        assert found.sort_by("n").column("part").to_pylist() == wanted


def test_unreferenced_excludes_committed_files(table):
    _, part = stage(table, rows(1))
    _, left = stage(table, rows(2))
    table.commit(part, [])
    assert table.unreferenced([*part, *left]) == left


def test_failed_write_leaves_no_file(table, tmp_path):
    place = table.prepare(rows(1).schema, options())

    def fails():
        yield from rows(1).to_batches()
        raise RuntimeError("the task is broken")

    with pytest.raises(RuntimeError):
        write_files(place, fails(), "test", file_bytes_max=1)
    assert data_files(tmp_path) == []


def test_location_can_be_pickled(table):
    place = table.prepare(rows(1).schema, options())
    place = pickle.loads(pickle.dumps(place))
    files = write_files(place, rows(1, 2).to_batches(), "t", file_bytes_max=1 << 20)
    table.commit(pickle.loads(pickle.dumps(files)), [])
    assert numbers(table) == [1, 2]
    assert [each.row_count for each in files] == [2]


def test_compaction_merges_small_files_and_keeps_every_row(table):
    add(table, EVERYTHING)
    for _ in range(3):
        add(table, EVERYTHING, [AppTransaction("app", 3)] if _ == 0 else ())
    before = read_with_polars(table)
    planned = table.compact(file_bytes=1 << 20, plan_only=True)
    assert (planned.files_before, planned.files_after) == (4, 1)
    assert read_with_polars(table).equals(before)
    done = table.compact(file_bytes=1 << 20)
    assert (done.files_before, done.files_after) == (4, 1)
    after = read_with_polars(table)
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, before.to_pylist()))
    assert table.app_versions(["app"]) == {"app": 3}
    assert table.compact(file_bytes=1 << 20).files_before == 0


def test_compaction_keeps_the_partitions_apart(table):
    for number in range(3):
        add(
            table,
            rows(number, number, text=pa.array(["a", "b"])),
            partition_by="" if number else "text",
        )
    done = table.compact(file_bytes=1 << 20)
    assert (done.files_before, done.files_after) == (6, 2)
    assert sorted(map(tuple, (row.values() for row in read(table).to_pylist()))) == [
        (number, text) for number in range(3) for text in ("a", "b")
    ]


def test_clean_deletes_only_unreferenced_files(table, tmp_path):
    import os
    import time

    add(table, rows(1))
    _, left = stage(table, rows(2))
    now = time.time_ns() / 1e9
    assert table.clean(older_than_s=3600, now=now) == []
    for path in tmp_path.rglob("danube-*.parquet"):
        os.utime(path, (0, 0))
    found = table.clean(older_than_s=3600, now=now, plan_only=True)
    assert [path.rpartition("/")[2] for path in found] == [
        left[0].path.rpartition("/")[2]
    ]
    assert len(data_files(tmp_path)) == 2
    assert table.clean(older_than_s=3600, now=now) == found
    assert len(data_files(tmp_path)) == 1
    assert numbers(table) == [1]


def test_files_of_a_version_have_its_rows(table):
    with pytest.raises(NotFound):
        table.data_version()
    rows = pa.table({"a": [1, 2, 3], "p": ["x", "y", "x"]})
    _, files = stage(table, rows, "p")
    table.commit(files, [])
    version = table.data_version()
    more = pa.table({"a": [4], "p": ["x"], "later": [1.5]})
    _, files = stage(table, more, "p", merge=True)
    table.commit(files, [])

    def rows_of(version):
        found = [
            {name: row[name] for name in row if row[name] is not None}
            for index in range(table.file_count(version))
            for batch in table.read_file(version, index)
            for row in batch.to_pylist()
        ]
        return sorted(found, key=lambda row: row["a"])

    assert rows_of(version) == rows.to_pylist()
    assert rows_of(table.data_version()) == [*rows.to_pylist(), *more.to_pylist()]
