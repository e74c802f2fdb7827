"""Fetch sessions answer with news only, and give each partition its turn."""

from __future__ import annotations

from pydanube_kafka.pure.fetch_sessions import (
    PARTITIONS_MAX,
    FetchSession,
    Told,
    Wanted,
)

A, B = ("t", 0), ("t", 1)
WANTED = Wanted(0, 1000)
TOLD = Told(0, 5)


def test_a_partition_is_told_again_only_with_news():
    session = FetchSession(7, {A: WANTED})
    assert session.is_news(A, TOLD, has_more=False)
    assert not session.is_news(A, TOLD, has_more=False)
    assert session.is_news(A, TOLD, has_more=True)
    assert session.is_news(A, Told(0, 6), has_more=False)
    # What its consumer names is answered.
    session.update([(A, Wanted(3, 1000))], [])
    assert session.is_news(A, Told(0, 6), has_more=False)
    assert session.wanted[A].offset == 3


def test_partitions_with_records_go_to_the_end():
    session = FetchSession(7, {A: WANTED, B: WANTED})
    session.is_news(A, TOLD, has_more=True)
    assert list(session.wanted) == [B, A]


def test_partitions_are_forgotten_and_bounded():
    session = FetchSession(7, {A: WANTED})
    assert session.update([(B, WANTED)], [A])
    assert list(session.wanted) == [B]
    assert session.epoch == 2
    many = [(("u", number), WANTED) for number in range(PARTITIONS_MAX)]
    assert not session.update(many, [])


def test_epochs_begin_again_at_1():
    session = FetchSession(7, {}, epoch=2**31 - 1)
    session.update([], [])
    assert session.epoch == 1
