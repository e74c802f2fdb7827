"""The screen of activities shows as much as fits."""

from dataclasses import replace

from pydanube.model.activity import Activity, Sample
from pydanube.model.descriptions import StorageDescription
from pydanube_cli.presentation.activity import screen

STORAGE = StorageDescription(remote_url="", local_bytes=0, journal_bytes=2048)


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
