"""Conversion of positions and times."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

import pydanube
from pydanube.model.policy import AtTime, Start, SubscriptionType
from pydanube.model.positions import (
    parse_choice,
    to_datetime,
    to_microseconds,
    to_position,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_offsets_ends_and_times_are_positions():
    assert to_position(7) == 7
    assert to_position("earliest") is Start.EARLIEST
    assert to_position("latest") is Start.LATEST
    assert to_position(NOON) == AtTime(1_769_860_800_000_000)


def test_time_is_the_same_in_every_zone():
    there = NOON.astimezone(timezone(timedelta(hours=-7)))
    assert to_position(there) == to_position(NOON)


NAIVE = datetime(2026, 1, 31)  # noqa: DTZ001  # Without a time zone, on purpose.


@pytest.mark.parametrize("where", [-1, "now", "", None, 1.5, NAIVE])
def test_invalid_position_is_refused(where):
    with pytest.raises(pydanube.InvalidRequest):
        to_position(where)


def test_seconds_and_datetimes_are_converted_alike():
    assert to_microseconds(NOON) == to_microseconds(NOON.timestamp())
    assert to_datetime(to_microseconds(NOON)) == NOON


@pytest.mark.parametrize(
    "time",
    [
        *(float("nan"), float("inf"), "noon", True, None, b"1"),
        # Milliseconds and microseconds since 1970.
        *(1_769_860_800_000, 1_769_860_800_000_000, -1_769_860_800_000, 10**400),
    ],
)
def test_invalid_time_is_refused(time):
    with pytest.raises(pydanube.InvalidRequest):
        to_microseconds(time)


def test_choices_may_be_joined_by_hyphens():
    assert parse_choice("type", "key-shared", SubscriptionType) is (
        SubscriptionType.KEY_SHARED
    )
    with pytest.raises(pydanube.InvalidRequest, match="one of 'exclusive'"):
        parse_choice("type", "many", SubscriptionType)


@pytest.mark.parametrize("where", [True, 1.5, -1, "first", None])
def test_what_is_no_position_is_refused(where):
    with pytest.raises(pydanube.InvalidRequest):
        to_position(where)
