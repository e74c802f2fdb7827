"""RabbitMQ's quorum queues with aio-pika."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.packages import missing_of, versions_of
from bench.servers import HOST
from bench.systems import rabbitmq
from bench.systems.inbox import Inbox
from bench.systems.system import (
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)
from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

WINDOW = 500
PREFETCH = 1000


class RabbitQuorum(System):
    """One server; a subscription is a quorum queue, bound to the topic's exchange."""

    name = "rabbitmq-quorum"
    title = "RabbitMQ quorum queues"
    client = "aio-pika"
    how = "500 publishes waiting for confirms; prefetch 1,000, one ack for many"

    def variants(self) -> Sequence[Variant]:
        return (
            Variant(
                name="quorum",
                durability=Durability.SYNCED,
                setting="quorum queue, one node, publisher confirms",
            ),
        )

    def missing(self) -> str | None:
        told = [rabbitmq.missing_server(), missing_of(packages=("aio-pika",))]
        return "; ".join(filter(None, told)) or None

    def version(self) -> str:
        return f"{rabbitmq.server_version()}, {versions_of('aio-pika')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with rabbitmq.serving(directory, streams=False) as server:
            yield server

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return QuorumDriver(endpoint)


class QuorumDriver(Driver):
    """
    Many publishes in flight, each with its confirm; consumers that acknowledge many.

    The documentation of RabbitMQ advises to handle publisher confirms asynchronously
    for throughput, with a bound on what is outstanding, and acknowledgements of
    "multiple" deliveries with a prefetch of several hundred.  aio-pika gives a confirm
    to each ``publish``, so 500 of them wait at a time.  Bodies are published as they
    are, to the queue itself; only where there are several subscriptions, to a fanout
    exchange that they are bound to.
    """

    def __init__(self, endpoint: dict[str, Any]) -> None:
        super().__init__(endpoint)
        self._subscriptions: dict[str, Sequence[str]] = {}
        """The exchanges of the topics that this worker has created."""

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        self._subscriptions = dict.fromkeys(topics, subscriptions)
        async with _channel(self.endpoint) as channel:
            for topic in topics:
                exchange = await channel.declare_exchange(topic, "fanout", durable=True)
                for subscription in subscriptions:
                    queue = await channel.declare_queue(
                        _queue(topic, subscription),
                        durable=True,
                        arguments={"x-queue-type": "quorum"},
                    )
                    await queue.bind(exchange)

    async def delete(self, topics: Sequence[str]) -> None:
        async with _channel(self.endpoint) as channel:
            for topic in topics:
                await channel.exchange_delete(topic)
                for subscription in self._subscriptions.pop(topic):
                    await channel.queue_delete(_queue(topic, subscription))

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        async with (
            _channel(self.endpoint, publisher_confirms=True) as channel,
            asyncio.TaskGroup() as tasks,
        ):
            ways: dict[str, tuple[Any, str]] = {}
            for topic in topics:
                subscriptions = self._subscriptions[topic]
                if len(subscriptions) == 1:
                    queue = _queue(topic, subscriptions[0])
                    ways[topic] = channel.default_exchange, queue
                else:
                    exchange = await channel.get_exchange(topic, ensure=False)
                    ways[topic] = exchange, ""
            yield QuorumPublisher(ways, tasks)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        async with _channel(self.endpoint) as channel:
            await channel.set_qos(prefetch_count=PREFETCH)
            consumer = QuorumConsumer()
            for topic in topics:
                queue = await channel.get_queue(
                    _queue(topic, subscription), ensure=False
                )
                await queue.consume(consumer.on_message)
            yield consumer


class QuorumPublisher(Publisher):
    """Publishes with many confirms in flight."""

    chunk = WINDOW

    def __init__(
        self, ways: dict[str, tuple[Any, str]], tasks: asyncio.TaskGroup
    ) -> None:
        self._ways = ways
        """Return the exchange and the routing key of each topic."""
        self._tasks = tasks
        self._free = asyncio.Semaphore(WINDOW)

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            await self._free.acquire()
            self._tasks.create_task(self._publish(topic, payload))

    async def _publish(self, topic: str, payload: bytes) -> None:
        await self.send_one(topic, payload)
        self._free.release()

    async def flush(self) -> None:
        for _ in range(WINDOW):
            await self._free.acquire()
        for _ in range(WINDOW):
            self._free.release()

    async def send_one(self, topic: str, payload: bytes) -> None:
        exchange, key = self._ways[topic]
        await exchange.publish(_message(payload), key)


class QuorumConsumer(Consumer):
    """Takes messages from the callback and acknowledges up to the last one."""

    def __init__(self) -> None:
        self._inbox = Inbox()
        self._last: Any = None

    def on_message(self, message: Any) -> None:
        self._inbox.put(message.body, message)

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads, messages = await self._inbox.take(timeout_s)
        self._last = messages[-1] if messages else None
        return payloads

    async def ack(self) -> None:
        await self._last.ack(multiple=True)


@asynccontextmanager
async def _channel(
    endpoint: dict[str, Any], *, publisher_confirms: bool = False
) -> AsyncIterator[Any]:
    import aio_pika  # noqa: PLC0415

    url = f"amqp://guest:guest@{HOST}:{endpoint['port']}/"
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel(publisher_confirms=publisher_confirms)


def _message(payload: bytes) -> Any:
    import aio_pika  # noqa: PLC0415

    return aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


def _queue(topic: str, subscription: str) -> str:
    return f"{topic}.{subscription}"


SYSTEM = RabbitQuorum()
