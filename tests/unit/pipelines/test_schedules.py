"""Tests of cron expressions in time zones."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("cronsim")

from pydanube.model.errors import InvalidConfig
from pydanube.pipelines.schedules import SKIPPED_MAX, parse_schedule


def at(*numbers):
    return datetime(*numbers, tzinfo=UTC)


def test_times_are_those_of_the_time_zone():
    berlin = parse_schedule("0 3 * * *", "Europe/Berlin")
    assert berlin.next_after(at(2026, 1, 10, 2)) == at(2026, 1, 11, 2)
    assert berlin.next_after(at(2026, 7, 10, 0)) == at(2026, 7, 10, 1)
    assert parse_schedule("0 3 * * *", "UTC").next_after(at(2026, 7, 10)) == at(
        2026, 7, 10, 3
    )


def test_a_time_that_daylight_saving_skips_or_repeats_is_used_once():
    berlin = parse_schedule("30 2 * * *", "Europe/Berlin")
    assert berlin.next_after(at(2026, 3, 28, 12)) == at(2026, 3, 29, 1)
    assert berlin.next_after(at(2026, 3, 29, 1)) == at(2026, 3, 30, 0, 30)
    assert berlin.count_between(at(2026, 10, 24, 12), at(2026, 10, 25, 12)) == 1


def test_missed_times_are_counted_up_to_a_limit():
    hourly = parse_schedule("0 * * * *", "UTC")
    assert hourly.count_between(at(2026, 1, 1, 0, 30), at(2026, 1, 1, 3)) == 3
    assert hourly.count_between(at(2026, 1, 1), at(2026, 1, 1, 0, 59)) == 0
    assert hourly.count_between(at(2026, 1, 1), at(2046, 1, 1)) == SKIPPED_MAX


@pytest.mark.parametrize(
    ("cron", "timezone", "message"),
    [
        ("61 * * * *", "UTC", "'61 [*] [*] [*] [*]' is not a cron .*: bad minute"),
        ("daily", "UTC", "is not a cron expression such as '0 3"),
        ("0 0 30 2 *", "UTC", "is not a cron expression"),
        ("0 3 * * *", "Mars/Base", "'Mars/Base' is not a time zone"),
        ("0 3 * * *", "/etc/passwd", "is not a time zone"),
    ],
)
def test_other_texts_are_refused(cron, timezone, message):
    with pytest.raises(InvalidConfig, match=message):
        parse_schedule(cron, timezone)
