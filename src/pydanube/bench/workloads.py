"""
The workloads, each a function that runs in its own process.

The functions return their measurements as a dict.  Consumers check that they received
every offset once and in order, because figures with lost messages are meaningless.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import pydanube
from pydanube.aio.loops import new_loop
from pydanube.bench.machine import percentile
from pydanube.model.batch import batch_of
from pydanube.model.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pyarrow as pa

    from pydanube.client.client import Client
    from pydanube.client.partitioned_producer import PartitionedProducer
    from pydanube.client.producer import Producer

WINDOW_BATCHES = 16
"""The number of batches in flight."""
RECEIVE_TIMEOUT_S = 60.0
SUBSCRIPTION = "bench"

Figures = dict[str, float]


class LostMessages(BrokerError):
    """Offsets were missing, repeated or out of order."""

    code = "lost_messages"


def publish_batches(
    url: str,
    topic: str,
    *,
    messages: int,
    message_bytes: int,
    batch_messages: int,
    keys: int = 0,
) -> Figures:
    """Publish in batches, several in flight, with *keys* different keys, if any."""

    async def work(client: Client) -> Figures:
        payloads = random_payloads(batch_messages, message_bytes)
        batch: list[bytes] | pa.RecordBatch = payloads
        if keys:
            batch = batch_of(payloads, keys=_keys(batch_messages, keys))
        free = asyncio.Semaphore(WINDOW_BATCHES)

        async def send(producer: Producer | PartitionedProducer) -> None:
            await producer.send_batch(batch)
            free.release()

        async with client.producer(topic) as producer:
            began = time.time_ns()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(messages // batch_messages):
                    await free.acquire()
                    tasks.create_task(send(producer))
            return {"began_ns": began, "ended_ns": time.time_ns()}

    return _run(url, work)


def publish_one_by_one(
    url: str, topic: str, *, messages: int, message_bytes: int
) -> Figures:
    """Publish with ``send_nowait``, message by message."""

    async def work(client: Client) -> Figures:
        payloads = random_payloads(1000, message_bytes)
        async with client.producer(topic) as producer:
            began = time.time_ns()
            for base in range(0, messages, 1000):
                await producer.wait_for_capacity()
                for payload in payloads[: messages - base]:
                    producer.send_nowait(payload)
                # Let the event loop read receipts.
                await asyncio.sleep(0)
            await producer.flush()
            return {"began_ns": began, "ended_ns": time.time_ns()}

    return _run(url, work)


def consume(
    url: str,
    topic: str,
    *,
    messages: int,
    consumers: int = 1,
    subscription_type: str = "exclusive",
) -> Figures:
    """
    Consume and acknowledge in batches, with *consumers* of one subscription.

    All consumers are in one process, so that only the work depends on their number.
    Together they must receive every offset once, and a single one in order.
    """

    async def work(client: Client) -> Figures:
        ranges: list[tuple[int, int]] = []
        began = 0
        left = messages
        finished = asyncio.Event()

        async def receive(name: str) -> None:
            nonlocal began, left
            async with client.consumer(
                topic,
                subscription=f"{SUBSCRIPTION}-{subscription_type}",
                type=subscription_type,
                name=name,
                start="earliest",
                prefetch_messages=10_000,
            ) as consumer:
                while left > 0:
                    batch = await consumer.receive_batch(
                        max_messages=10_000, timeout_s=0.1
                    )
                    if not batch:
                        continue
                    began = began or time.time_ns()
                    ranges.extend(batch.ranges())
                    left -= len(batch)
                    await consumer.ack(batch)
                    stall.reschedule(loop.time() + RECEIVE_TIMEOUT_S)
                finished.set()

        loop = asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(RECEIVE_TIMEOUT_S) as stall,
                asyncio.TaskGroup() as tasks,
            ):
                for number in range(consumers):
                    tasks.create_task(receive(f"bench-{number}"))
                await finished.wait()
                ended = time.time_ns()
        except TimeoutError:
            raise LostMessages(f"{left} messages did not come") from None
        _check_each_once(ranges if consumers == 1 else sorted(ranges), messages)
        return {"began_ns": began, "ended_ns": ended}

    return _run(url, work)


def consume_one_by_one(url: str, topic: str, *, messages: int) -> Figures:
    """Consume with ``async for``, message by message, and acknowledge each."""

    async def work(client: Client) -> Figures:
        left = messages
        byte_count = 0
        async with client.consumer(
            topic, subscription=f"{SUBSCRIPTION}-one", start="earliest"
        ) as consumer:
            began = time.time_ns()
            async for message in consumer:
                byte_count += len(message.payload)
                await consumer.ack(message)
                left -= 1
                if not left:
                    break
            ended = time.time_ns()
        return {"began_ns": began, "ended_ns": ended}

    return _run(url, work)


def publish_latency(
    url: str, topic: str, *, messages: int, message_bytes: int
) -> Figures:
    """Publish one message at a time and measure the time to its acknowledgement."""

    async def work(client: Client) -> Figures:
        [payload] = random_payloads(1, message_bytes)
        times: list[float] = []
        async with client.producer(topic) as producer:
            for _ in range(100):
                await producer.send(payload)
            for _ in range(messages):
                before = time.perf_counter()
                await producer.send(payload)
                times.append(time.perf_counter() - before)
        return percentiles_of(times)

    return _run(url, work)


def delivery_latency(
    url: str, topic: str, *, messages: int, message_bytes: int, reliable: bool
) -> Figures:
    """Publish one message at a time and measure the time until it is received."""

    async def work(client: Client) -> Figures:
        [payload] = random_payloads(1, message_bytes)
        times: list[float] = []
        async with (
            client.producer(topic, reliable=reliable) as producer,
            client.consumer(topic, subscription=f"{SUBSCRIPTION}-way") as consumer,
        ):
            for number in range(messages + 100):
                before = time.perf_counter()
                pending = producer.send_nowait(payload)
                message = await consumer.receive(timeout_s=RECEIVE_TIMEOUT_S)
                if number >= 100:
                    times.append(time.perf_counter() - before)
                await consumer.ack(message)
                await pending
        return percentiles_of(times)

    return _run(url, work)


def _check_each_once(ranges: list[tuple[int, int]], messages: int) -> None:
    """Raise unless *ranges* have each offset from 0 once, in order."""
    expected = 0
    for base, end in ranges:
        if base != expected:
            raise LostMessages(f"offset {base} came, not {expected}")
        expected = end
    if expected != messages:
        raise LostMessages(f"{messages - expected} messages did not come")


def _keys(count: int, different: int) -> list[bytes]:
    """Return random keys for *count* messages."""
    chance = random.Random(4712)  # noqa: S311
    return [b"key-%d" % chance.randrange(different) for _ in range(count)]


def random_payloads(count: int, message_bytes: int) -> list[bytes]:
    """Return different incompressible payloads: zeros would flatter the storage."""
    chance = random.Random(4711)  # noqa: S311
    return [chance.randbytes(message_bytes) for _ in range(count)]


def percentiles_of(times: list[float]) -> Figures:
    """Return the percentiles of *times* in microseconds."""
    percents = {"p50_us": 50, "p90_us": 90, "p99_us": 99, "p999_us": 99.9}
    figures = {name: percentile(times, each) * 1e6 for name, each in percents.items()}
    return figures | {"max_us": max(times) * 1e6}


def _run(url: str, work: Callable[[Client], Coroutine[Any, Any, Figures]]) -> Figures:
    async def run() -> Figures:
        async with pydanube.connect(url) as client:
            before = time.process_time()
            figures = await work(client)
            return figures | {"cpu_s": time.process_time() - before}

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())
