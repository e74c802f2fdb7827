"""Which topics are sealed, and in which order."""

from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.segments.seal_planning import (
    CROWDED_AGE_S,
    ENTRIES_MAX,
    ENTRIES_PER_SEAL,
    SMALL_SEGMENT_BYTES,
    SMALL_SEGMENTS_MIN,
    SealCandidate,
    plan_seals,
    small_segments_problem,
)

CONFIG = StorageConfig(
    seal_bytes=100, seal_age_s=10, tail_bytes_max=1000, journal_bytes_max=5000
)


def candidate(
    topic_id,
    byte_count,
    time,
    pins_journal,
    seal_bytes=CONFIG.seal_bytes,
    seal_age_s=CONFIG.seal_age_s,
):
    return SealCandidate(
        topic_id, byte_count, byte_count, time, seal_bytes, seal_age_s, pins_journal
    )


def plan(*loads, now=0.0, tail_bytes=0, journal_bytes=0, **more):
    return plan_seals(
        [candidate(*load) for load in loads],
        now=now,
        tail_bytes=tail_bytes,
        tail_bytes_max=CONFIG.tail_bytes_max,
        journal_bytes=journal_bytes,
        config=CONFIG,
        **more,
    )


def test_nothing_is_sealed_that_is_small_and_young():
    assert plan((1, 99, 0.0, True)).topics == ()


def test_what_is_large_or_old_is_sealed_the_oldest_first():
    chosen = plan((1, 99, 5.0, False), (2, 100, 8.0, False), (3, 1, 0.0, False), now=10)
    assert chosen.topics == (3, 2)
    assert not chosen.is_urgent


def test_each_topic_is_sealed_at_its_own_size_and_age():
    chosen = plan(
        (1, 150, 0.0, False, 200, 60.0),
        (2, 20, 1.0, False, 20),
        (3, 9, 2.0, False),
        now=9,
    )
    assert chosen.topics == (2,)
    assert plan((1, 150, 0.0, False, 200, 60.0), now=60).topics == (1,)


def test_short_memory_seals_the_largest_topics_until_half_is_free():
    loads = [(1, 90, 0.0, False), (2, 400, 0.0, False), (3, 260, 0.0, False)]
    assert plan(*loads, tail_bytes=749).topics == (2, 3)
    assert not plan(*loads, tail_bytes=749).is_urgent
    chosen = plan(
        (1, 90, 0.0, False), (2, 90, 1.0, False), (3, 95, 2.0, False), tail_bytes=750
    )
    assert chosen.topics == (3, 1, 2)
    assert chosen.is_urgent
    assert plan((1, 60, 0.0, False), (2, 90, 0.0, False), tail_bytes=800).topics == (
        2,
        1,
    )


def test_long_journal_seals_topics_that_pin_its_oldest_file():
    chosen = plan((1, 9, 0.0, False), (2, 5, 0.0, True), journal_bytes=5001)
    assert chosen.topics == (2,)
    assert chosen.is_urgent
    assert plan((2, 5, 0.0, True), journal_bytes=5000).topics == ()


def test_many_groups_seal_topics_that_pin_the_oldest_after_a_minute():
    loads = [(topic_id, 1, 0.0, topic_id < 3, 100, 600.0) for topic_id in (1, 2, 3)]
    loads.append((4, 1, 1.0, True, 100, 600.0))
    assert plan(*loads, now=CROWDED_AGE_S).topics == ()
    chosen = plan(*loads, now=CROWDED_AGE_S, has_many_groups=True)
    assert chosen.topics == (1, 2)
    assert not chosen.is_urgent


def test_many_entries_seal_topics_that_pin_the_oldest_if_each_saves_enough():
    few = [(1, 1, 0.0, True), (2, 1, 0.0, False)]
    assert plan(*few, entry_count=ENTRIES_MAX).topics == ()
    chosen = plan(*few, entry_count=ENTRIES_MAX + 1)
    assert chosen.topics == (1,)
    assert not chosen.is_urgent
    many = [(number, 1, 0.0, True) for number in range(200)]
    saved = 200 * ENTRIES_PER_SEAL
    assert plan(*many, entry_count=saved).topics == ()
    assert len(plan(*many, entry_count=saved + 1).topics) == 200


def test_many_small_segments_are_a_problem():
    count = SMALL_SEGMENTS_MIN + 1
    counts = [(number, f"/default/t{number}") for number in range(100)]
    said = small_segments_problem(count, count * 1000, lambda: counts)
    assert said is not None
    assert said.startswith(f"{count} segments have 1000 bytes on average")
    assert "of /default/t99 (99), /default/t98 (98), /default/t97 (97): " in said
    for few in ((SMALL_SEGMENTS_MIN, 1), (count, count * SMALL_SEGMENT_BYTES)):
        assert small_segments_problem(*few, lambda: counts) is None
