"""pydanube with its native client."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.plan import WORKLOADS
from bench.servers import running
from bench.systems.inbox import Inbox
from bench.systems.system import (
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)
from pydanube_cli.bench.broker_process import COMMAND, printed_url
from pydanube_cli.bench.figures import Durability
from pydanube_cli.bench.workloads import CHUNK_MESSAGES, RECEIVED_MAX, Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

CHUNK_BYTES = 512 * 1024
FEW_MESSAGES = 100
POLL_S = 0.001
"""How often the messages of a worker are collected."""
PREFETCH_MESSAGES = 20_000
AT_MOST_ONCE = (
    "a non-reliable topic drops what its consumers are not quick enough for, so there "
    "is no figure without loss"
)
CANNOT_BE_LOSSLESS = {
    workload.name: AT_MOST_ONCE
    for workload in WORKLOADS.values()
    if workload.rate is None
}
"""The workloads that measure throughput."""

VARIANTS = (
    Variant(
        name="durable",
        durability=Durability.SYNCED,
        setting="topic durability=durable (default)",
    ),
    Variant(
        name="written",
        durability=Durability.PAGE_CACHE,
        setting="topic durability=written",
    ),
    Variant(
        name="memory",
        durability=Durability.MEMORY,
        setting="non-reliable topic",
        cannot=CANNOT_BE_LOSSLESS,
    ),
)


@contextmanager
def serving(
    variant: Variant, directory: Path, workload: str, settings: Mapping[str, str] = {}
) -> Iterator[Server]:
    """
    Run a broker with its defaults and *settings* of its environment in the body.

    For the backlog it seals everything immediately, to measure reading segments.
    """
    log = directory / "log"
    environ = dict(settings)
    if workload == "backlog":
        environ["DANUBE_STORAGE__SEAL_AGE_S"] = "0"
    command = [*COMMAND, str(directory / "data")]
    with running(
        command, log, is_ready=lambda: printed_url(log, "http"), environ=environ
    ) as pid:
        endpoint = {
            "url": printed_url(log, "stream"),
            "grpc_url": printed_url(log, "grpc"),
            "variant": variant.name,
            "reads_each": workload == "program",
            "worker": workload if workload.startswith("worker") else None,
        }
        yield Server(endpoint=endpoint, pids=(pid,))


class Danube(System):
    """pydanube over the native protocol."""

    name = "danube"
    title = "pydanube"
    client = "pydanube"
    how = "send_batch of 1,000, 16 on their way; receive_batch and ack"

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        from pydanube.model.version import __version__  # noqa: PLC0415

        return f"pydanube {__version__}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with serving(variant, directory, workload) as server:
            yield server

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return DanubeDriver(endpoint)


class DanubeDriver(Driver):
    """
    Publishing and consuming in batches, as the guide advises.

    ``send_batch`` publishes lists of bytes with up to 1,000 messages or 512 KiB, 16 of
    them in flight; with only a few messages at a time, ``send_nowait`` lets the client
    batch them.  Consumers call ``receive_batch``, convert every payload to bytes as the
    other clients do, and acknowledge the batch.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        variant = self.endpoint["variant"]
        async with _connect(self.endpoint) as client:
            for topic in map(_path, topics):
                if variant == "memory":
                    await client.topics.create(topic, reliable=False)
                else:
                    await client.topics.create(topic, durability=variant)
                for subscription in subscriptions:
                    await client.subscriptions.create(
                        topic, subscription, type=_type(sharing), start="earliest"
                    )

    async def delete(self, topics: Sequence[str]) -> None:
        async with _connect(self.endpoint) as client:
            for topic in topics:
                await client.topics.delete(_path(topic), force=True)

    async def settle(self, topic: str) -> None:
        async with _connect(self.endpoint) as client, asyncio.timeout(600):
            while True:
                told = await client.topics.describe(_path(topic))
                if told.sealed_offset == told.end_offset:
                    return
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        async with (
            _connect(self.endpoint) as client,
            AsyncExitStack() as stack,
            asyncio.TaskGroup() as tasks,
        ):
            producers = {
                topic: await stack.enter_async_context(client.producer(_path(topic)))
                for topic in topics
            }
            yield DanubePublisher(producers, tasks)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        async with _connect(self.endpoint) as client, AsyncExitStack() as stack:
            if self.endpoint["worker"] is not None:
                [topic] = topics
                worker = DanubeWorker(
                    self.endpoint["worker"], topic, subscription, _type(sharing)
                )
                await stack.enter_async_context(client.running_workers(worker.workers))
                yield worker
                return
            consumers = [
                await stack.enter_async_context(
                    client.consumer(
                        _path(topic),
                        subscription=subscription,
                        type=_type(sharing),
                        name=f"bench-{number}",
                        start="earliest",
                        prefetch_messages=PREFETCH_MESSAGES,
                    )
                )
                for topic in topics
            ]
            if len(consumers) == 1:
                yield DanubeConsumer(
                    consumers[0], reads_each=self.endpoint["reads_each"]
                )
                return
            async with asyncio.TaskGroup() as tasks:
                many = ConsumerOfMany()
                pumps = [tasks.create_task(many.pump(each)) for each in consumers]
                yield many
                for pump in pumps:
                    pump.cancel()


class DanubePublisher(Publisher):
    """One producer for each topic, on one connection."""

    chunk = CHUNK_MESSAGES

    def __init__(self, producers: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        self._producers = producers
        self._sender = Sender(tasks)

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        producer = self._producers[topic]
        if len(payloads) <= FEW_MESSAGES and not self._sender.batches_in_flight:
            await self._sender.send_each(producer, payloads)
            return
        step = max(1, min(CHUNK_MESSAGES, CHUNK_BYTES // len(payloads[0])))
        for at in range(0, len(payloads), step):
            batch = payloads if step >= len(payloads) else payloads[at : at + step]
            await self._sender.send(producer, batch)

    async def flush(self) -> None:
        await self._sender.flush(*self._producers.values())

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self._producers[topic].send(payload)


class DanubeConsumer(Consumer):
    """One consumer of one topic."""

    def __init__(self, consumer: Any, *, reads_each: bool) -> None:
        self._consumer = consumer
        self._reads_each = reads_each
        self._batch: Any = None

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        self._batch = await self._consumer.receive_batch(
            max_messages=RECEIVED_MAX, timeout_s=timeout_s
        )
        if self._reads_each:
            return [message.payload for message in self._batch]
        payloads: list[bytes] = self._batch.payloads
        return payloads

    async def ack(self) -> None:
        await self._consumer.ack(self._batch)


class DanubeWorker(Consumer):
    """A worker, whose function keeps the payloads; the worker acknowledges them."""

    def __init__(self, workload: str, topic: str, subscription: str, kind: str) -> None:
        import pydanube  # noqa: PLC0415

        payloads: list[bytes] = []

        async def keep(payload: bytes) -> None:
            payloads.append(payload)

        async def keep_and_wait(payload: bytes) -> None:
            payloads.append(payload)
            await asyncio.sleep(0)

        async def keep_all(batch: list[bytes]) -> None:
            payloads.extend(batch)

        def keep_in_thread(payload: bytes) -> None:
            payloads.append(payload)

        functions: dict[str, tuple[Any, dict[str, Any]]] = {
            "worker": (keep, {}),
            "worker-waits": (keep_and_wait, {"concurrency": 16}),
            "worker-sync": (keep_in_thread, {}),
            "worker-batch": (keep_all, {"batch": CHUNK_MESSAGES}),
        }
        function, options = functions[workload]
        self._payloads = payloads
        self.workers = pydanube.Workers()
        add = self.workers.worker(
            _path(topic), subscription=subscription, type=kind, **options
        )
        add(function)

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        give_up_at = time.monotonic() + timeout_s
        # Threads append to the list, and do not tell.
        while not self._payloads and time.monotonic() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        count = len(self._payloads)
        received = self._payloads[:count]
        del self._payloads[:count]
        return received

    async def ack(self) -> None:
        pass


class ConsumerOfMany(Consumer):
    """Consumers of many topics, whose messages are merged."""

    def __init__(self) -> None:
        self._inbox = Inbox()
        self._taken: list[tuple[Any, Any]] = []

    async def pump(self, consumer: Any) -> None:
        while True:
            await self._inbox.room()
            batch = await consumer.receive_batch(max_messages=RECEIVED_MAX)
            self._inbox.put_many(batch.payloads, (consumer, batch))

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads, self._taken = await self._inbox.take(timeout_s)
        return payloads

    async def ack(self) -> None:
        for consumer, batch in self._taken:
            await consumer.ack(batch)


def _connect(endpoint: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    import pydanube  # noqa: PLC0415

    return pydanube.connect(endpoint["url"])


def _type(sharing: int) -> str:
    return "shared" if sharing > 1 else "exclusive"


def _path(topic: str) -> str:
    return f"/default/{topic}"


SYSTEM = Danube()
