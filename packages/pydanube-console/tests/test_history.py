"""The history of samples is bounded."""

from dataclasses import replace

from pydanube.model.activity import Sample
from pydanube.model.descriptions import StorageDescription
from pydanube.model.subscription_lag import lags_of
from pydanube_console.pure.history import (
    POINTS_MAX,
    SUBSCRIPTIONS_MAX,
    History,
    LagPoint,
)
from support.fakes.descriptions import SUBSCRIPTION, TOPIC

STORAGE = StorageDescription(remote_url="", local_bytes=0)


def sample(at, *ends):
    topics = [
        replace(TOPIC, topic=f"/default/t{number}", topic_id=number, end_offset=end)
        for number, end in enumerate(ends)
    ]
    return Sample(
        taken_at=float(at), topics=topics, topic_count=len(topics), storage=STORAGE
    )


def test_rates_need_two_samples():
    history = History()
    history.add(sample(0, 10))
    assert not history.totals
    assert [each.published_per_s for each in history.found] == [0]
    history.add(sample(2, 30))
    [point] = history.totals
    assert (point.published_per_s, point.lag) == (10.0, 5)
    assert history.of_topic("/default/t0") == [point]


def test_history_keeps_the_last_points_of_topics_that_exist():
    history = History()
    for at in range(POINTS_MAX + 10):
        history.add(sample(2 * at, at, at))
    assert len(history.totals) == POINTS_MAX == len(history.of_topic("/default/t1"))
    assert history.interval_s == 2.0
    history.add(sample(1000, 5))
    assert history.of_topic("/default/t1") == []


def test_history_has_the_lag_of_each_subscription():
    history = History()
    late = replace(SUBSCRIPTION, backlog=7, oldest_publish_time=1_000_000)
    parts = [
        replace(TOPIC, topic="/default/t-part-0", subscriptions=(late,)),
        replace(TOPIC, topic="/default/t-part-1", subscriptions=(SUBSCRIPTION,)),
    ]
    for at in range(POINTS_MAX + 10):
        history.add(sample(2 * at, 10), lags_of(parts, 4_000_000))
    points = history.of_subscription("/default/t", "s")
    assert (len(points), points[-1]) == (POINTS_MAX, LagPoint(12, 3.0))
    history.add(sample(1000, 10))
    assert history.of_subscription("/default/t", "s") == []


def test_lag_is_remembered_of_the_subscriptions_that_are_furthest_behind():
    history = History()
    many = tuple(
        replace(SUBSCRIPTION, subscription=f"s{number}", backlog=number)
        for number in range(SUBSCRIPTIONS_MAX + 1)
    )
    lags = lags_of([replace(TOPIC, subscriptions=many)], 0)
    for at in range(2):
        history.add(sample(2 * at, 10), lags)
    assert history.of_subscription("/default/t", "s0") == []
    assert history.of_subscription("/default/t", "s1") == [LagPoint(1, 0.0)]
