"""The jobs of a worker: publishing and consuming, with their measurements."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.checking import OrderCheck, UnionCheck
from bench.figures import latency_figures
from bench.pacing import due_count, sleep_until, ticking
from bench.payloads import Rings, headers_of, make_ring, pieces

if TYPE_CHECKING:
    from bench.systems.system import Consumer, Driver
    from bench.worker import Parent

STALL_S = 20.0
"""A consumer that receives nothing for this time has lost the missing messages."""
SURPLUS_WAIT_S = 0.2
"""How long to wait for surplus messages after the last one."""
PROGRESS_S = 1.0
WARM_UP_S = 1.0
"""Latencies of messages that were due in the first second do not count."""

RINGS = Rings()

Job = dict[str, Any]
Figures = dict[str, Any]


async def create(driver: Driver, job: Job, _: Parent) -> Figures:
    """Create topics and their subscriptions."""
    await driver.create(job["topics"], job["subscriptions"], sharing=job["sharing"])
    return {}


async def delete(driver: Driver, job: Job, _: Parent) -> Figures:
    """Delete topics."""
    await driver.delete(job["topics"])
    return {}


async def settle(driver: Driver, job: Job, _: Parent) -> Figures:
    """Wait until published messages are in their final storage."""
    for topic in job["topics"]:
        await driver.settle(topic)
    return {}


async def publish(driver: Driver, job: Job, parent: Parent) -> Figures:
    """Publish as fast as possible, every producer to every topic in turn."""
    topics, producers = job["topics"], job["producers"]
    streams = len(topics) * producers
    per_stream = job["messages"] // streams
    if streams == 1:
        rings = [RINGS.ring(job["ring"], job["message_bytes"])]
    else:
        rings = [
            make_ring(job["ring"], job["message_bytes"], stream=stream)
            for stream in range(streams)
        ]
    sent = 0
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(driver.publisher(topics))
            for _ in range(producers)
        ]

        async def produce(number: int) -> int:
            publisher = publishers[number]
            own = rings[number * len(topics) : (number + 1) * len(topics)]
            at = 0
            while at < per_stream and not (end_ns and time.monotonic_ns() > end_ns):
                count = min(job["burst"] or publisher.chunk, per_stream - at)
                for topic, ring in zip(topics, own, strict=True):
                    await publisher.send(topic, pieces(ring, at, count))
                at += count
            await publisher.flush()
            return at * len(topics)

        clock = Clock(await parent.start())
        seconds = job.get("seconds")
        end_ns = clock.began_ns + int(seconds * 1e9) if seconds else 0
        await clock.begin()
        if producers == 1:
            sent = await produce(0)
        else:
            async with asyncio.TaskGroup() as tasks:
                done = [tasks.create_task(produce(n)) for n in range(producers)]
            sent = sum(task.result() for task in done)
        figures = clock.end()
    return figures | {"messages": sent}


async def publish_each(driver: Driver, job: Job, parent: Parent) -> Figures:
    """Publish one message at a time and measure the time to its acknowledgement."""
    [topic] = job["topics"]
    ring = RINGS.ring(job["ring"], job["message_bytes"])
    times = np.zeros(job["messages"], np.int64)
    async with driver.publisher([topic]) as publisher:
        clock = Clock(await parent.start())
        await clock.begin()
        for number in range(len(times)):
            payload = ring[number % len(ring)]
            before = time.perf_counter_ns()
            await publisher.send_one(topic, payload)
            times[number] = time.perf_counter_ns() - before
        figures = clock.end()
    return figures | {"messages": len(times), "latency_us": latency_figures(times)}


async def publish_paced(driver: Driver, job: Job, parent: Parent) -> Figures:
    """Publish at a fixed rate, each message at its due time."""
    [topic] = job["topics"]
    messages, rate = job["messages"], job["rate"]
    ring = RINGS.ring(messages, job["message_bytes"], rate=rate)
    lags = []
    async with driver.publisher([topic]) as publisher:
        clock = Clock(await parent.start())
        with ticking(clock.began_ns, rate) as ticks:
            await clock.begin()
            sent = 0
            while sent < messages:
                now = time.monotonic_ns()
                due = min(messages, due_count(now, clock.began_ns, rate))
                if due > sent:
                    lags.append(now - clock.began_ns - int(sent / rate * 1e9))
                    await publisher.send(topic, ring[sent:due])
                    await publisher.push()
                    sent = due
                else:
                    await ticks.next()
            await publisher.flush()
            figures = clock.end()
    return figures | {"messages": sent, "lag_us": latency_figures(lags)}


async def consume(driver: Driver, job: Job, parent: Parent) -> Figures:
    """Receive, acknowledge and check the messages of all subscriptions."""
    runs = [Subscription(name, job) for name in job["subscriptions"]]
    async with AsyncExitStack() as stack:
        consumers = [
            (
                run,
                await stack.enter_async_context(
                    driver.consumer(
                        job["topics"],
                        run.name,
                        number=number,
                        sharing=job["sharing"],
                    )
                ),
            )
            for run in runs
            for number in range(job["sharing"])
        ]
        clock = Clock(await parent.start())
        await clock.begin()
        if len(consumers) == 1 and not job.get("until_told"):
            await consumers[0][0].work(consumers[0][1], clock.began_ns)
        else:
            async with asyncio.TaskGroup() as tasks:
                working = [
                    tasks.create_task(run.work(consumer, clock.began_ns))
                    for run, consumer in consumers
                ]
                if job.get("until_told"):
                    told = await _report_progress(parent, runs)
                    for run in runs:
                        run.end_at(told)
                    await asyncio.wait(working)
        figures = clock.end(max(run.ended_ns for run in runs))
        for run, consumer in consumers:
            await run.look_for_surplus(consumer)
    latencies = [run.latencies() for run in runs]
    return figures | {
        "messages": sum(run.check.received for run in runs),
        "first_ns": min(run.first_ns for run in runs),
        "problems": [problem for run in runs for problem in run.find_problems()],
        "latency_us": latency_figures(np.concatenate(latencies)),
    }


class Clock:
    """The start and end of a job, and its processor time."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        """By the monotonic clock, which all workers share."""
        self._cpu_s = 0.0

    async def begin(self) -> None:
        """Wait for the start time."""
        await asyncio.sleep(sleep_until(self.began_ns))
        self._cpu_s = cpu_s()

    def end(self, ended_ns: int | None = None) -> Figures:
        """Return the figures of a job that ended now or at *ended_ns*."""
        return {
            "began_ns": self.began_ns,
            "ended_ns": ended_ns or time.monotonic_ns(),
            "cpu_s": cpu_s() - self._cpu_s,
        }


class Subscription:
    """The messages of one subscription, over all of its consumers."""

    def __init__(self, name: str, job: Job) -> None:
        self.name = name
        self._wanted: int | None = None if job.get("until_told") else job["messages"]
        self._has_times = job.get("rate") is not None
        self._times: list[Any] = []
        self._streams = job["streams"]
        self.check: OrderCheck | UnionCheck
        if job["sharing"] > 1:
            self.check = UnionCheck(job["ring"], job["messages"])
        else:
            per_stream = job["messages"] // self._streams
            self.check = OrderCheck(self._streams, job["ring"], per_stream)
        self.first_ns = 0
        self.ended_ns = 0

    @property
    def _is_complete(self) -> bool:
        return self._wanted is not None and self.check.received >= self._wanted

    def end_at(self, messages: int) -> None:
        """Set the number of published messages, which completes the subscription."""
        self._wanted = messages
        assert isinstance(self.check, OrderCheck)
        self.check.expect(messages // self._streams)

    async def work(self, consumer: Consumer, began_ns: int) -> None:
        """Receive with one of the consumers until the subscription is complete."""
        quiet_since = time.monotonic()
        while not self._is_complete:
            payloads = await consumer.receive(0.25)
            now_ns = time.monotonic_ns()
            if not payloads:
                if self.check.received and self.ended_ns:
                    quiet_since = max(quiet_since, self.ended_ns / 1e9)
                if time.monotonic() - quiet_since > STALL_S:
                    return
                continue
            self.first_ns = self.first_ns or now_ns
            self.ended_ns = now_ns
            headers = headers_of(payloads)
            self.check.add(headers)
            if self._has_times:
                dues = headers["time"]
                late = now_ns - began_ns - dues
                self._times.append(late[dues >= WARM_UP_S * 1e9])
            await consumer.ack()

    async def look_for_surplus(self, consumer: Consumer) -> None:
        """Return whether a surplus message arrives."""
        while payloads := await consumer.receive(SURPLUS_WAIT_S):
            self.check.add(headers_of(payloads))
            await consumer.ack()

    def latencies(self) -> Any:
        """Return the nanoseconds from each message's due time to its receipt."""
        return np.concatenate(self._times) if self._times else np.zeros(0)

    def find_problems(self) -> list[str]:
        """Return the problems with the received messages."""
        return [f"{self.name}: {problem}" for problem in self.check.find_problems()]


async def _report_progress(parent: Parent, runs: list[Subscription]) -> int:
    """Report the progress until the parent sends the number of messages."""
    while (told := await parent.told("end_at", PROGRESS_S)) is None:
        parent.say({"progress": sum(run.check.received for run in runs)})
    return int(told)


def cpu_s() -> float:
    """Return the CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


JOBS = {
    job.__name__: job
    for job in (create, delete, settle, publish, publish_each, publish_paced, consume)
}
