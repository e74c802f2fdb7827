"""
The workloads with the native client, each a function that runs in its own process.

Consumers check that they received every offset once and in order, because figures with
lost messages are meaningless.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

import pydanube
from pydanube.aio.loops import new_loop
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model import arrow
from pydanube.model.batch import batch_of
from pydanube.model.errors import BrokerError
from pydanube_cli.bench.figures import PERCENTS, latency_figures
from pydanube_cli.bench.workloads import (
    CHUNK_MESSAGES,
    RECEIVED_MAX,
    STALL_S,
    Arrivals,
    Clock,
    Sender,
    publish,
    publish_each,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    import pyarrow as pa

    from pydanube.client.client import Client
    from pydanube.client.workers.workers import WorkerKeywords
    from pydanube.model.choices import SubscriptionTypeName
    from pydanube_cli.bench.figures import Figures

T = TypeVar("T")
HandlerName = Literal["async", "waits", "sync"]

SUBSCRIPTION = "bench"
WARM_UP_MESSAGES = 100


class LostMessages(BrokerError):
    """Offsets were missing, repeated or out of order."""

    code = "lost_messages"


def publish_messages(
    url: str,
    topic: str,
    *,
    messages: int,
    message_bytes: int,
    batch_messages: int | None = None,
    keys: int = 0,
) -> Figures:
    """
    Publish the same batch again and again, with *keys* different keys, if any.

    Without *batch_messages*, publish with ``send_nowait``, message by message.
    """

    async def work(client: Client) -> Figures:
        payloads = random_payloads(batch_messages or CHUNK_MESSAGES, message_bytes)
        batch: list[bytes] | pa.RecordBatch = payloads
        if keys:
            chance = random.Random(4712)  # noqa: S311
            of_batch = [b"key-%d" % chance.randrange(keys) for _ in payloads]
            batch = batch_of(payloads, keys=of_batch)
        async with client.producer(topic) as producer, asyncio.TaskGroup() as tasks:
            sender = Sender(tasks)

            def send(_: int, count: int) -> Coroutine[Any, Any, None]:
                if batch_messages is None:
                    return sender.send_each(producer, payloads[:count])
                return sender.send(producer, batch)

            clock = Clock()
            await publish(
                send,
                lambda: sender.flush(producer),
                messages=messages,
                chunk=len(payloads),
            )
            return clock.end()

    return run(lambda: pydanube.connect(url), work)


def consume(
    url: str,
    topic: str,
    *,
    messages: int,
    consumers: int = 1,
    subscription_type: SubscriptionTypeName = "exclusive",
    reads_each: bool = False,
) -> Figures:
    """
    Consume and acknowledge in batches, with *consumers* of one subscription.

    With *reads_each*, the program also reads the payload, key and offset of every
    message.

    All consumers are in one process, so that only the work depends on their number.
    Together they must receive every offset once, and a single one in order.  The time
    begins with the first message.
    """

    async def work(client: Client) -> Figures:
        arrivals = Arrivals(messages)
        received: list[Sequence[int]] = []
        ended_ns = 0

        def keep(batch: MessageBatch, _now_ns: int) -> None:
            received.extend(part.offsets[at:end] for part, at, end in batch.slices)
            if reads_each:
                for message in batch:
                    _ = message.payload, message.key, message.offset

        async def receive(name: str) -> None:
            nonlocal ended_ns
            async with client.consumer(
                topic,
                subscription=f"{SUBSCRIPTION}-{subscription_type}",
                type=subscription_type,
                name=name,
                start="earliest",
                prefetch_messages=10_000,
            ) as consumer:
                await receive_batches(arrivals, consumer, keep)
                ended_ns = ended_ns or time.monotonic_ns()

        clock = Clock()
        async with asyncio.TaskGroup() as tasks:
            for number in range(consumers):
                tasks.create_task(receive(f"bench-{number}"))
        figures = clock.end(ended_ns) | {"began_ns": arrivals.first_ns}
        offsets = chain.from_iterable(received)
        _check_each_once(offsets if consumers == 1 else sorted(offsets), messages)
        return figures

    return run(lambda: pydanube.connect(url), work)


def consume_one_by_one(url: str, topic: str, *, messages: int) -> Figures:
    """Consume with ``async for``, message by message, and acknowledge each."""

    async def work(client: Client) -> Figures:
        left = messages
        byte_count = 0
        async with client.consumer(
            topic, subscription=f"{SUBSCRIPTION}-one", start="earliest"
        ) as consumer:
            clock = Clock()
            async for message in consumer:
                byte_count += len(message.payload)
                await consumer.ack(message)
                left -= 1
                if not left:
                    break
            return clock.end()

    return run(lambda: pydanube.connect(url), work)


def process(
    url: str,
    topic: str,
    *,
    messages: int,
    handler: HandlerName = "async",
    **options: Unpack[WorkerKeywords],
) -> Figures:
    """
    Process *messages* with a worker, whose function reads each payload.

    *handler*: ``async`` returns at once, ``waits`` waits for the event loop once, and
    ``sync`` runs in a thread.  With ``batch``, the function is called with batches.

    The function must be called with every message once.
    """

    async def work(client: Client) -> Figures:
        seen = bytearray(messages)
        left = messages
        byte_count = 0
        clock: Clock | None = None
        loop = asyncio.get_running_loop()
        all_processed = asyncio.Event()

        def read_one(message: Message) -> None:
            nonlocal left, byte_count, clock
            clock = clock or Clock()
            byte_count += len(message.payload)
            seen[message.offset] = 1
            left -= 1
            if left <= 0:
                loop.call_soon_threadsafe(all_processed.set)

        async def read_one_async(message: Message) -> None:
            read_one(message)

        async def wait_and_read_one(message: Message) -> None:
            await asyncio.sleep(0)
            read_one(message)

        async def read_batch(batch: MessageBatch) -> None:
            nonlocal left, byte_count, clock
            clock = clock or Clock()
            for payload in batch.payloads:
                byte_count += len(payload)
            for base, end in batch.ranges():
                seen[base:end] = b"\1" * (end - base)
            left -= len(batch)
            if left <= 0:
                all_processed.set()

        functions: dict[str, Callable[..., object]] = {
            "async": read_one_async,
            "waits": wait_and_read_one,
            "sync": read_one,
        }
        function = functions[handler] if options.get("batch") is None else read_batch
        workers = pydanube.Workers()
        options["start"] = "earliest"
        add = workers.worker(topic, subscription=f"{SUBSCRIPTION}-worker", **options)
        add(function)
        async with client.running_workers(workers):
            await all_processed.wait()
        if left or not all(seen):
            raise LostMessages(f"{seen.count(0)} messages did not come")
        assert clock is not None
        return clock.end()

    return run(lambda: pydanube.connect(url), work)


def publish_latency(
    url: str, topic: str, *, messages: int, message_bytes: int
) -> Figures:
    """Publish one message at a time and measure the time to its acknowledgement."""
    figures = publish_in_tasks(
        url, topic, messages=messages, message_bytes=message_bytes, tasks=1
    )
    return {name: figures[name] for name in (*PERCENTS, "max_us")}


def publish_in_tasks(
    url: str, topic: str, *, messages: int, message_bytes: int, tasks: int
) -> Figures:
    """
    Publish in *tasks*, each of which waits for the acknowledgement of its message.

    This measures the rate, and the time from each message to its acknowledgement.
    """

    async def work(client: Client) -> Figures:
        [payload] = random_payloads(1, message_bytes)
        async with client.producer(topic) as producer:
            await publish_each(producer.send, repeat(payload, WARM_UP_MESSAGES))
            clock = Clock()
            times = await publish_each(
                producer.send, repeat(payload, messages), in_flight=tasks
            )
            figures = clock.end()
        return figures | latency_figures(sorted(times))

    return run(lambda: pydanube.connect(url), work)


def delivery_latency(
    url: str, topic: str, *, messages: int, message_bytes: int, reliable: bool
) -> Figures:
    """Publish one message at a time and measure the time until it is received."""

    async def work(client: Client) -> Figures:
        [payload] = random_payloads(1, message_bytes)
        async with (
            client.producer(topic, reliable=reliable) as producer,
            client.consumer(topic, subscription=f"{SUBSCRIPTION}-way") as consumer,
        ):
            times: list[int] = []
            for _ in range(WARM_UP_MESSAGES + messages):
                before = time.perf_counter_ns()
                pending = producer.send_nowait(payload)
                message = await consumer.receive(timeout_s=STALL_S)
                times.append(time.perf_counter_ns() - before)
                await consumer.ack(message)
                await pending
        return latency_figures(sorted(times[WARM_UP_MESSAGES:]))

    return run(lambda: pydanube.connect(url), work)


def random_payloads(count: int, message_bytes: int) -> list[bytes]:
    """Return different incompressible payloads: zeros would flatter the storage."""
    chance = random.Random(4711)  # noqa: S311
    return [chance.randbytes(message_bytes) for _ in range(count)]


async def receive_batches(
    arrivals: Arrivals, consumer: Any, keep: Callable[[Any, int], object]
) -> None:
    """Receive and acknowledge in batches; see ``Arrivals.receive``."""
    await arrivals.receive(
        lambda timeout_s: consumer.receive_batch(
            max_messages=RECEIVED_MAX, timeout_s=timeout_s
        ),
        keep,
        consumer.ack,
    )


def run(
    connect: Callable[[], AbstractAsyncContextManager[T]],
    work: Callable[[T], Coroutine[Any, Any, Figures]],
) -> Figures:
    """Do *work* on a connection, on a new event loop, with Arrow already imported."""
    # Otherwise the first producer or consumer imports it while the clock runs.
    arrow.load()

    async def connected() -> Figures:
        async with connect() as connection:
            return await work(connection)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(connected())


def _check_each_once(offsets: Iterable[int], messages: int) -> None:
    """Raise unless *offsets* are all from 0 on once, in order."""
    expected = 0
    for offset in offsets:
        if offset != expected:
            raise LostMessages(f"offset {offset} came, not {expected}")
        expected += 1
    if expected != messages:
        raise LostMessages(f"{messages - expected} messages did not come")
