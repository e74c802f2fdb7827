"""The failures that a subscription remembers."""

from __future__ import annotations

from random import Random

import pytest

from pydanube.model import failures as module
from pydanube.model.failures import FAILED_RANGES_MAX, FailedRange, Failures


def note(failures: Failures, base: int, end: int, count: int, reason: str = "r"):
    failures.note(base, end, attempt=count + 1, failures=count, reason=reason)


def test_later_failures_replace_earlier_ones_of_the_same_messages():
    failures = Failures()
    note(failures, 0, 10, 1)
    note(failures, 3, 5, 2)
    assert list(failures) == [
        FailedRange(0, 3, 2, 1, "r"),
        FailedRange(3, 5, 3, 2, "r"),
        FailedRange(5, 10, 2, 1, "r"),
    ]
    assert failures.end == 10


def test_neighbours_that_failed_alike_are_one_range():
    failures = Failures()
    for base in range(100):
        note(failures, base, base + 1, 1)
    assert list(failures) == [FailedRange(0, 100, 2, 1, "r")]


def test_parts_are_cut_at_the_bounds():
    failures = Failures()
    note(failures, 2, 4, 1)
    note(failures, 6, 9, 2)
    assert failures.within(3, 7) == [
        FailedRange(3, 4, 2, 1, "r"),
        FailedRange(6, 7, 3, 2, "r"),
    ]
    assert failures.within(4, 6) == []


def test_messages_that_failed_most_often_are_kept_if_there_are_too_many():
    failures = Failures()
    for base in range(FAILED_RANGES_MAX):
        note(failures, 2 * base, 2 * base + 1, 1 if base % 2 else 2)
    note(failures, 10_000, 10_001, 1)
    assert failures.within(10_000, 10_001) == []
    note(failures, 10_000, 10_001, 7)
    assert len(failures) == FAILED_RANGES_MAX
    assert failures.within(10_000, 10_001)[0].failures == 7
    assert len([each for each in failures if each.failures == 2]) == 1000


def test_reasons_are_cut():
    failures = Failures()
    note(failures, 0, 1, 1, "r" * 1000)
    assert [len(each.reason) for each in failures] == [module.REASON_CHARS_MAX]


@pytest.mark.parametrize("seed", range(20))
def test_ranges_say_the_same_as_a_number_for_each_message(seed):
    random, failures = Random(seed), Failures()
    expected: dict[int, int] = {}
    for _ in range(300):
        base = random.randrange(50)
        end = base + random.randrange(1, 10)
        if random.random() < 0.3:
            failures.forget(base, end)
            for offset in range(base, end):
                expected.pop(offset, None)
        else:
            count = random.randrange(1, 4)
            note(failures, base, end, count)
            expected.update(dict.fromkeys(range(base, end), count))
        found = {
            offset: each.failures
            for each in failures
            for offset in range(each.base, each.end)
        }
        assert found == expected
        assert list(failures) == sorted(failures)
