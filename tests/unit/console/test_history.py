"""The history of samples is bounded."""

from dataclasses import replace

from pydanube.console.history import POINTS_MAX, History
from pydanube.model.activity import Sample
from pydanube.model.descriptions import StorageDescription
from support.descriptions import TOPIC

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
    assert history.activity_of("/default/t0").published_per_s == 0
    history.add(sample(2, 30))
    [point] = history.totals
    assert (point.published_per_s, point.lag) == (10.0, 5)
    assert history.of_topic("/default/t0") == [point]
    assert history.activity_of("/default/t9") is None


def test_history_keeps_the_last_points_of_topics_that_exist():
    history = History()
    for at in range(POINTS_MAX + 10):
        history.add(sample(2 * at, at, at))
    assert len(history.totals) == POINTS_MAX == len(history.of_topic("/default/t1"))
    assert history.interval_s == 2.0
    history.add(sample(1000, 5))
    assert history.of_topic("/default/t1") == []
