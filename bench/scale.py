"""
The cost of very many topics, subscriptions, producers and connections.

``python -m bench.scale`` starts a broker of this checkout for each part, creates
objects of one kind, lists them, scrapes ``/metrics``, restarts the broker, and prints
rates, times and memory as a Markdown table.  It ends all processes that it started.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

import pydanube
import pydanube.sync
from bench.usage import memory_bytes
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker
from pydanube_cli.bench.machine import measure_machine

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC = "/default/scale"
PRODUCERS_PER_CLIENT = 50_000
PARTITIONS_AT_ONCE = 1000
AT_ONCE = 64
"""The maximum number of concurrent requests."""


class Broker:
    """A broker process that can be restarted on its data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._process: BrokerProcess | None = None

    @property
    def process(self) -> BrokerProcess:
        """The running process."""
        assert self._process is not None
        return self._process

    @property
    def url(self) -> str:
        """The URL for clients."""
        return self.process.url()

    def start(self) -> float:
        """Start the broker and return the seconds until it was ready."""
        before = time.perf_counter()
        running = running_broker(self._directory / "data", self._directory / "log", {})
        self._process = self._stack.enter_context(running)
        return time.perf_counter() - before

    def stop(self) -> float:
        """Stop the broker and return the seconds that it took."""
        before = time.perf_counter()
        self._stack.close()
        return time.perf_counter() - before

    def memory_mb(self) -> float:
        """Return the broker's resident memory."""
        return memory_bytes([self.process.pid]) / 2**20

    def get(self, path: str) -> tuple[float, int]:
        """Request a page over HTTP and return the seconds and bytes of the response."""
        return _get(self.process.url("http") + path)


def _get(url: str) -> tuple[float, int]:
    before = time.perf_counter()
    with urllib.request.urlopen(url) as answer:  # noqa: S310
        size = len(answer.read())
    return time.perf_counter() - before, size


def tell(line: str) -> None:
    """Print *line* and flush."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Table:
    """A table of figures that grows line by line."""

    def __init__(self) -> None:
        tell("| what | figure |\n|---|---|")

    def row(self, what: str, figure: str) -> None:
        """Add a row."""
        tell(f"| {what} | {figure} |")


async def for_each(
    items: Iterable[int], work: Callable[[int], Awaitable[None]]
) -> None:
    """Run *work* for all *items*, ``AT_ONCE`` at a time."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())


async def measured(work: Awaitable[object]) -> float:
    """Return the seconds that *work* takes."""
    before = time.perf_counter()
    await work
    return time.perf_counter() - before


def tell_state(
    broker: Broker, table: Table, what: str, before_mb: float, n: int
) -> None:
    """Print the memory, and the time of a scrape of the metrics."""
    seconds, size = broker.get("/metrics")
    table.row("`/metrics`", f"{seconds * 1000:.0f} ms, {size / 1000:.0f} kB")
    memory = broker.memory_mb()
    each = (memory - before_mb) * 1024 / n
    table.row("memory", f"{memory:.0f} MB, {each:.1f} KiB per {what}")


async def topics(broker: Broker, table: Table, count: int) -> None:
    """Create *count* topics, list them, and find them again after a restart."""
    before_mb = broker.memory_mb()
    async with pydanube.connect(broker.url) as client:
        seconds = await measured(
            for_each(range(count), lambda n: client.topics.create(f"/default/t-{n:06}"))
        )
        table.row(f"create {count:,} topics", f"{count / seconds:,.0f}/s")
        seconds = await measured(client.topics.list())
        table.row("list them, natively", f"{seconds * 1000:.0f} ms")
    seconds, size = broker.get("/api/v1/list_topics")
    table.row("list them, HTTP", f"{seconds * 1000:.0f} ms, {size / 1000:.0f} kB")
    tell_state(broker, table, "open topic", before_mb, count)
    restart(broker, table)


async def holds(broker: Broker, table: Table, count: int) -> None:
    """Publish one message at a time while others list and scrape *count* topics."""
    http = broker.process.url("http")
    readers: dict[str, Callable[[], object]] = {
        "nothing else": partial(time.sleep, 2.0),
        "a native list": partial(_list_natively, broker.url),
        "a list over gRPC": partial(_list_over_grpc, broker.process.url("admin")),
        "a list over HTTP": partial(_get, http + "/api/v1/list_topics"),
        "a search for problems": partial(
            _get, http + "/api/v1/list_findings?limit=100"
        ),
        "`/metrics`": partial(_get, http + "/metrics"),
    }
    # Another process reads, so that what it does with the answer holds nobody.
    with ProcessPoolExecutor(1, get_context("fork")) as others:
        # It starts before there are threads.
        await asyncio.wrap_future(others.submit(time.sleep, 0))
        async with pydanube.connect(broker.url) as client:
            # Partitions are topics, and many are created with one request.
            for first in range(0, count, PARTITIONS_AT_ONCE):
                await client.topics.create(
                    f"/default/t-{first:06}",
                    partitions=min(PARTITIONS_AT_ONCE, count - first),
                )
            await client.topics.create("/default/publish")
            async with client.producer("/default/publish") as producer:
                await producer.send(b"x")
                for name, read in readers.items():
                    slowest_s, took_s = await _slowest_send(producer, others, read)
                    what = f"slowest publish beside {name}, {count:,} topics"
                    figure = f"{slowest_s * 1000:.1f} ms; it took {took_s:.2f} s"
                    table.row(what, figure)


async def _slowest_send(
    producer: pydanube.Producer | pydanube.PartitionedProducer,
    others: ProcessPoolExecutor,
    read: Callable[[], object],
) -> tuple[float, float]:
    """Return the time of the slowest publish beside *read*, and the time it took."""
    await producer.send(b"x")
    began, slowest_s = time.perf_counter(), 0.0
    reading = others.submit(read)
    while not reading.done():
        slowest_s = max(slowest_s, await measured(producer.send(b"x")))
    reading.result()
    return slowest_s, time.perf_counter() - began


def _list_natively(url: str) -> None:
    with pydanube.sync.connect(url) as client:
        client.topics.list()


def _list_over_grpc(url: str) -> None:
    address = url.partition("//")[2]
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as c:
        list_topics = c.unary_unary(
            "/danube_admin.TopicAdmin/ListNamespaceTopics",
            request_serializer=pb.NamespaceRequest.SerializeToString,
            response_deserializer=pb.TopicInfoListResponse.FromString,
        )
        try:
            list_topics(pb.NamespaceRequest(name="default"))
        except grpc.RpcError as error:
            # The list of very many topics is refused, since it has no pages.
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise


async def subscriptions(broker: Broker, table: Table, count: int) -> None:
    """Create *count* subscriptions of one topic and describe it."""
    async with pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        before_mb = broker.memory_mb()
        seconds = await measured(
            for_each(
                range(count), lambda n: client.subscriptions.create(TOPIC, f"s-{n:06}")
            )
        )
        table.row(f"create {count:,} subscriptions", f"{count / seconds:,.0f}/s")
        seconds = await measured(client.topics.describe(TOPIC))
        table.row("describe the topic with them", f"{seconds:.1f} s")
        async with client.producer(TOPIC) as producer:
            seconds = await measured(producer.send(b"x"))
        table.row("publish a message to the topic", f"{seconds * 1000:.1f} ms")
    tell_state(broker, table, "subscription", before_mb, count)
    restart(broker, table)
    async with pydanube.connect(broker.url) as client:
        seconds = await measured(client.topics.describe(TOPIC))
        table.row("open and describe the topic again", f"{seconds:.1f} s")


async def producers(broker: Broker, table: Table, count: int) -> None:
    """Open *count* producers on one topic, over as few connections as possible."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(pydanube.connect(broker.url))
            for _ in range(-(-count // PRODUCERS_PER_CLIENT))
        ]
        await clients[0].topics.create(TOPIC)
        before_mb = broker.memory_mb()

        async def open_one(number: int) -> None:
            client = clients[number % len(clients)]
            producer = client.producer(TOPIC, name=f"p-{number:06}")
            await stack.enter_async_context(producer)

        seconds = await measured(for_each(range(count), open_one))
        table.row(f"open {count:,} producers of a topic", f"{count / seconds:,.0f}/s")
        tell_state(broker, table, "producer", before_mb, count)
        seconds = await measured(stack.aclose())
        table.row("close them", f"{count / seconds:,.0f}/s")


async def connections(broker: Broker, table: Table, count: int) -> None:
    """Open *count* connections."""
    before_mb = broker.memory_mb()
    async with AsyncExitStack() as stack:

        async def open_one(_: int) -> None:
            await stack.enter_async_context(
                pydanube.connect(broker.url, connect_timeout_s=60.0)
            )

        seconds = await measured(for_each(range(count), open_one))
        table.row(f"open {count:,} connections", f"{count / seconds:,.0f}/s")
        tell_state(broker, table, "connection", before_mb, count)


def restart(broker: Broker, table: Table) -> None:
    """Stop the broker and start it again."""
    table.row("stop", f"{broker.stop():.1f} s")
    table.row("start again, until ready", f"{broker.start():.1f} s")
    table.row("memory after that", f"{broker.memory_mb():.0f} MB")


PARTS = {
    "topics": topics,
    "holds": holds,
    "subscriptions": subscriptions,
    "producers": producers,
    "connections": connections,
}


def main() -> None:
    """Measure the parts that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--data-dir", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.data_dir) as place:
        machine = measure_machine(Path(place))
        tell(f"{machine.cores} cores, fdatasync {machine.fdatasync_us:.0f} µs\n")
        for name in asked.parts.split(","):
            directory = Path(place) / name
            directory.mkdir()
            broker = Broker(directory)
            broker.start()
            try:
                asyncio.run(PARTS[name](broker, Table(), asked.count))
            finally:
                broker.stop()
            tell("")


if __name__ == "__main__":
    main()
