"""Tests of the division of batches by partition."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables.pure.partitioning import (
    apply_transform,
    check_transform,
    delta_text,
    split,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOMENTS = st.datetimes(
    min_value=EPOCH.replace(year=1900, tzinfo=None),
    max_value=EPOCH.replace(year=2200, tzinfo=None),
    timezones=st.just(dt.UTC),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2))))
def test_split_keeps_every_row_and_its_order(rows):
    batch = pa.record_batch(
        {
            "text": pa.array([text for text, _ in rows], pa.string()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    outputs = list(split(batch, [batch.column("text"), batch.column("number")]))
    assert len({values for values, _ in outputs}) == len(outputs)
    for values, piece in outputs:
        expected = [row for row, each in enumerate(rows) if each == values]
        assert piece.column("row").to_pylist() == expected
    assert sum(piece.num_rows for _, piece in outputs) == len(rows)


def test_unpartitioned_batch_is_not_split():
    batch = pa.record_batch({"n": [1, 2]})
    assert list(split(batch, [])) == [((), batch)]
    assert list(split(batch.slice(0, 0), [])) == []


@given(st.lists(MOMENTS | st.none(), min_size=1))
def test_days_and_hours_before_1970_are_negative(moments):
    column = pa.array(moments, pa.timestamp("us", "UTC"))

    def each(make):
        return [None if moment is None else make(moment) for moment in moments]

    years = each(lambda moment: moment.year - 1970)
    assert apply_transform(column, "year").to_pylist() == years
    months = each(lambda moment: (moment.year - 1970) * 12 + moment.month - 1)
    assert apply_transform(column, "month").to_pylist() == months
    days = each(lambda moment: (moment - EPOCH).days)
    assert apply_transform(column, "day").to_pylist() == days
    hours = each(lambda moment: (moment - EPOCH) // dt.timedelta(hours=1))
    assert apply_transform(column, "hour").to_pylist() == hours


def test_day_of_date_is_its_number():
    column = pa.array([dt.date(1969, 12, 31), None], pa.date32())
    assert apply_transform(column, "day").to_pylist() == [-1, None]


def test_transform_is_applied_once_per_distinct_value():
    seen = []

    def apply(value):
        seen.append(value)
        return None if value is None else len(value)

    column = pa.array(["a", "bb", "a", None], pa.string())
    assert apply_transform(column, "truncate[1]", apply).to_pylist() == [1, 2, 1, None]
    assert seen == ["a", "bb"]
    empty = pa.array([None], pa.string())
    assert apply_transform(empty, "bucket[4]", apply).to_pylist() == [None]


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        (pa.float64(), "identity"),
        (pa.struct([]), "identity"),
        (pa.date32(), "hour"),
        (pa.string(), "day"),
        (pa.bool_(), "bucket[4]"),
        (pa.date32(), "truncate[4]"),
    ],
)
def test_unsupported_transform_is_refused(column, transform):
    with pytest.raises(InvalidRequest, match="the column c is"):
        check_transform(column, transform, "c")


def test_delta_partition_values_are_text():
    assert delta_text(None) is None
    assert delta_text("") is None
    assert delta_text(True) == "true"
    assert delta_text(7) == "7"
    assert delta_text(dt.date(2024, 2, 29)) == "2024-02-29"
    assert delta_text(dt.date(1, 2, 3)) == "0001-02-03"
    assert (
        delta_text(EPOCH.replace(year=1, month=2, day=3, hour=4))
        == "0001-02-03 04:00:00.000000"
    )
    moment = EPOCH.replace(hour=1, microsecond=4)
    assert delta_text(moment) == "1970-01-01 01:00:00.000004"
