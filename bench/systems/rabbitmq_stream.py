"""RabbitMQ's streams with rstream."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.packages import missing_of, versions_of
from bench.servers import HOST
from bench.systems import rabbitmq
from bench.systems.inbox import Inbox
from bench.systems.system import (
    BenchFailed,
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)
from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
    from pathlib import Path

CHUNK = 1000
CHUNK_BYTES = 512 * 1024
"""The maximum size of a frame is 1 MiB."""
UNCONFIRMED_MAX = 10_000
CREDIT_CHUNKS = 10
STORE_EVERY = 1000


class RabbitStream(System):
    """One server with the stream plugin; a topic is a stream."""

    name = "rabbitmq-stream"
    title = "RabbitMQ streams"
    client = "rstream"
    how = "send_batch of 1,000 raw messages, 10,000 unconfirmed; offsets are stored"

    def variants(self) -> Sequence[Variant]:
        return (
            Variant(
                name="stream",
                durability=Durability.PAGE_CACHE,
                setting="stream, one node (a stream is never synced explicitly)",
                cannot={
                    "shared": "no several consumers share a stream; it would have to "
                    "be partitioned"
                },
            ),
        )

    def missing(self) -> str | None:
        told = [rabbitmq.missing_server(), missing_of(packages=("rstream",))]
        return "; ".join(filter(None, told)) or None

    def version(self) -> str:
        return f"{rabbitmq.server_version()}, {versions_of('rstream')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with rabbitmq.serving(directory, streams=True) as server:
            yield server

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return StreamDriver(endpoint)


class StreamDriver(Driver):
    """
    Batches with confirms, a callback per message, and periodically stored offsets.

    According to the README of rstream, ``send_batch`` is the fastest way to publish
    single messages (sub-entries are larger units, which cannot be counted and confirmed
    one by one).  Messages are raw bytes: encoding AMQP in Python would cost
    more than all the rest.  10,000 messages may wait for their confirms.  The offset is
    stored every 1,000 messages at most, as the documentation of streams advises.  The
    client makes itself known for a stream with its first batch, so where there are many
    topics that is part of the time.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        async with _producer(self.endpoint) as producer:
            for topic in topics:
                await producer.create_stream(topic)

    async def delete(self, topics: Sequence[str]) -> None:
        async with _producer(self.endpoint) as producer:
            for topic in topics:
                await producer.delete_stream(topic)

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        async with _producer(self.endpoint) as producer:
            yield StreamPublisher(producer)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        import rstream  # noqa: PLC0415

        async with rstream.Consumer(
            host=HOST,
            port=self.endpoint["stream_port"],
            username="guest",
            password="guest",  # noqa: S106  # The default of a server on loopback.
        ) as client:
            consumer = StreamConsumer(client, subscription)
            for topic in topics:
                await client.subscribe(
                    topic,
                    consumer.on_message,
                    decoder=bytes,
                    initial_credit=CREDIT_CHUNKS,
                    subscriber_name=subscription,
                )
            yield consumer


class StreamPublisher(Publisher):
    """Sends batches, with a bound on unconfirmed messages."""

    chunk = CHUNK

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._unconfirmed = 0
        self._refused = 0
        self._moved = asyncio.Event()

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        step = max(1, min(CHUNK, CHUNK_BYTES // len(payloads[0])))
        for at in range(0, len(payloads), step):
            batch = payloads[at : at + step]
            await self._wait_below(UNCONFIRMED_MAX)
            self._unconfirmed += len(batch)
            await self._producer.send_batch(
                topic, batch, on_publish_confirm=self._on_confirm
            )

    def _on_confirm(self, status: Any) -> None:
        self._unconfirmed -= 1
        self._refused += not status.is_confirmed
        self._moved.set()

    async def _wait_below(self, unconfirmed: int) -> None:
        while self._unconfirmed > unconfirmed:
            self._moved.clear()
            await self._moved.wait()

    async def flush(self) -> None:
        await self._wait_below(0)
        if self._refused:
            raise BenchFailed(f"{self._refused} messages were not confirmed")

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self._producer.send_wait(topic, payload)


class StreamConsumer(Consumer):
    """Takes messages from the callback."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self._inbox = Inbox()
        self._last: dict[str, int] = {}
        self._stored_before = 0

    def on_message(self, payload: bytes, context: Any) -> Awaitable[None] | None:
        self._inbox.put(payload)
        self._last[context.stream] = context.offset
        return self._inbox.room() if self._inbox.is_full else None

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads, _ = await self._inbox.take(timeout_s)
        self._stored_before += len(payloads)
        return payloads

    async def ack(self) -> None:
        if self._stored_before >= STORE_EVERY:
            self._stored_before = 0
            for stream, offset in self._last.items():
                await self._client.store_offset(stream, self._name, offset)


@asynccontextmanager
async def _producer(endpoint: dict[str, Any]) -> AsyncIterator[Any]:
    import rstream  # noqa: PLC0415

    async with rstream.Producer(
        host=HOST,
        port=endpoint["stream_port"],
        username="guest",
        password="guest",  # noqa: S106  # The default of a server on loopback.
    ) as producer:
        yield producer


SYSTEM = RabbitStream()
