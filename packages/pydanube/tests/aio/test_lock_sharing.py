"""The sharing of the interpreter lock between an event loop and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pydanube.aio.lock_sharing import SLEEP_S, LockSharing


class Timers:
    """The timers of a loop, fired by the test, and the sleeps of the loop."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.sleeps: list[float] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Add a timer."""
        self.due.append(callback)

    def fire(self) -> None:
        """Call the only timer."""
        (callback,) = self.due
        self.due.clear()
        callback()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def sharing(timers: Timers) -> LockSharing:
    return LockSharing(cast(Any, timers), timers.sleeps.append)


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
