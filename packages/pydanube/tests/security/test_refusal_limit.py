"""Some of many refusals are recorded, and the others counted."""

from __future__ import annotations

from pydanube.security.refusal_limit import OTHERS, RefusalLimit


def test_first_refusals_of_a_source_are_recorded():
    limit = RefusalLimit()
    admitted = [limit.admits("a", 0.0) for _ in range(25)]
    assert admitted == [True] * 20 + [False] * 5
    assert limit.take_suppressed() == {"a": 5}
    assert limit.take_suppressed() == {}


def test_source_is_recorded_again_when_time_has_passed():
    limit = RefusalLimit()
    for _ in range(30):
        limit.admits("a", 0.0)
    assert not limit.admits("a", 0.5)
    assert [limit.admits("a", 2.0) for _ in range(3)] == [True, True, False]


def test_busy_source_does_not_hide_another():
    limit = RefusalLimit()
    for _ in range(10_000):
        limit.admits("a", 0.0)
    assert limit.admits("b", 0.0)


def test_all_sources_together_are_limited():
    limit = RefusalLimit(total_max=10)
    assert sum(limit.admits(number, 0.0) for number in range(50)) == 10
    assert sum(limit.take_suppressed().values()) == 40


def test_sources_are_bounded():
    limit = RefusalLimit(total_max=0, sources_max=3)
    for number in range(5):
        limit.admits(number, 0.0)
    assert limit.take_suppressed() == {0: 1, 1: 1, 2: 1, OTHERS: 2}
