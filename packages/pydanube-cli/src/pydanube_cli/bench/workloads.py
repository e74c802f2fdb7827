"""
The work that is timed: publishing and consuming, with any client of any system.

It needs only the standard library, for the workers of other systems.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized

    from pydanube_cli.bench.figures import Figures

T = TypeVar("T", bound="Sized")

WINDOW_BATCHES = 16
"""The number of batches that pydanube has in flight."""
CHUNK_MESSAGES = 1000
"""The number of messages that are sent before the event loop does something else."""
RECEIVED_MAX = 10_000
"""The maximum number of messages that pydanube receives at once."""
RECEIVE_WAIT_S = 0.25
STALL_S = 60.0
"""A subscription that receives nothing for this time has lost the missing messages."""


class Clock:
    """The time and the processor time since the start of a measurement."""

    def __init__(self, began_ns: int | None = None) -> None:
        """*began_ns* is a time of the monotonic clock, which all processes share."""
        self._began_ns = began_ns or time.monotonic_ns()
        self._cpu_s = time.process_time()

    def end(self, ended_ns: int | None = None) -> Figures:
        """Return the times of a measurement that ended now or at *ended_ns*."""
        return {
            "began_ns": self._began_ns,
            "ended_ns": ended_ns or time.monotonic_ns(),
            "cpu_s": time.process_time() - self._cpu_s,
        }


async def publish(
    send: Callable[[int, int], Awaitable[object]],
    flush: Callable[[], Awaitable[object]],
    *,
    messages: int,
    chunk: int,
    end_ns: int = 0,
) -> int:
    """
    Publish as fast as possible, *chunk* messages at a time; return their number.

    ``send(first, count)`` returns when more may be sent, ``flush()`` when everything is
    acknowledged.  Publishing ends with *messages*, or at *end_ns* if that is not 0.
    """
    sent = 0
    while sent < messages and not (end_ns and time.monotonic_ns() > end_ns):
        count = min(chunk, messages - sent)
        await send(sent, count)
        sent += count
    await flush()
    return sent


async def publish_each(
    send: Callable[[bytes], Awaitable[object]],
    payloads: Iterable[bytes],
    *,
    in_flight: int = 1,
) -> list[int]:
    """
    Publish each message with a call of its own, with *in_flight* calls at a time.

    Return the nanoseconds from each call to its acknowledgement.
    """
    times: list[int] = []
    left = iter(payloads)

    async def call() -> None:
        for payload in left:
            before = time.perf_counter_ns()
            await send(payload)
            times.append(time.perf_counter_ns() - before)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(call())
    return times


class Sender:
    """
    Publishes with pydanube: batches, or single messages that the client batches.

    ``WINDOW_BATCHES`` batches are in flight, to all producers together.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.batches_in_flight = 0
        self._tasks = tasks
        self._free = asyncio.Semaphore(WINDOW_BATCHES)
        self._sent_without_yield = 0

    async def send(self, producer: Any, batch: Any) -> None:
        """Send *batch*; return when another may be sent."""
        await self._free.acquire()
        self.batches_in_flight += 1
        self._tasks.create_task(self._send(producer, batch))

    async def _send(self, producer: Any, batch: Any) -> None:
        await producer.send_batch(batch)
        self.batches_in_flight -= 1
        self._free.release()

    async def send_each(self, producer: Any, payloads: Sequence[bytes]) -> None:
        """Send messages with ``send_nowait``; return when more may be sent."""
        await producer.wait_for_capacity()
        for payload in payloads:
            producer.send_nowait(payload)
        self._sent_without_yield += len(payloads)
        if self._sent_without_yield >= CHUNK_MESSAGES:
            # Let the event loop read receipts.
            self._sent_without_yield = 0
            await asyncio.sleep(0)

    async def flush(self, *producers: Any) -> None:
        """Wait until everything that was sent is acknowledged."""
        for producer in producers:
            await producer.flush()
        for _ in range(WINDOW_BATCHES):
            await self._free.acquire()
        for _ in range(WINDOW_BATCHES):
            self._free.release()


class Arrivals:
    """The messages that all consumers of one subscription receive."""

    def __init__(self, wanted: int | None, stall_s: float = STALL_S) -> None:
        self.wanted = wanted
        """The number of published messages; None if it is not known yet."""
        self.count = 0
        self.first_ns = 0
        self.last_ns = 0
        self._stall_s = stall_s

    async def receive(
        self,
        receive: Callable[[float], Awaitable[T]],
        keep: Callable[[T, int], object],
        ack: Callable[[T], Awaitable[object]],
    ) -> None:
        """
        Receive and acknowledge with one consumer until all messages came, or stalled.

        ``receive(timeout_s)`` returns at least one message, or none after the timeout;
        ``keep(messages, now_ns)`` and ``ack(messages)`` are given what it returned.
        """
        self.last_ns = self.last_ns or time.monotonic_ns()
        while self.wanted is None or self.count < self.wanted:
            messages = await receive(RECEIVE_WAIT_S)
            now_ns = time.monotonic_ns()
            if not messages:
                if now_ns - self.last_ns > self._stall_s * 1e9:
                    return
                continue
            self.first_ns = self.first_ns or now_ns
            self.last_ns = now_ns
            self.count += len(messages)
            keep(messages, now_ns)
            await ack(messages)
