"""Tests of the merge of changed rows."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.pure.merging import KeyIndex, Merge, check_upsert

COLUMNS = UpsertColumns(keys=("a", "b"), order=("at", "sub"), delete="gone")

times = st.none() | st.integers(0, 2)
keys = st.tuples(st.integers(0, 3), st.sampled_from("xyz"))
stored = st.lists(st.tuples(keys, times, times), max_size=20)
changes = st.dictionaries(keys, st.tuples(times, times, st.none() | st.booleans()))


def columns_of(rows, *types):
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]


def order(*times):
    return [(time is not None, time or 0) for time in times]


@settings(deadline=None)
@given(stored, changes, st.integers(0, 5))
def test_merge_is_that_of_a_dictionary(rows, changes, split):
    found = pa.table(
        columns_of(
            [(*key, *change) for key, change in changes.items()],
            *(pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.bool_()),
        ),
        names=["a", "b", "at", "sub", "gone"],
    )
    merge = Merge(found, COLUMNS)
    kinds = pa.int64(), pa.string(), pa.int64(), pa.int64()
    batch = pa.record_batch(
        columns_of([(*key, at, sub) for key, at, sub in rows], *kinds),
        names=["a", "b", "at", "sub"],
    )
    mask = [
        *merge.rows_to_keep(batch.slice(0, split)),
        *merge.rows_to_keep(batch.slice(split)),
    ]
    later = {
        key
        for key, *times in rows
        if key in changes and order(*times) > order(*changes[key][:2])
    }
    assert mask == [
        key not in changes or order(*times) > order(*changes[key][:2])
        for key, *times in rows
    ]
    inserted = merge.rows_to_insert()
    assert inserted.column_names == ["a", "b", "at", "sub"]
    assert {(each["a"], each["b"]) for each in inserted.to_pylist()} == {
        key for key, (*_, gone) in changes.items() if key not in later and not gone
    }


@pytest.mark.parametrize(
    "values",
    [
        [Decimal("1.50"), Decimal("2.50")],
        [dt.date(2024, 2, 29), dt.date(1969, 1, 1)],
        [dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)],
        [b"", b"\xff"],
        [True, False],
        ["", "ä"],
    ],
)
def test_keys_of_any_type_are_found(values):
    index = KeyIndex([pa.array(values)])
    kind = pa.array(values).type
    wanted = pa.array([values[1], None, values[0]], kind)
    assert list(index.find([wanted])) == [1, -1, 0]


def test_row_that_lacks_a_part_of_the_key_is_not_found():
    index = KeyIndex([pa.array([1, 2]), pa.array(["x", "y"])])
    columns = [pa.array([1, 1, None, 2, 3]), pa.array(["y", None, "x", "y", "y"])]
    assert list(index.find(columns)) == [-1, -1, -1, 1, -1]


ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("real", pa.float64()),
        ("list", pa.list_(pa.int64())),
        ("gone", pa.bool_()),
    ]
)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (UpsertColumns(keys=("ID",)), "keyColumns: the DataFrame has no column 'ID'"),
        (UpsertColumns(keys=("real",)), "keyColumns: the column 'real' is double"),
        (UpsertColumns(keys=("list",)), "cannot be compared exactly"),
        (UpsertColumns(keys=("id",), order=("real",)), "orderColumns: the column"),
        (
            UpsertColumns(keys=("id",), order=("gone",), delete="gone"),
            "deleteColumn: cannot be in orderColumns",
        ),
    ],
)
def test_unsuitable_columns_are_refused(columns, words):
    with pytest.raises(InvalidConfig, match=words):
        check_upsert(ROWS, columns)


def test_suitable_columns_are_accepted():
    check_upsert(ROWS, UpsertColumns(keys=("id",), delete="gone"))
