"""Rates come from two samples, and the screen shows as much as fits."""

from dataclasses import replace

import pytest

from pydanube.cli.activity import Activity, Sample, activities, screen
from pydanube.model.descriptions import StorageDescription, SubscriptionCounts
from support.descriptions import SUBSCRIPTION, TOPIC

STORAGE = StorageDescription(remote_url="", local_bytes=0, journal_bytes=2048)


def topic(name, number, end, delivered=0, **facts):
    counts = SubscriptionCounts(delivered=delivered)
    subscription = replace(SUBSCRIPTION, counts=counts, **facts)
    return replace(
        TOPIC,
        topic=name,
        topic_id=number,
        end_offset=end,
        subscriptions=(subscription,),
        producers=("p",),
    )


def sample(at, *topics, storage=STORAGE, count=None):
    return Sample(
        taken_at=at, topics=topics, topic_count=count or len(topics), storage=storage
    )


def busy(name, rate, lag=0, size=0):
    return Activity(
        topic=name,
        published_per_s=rate,
        delivered_per_s=0.0,
        lag=lag,
        producers=1,
        consumers=0,
        byte_count=size,
    )


def test_rates_are_the_differences_of_two_samples():
    before = sample(10.0, topic("/default/a", 1, 100, delivered=50))
    after = sample(12.0, topic("/default/a", 1, 140, delivered=56, backlog=9))
    [found] = activities(before, after, "rate")
    assert (found.published_per_s, found.delivered_per_s) == (20.0, 3.0)
    assert (found.lag, found.producers, found.byte_count) == (9, 1, 100)


def test_new_topic_and_restarted_broker_have_no_negative_or_huge_rates():
    before = sample(0.0, topic("/default/a", 1, 100, delivered=50))
    after = sample(
        1.0,
        topic("/default/a", 1, 100, delivered=2),
        # It was deleted and created again.
        topic("/default/b", 7, 1000, delivered=900),
    )
    found = activities(before, after, "name")
    assert [(each.published_per_s, each.delivered_per_s) for each in found] == [
        (0.0, 0.0),
        (0.0, 0.0),
    ]


def test_partitions_are_one_topic():
    names = ("/default/p-part-0", "/default/p-part-1")
    before = sample(0.0, *(topic(name, at, 0) for at, name in enumerate(names)))
    after = sample(
        1.0, *(topic(name, at, 5, consumers=("c",)) for at, name in enumerate(names))
    )
    [found] = activities(before, after, "rate")
    assert (found.topic, found.published_per_s, found.lag) == ("/default/p", 10.0, 10)
    assert (found.producers, found.consumers) == (1, 1)


@pytest.mark.parametrize(
    ("order", "names"),
    [("rate", "cab"), ("lag", "bac"), ("size", "abc"), ("name", "abc")],
)
def test_topics_are_sorted(order, names):
    sizes = {"a": (5, 2, 9), "b": (5, 3, 8), "c": (6, 1, 7)}
    before = sample(0.0, *(topic(f"/x/{n}", ord(n), 0) for n in sizes))
    after = sample(
        1.0,
        *(
            replace(topic(f"/x/{n}", ord(n), rate, backlog=lag), tail_bytes=size)
            for n, (rate, lag, size) in sizes.items()
        ),
    )
    found = activities(before, after, order)
    assert [each.topic[-1] for each in found] == list(names)


def test_screen_fits_and_says_what_it_leaves_out():
    found = [busy(f"/production/topic-{n}", 1000.0, lag=7) for n in range(50)]
    problem = replace(STORAGE, problems=("sealing /default/a fails\x1b[2J",))
    taken = sample(0.0, storage=problem)
    lines = screen(taken, found, title="10:00:00", width=80, height=24)
    assert len(lines) == 24
    assert all(len(line) <= 80 for line in lines)
    assert lines[1] == "in 50,000/s  out 0/s  producers 50  consumers 0  topics 50"
    assert "journal 2.0 KiB" in lines[2]
    assert lines[3] == r"problem: sealing /default/a fails\x1b[2J"
    assert lines[-1] == "34 more topics"
    whole = screen(taken, found, title="", width=None, height=None)
    assert sum("/production/topic-" in line for line in whole) == 50


def test_topics_that_were_not_examined_are_counted():
    lines = screen(
        sample(0.0, count=1200),
        [busy("/default/a", 1.0)],
        title="",
        width=80,
        height=24,
    )
    assert lines[-1] == "1200 topics are not examined; name a pattern"
