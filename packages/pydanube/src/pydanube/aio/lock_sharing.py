"""
A share of the interpreter lock for threads that a busy event loop waits for.

A thread that waits for the lock demands it only after a switch interval (5 ms) in which
nobody released it.  A busy event loop releases it at each system call, more often than
that, and takes it back before the thread wakes up.  A commit of the journal needs the
lock four times, and took up to half a second beside one connection that kept the loop
busy.  A shorter switch interval would make ordinary traffic slower.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

CHECK_INTERVAL_S = 0.001
IDLE_CHECK_INTERVAL_S = 0.005
"""The interval of checks while the loop waits most of the time, without the lock."""
BUSY_SHARE = 0.1
"""A loop that works for more of the time than this may keep threads waiting."""
SLEEP_S = 0.00001
"""It becomes about 60 µs, which is enough for a thread to wake up."""


class LockSharing:
    """
    Lets threads work for an event loop that is busy.

    While jobs are in threads and none ends for ``CHECK_INTERVAL_S``, a busy loop sleeps
    once in each interval, so that a thread gets the lock.  A loop that is not busy
    would only be woken up for that, while a thread waits for a slow disk.

    Threads: ``on_job_ended`` may be called by the thread, if there is only one.
    """

    __slots__ = (
        "_ended",
        "_ended_at_check",
        "_interval_s",
        "_is_checking",
        "_loop",
        "_sleep",
        "_started",
        "_work_s",
        "_worked_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        sleep: Callable[[float], None] = time.sleep,
        work_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """*work_s* returns how long the loop's thread has worked so far."""
        self._loop = loop or asyncio.get_running_loop()
        self._sleep = sleep
        self._work_s = work_s
        self._started = self._ended = self._ended_at_check = 0
        self._worked_s = 0.0
        self._interval_s = CHECK_INTERVAL_S
        self._is_checking = False

    def on_job_started(self) -> None:
        """Count a job that is given to a thread."""
        self._started += 1
        if not self._is_checking:
            self._is_checking = True
            self._begin_interval()

    def on_job_ended(self) -> None:
        """Count a job that a thread has done."""
        self._ended += 1

    def _begin_interval(self) -> None:
        self._ended_at_check = self._ended
        self._worked_s = self._work_s()
        self._loop.call_later(self._interval_s, self._check)

    def _check(self) -> None:
        worked_s = self._work_s() - self._worked_s
        is_busy = worked_s > BUSY_SHARE * self._interval_s
        self._interval_s = CHECK_INTERVAL_S if is_busy else IDLE_CHECK_INTERVAL_S
        if self._ended == self._started:
            self._is_checking = False
            return
        if is_busy and self._ended == self._ended_at_check:
            self._sleep(SLEEP_S)
        self._begin_interval()
