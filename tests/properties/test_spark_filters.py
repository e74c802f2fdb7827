"""Conditions have the meaning of SQL, and no matching message is skipped."""

import operator
from types import SimpleNamespace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube_spark.reader.pure.filters import Condition, clip, may_match, select

keys = st.none() | st.binary(max_size=2)
rows = st.lists(keys, max_size=8)
COMPARISONS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "starts": bytes.startswith,
    "ends": bytes.endswith,
    "contains": operator.contains,
}


def conditions(column, values):
    compared = st.sampled_from(
        [*COMPARISONS] if column == "key" else [*COMPARISONS][:5]
    )
    return st.one_of(
        st.builds(Condition, st.just(column), compared, values, st.booleans()),
        st.builds(
            Condition,
            st.just(column),
            st.just("in"),
            st.lists(st.none() | values, max_size=3).map(tuple),
            st.booleans(),
        ),
        st.builds(
            Condition, st.just(column), st.just("is null"), st.none(), st.booleans()
        ),
    )


key_conditions = conditions("key", st.binary(max_size=2))
offset_conditions = conditions("offset", st.integers(-3, 40))


def outcome(condition, value):
    """Evaluate a condition on one message as SQL does; None is unknown."""
    if condition.test == "is null":
        found = value is None
    elif value is None:
        return None
    elif condition.test == "in":
        found = value in condition.value
        if not found and None in condition.value:
            return None
    else:
        found = COMPARISONS[condition.test](value, condition.value)
    return found != condition.is_negated


@settings(deadline=None)
@given(
    rows, st.lists(key_conditions, max_size=3), st.lists(offset_conditions, max_size=2)
)
def test_filter_matches_the_same_messages_as_sql(found, of_key, of_offset):
    batch = pa.record_batch(
        {
            "offset": pa.array(range(10, 10 + len(found)), pa.int64()),
            "key": pa.array(found, pa.binary()),
        }
    )
    expected = [
        offset
        for offset, key in enumerate(found, start=10)
        if all(outcome(each, key) for each in of_key)
        and all(outcome(each, offset) for each in of_offset)
    ]
    chosen = select([*of_key, *of_offset], batch, "/default/a")
    assert chosen.column("offset").to_pylist() == expected


@given(rows.filter(bool), st.lists(key_conditions, min_size=1, max_size=2))
def test_row_group_with_a_match_is_never_skipped(found, wanted):
    known = [each for each in found if each is not None]
    statistics = SimpleNamespace(
        has_min_max=bool(known),
        min=min(known, default=None),
        max=max(known, default=None),
        has_null_count=True,
        null_count=len(found) - len(known),
        num_values=len(known),
    )
    if any(all(outcome(each, key) for each in wanted) for key in found):
        assert may_match(wanted, "key", statistics)


@given(st.integers(0, 20), st.integers(0, 20), st.lists(offset_conditions, max_size=3))
def test_clip_keeps_all_matching_offsets(base, count, wanted):
    first, end = clip(wanted, base, base + count)
    assert first >= base
    assert end <= base + count
    for offset in range(base, base + count):
        if all(outcome(each, offset) for each in wanted):
            assert first <= offset < end
