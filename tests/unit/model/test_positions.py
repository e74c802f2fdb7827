"""Places and times mean one thing, or are refused."""

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


def test_an_offset_an_end_and_a_time_are_positions():
    assert to_position(7) == 7
    assert to_position("earliest") is Start.EARLIEST
    assert to_position("latest") is Start.LATEST
    assert to_position(NOON) == AtTime(1_769_860_800_000_000)


def test_a_time_means_the_same_in_every_zone():
    there = NOON.astimezone(timezone(timedelta(hours=-7)))
    assert to_position(there) == to_position(NOON)


NOWHERE = datetime(2026, 1, 31)  # noqa: DTZ001  # That is it.


@pytest.mark.parametrize("where", [-1, "now", "", None, 1.5, NOWHERE])
def test_what_is_no_position_is_refused(where):
    with pytest.raises(pydanube.InvalidRequest):
        to_position(where)


def test_seconds_and_datetimes_are_the_same_moment():
    assert to_microseconds(NOON) == to_microseconds(NOON.timestamp())
    assert to_datetime(to_microseconds(NOON)) == NOON


@pytest.mark.parametrize("time", [float("nan"), float("inf"), "noon"])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(pydanube.InvalidRequest):
        to_microseconds(time)


def test_words_may_be_joined_as_on_the_command_line():
    assert parse_choice("type", "key-shared", SubscriptionType) is (
        SubscriptionType.KEY_SHARED
    )
    with pytest.raises(pydanube.InvalidRequest, match="one of 'exclusive'"):
        parse_choice("type", "many", SubscriptionType)
