"""Sizes, durations and counts are read as people mean them."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube.model.quantity_formats import format_bytes, format_duration
from pydanube_cli.presentation.quantities import (
    parse_attribute,
    parse_bytes,
    parse_duration,
    parse_position,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("17", 17),
        ("500MB", 500_000_000),
        ("10GiB", 10 * 1024**3),
        ("1.5 kib", 1536),
        (" 2TB ", 2 * 10**12),
    ],
)
def test_sizes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90s", 90), ("250ms", 0.25), ("12h", 43_200), ("7d", 604_800)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["7", " 7 "])
def test_a_duration_without_a_unit_is_refused_with_its_readings(text):
    with pytest.raises(InvalidRequest, match=r"no unit: write 7s for seconds.* 7d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "5 parsecs", "1e3", "1,000"])
def test_what_is_no_quantity_is_refused_with_an_example(text):
    with pytest.raises(InvalidRequest, match="500MB"):
        parse_bytes(text)
    with pytest.raises(InvalidRequest, match="12h"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "rate"), [("500", 500), ("0.5/s", 0.5)])
def test_rates(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "fast", "inf", "nan", "5/m"])
def test_a_rate_is_above_zero(text):
    with pytest.raises(InvalidRequest):
        parse_rate(text)


def test_an_attribute_is_cut_at_its_first_equals_sign():
    assert parse_attribute("query=a=b") == ("query", "a=b")
    assert parse_attribute("empty=") == ("empty", "")


@pytest.mark.parametrize("text", ["name", "=value", ""])
def test_an_attribute_has_a_name_and_an_equals_sign(text):
    with pytest.raises(InvalidRequest):
        parse_attribute(text)


@given(st.integers(0, 10**15))
def test_a_shown_size_is_read_as_nearly_the_same(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.06)


@given(st.integers(1, 10**7))
def test_a_shown_duration_is_read_as_the_same(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("0", 0),
        (" 4711 ", 4711),
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("15m", NOW - timedelta(minutes=15)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("2025-03-01T09:30:00Z", datetime(2025, 3, 1, 9, 30, tzinfo=UTC)),
    ],
)
def test_position_is_an_offset_an_end_a_time_or_an_age(text, where):
    assert parse_position(text, NOW) == where


def local_time(*numbers):
    """The moment at which local clocks show a year, month, day, hour and minute."""
    return datetime.fromtimestamp(time.mktime((*numbers, 0, 0, 0, -1)), UTC)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2025-01-05T09:30", (2025, 1, 5, 9, 30)), ("2025-07-05", (2025, 7, 5, 0, 0))],
)
def test_time_without_a_zone_is_local(text, numbers):
    assert parse_position(text, NOW) == local_time(*numbers)


def test_time_without_a_date_is_today():
    midday = local_time(2025, 7, 5, 12, 0)
    assert parse_position("09:30", midday) == local_time(2025, 7, 5, 9, 30)
    today = midday.astimezone()
    assert parse_position("09:30Z", midday) == datetime(
        today.year, today.month, today.day, 9, 30, tzinfo=UTC
    )


@pytest.mark.parametrize(
    "text", ["", "newest", "-1", "15 parsecs", "2025-13-01", "25:00"]
)
def test_invalid_position_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse_position(text, NOW)
