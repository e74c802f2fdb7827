"""Which messages, topics and row groups conditions rule out."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from pydanube.model.envelope import TIME_TYPE
from pydanube_spark.pushdown import condition_of
from pydanube_spark.reader.pure.filters import clip, may_match, may_match_topic, select

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
PART = "/default/orders-part-2"

BATCH = pa.record_batch(
    {
        "offset": pa.array([0, 1, 2, 3]),
        "publish_time": pa.array(
            [TIME + timedelta(seconds=each) for each in range(4)], TIME_TYPE
        ),
        "key": pa.array([b"ab", None, b"b", b"\xff"]),
    }
)


def conditions(*pushed):
    found = [condition_of(each) for each in pushed]
    assert None not in found
    return found


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (spark.EqualTo(("offset",), 2), [2]),
        (spark.GreaterThan(("offset",), 2), [3]),
        (spark.GreaterThanOrEqual(("offset",), 2), [2, 3]),
        (spark.LessThan(("offset",), 2), [0, 1]),
        (spark.LessThanOrEqual(("offset",), 2), [0, 1, 2]),
        (spark.In(("offset",), (1, 9, None)), [1]),
        (spark.Not(spark.EqualTo(("offset",), 2)), [0, 1, 3]),
        (spark.EqualTo(("publish_time",), TIME + timedelta(seconds=1)), [1]),
        (spark.GreaterThan(("publish_time",), TIME + timedelta(seconds=1)), [2, 3]),
        (spark.IsNotNull(("publish_time",)), [0, 1, 2, 3]),
        (spark.EqualTo(("key",), b"b"), [2]),
        (spark.EqualTo(("key",), "b"), [2]),
        (spark.StringStartsWith(("key",), "a"), [0]),
        (spark.StringEndsWith(("key",), "b"), [0, 2]),
        (spark.StringContains(("key",), b"b"), [0, 2]),
        (spark.IsNull(("key",)), [1]),
        (spark.IsNotNull(("key",)), [0, 2, 3]),
    ],
)
def test_a_condition_holds_for_these_messages(pushed, expected):
    found = select(conditions(pushed), BATCH, PART)
    assert found.column("offset").to_pylist() == expected


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (spark.Not(spark.EqualTo(("key",), b"b")), [0, 3]),
        (spark.Not(spark.In(("key",), (b"b", b"c"))), [0, 3]),
        (spark.Not(spark.In(("key",), (b"b", None))), []),
        (spark.In(("key",), (b"b", None)), [2]),
        (spark.Not(spark.StringStartsWith(("key",), "a")), [2, 3]),
    ],
)
def test_unknown_is_not_true_as_in_sql(pushed, expected):
    found = select(conditions(pushed), BATCH, PART)
    assert found.column("offset").to_pylist() == expected


def test_all_conditions_must_hold():
    both = conditions(spark.GreaterThan(("offset",), 0), spark.EqualTo(("key",), b"b"))
    assert select(both, BATCH, PART).column("offset").to_pylist() == [2]
    assert select([], BATCH, PART) is BATCH


def test_a_batch_without_keys_has_none():
    bare = BATCH.drop_columns(["key"])
    assert select(conditions(spark.IsNull(("key",))), bare, PART).num_rows == 4
    assert select(conditions(spark.EqualTo(("key",), b"b")), bare, PART).num_rows == 0


@pytest.mark.parametrize(
    ("pushed", "is_accepted"),
    [
        (spark.EqualTo(("topic",), "/default/orders"), True),
        (spark.EqualTo(("topic",), PART), False),
        (spark.StringStartsWith(("topic",), "/default/"), True),
        (spark.Not(spark.In(("topic",), ("/default/orders",))), False),
        (spark.EqualTo(("partition",), 2), True),
        (spark.In(("partition",), (0, 1)), False),
        (spark.GreaterThan(("partition",), 2), False),
        (spark.IsNull(("partition",)), False),
        (spark.EqualTo(("offset",), 2), True),
    ],
)
def test_topics_and_partitions_without_matches_are_skipped(pushed, is_accepted):
    assert may_match_topic(conditions(pushed), PART) is is_accepted


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        ([spark.EqualTo(("offset",), 15)], (15, 16)),
        ([spark.GreaterThan(("offset",), 15)], (16, 20)),
        ([spark.LessThanOrEqual(("offset",), 15)], (10, 16)),
        ([spark.LessThan(("offset",), 15)], (10, 15)),
        (
            [
                spark.GreaterThanOrEqual(("offset",), 12),
                spark.LessThan(("offset",), 14),
            ],
            (12, 14),
        ),
        ([spark.In(("offset",), (13, 5, 17, None))], (10, 18)),
        ([spark.Not(spark.EqualTo(("offset",), 15))], (10, 20)),
        ([spark.EqualTo(("key",), b"x")], (10, 20)),
    ],
)
def test_range_is_reduced_to_matching_offsets(pushed, expected):
    assert clip(conditions(*pushed), 10, 20) == expected


@pytest.mark.parametrize(
    "pushed",
    [
        spark.EqualTo(("offset",), 30),
        spark.In(("offset",), (None,)),
        spark.IsNull(("offset",)),
        spark.GreaterThan(("offset",), 19),
    ],
)
def test_range_is_empty_if_no_offset_matches(pushed):
    base, end = clip(conditions(pushed), 10, 20)
    assert base >= end


def statistics(lowest, highest, nulls=0, values=10):
    return SimpleNamespace(
        min=lowest,
        max=highest,
        null_count=nulls,
        num_values=values,
        has_min_max=lowest is not None,
        has_null_count=nulls is not None,
    )


@pytest.mark.parametrize(
    ("pushed", "may"),
    [
        (spark.EqualTo(("key",), b"d"), True),
        (spark.EqualTo(("key",), b"a"), False),
        (spark.In(("key",), (b"a", b"z")), False),
        (spark.In(("key",), (b"a", b"d", None)), True),
        (spark.LessThan(("key",), b"c"), False),
        (spark.LessThanOrEqual(("key",), b"c"), True),
        (spark.GreaterThan(("key",), b"e"), False),
        (spark.GreaterThanOrEqual(("key",), b"e"), True),
        (spark.StringStartsWith(("key",), "dd"), True),
        (spark.StringStartsWith(("key",), "f"), False),
        (spark.StringContains(("key",), "f"), True),
        (spark.Not(spark.EqualTo(("key",), b"a")), True),
        (spark.IsNull(("key",)), False),
        (spark.IsNotNull(("key",)), True),
    ],
)
def test_row_group_is_judged_by_its_minimum_and_maximum(pushed, may):
    assert may_match(conditions(pushed), "key", statistics(b"c", b"e")) is may


def test_row_group_without_statistics_may_match():
    key = conditions(spark.EqualTo(("key",), b"d"))
    assert may_match(key, "key", None)
    assert may_match(key, "key", statistics(None, None, nulls=None))
    assert may_match(key, "offset", statistics(0, 9))


def test_a_row_group_of_nulls_has_no_value():
    nulls = statistics(None, None, nulls=10, values=0)
    assert not may_match(conditions(spark.EqualTo(("key",), b"d")), "key", nulls)
    assert not may_match(conditions(spark.IsNotNull(("key",))), "key", nulls)
    assert may_match(conditions(spark.IsNull(("key",))), "key", nulls)


def test_times_of_a_row_group_are_compared_as_times():
    found = statistics(TIME, TIME + timedelta(seconds=9))
    late = conditions(spark.GreaterThan(("publish_time",), TIME + timedelta(seconds=9)))
    early = conditions(spark.LessThanOrEqual(("publish_time",), TIME))
    assert not may_match(late, "publish_time", found)
    assert may_match(early, "publish_time", found)
