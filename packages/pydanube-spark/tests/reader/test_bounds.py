"""Where a read starts and stops, as a user says it."""

import pytest

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube_spark.reader.pure.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    parse_bound,
    split_name,
)

PLAIN, ORDERS = "/default/plain", "/default/orders"
PARTS = [f"{ORDERS}-part-{number}" for number in range(3)]


def test_split_name_returns_topic_and_partition():
    assert split_name(PARTS[2]) == (ORDERS, 2)
    assert split_name(PLAIN) == (PLAIN, 0)
    assert split_name(f"{ORDERS}.eu-part-2") == (f"{ORDERS}.eu", 2)
    assert split_name(f"{PLAIN}-part-x") == (f"{PLAIN}-part-x", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"/default/orders": -2}', dict.fromkeys(PARTS, EARLIEST)),
        (
            '{"/default/orders": {"0": 5, "1": -2, "2": -1}}',
            dict(zip(PARTS, (5, EARLIEST, LATEST), strict=True)),
        ),
        (
            '{"/default/orders-part-0": 7, "/default/orders": {"1": 8, "2": 9}}',
            dict(zip(PARTS, (7, 8, 9), strict=True)),
        ),
        (
            (
                '{"/default/orders": {"2": 9}, "/default/orders-part-0": 7, '
                '"/default/orders-part-1": 8}'
            ),
            dict(zip(PARTS, (7, 8, 9), strict=True)),
        ),
    ],
)
def test_bounds_name_partitions_by_topic_or_full_name(text, expected):
    assert parse_bound("startingOffsets", text).numbers_for(PARTS) == expected


@pytest.mark.parametrize(
    "text", ['{"/default/plain": 5}', '{"/default/plain": {"0": 5}}']
)
def test_a_topic_without_partitions_is_its_own_partition_0(text):
    assert parse_bound("endingOffsets", text).numbers_for([PLAIN]) == {PLAIN: 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"/default/orders": 5}', "orders has partitions: give each its offset"),
        ('{"/default/orders": {"0": 5}}', "missing: /default/orders-part-1, "),
        ('{"/default/plain": 5}', "not read: /default/plain; missing"),
        (
            '{"/default/orders": {"0": 5, "1": 5, "2": 5, "3": 5}}',
            "not read: /default/orders partition 3",
        ),
    ],
)
def test_bounds_that_do_not_fit_the_topics_are_refused(text, message):
    with pytest.raises(InvalidConfig, match=f"startingOffsets: .*{message}"):
        parse_bound("startingOffsets", text).numbers_for(PARTS)


def test_one_time_may_apply_to_all_partitions():
    text = '{"/default/orders": 1700000000000}'
    bound = parse_bound("startingOffsetsByTimestamp", text)
    assert bound.numbers_for(PARTS) == dict.fromkeys(PARTS, 1_700_000_000_000_000)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 01:00:01.5+01:00", 1_500_000),
        ("1969-12-31T23:59:59+00:00", -1_000_000),
    ],
)
def test_a_time_is_milliseconds_or_a_date_with_its_zone(text, microseconds):
    found = parse_bound("startingTimestamp", text, allows_future=False)
    assert found == Bound(
        option="startingTimestamp",
        value=microseconds,
        is_time=True,
        allows_future=False,
    )


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-01-31", "2026-01-31T12:00:00", "-1", "1e3", "9" * 30]
)
def test_malformed_time_is_refused(text):
    with pytest.raises(InvalidConfig, match="startingTimestamp: must be milliseconds"):
        parse_bound("startingTimestamp", text)


@pytest.mark.parametrize(
    "text",
    [
        "first",
        "[1]",
        "{}",
        "null",
        '{"/default/a": null}',
        '{"/default/a": {"x": 1}}',
        '{"/default/a": {"-1": 1}}',
        '{"/default/a": {"0": -3}}',
        '{"/default/a": {"0": 1.5}}',
        '{"/default/a": 99999999999999999999}',
        "[" * 100_000,
    ],
)
def test_malformed_offsets_are_refused_with_the_option_s_name(text):
    with pytest.raises(InvalidConfig, match="endingOffsets"):
        parse_bound("endingOffsets", text)


def test_a_malformed_topic_is_refused():
    with pytest.raises(InvalidName):
        parse_bound("startingOffsets", '{"orders": 5}')


@pytest.mark.parametrize("number", [-1, 253_402_300_800_000])
def test_times_are_not_negative_and_not_after_the_year_9999(number):
    with pytest.raises(InvalidConfig, match=f"the year 9999, not {number}"):
        parse_bound("endingOffsetsByTimestamp", f'{{"/default/a": {number}}}')
    with pytest.raises(InvalidConfig, match=f"2026-01-31T12:00:00Z, not '{number}'"):
        parse_bound("startingTimestamp", str(number))
