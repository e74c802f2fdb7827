"""
Connectors beside scripts: how much of the rate of a plain script a connector has.

``python -m bench.connectors`` starts a broker, and the servers that are installed:
``nats-server``, ``rabbitmq-server`` and ``redis-server``.  For each kind, in
alternating rounds, a connector and a script with the same client library move the same
messages.  The scripts do what a careful author would: they move batches, and
acknowledge what is stored; they have no mapping, no dead letters, no positions and no
retries.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aio_pika
import nats
from aio_pika import DeliveryMode, Message
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError
from redis.asyncio import Redis as Client

import pydanube
from bench.packages import find_program
from bench.remote_reads import say
from bench.run import interruptible
from bench.servers import HOST, accepts, free_port, running
from bench.systems.rabbitmq import find_server, serving
from pydanube.model import arrow
from pydanube_cli.bench.broker_process import running_broker
from pydanube_connect import load
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.status import ConnectorStatus

PAYLOAD = b"x" * 100
BATCH = 1000
LOOK_S = 0.005
GATHER_S = 0.01
"""How long the script for RabbitMQ waits for a larger batch."""


class Peer:
    """A server, with the connectors and the scripts for it."""

    name: str

    def __init__(self, endpoint: dict[str, Any]) -> None:
        self.endpoint = endpoint

    @property
    def source(self) -> str:
        """The options of a source."""
        raise NotImplementedError

    @property
    def sink(self) -> str:
        """The options of a sink."""
        raise NotImplementedError

    async def fill(self, count: int) -> None:
        """Remove all messages, and store *count*."""
        raise NotImplementedError

    async def clear(self) -> None:
        """Remove all messages."""
        raise NotImplementedError

    async def read(self, client: pydanube.Client, topic: str, count: int) -> None:
        """Publish *count* messages to *topic*: the script of a source."""
        raise NotImplementedError

    async def write(self, client: pydanube.Client, topic: str, count: int) -> None:
        """Write *count* messages of *topic*: the script of a sink."""
        raise NotImplementedError


class Redis(Peer):
    """Streams of Redis."""

    name = "redis"

    @property
    def source(self) -> str:
        return f"{{url: '{self.endpoint['url']}', streams: {{in: }}, field: payload}}"

    @property
    def sink(self) -> str:
        return f"{{url: '{self.endpoint['url']}', stream: out}}"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        async with Client.from_url(self.endpoint["url"]) as redis:
            yield redis

    async def clear(self) -> None:
        async with self._connected() as redis:
            await redis.delete("in", "out")

    async def fill(self, count: int) -> None:
        async with self._connected() as redis:
            for _ in range(0, count, BATCH):
                async with redis.pipeline(transaction=False) as pipeline:
                    for _ in range(BATCH):
                        pipeline.xadd("in", {"payload": PAYLOAD})
                    await pipeline.execute()

    async def read(self, client: pydanube.Client, topic: str, count: int) -> None:
        last = b"0-0"
        async with self._connected() as redis, client.producer(topic) as producer:
            while count > 0:
                [(_, entries)] = await redis.xread({"in": last}, BATCH)
                last = entries[-1][0]
                await producer.send_batch([each[b"payload"] for _, each in entries])
                count -= len(entries)

    async def write(self, client: pydanube.Client, topic: str, count: int) -> None:
        async with (
            self._connected() as redis,
            client.consumer(topic, subscription="script", start="earliest") as consumer,
        ):
            while count > 0:
                batch = await consumer.receive_batch(max_messages=BATCH)
                async with redis.pipeline(transaction=True) as pipeline:
                    for message in batch:
                        pipeline.xadd("out", {"payload": message.payload})
                    await pipeline.execute()
                await consumer.ack(batch)
                count -= len(batch)


class Nats(Peer):
    """Streams of NATS JetStream."""

    name = "nats"

    @property
    def source(self) -> str:
        return f"{{servers: '{self.endpoint['url']}', stream: IN}}"

    @property
    def sink(self) -> str:
        return f"{{servers: '{self.endpoint['url']}', subject: out}}"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        client = await nats.connect(self.endpoint["url"])
        try:
            yield client.jetstream()
        finally:
            await client.close()

    async def clear(self) -> None:
        async with self._connected() as jetstream:
            for name in ("IN", "OUT"):
                with suppress(NotFoundError):
                    await jetstream.delete_stream(name)
                await jetstream.add_stream(name=name, subjects=[name.lower()])

    async def fill(self, count: int) -> None:
        async with self._connected() as jetstream:
            for _ in range(0, count, BATCH):
                acks = [
                    await jetstream.publish_async("in", PAYLOAD) for _ in range(BATCH)
                ]
                for each in acks:
                    await each

    async def read(self, client: pydanube.Client, topic: str, count: int) -> None:
        async with self._connected() as jetstream, client.producer(topic) as producer:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await jetstream.pull_subscribe(">", stream="IN", config=config)
            while count > 0:
                messages = await reader.fetch(BATCH)
                await producer.send_batch([each.data for each in messages])
                count -= len(messages)

    async def write(self, client: pydanube.Client, topic: str, count: int) -> None:
        async with (
            self._connected() as jetstream,
            client.consumer(topic, subscription="script", start="earliest") as consumer,
        ):
            while count > 0:
                batch = await consumer.receive_batch(max_messages=BATCH)
                acks = [
                    await jetstream.publish_async("out", each.payload) for each in batch
                ]
                for each in acks:
                    await each
                await consumer.ack(batch)
                count -= len(batch)


class Rabbitmq(Peer):
    """Queues of RabbitMQ."""

    name = "rabbitmq"

    @property
    def _url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.endpoint['port']}/"

    @property
    def source(self) -> str:
        return f"{{url: '{self._url}', queues: {{in: }}}}"

    @property
    def sink(self) -> str:
        return f"{{url: '{self._url}', routing_key: out}}"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        async with await aio_pika.connect(self._url) as connection:
            yield await connection.channel()

    async def clear(self) -> None:
        async with self._connected() as channel:
            for name in ("in", "out"):
                queue = await channel.declare_queue(name, durable=True)
                await queue.purge()

    async def fill(self, count: int) -> None:
        async with self._connected() as channel:
            for _ in range(0, count, BATCH):
                await self._publish(channel, "in", [PAYLOAD] * BATCH)

    async def _publish(self, channel: Any, queue: str, payloads: list[bytes]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in payloads:
                message = Message(each, delivery_mode=DeliveryMode.PERSISTENT)
                tasks.create_task(channel.default_exchange.publish(message, queue))

    async def read(self, client: pydanube.Client, topic: str, count: int) -> None:
        incoming: asyncio.Queue[Any] = asyncio.Queue()
        async with self._connected() as channel, client.producer(topic) as producer:
            await channel.set_qos(prefetch_count=5000)
            queue = await channel.get_queue("in")
            await queue.consume(incoming.put)
            while count > 0:
                messages = [await incoming.get()]
                await asyncio.sleep(GATHER_S)
                while not incoming.empty() and len(messages) < BATCH:
                    messages.append(incoming.get_nowait())
                await producer.send_batch([each.body for each in messages])
                await messages[-1].ack(multiple=True)
                count -= len(messages)

    async def write(self, client: pydanube.Client, topic: str, count: int) -> None:
        async with (
            self._connected() as channel,
            client.consumer(topic, subscription="script", start="earliest") as consumer,
        ):
            while count > 0:
                batch = await consumer.receive_batch(max_messages=BATCH)
                await self._publish(channel, "out", [each.payload for each in batch])
                await consumer.ack(batch)
                count -= len(batch)


@contextmanager
def peers(directory: Path) -> Iterator[list[Peer]]:
    """Run the servers that are installed while the body runs."""
    found: list[Peer] = []
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> int:
            port = free_port()
            given = [each.replace("PORT", str(port)) for each in arguments]
            command = [find_program(name) or "", *given]
            log = directory / f"{name}.log"
            stack.enter_context(running(command, log, is_ready=lambda: accepts(port)))
            return port

        if find_program("redis-server"):
            port = start(
                "redis-server",
                "--port",
                "PORT",
                "--dir",
                str(directory),
                "--appendonly",
                "yes",
                "--save",
                "",
            )
            found.append(Redis({"url": f"redis://{HOST}:{port}"}))
        if find_program("nats-server"):
            port = start(
                "nats-server",
                "-a",
                HOST,
                "-p",
                "PORT",
                "-js",
                "-sd",
                str(directory / "nats"),
            )
            found.append(Nats({"url": f"nats://{HOST}:{port}"}))
        if find_server() is not None and find_program("epmd"):
            server = stack.enter_context(serving(directory, streams=False))
            found.append(Rabbitmq(server.endpoint))
        yield found


class Comparison:
    """The comparison of a connector with a script."""

    def __init__(
        self, url: str, file: Path, peer: Peer, *, is_source: bool, count: int
    ) -> None:
        """*url* is that of the broker, *file* that of the connector."""
        self._url = url
        self._file = file
        self._peer = peer
        self._is_source = is_source
        self._count = count
        self.name = f"{peer.name}-{'source' if is_source else 'sink'}"

    def measure(self, number: int) -> dict[str, float]:
        """Return the seconds of both, in an order that depends on *number*."""
        sides = ["connector", "script"]
        if number % 2:
            sides.reverse()
        return {side: pydanube.run(self._measure(side, number)) for side in sides}

    async def _measure(self, side: str, number: int) -> float:
        name = f"{self.name}-{number}-{side}"
        topic = f"/default/{name}"
        await self._peer.clear()
        async with pydanube.connect(self._url) as client:
            await client.topics.create(topic)
            if not self._is_source:
                async with client.producer(topic) as producer:
                    for _ in range(0, self._count, BATCH):
                        await producer.send_batch([PAYLOAD] * BATCH)
        if self._is_source:
            await self._peer.fill(self._count)
        began = time.monotonic()
        if side == "connector":
            await self._run_connector(name, topic)
        else:
            work = self._peer.read if self._is_source else self._peer.write
            async with pydanube.connect(self._url) as client:
                await work(client, topic, self._count)
        return time.monotonic() - began

    async def _run_connector(self, name: str, topic: str) -> None:
        """Run a connector until it has moved all messages."""
        kind = self._peer.name + ("-source" if self._is_source else "-sink")
        options = self._peer.source if self._is_source else self._peer.sink
        text = (
            f"connectors: {{{name}: {{kind: {kind}, topic: {topic}, "
            f"broker: '{self._url}', options: {options}}}}}"
        )
        await asyncio.to_thread(self._file.write_text, text)
        stop = asyncio.Event()
        runs = ConnectorRuns(load(self._file), _ignore)
        [status] = runs.statuses

        async def stop_at_end() -> None:
            while status.messages < self._count:  # noqa: ASYNC110  # Counted elsewhere.
                await asyncio.sleep(LOOK_S)
            stop.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stop_at_end())
            tasks.create_task(runs.run(stop))


def _ignore(_: ConnectorStatus) -> None:
    """Do nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="one kind of server")
    arguments = parser.parse_args()
    count = arguments.messages // BATCH * BATCH
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    # As `danube connect run` does, and as in a script, which imports less.
    arrow.load()
    gc.freeze()
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="connectors-") as scratch,
        running_broker(
            Path(scratch) / "broker", Path(scratch) / "broker.log", {}
        ) as broker,
        peers(Path(scratch)) as found,
    ):
        file = Path(scratch) / "connectors.yaml"
        say(f"{'':18}{'connector':>14}{'script':>12}{'of the script':>16}")
        for peer in found:
            if arguments.only not in {None, peer.name}:
                continue
            for is_source in (True, False):
                comparison = Comparison(
                    broker.url(), file, peer, is_source=is_source, count=count
                )
                times = [comparison.measure(each) for each in range(arguments.rounds)]
                rates = {
                    side: count / statistics.median(each[side] for each in times)
                    for side in ("connector", "script")
                }
                share = statistics.median(
                    each["script"] / each["connector"] for each in times
                )
                say(
                    f"{comparison.name:18}{rates['connector']:12,.0f}/s"
                    f"{rates['script']:10,.0f}/s{share:15.0%}"
                )


if __name__ == "__main__":
    main()
