"""NATS JetStream with nats-py."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.packages import find_program, missing_of, program_version, versions_of
from bench.servers import HOST, accepts, free_port, running
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
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

SYNC_ALWAYS_SINCE = (2, 10)
PENDING_MAX = 4000
FETCH = 1000
FETCH_BYTES = 8 * 1024 * 1024
MAX_ACK_PENDING = 20_000


class Nats(System):
    """One server with JetStream."""

    name = "nats"
    title = "NATS JetStream"
    client = "nats-py"
    how = "publish_async, 4,000 pending; pull consumer, fetch of 1,000, ack of all"

    @cached_property
    def _server_version(self) -> str:
        return program_version(find_program("nats-server") or "", "--version")

    def variants(self) -> Sequence[Variant]:
        major, minor = map(int, self._server_version.split(".")[:2])
        too_old = (major, minor) < SYNC_ALWAYS_SINCE
        return (
            Variant(
                name="sync-always",
                durability=Durability.SYNCED,
                setting="file storage, sync_interval: always",
                missing=f"nats-server {self._server_version} cannot sync on every "
                "write; 2.10 or newer can"
                if too_old
                else None,
            ),
            Variant(
                name="file",
                durability=Durability.PAGE_CACHE,
                setting="file storage, sync_interval: 2m (default)",
            ),
            Variant(
                name="memory", durability=Durability.MEMORY, setting="memory storage"
            ),
        )

    def missing(self) -> str | None:
        return missing_of(
            programs=("nats-server",), debian="nats-server", packages=("nats-py",)
        )

    def version(self) -> str:
        return f"nats-server {self._server_version}, {versions_of('nats-py')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        port = free_port()
        streams = {"store_dir": str(directory / "data")}
        if variant.name == "sync-always":
            streams["sync_interval"] = "always"
        settings = {"listen": f"{HOST}:{port}", "jetstream": streams}
        (directory / "nats.conf").write_text(json.dumps(settings))
        program = find_program("nats-server") or ""
        with running(
            [program, "-c", "nats.conf"],
            directory / "log",
            is_ready=lambda: accepts(port),
        ) as pid:
            endpoint = {"url": f"nats://{HOST}:{port}", "variant": variant.name}
            yield Server(endpoint=endpoint, pids=(pid,))

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return NatsDriver(endpoint)


class NatsDriver(Driver):
    """
    Asynchronous publishing, and pull consumers that fetch.

    The documentation of NATS advises asynchronous publishing for throughput: many
    messages are in flight, each with its own acknowledgement; nats-py has
    ``publish_async`` with 4,000 pending by default.  (Publishing in atomic batches
    needs a newer server and is not in nats-py.)  Consumers fetch 1,000 messages at a
    time, the size that ``nats bench`` advises to raise from its default, and
    acknowledge all of them with the last, as ``AckPolicy.ALL`` is for; where four
    share a subscription each message has to be acknowledged.

    A topic is a stream with one subject; a consumer of many topics, which are subjects
    of one stream then, has one pull subscription, as the documentation advises instead
    of many streams.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        from nats.js import api  # noqa: PLC0415

        stream = _stream(topics[0])
        async with _connected(self.endpoint) as (_, jetstream):
            storage = api.StorageType.FILE
            if self.endpoint["variant"] == "memory":
                storage = api.StorageType.MEMORY
            await jetstream.add_stream(
                name=stream, subjects=[f"{stream}.*"], storage=storage
            )
            for subscription in subscriptions:
                config = api.ConsumerConfig(
                    durable_name=subscription,
                    ack_policy=api.AckPolicy.EXPLICIT
                    if sharing > 1
                    else api.AckPolicy.ALL,
                    ack_wait=60,
                    max_ack_pending=MAX_ACK_PENDING,
                )
                await jetstream.add_consumer(stream, config)

    async def delete(self, topics: Sequence[str]) -> None:
        async with _connected(self.endpoint) as (_, jetstream):
            await jetstream.delete_stream(_stream(topics[0]))

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        async with _connected(self.endpoint) as (_, jetstream):
            yield NatsPublisher(jetstream)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        async with _connected(self.endpoint) as (_, jetstream):
            pull = await jetstream.pull_subscribe_bind(
                subscription,
                _stream(topics[0]),
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
            yield NatsConsumer(pull, acks_each=sharing > 1)


class NatsPublisher(Publisher):
    """Publishes message by message, each with its acknowledgement."""

    def __init__(self, jetstream: Any) -> None:
        self._jetstream = jetstream
        self._failed: list[BaseException] = []

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        subject = _subject(topic)
        publish = self._jetstream.publish_async
        for payload in payloads:
            future = await publish(subject, payload)
            future.add_done_callback(self._look_at)

    def _look_at(self, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self._failed.append(error)

    async def flush(self) -> None:
        await self._jetstream.publish_async_completed()
        if self._failed:
            raise BenchFailed(f"{len(self._failed)} failed, first: {self._failed[0]}")

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self._jetstream.publish(_subject(topic), payload)


class NatsConsumer(Consumer):
    """Fetches messages and acknowledges the last one or each of them."""

    def __init__(self, pull: Any, *, acks_each: bool) -> None:
        self._pull = pull
        self._acks_each = acks_each
        self._messages: list[Any] = []
        self._batch = FETCH

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        try:
            self._messages = await self._pull.fetch(self._batch, timeout=timeout_s)
        except TimeoutError:
            return []
        payloads = [message.data for message in self._messages]
        self._batch = max(1, min(FETCH, FETCH_BYTES // len(payloads[0])))
        return payloads

    async def ack(self) -> None:
        for message in self._messages if self._acks_each else self._messages[-1:]:
            await message.ack()


@asynccontextmanager
async def _connected(endpoint: dict[str, Any]) -> AsyncIterator[tuple[Any, Any]]:
    import nats  # noqa: PLC0415

    client = await nats.connect(endpoint["url"], allow_reconnect=False)
    try:
        yield client, client.jetstream(publish_async_max_pending=PENDING_MAX)
    finally:
        await client.close()


def _stream(topic: str) -> str:
    """Return the stream of a topic: all topics of a run are subjects of one."""
    return topic.rpartition("-")[0]


def _subject(topic: str) -> str:
    return f"{_stream(topic)}.{topic.rpartition('-')[2]}"


SYSTEM = Nats()
