"""Redis Streams with redis-py and its parser in C."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.packages import find_program, missing_of, program_version, versions_of
from bench.servers import HOST, accepts, free_port, running
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
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

CHUNK = 1000
CHUNK_BYTES = 4 * 1024 * 1024
READ = 1000
READ_BYTES = 8 * 1024 * 1024
FIELD = b"p"


CANNOT = {"tasks": "the blocking client serves one caller at a time"}


class Redis(System):
    """One server; a topic is a stream."""

    name = "redis"
    title = "Redis Streams"
    client = "redis[hiredis]"
    how = "pipelines of 1,000 XADD; XREADGROUP COUNT 1000, one XACK for all of it"

    def variants(self) -> Sequence[Variant]:
        return (
            Variant(
                name="always",
                durability=Durability.SYNCED,
                setting="appendonly yes, appendfsync always",
                cannot=CANNOT,
            ),
            Variant(
                name="everysec",
                durability=Durability.PAGE_CACHE,
                setting="appendonly yes, appendfsync everysec",
                cannot=CANNOT,
            ),
            Variant(
                name="memory",
                durability=Durability.MEMORY,
                setting="appendonly no (default)",
                cannot=CANNOT,
            ),
        )

    def missing(self) -> str | None:
        return missing_of(
            programs=("redis-server",),
            debian="redis-server",
            packages=("redis", "hiredis"),
        )

    def version(self) -> str:
        server = program_version(find_program("redis-server") or "", "--version")
        return f"redis-server {server}, {versions_of('redis', 'hiredis')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        port = free_port()
        append = (
            ("no", "everysec") if variant.name == "memory" else ("yes", variant.name)
        )
        command = [
            find_program("redis-server") or "",
            "--bind",
            HOST,
            "--port",
            str(port),
            "--dir",
            str(directory),
            "--save",
            "",
            "--appendonly",
            append[0],
            "--appendfsync",
            append[1],
        ]
        with running(command, directory / "log", is_ready=lambda: accepts(port)) as pid:
            endpoint = {"port": port}
            yield Server(endpoint=endpoint, pids=(pid,))

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return RedisDriver(endpoint)


class RedisDriver(Driver):
    """
    Pipelines for publishing, consumer groups for consuming.

    The documentation of Redis advises pipelining against round trips, in batches of
    "10 thousand commands" at most, so that replies do not take the server's memory;
    1,000 were as fast here; messages of several streams share a pipeline.  They are no
    transactions.  A group reads up to 1,000
    entries at a time and acknowledges them with one XACK.  One message at a time is an
    XADD for each.  hiredis parses replies, as the documentation of redis-py advises;
    the blocking client takes half the time of the one for asyncio, so it is used, in a
    thread.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        with _connected(self.endpoint) as connection:
            for topic in topics:
                for subscription in subscriptions:
                    connection.client.xgroup_create(
                        topic, subscription, id="0", mkstream=True
                    )

    async def delete(self, topics: Sequence[str]) -> None:
        with _connected(self.endpoint) as connection:
            connection.client.delete(*topics)

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        with _connected(self.endpoint) as connection:
            yield RedisPublisher(connection)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        with _connected(self.endpoint) as connection:
            yield RedisConsumer(connection, topics, subscription, f"consumer-{number}")


class RedisPublisher(Publisher):
    """Publishes one pipeline after the other on one connection."""

    chunk = CHUNK

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._waiting.append((topic, payload))
            self._waiting_bytes += len(payload)
            if len(self._waiting) >= CHUNK or self._waiting_bytes >= CHUNK_BYTES:
                await self.push()

    async def push(self) -> None:
        messages, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if messages:
            await self._connection.run(self._execute, messages)

    def _execute(self, messages: list[tuple[str, bytes]]) -> None:
        pipeline = self._connection.client.pipeline(transaction=False)
        for topic, payload in messages:
            pipeline.execute_command("XADD", topic, "*", FIELD, payload)
        pipeline.execute()

    async def flush(self) -> None:
        await self.push()

    async def send_one(self, topic: str, payload: bytes) -> None:
        self._connection.client.execute_command("XADD", topic, "*", FIELD, payload)


class RedisConsumer(Consumer):
    """One consumer of a group, of one stream or of many."""

    def __init__(
        self, connection: Connection, topics: Sequence[str], group: str, name: str
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._group = group
        self._name = name
        self._count = READ
        self._ids: list[tuple[bytes, list[bytes]]] = []

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        payloads: list[bytes] = await self._connection.run(self._read, timeout_s)
        if payloads:
            self._count = max(1, min(READ, READ_BYTES // len(payloads[0])))
        return payloads

    def _read(self, timeout_s: float) -> list[bytes]:
        answer = self._connection.client.xreadgroup(
            self._group,
            self._name,
            dict.fromkeys(self._topics, ">"),
            count=self._count,
            block=max(1, int(timeout_s * 1000)),
        )
        if isinstance(answer, dict):
            # RESP3: lists of lists of entries by stream.
            answer = [(topic, lists[0]) for topic, lists in answer.items()]
        self._ids = [(topic, [entry[0] for entry in found]) for topic, found in answer]
        return [entry[1][FIELD] for _, found in answer for entry in found]

    async def ack(self) -> None:
        await self._connection.run(self._acknowledge)

    def _acknowledge(self) -> None:
        pipeline = self._connection.client.pipeline(transaction=False)
        for topic, ids in self._ids:
            pipeline.execute_command("XACK", topic, self._group, *ids)
        pipeline.execute()


class Connection:
    """The blocking client with a thread for its calls."""

    def __init__(self, client: Any, thread: ThreadPoolExecutor) -> None:
        self.client = client
        self._thread = thread

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something in the thread and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)


@contextmanager
def _connected(endpoint: dict[str, Any]) -> Iterator[Connection]:
    import redis  # noqa: PLC0415

    client = redis.Redis(host=HOST, port=endpoint["port"])
    with ThreadPoolExecutor(1) as thread, client:
        yield Connection(client, thread)


SYSTEM = Redis()
