"""The jobs of a worker: publishing and consuming, with their measurements."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.checking import OrderCheck, UnionCheck
from bench.pacing import due_count, sleep_until, ticking
from bench.payloads import Rings, headers_of, make_ring, pieces
from pydanube_cli.bench import workloads
from pydanube_cli.bench.figures import latency_figures
from pydanube_cli.bench.workloads import Arrivals, Clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.parent import Parent
    from bench.systems.system import Consumer, Driver

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
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(driver.publisher(topics))
            for _ in range(producers)
        ]

        async def produce(number: int) -> int:
            publisher = publishers[number]
            own = rings[number * len(topics) : (number + 1) * len(topics)]

            async def send(first: int, count: int) -> None:
                for topic, ring in zip(topics, own, strict=True):
                    await publisher.send(topic, pieces(ring, first, count))

            sent = await workloads.publish(
                send,
                publisher.flush,
                messages=per_stream,
                chunk=job["burst"] or publisher.chunk,
                end_ns=end_ns,
            )
            return sent * len(topics)

        began_ns = await parent.start()
        seconds = job.get("seconds")
        end_ns = began_ns + int(seconds * 1e9) if seconds else 0
        clock = await _begin(began_ns)
        if producers == 1:
            sent = await produce(0)
        else:
            async with asyncio.TaskGroup() as tasks:
                done = [tasks.create_task(produce(n)) for n in range(producers)]
            sent = sum(task.result() for task in done)
        figures = clock.end()
    return figures | {"messages": sent}


async def publish_each(driver: Driver, job: Job, parent: Parent) -> Figures:
    """
    Publish one message at a time, in each of some tasks.

    This measures the time from each message to its acknowledgement.
    """
    [topic] = job["topics"]
    ring = RINGS.ring(job["ring"], job["message_bytes"])
    async with driver.publisher([topic]) as publisher:
        payloads = islice(cycle(ring), job["messages"])
        clock = await _begin(await parent.start())
        times = await workloads.publish_each(
            partial(publisher.send_one, topic), payloads, in_flight=job["senders"]
        )
        figures = clock.end()
    return figures | {"messages": len(times), "latency_us": _latencies(times)}


async def publish_paced(driver: Driver, job: Job, parent: Parent) -> Figures:
    """Publish at a fixed rate, each message at its due time."""
    [topic] = job["topics"]
    messages, rate = job["messages"], job["rate"]
    ring = RINGS.ring(messages, job["message_bytes"], rate=rate)
    lags = []
    async with driver.publisher([topic]) as publisher:
        began_ns = await parent.start()
        with ticking(began_ns, rate) as ticks:
            clock = await _begin(began_ns)
            sent = 0
            while sent < messages:
                now = time.monotonic_ns()
                due = min(messages, due_count(now, began_ns, rate))
                if due > sent:
                    lags.append(now - began_ns - int(sent / rate * 1e9))
                    await publisher.send(topic, ring[sent:due])
                    await publisher.push()
                    sent = due
                else:
                    await ticks.next()
            await publisher.flush()
            figures = clock.end()
    return figures | {"messages": sent, "lag_us": _latencies(lags)}


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
        began_ns = await parent.start()
        clock = await _begin(began_ns)
        if len(consumers) == 1 and not job.get("until_told"):
            await consumers[0][0].work(consumers[0][1], began_ns)
        else:
            async with asyncio.TaskGroup() as tasks:
                working = [
                    tasks.create_task(run.work(consumer, began_ns))
                    for run, consumer in consumers
                ]
                if job.get("until_told"):
                    told = await _report_progress(parent, runs)
                    for run in runs:
                        run.end_at(told)
                    await asyncio.wait(working)
        figures = clock.end(max(run.last_ns for run in runs))
        for run, consumer in consumers:
            await run.look_for_surplus(consumer)
    latencies = [run.latencies() for run in runs]
    return figures | {
        "messages": sum(run.count for run in runs),
        "problems": [problem for run in runs for problem in run.find_problems()],
        "latency_us": _latencies(np.concatenate(latencies)),
    }


async def _begin(began_ns: int) -> Clock:
    """Wait for the start time and start the clock."""
    await asyncio.sleep(sleep_until(began_ns))
    return Clock(began_ns)


def _latencies(nanoseconds: Any) -> Figures:
    ordered: Any = np.sort(np.asarray(nanoseconds))
    return latency_figures(ordered)


class Subscription(Arrivals):
    """The messages of one subscription, over all of its consumers."""

    def __init__(self, name: str, job: Job) -> None:
        super().__init__(None if job.get("until_told") else job["messages"], STALL_S)
        self.name = name
        self._has_times = job.get("rate") is not None
        self._times: list[Any] = []
        self._streams = job["streams"]
        self.check: OrderCheck | UnionCheck
        if job["sharing"] > 1:
            self.check = UnionCheck(job["ring"], job["messages"])
        else:
            per_stream = job["messages"] // self._streams
            self.check = OrderCheck(self._streams, job["ring"], per_stream)

    def end_at(self, messages: int) -> None:
        """Set the number of published messages, which completes the subscription."""
        self.wanted = messages
        assert isinstance(self.check, OrderCheck)
        self.check.expect(messages // self._streams)

    async def work(self, consumer: Consumer, began_ns: int) -> None:
        """Receive with one of the consumers until the subscription is complete."""

        def keep(payloads: Sequence[bytes], now_ns: int) -> None:
            headers = headers_of(payloads)
            self.check.add(headers)
            if self._has_times:
                dues = headers["time"]
                late = now_ns - began_ns - dues
                self._times.append(late[dues >= WARM_UP_S * 1e9])

        await self.receive(consumer.receive, keep, lambda _: consumer.ack())

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
        parent.say({"progress": sum(run.count for run in runs)})
    return int(told)


JOBS = {
    job.__name__: job
    for job in (create, delete, settle, publish, publish_each, publish_paced, consume)
}
