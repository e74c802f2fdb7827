"""
Publishing at a fixed rate in an open loop.

The due time of each message is fixed in advance.  A delay by the client, the server or
the machine counts for the message and for all that wait behind it.  A kernel timer, if
available, waits for the next message, because timers of event loops are accurate to a
millisecond only.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 200e-6
"""Messages that are due within one tick may leave together."""

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = os.O_CLOEXEC


class Ticks:
    """A periodic timer."""

    def __init__(self, descriptor: int | None, interval_s: float) -> None:
        self._descriptor = descriptor
        self._interval_s = interval_s
        self._came = asyncio.Event()

    async def next(self) -> None:
        """Wait for the next tick; missed ticks count as one."""
        if self._descriptor is None:
            await asyncio.sleep(self._interval_s)
            return
        await self._came.wait()
        self._came.clear()

    def on_tick(self) -> None:
        """Handle an expiry of the timer."""
        assert self._descriptor is not None
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return
        self._came.set()


@contextmanager
def ticking(start_ns: int, rate: float) -> Iterator[Ticks]:
    """
    Yield ticks for *rate* messages per second: at each due time, or every 200 µs.

    The first tick is at *start_ns* of the monotonic clock.
    """
    interval_s = max(1 / rate, TICK_S)
    descriptor = _timer(start_ns, interval_s)
    ticks = Ticks(descriptor, interval_s)
    if descriptor is None:
        yield ticks
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ticks.on_tick)
    try:
        yield ticks
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def due_count(now_ns: int, start_ns: int, rate: float) -> int:
    """Return the number of messages due by now; the first one is due at the start."""
    if now_ns < start_ns:
        return 0
    return int((now_ns - start_ns) * rate / 1e9) + 1


def _timer(start_ns: int, interval_s: float) -> int | None:
    """Return the descriptor of a kernel timer; None if the system has none."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
    # The interval, then the first expiry; each is seconds and nanoseconds.
    setting = struct.pack(
        "qqqq", *divmod(round(interval_s * 1e9), 10**9), *divmod(start_ns, 10**9)
    )
    if descriptor < 0 or libc.timerfd_settime(descriptor, _ABSOLUTE, setting, None) < 0:
        raise OSError(ctypes.get_errno(), "the kernel gives no timer")
    return descriptor


def sleep_until(start_ns: int) -> float:
    """Return the seconds until a time of the monotonic clock; not negative."""
    return max(0.0, (start_ns - time.monotonic_ns()) / 1e9)
