"""pydanube over Danube's gRPC API, with Danube's own Python client."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import subprocess
import sys
import venv
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.systems import danube
from bench.systems.inbox import Inbox
from bench.systems.system import (
    ROOT,
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

ENVIRONMENT = ROOT / ".venv-danube-client"
CLIENT = "danube-client==0.5.0"
NEEDED = "numpy>=2.0"
"""Used by the worker itself."""
CALLS = 64

VARIANTS = (
    Variant(
        name="reliable",
        durability=Durability.SYNCED,
        setting="reliable topic",
    ),
    Variant(
        name="non-reliable",
        durability=Durability.MEMORY,
        setting="non-reliable topic",
        cannot=danube.CANNOT_BE_LOSSLESS,
    ),
)


class DanubeGrpc(System):
    """The same broker; the client has its own virtual environment."""

    name = "danube-grpc"
    title = "pydanube, Danube's client"
    client = CLIENT
    how = "64 sends at a time, one message each; one ack for each message, 64 at a time"
    first_messages = 500

    def variants(self) -> Sequence[Variant]:
        return VARIANTS

    def missing(self) -> str | None:
        try:
            self.python()
        except BenchFailed as error:
            return str(error)
        return None

    def version(self) -> str:
        return f"{danube.SYSTEM.version()}, {CLIENT.replace('==', ' ')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with danube.serving(variant, directory, workload) as server:
            yield server

    def python(self) -> Path:
        """
        Return the interpreter of the client's environment, created on first use.

        Raises:
            BenchFailed: The client cannot be installed.
        """
        python = ENVIRONMENT / "bin" / "python"
        ENVIRONMENT.mkdir(exist_ok=True)
        with (ENVIRONMENT / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The tests use the same environment and write the same file.
            ready = ENVIRONMENT / "ready"
            if not ready.exists() or ready.read_text() != CLIENT:
                venv.create(ENVIRONMENT)
                _install(python, CLIENT)
                ready.write_text(CLIENT)
            ready_for_us = ENVIRONMENT / "ready-bench"
            if not ready_for_us.exists() or ready_for_us.read_text() != NEEDED:
                _install(python, NEEDED)
                ready_for_us.write_text(NEEDED)
        return python

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return DanubeGrpcDriver(endpoint)


def _install(python: Path, package: str) -> None:
    done = subprocess.run(  # noqa: S603  # Our own environment.
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", package],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BenchFailed(
            f"{package} cannot be installed: {done.stderr.strip()[-300:]}"
        )


class DanubeGrpcDriver(Driver):
    """
    One call per message, many concurrent calls.

    The client has no batches: ``send`` publishes one message and returns when it is
    acknowledged; ``ack`` acknowledges one.  For speed, 64 calls of each kind are in
    flight; calls start one after the other, so that messages keep their order.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.publisher(topics))
            for subscription in subscriptions:
                await stack.enter_async_context(
                    self.consumer(topics, subscription, number=0, sharing=sharing)
                )

    async def delete(self, topics: Sequence[str]) -> None:
        """Do nothing: the client cannot delete topics, which end with the server."""

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        import danube as client_package  # noqa: PLC0415

        strategy = client_package.DispatchStrategy
        is_reliable = self.endpoint["variant"] == "reliable"
        client = await _client(self.endpoint)
        producers = {}
        for topic in topics:
            producer = (
                client.new_producer()
                .with_topic(f"/default/{topic}")
                .with_name(f"bench-{id(client)}-{topic}")
                .with_dispatch_strategy(
                    strategy.RELIABLE if is_reliable else strategy.NON_RELIABLE
                )
                .build()
            )
            await producer.create()
            producers[topic] = producer
        async with asyncio.TaskGroup() as tasks:
            yield GrpcPublisher(producers, tasks)
        for producer in producers.values():
            await _done(producer.close())

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        import danube as client_package  # noqa: PLC0415

        kind = client_package.SubType
        client = await _client(self.endpoint)
        consumers = []
        async with asyncio.TaskGroup() as tasks:
            inbox = Inbox()
            pumps = []
            for topic in topics:
                consumer = (
                    client.new_consumer()
                    .with_topic(f"/default/{topic}")
                    .with_consumer_name(f"consumer-{number}")
                    .with_subscription(subscription)
                    .with_subscription_type(
                        kind.SHARED if sharing > 1 else kind.EXCLUSIVE
                    )
                    .build()
                )
                await consumer.subscribe()
                queue = await _done(consumer.receive())
                consumers.append(consumer)
                pumps.append(tasks.create_task(_pump(consumer, queue, inbox)))
            yield GrpcConsumer(inbox, tasks)
            for pump in pumps:
                pump.cancel()
        for consumer in consumers:
            await _done(consumer.close())


class GrpcPublisher(Publisher):
    """Publishes with many concurrent calls."""

    chunk = CALLS

    def __init__(self, producers: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        self._producers = producers
        self._tasks = tasks
        self._free = asyncio.Semaphore(CALLS)

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        producer = self._producers[topic]
        for payload in payloads:
            await self._free.acquire()
            self._tasks.create_task(self._send(producer, payload))

    async def _send(self, producer: Any, payload: bytes) -> None:
        await producer.send(payload, None)
        self._free.release()

    async def flush(self) -> None:
        for _ in range(CALLS):
            await self._free.acquire()
        for _ in range(CALLS):
            self._free.release()

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self._producers[topic].send(payload, None)


class GrpcConsumer(Consumer):
    """Receives messages and acknowledges each with a call."""

    def __init__(self, inbox: Inbox, tasks: asyncio.TaskGroup) -> None:
        self._inbox = inbox
        self._tasks = tasks
        self._free = asyncio.Semaphore(CALLS)
        self._taken: list[tuple[Any, Any]] = []

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads, self._taken = await self._inbox.take(timeout_s)
        return payloads

    async def ack(self) -> None:
        for consumer, message in self._taken:
            await self._free.acquire()
            self._tasks.create_task(self._ack(consumer, message))

    async def _ack(self, consumer: Any, message: Any) -> None:
        await consumer.ack(message)
        self._free.release()


async def _pump(consumer: Any, queue: Any, inbox: Inbox) -> None:
    while True:
        message = await queue.get()
        inbox.put(message.payload, (consumer, message))


async def _client(endpoint: dict[str, Any]) -> Any:
    import danube as client_package  # noqa: PLC0415

    builder = client_package.DanubeClientBuilder().service_url(endpoint["grpc_url"])
    return await _done(builder.build())


async def _done(result: Any) -> Any:
    """Return the result of a call that may be a coroutine."""
    return await result if inspect.isawaitable(result) else result


SYSTEM = DanubeGrpc()
