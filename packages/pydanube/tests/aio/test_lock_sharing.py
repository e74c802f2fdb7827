"""The sharing of the interpreter lock between an event loop and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pydanube.aio.lock_sharing import (
    CHECK_INTERVAL_S,
    IDLE_CHECK_INTERVAL_S,
    SLEEP_S,
    LockSharing,
)


class Timers:
    """The timers of a loop, fired by the test, its sleeps, and how long it worked."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.intervals: list[float] = []
        self.sleeps: list[float] = []
        self.worked_s = 0.0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Add a timer."""
        self.intervals.append(delay_s)
        self.due.append(callback)

    def fire(self, busy: float = 1.0) -> None:
        """Call the only timer, after the loop was *busy* for this share of the time."""
        (callback,) = self.due
        self.due.clear()
        self.worked_s += busy * self.intervals[-1]
        callback()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def sharing(timers: Timers) -> LockSharing:
    return LockSharing(cast(Any, timers), timers.sleeps.append, lambda: timers.worked_s)


def test_loop_sleeps_once_in_each_interval_without_an_ended_job(
    timers: Timers, sharing: LockSharing
) -> None:
    sharing.on_job_started()
    timers.fire()
    timers.fire()
    assert timers.sleeps == [SLEEP_S, SLEEP_S]


def test_loop_does_not_sleep_while_jobs_end(
    timers: Timers, sharing: LockSharing
) -> None:
    sharing.on_job_started()
    for _ in range(10):
        sharing.on_job_started()
        sharing.on_job_ended()
        timers.fire()
    assert not timers.sleeps


def test_checks_end_with_the_last_job_and_begin_again_with_the_next(
    timers: Timers, sharing: LockSharing
) -> None:
    sharing.on_job_started()
    sharing.on_job_ended()
    timers.fire()
    assert not timers.due
    sharing.on_job_started()
    assert len(timers.due) == 1
    assert not timers.sleeps


def test_loop_that_waits_most_of_the_time_is_seldom_woken_up(
    timers: Timers, sharing: LockSharing
) -> None:
    sharing.on_job_started()
    timers.fire(busy=0.05)
    timers.fire(busy=0.05)
    assert not timers.sleeps
    assert timers.intervals == [
        CHECK_INTERVAL_S,
        IDLE_CHECK_INTERVAL_S,
        IDLE_CHECK_INTERVAL_S,
    ]
    sharing.on_job_ended()
    timers.fire(busy=0.05)
    sharing.on_job_started()
    assert timers.intervals[-1] == IDLE_CHECK_INTERVAL_S


def test_loop_that_becomes_busy_sleeps_again(
    timers: Timers, sharing: LockSharing
) -> None:
    sharing.on_job_started()
    timers.fire(busy=0.05)
    timers.fire(busy=0.5)
    assert timers.sleeps == [SLEEP_S]
    assert timers.intervals[-1] == CHECK_INTERVAL_S
