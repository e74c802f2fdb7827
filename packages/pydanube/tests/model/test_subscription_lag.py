"""Lag is added up over partitions, sorted, and compared with limits."""

from dataclasses import replace

import pytest

from pydanube.model.subscription_lag import lags_of
from support.fakes.descriptions import SUBSCRIPTION, TOPIC

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def topic(name, *subscriptions):
    return replace(TOPIC, topic=name, subscriptions=subscriptions)


def behind(name, lag, **facts):
    return replace(SUBSCRIPTION, subscription=name, backlog=lag, **facts)


def test_the_subscription_furthest_behind_is_first():
    found = lags_of(
        [
            topic("/default/a", behind("one", 3), behind("two", 70)),
            topic("/default/b", behind("one", 3), behind("three", 0)),
        ],
        NOW_US,
    )
    assert [(each.topic, each.subscription, each.lag) for each in found] == [
        ("/default/a", "two", 70),
        ("/default/a", "one", 3),
        ("/default/b", "one", 3),
        ("/default/b", "three", 0),
    ]


def test_partitions_are_added_up():
    old, new = NOW_US - 90 * SECOND_US, NOW_US - SECOND_US
    parts = [
        topic(
            "/default/p-part-0",
            behind("s", 5, backlog_bytes=50, oldest_publish_time=new, in_flight=1),
        ),
        topic(
            "/default/p-part-1",
            behind(
                "s",
                7,
                backlog_bytes=70,
                oldest_publish_time=old,
                in_flight=2,
                consumers=("c",),
                blocked=((17, 18),),
            ),
        ),
        topic("/default/p-part-2", behind("s", 0, consumers=("c", "d"))),
    ]
    [found] = lags_of(parts, NOW_US)
    assert (found.topic, found.lag, found.byte_count) == ("/default/p", 12, 120)
    assert (found.age_s, found.in_flight, found.consumers) == (90.0, 3, 2)
    assert found.blocked_by == ("message 17 of /default/p-part-1",)
    each = lags_of(parts, NOW_US, by_partition=True)
    assert [lag.lag for lag in each] == [7, 5, 0]
    assert each[0].blocked_by == ("message 17",)
    assert each[2].age_s is None


def test_everything_that_prevents_deliveries_is_named():
    stuck = behind(
        "s",
        1,
        is_paused=True,
        stopped_by="a segment",
        blocked=((3, 4), (8, 9)),
        parked=2,
        dead_letter_error="no such namespace",
    )
    [found] = lags_of([topic("/default/a", stuck)], NOW_US)
    assert found.blocked_by == (
        "paused",
        "corrupt segment",
        "message 3",
        "dead letters",
    )


@pytest.mark.parametrize(
    ("lag_max", "age_max_s", "exceeds"),
    [
        (None, None, False),
        (10, None, False),
        (9, None, True),
        (None, 60.0, False),
        (None, 59.0, True),
        (10, 59.0, True),
    ],
)
def test_limits_are_exceeded_by_more(lag_max, age_max_s, exceeds):
    oldest = NOW_US - 60 * SECOND_US
    late = topic("/default/a", behind("s", 10, oldest_publish_time=oldest))
    [found] = lags_of([late], NOW_US)
    assert found.exceeds(lag_max, age_max_s) is exceeds
