"""Tests of the columns of upserts, and of the choice of each key's latest row."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig, InvalidPayload
from pydanube_spark.pure.upserts import UpsertColumns, check_keys, latest_rows
from pydanube_spark.reader.pure.option_parsing import ParsedOptions

ROWS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("gone", pa.bool_())])


def parse(**options):
    return UpsertColumns.parse(
        ParsedOptions({name.lower(): text for name, text in options.items()})
    )


def test_without_keys_rows_are_inserted():
    assert parse() == UpsertColumns()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"orderColumns": "at"}, "orderColumns: only with keyColumns"),
        ({"deleteColumn": "gone"}, "deleteColumn: only with keyColumns"),
        ({"keyColumns": "id, gone", "deleteColumn": "gone"}, "cannot be a key"),
        ({"truncateColumn": "cut"}, "truncateColumn: only with keyColumns"),
        ({"keyColumns": "id", "truncateColumn": "cut"}, "only with orderColumns"),
        (
            {"keyColumns": "id", "orderColumns": "at", "truncateColumn": "at"},
            "'at' is the column of another option",
        ),
        ({"keyColumns": "id, id"}, "twice"),
    ],
)
def test_contradicting_options_are_refused(options, words):
    with pytest.raises(InvalidConfig, match=words):
        parse(**options)


def test_missing_columns_and_wrong_types_are_named():
    columns = parse(keyColumns="id", orderColumns="at", deleteColumn="gone")
    assert columns.problems(ROWS) == []
    wrong = parse(keyColumns="ID", orderColumns="when", deleteColumn="at")
    key, order, delete = wrong.problems(ROWS)
    assert key.startswith("keyColumns: the DataFrame has no column 'ID'")
    assert order.startswith("orderColumns: the DataFrame has no column 'when'")
    assert delete == "deleteColumn: 'at' must be boolean"


def test_row_without_key_is_refused():
    batch = pa.record_batch({"a": [1, 2], "b": [1, None]})
    check_keys(batch, ["a"])
    with pytest.raises(InvalidPayload, match="the key column 'b' is null"):
        check_keys(batch, ["a", "b"])


rows = st.tuples(
    st.integers(0, 3), st.sampled_from("ab"), st.none() | st.integers(0, 3)
)


def table(rows):
    ids, names, times = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(names, pa.string()),
            "at": pa.array(times, pa.int64()),
        }
    )


@settings(deadline=None)
@given(st.lists(st.lists(rows, max_size=8), min_size=1, max_size=4), st.booleans())
def test_each_key_has_exactly_its_latest_row(outputs, is_ordered):
    order = ["at"] if is_ordered else []
    masks = latest_rows([table(each) for each in outputs], ["id", "name"], order)
    best = {}
    for piece, each in enumerate(outputs):
        for row, (number, name, at) in enumerate(each):
            time = (-1 if at is None else at) if is_ordered else 0
            place = (time, piece, row)
            best[number, name] = max(place, best.get((number, name), place))
    found = {
        (piece, row)
        for piece, mask in enumerate(masks)
        for row, is_last in enumerate(mask)
        if is_last
    }
    assert found == {place[1:] for place in best.values()}
