"""
Throughput of a cluster: brokers together against one broker, on one machine.

``python -m bench.cluster_throughput`` needs ``etcd``.  In alternating rounds it starts
a cluster of one broker and one of three, with the journals in a shared directory.  Each
of two clients, a process each, publishes batches to its topics until the time is over,
and then consumes what it has published, touching every message.  On one machine more
brokers share the same processors, so the figures show what the cluster costs, and not
how it grows.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pydanube
from bench.failover import Broker, etcd_server, settled
from bench.remote_reads import say
from bench.run import interruptible
from bench.servers import HOST
from bench.systems.system import BenchFailed
from pydanube.aio.tasks import task_scope

CLIENTS = 2
BATCH_MESSAGES = 1000
PAYLOAD = b"x" * 100
BATCHES_AT_ONCE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--etcd", default=shutil.which("etcd"))
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of publishing")
    arguments = parser.parse_args()
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    if arguments.etcd is None:
        raise BenchFailed("etcd is not installed; name it with --etcd")
    found: dict[int, list[tuple[float, float]]] = {1: [], arguments.brokers: []}
    with interruptible():
        for number in range(arguments.rounds):
            for count in sorted(found, reverse=number % 2 == 1):
                rates = run_round(count, arguments)
                found[count].append(rates)
                say(
                    f"round {number + 1}, {count} brokers: published {rates[0]:,.0f}, "
                    f"consumed {rates[1]:,.0f} messages/s"
                )
    one, many = found.values()
    for at, what in enumerate(("published", "consumed")):
        ratios = [each[at] / other[at] for each, other in zip(many, one, strict=True)]
        say(
            f"{what}: {arguments.brokers} brokers have "
            f"{statistics.median(ratios):.2f} of one (median of {len(ratios)} rounds)"
        )


def run_round(count: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Return the rates of publishing and of consuming with *count* brokers."""
    settings = argparse.Namespace(session_ttl_s=5, moves_max=None)
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as scratch,
        ExitStack() as stack,
    ):
        endpoint = stack.enter_context(etcd_server(arguments.etcd, Path(scratch)))
        brokers = [
            Broker(f"broker-{number}", Path(scratch), endpoint, settings)
            for number in range(count)
        ]
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
        url = "danube://" + ",".join(f"{HOST}:{each.port}" for each in brokers)
        asyncio.run(prepare(url, count, arguments.topics))
        shares = [
            [
                f"/default/t{number}"
                for number in range(first, arguments.topics, CLIENTS)
            ]
            for first in range(CLIENTS)
        ]
        context = multiprocessing.get_context("spawn")
        with context.Pool(CLIENTS) as pool:
            work = [(url, topics, arguments.seconds) for topics in shares]
            results = pool.starmap(run_client, work)
    return (
        sum(published for published, _ in results),
        sum(consumed for _, consumed in results),
    )


async def prepare(url: str, count: int, topics: int) -> None:
    """Wait until all brokers serve shards, and create the topics."""
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
        await settled(client, count)
        for number in range(topics):
            await client.topics.create(f"/default/t{number}")


def run_client(url: str, topics: Sequence[str], seconds: float) -> tuple[float, float]:
    """Return the rates of one client."""
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    return pydanube.run(work(url, topics, seconds))


async def work(url: str, topics: Sequence[str], seconds: float) -> tuple[float, float]:
    """Publish to *topics* for some seconds, and consume everything."""
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
        payloads = [PAYLOAD] * BATCH_MESSAGES
        began = time.monotonic()
        counts = dict.fromkeys(topics, 0)

        async def publish(topic: str, producer: Any) -> None:
            while time.monotonic() < began + seconds:
                await producer.send_batch(payloads)
                counts[topic] += BATCH_MESSAGES

        async def publish_to(topic: str) -> None:
            async with client.producer(topic) as producer, task_scope() as tasks:
                sending = [
                    tasks.start(publish(topic, producer))
                    for _ in range(BATCHES_AT_ONCE)
                ]
                await asyncio.wait(sending)

        await _all(publish_to(each) for each in topics)
        published = sum(counts.values()) / (time.monotonic() - began)
        began = time.monotonic()

        async def consume(topic: str) -> None:
            left, size = counts[topic], 0
            async with client.consumer(
                topic, subscription="bench", start="earliest"
            ) as consumer:
                while left > 0:
                    batch = await consumer.receive_batch(
                        max_messages=10 * BATCH_MESSAGES
                    )
                    size += sum(len(message.payload) for message in batch)
                    left -= len(batch)
                    await consumer.ack(batch)
            assert size == counts[topic] * len(PAYLOAD)

        await _all(consume(each) for each in topics)
        consumed = sum(counts.values()) / (time.monotonic() - began)
        return published, consumed


async def _all(works: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        for each in works:
            tasks.create_task(each)


if __name__ == "__main__":
    main()
