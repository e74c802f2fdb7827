"""Rates come from two samples."""

from dataclasses import replace

import pytest

from pydanube.model.activity import Sample, activities
from pydanube.model.descriptions import StorageDescription, SubscriptionCounts
from support.fakes.descriptions import SUBSCRIPTION, TOPIC

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
