"""
Metadata of a cluster: very many topics in etcd, and what they cost.

``python -m bench.cluster_metadata`` needs ``etcd``.  It starts one member of it and a
broker, creates topics, some as single ones and the others as partitions, and measures:
how fast they are created, looked up and opened, the size of etcd's data, the start of
the broker until it serves all topics, its memory, and the time of ``/metrics``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pydanube
from bench.failover import Broker, etcd_server, settled
from bench.run import interruptible
from bench.scale import AT_ONCE, Table, for_each
from bench.servers import HOST, free_port
from bench.systems.system import BenchFailed
from bench.usage import memory_bytes

LOOKUPS_MAX = 5000
LONE_MAX = 300
"""How many topics are created one after the other."""
PARTITIONS = 50
"""How many partitions a topic has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--etcd", default=shutil.which("etcd"))
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--single", type=int, default=2000, help="not partitions")
    arguments = parser.parse_args()
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    if arguments.etcd is None:
        raise BenchFailed("etcd is not installed; name it with --etcd")
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="metadata-") as scratch,
        ExitStack() as stack,
    ):
        directory = Path(scratch)
        endpoint = stack.enter_context(etcd_server(arguments.etcd, directory))
        settings = argparse.Namespace(session_ttl_s=10, moves_max=None)
        http_port = free_port()
        broker = Broker("broker-1", directory, endpoint, settings, http_port=http_port)
        broker.start()
        stack.callback(broker.kill)
        asyncio.run(measure(broker, directory, http_port, arguments))


async def measure(
    broker: Broker, directory: Path, http_port: int, arguments: argparse.Namespace
) -> None:
    """Create topics, restart the broker, and print a table."""
    count = arguments.topics
    table = Table()
    url = f"danube://{HOST}:{broker.port}"
    await serving(url)
    table.row("broker without topics", f"{memory(broker.pid):,.0f} MB")
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:

        async def create(number: int) -> None:
            await client.topics.create(f"/default/single-{number}")

        single = arguments.single
        lone = min(single, LONE_MAX)
        began = time.monotonic()
        for number in range(lone):
            await create(number)
        rate = lone / (time.monotonic() - began)
        table.row(f"creating {lone:,} topics one after the other", f"{rate:,.0f} /s")
        began = time.monotonic()
        await for_each(range(lone, single), create)
        rate = (single - lone) / (time.monotonic() - began)
        table.row(
            f"creating {single - lone:,}, {AT_ONCE} requests at a time",
            f"{rate:,.0f} /s",
        )
        began = time.monotonic()
        for first in range(0, count, PARTITIONS):
            size = min(PARTITIONS, count - first)
            await client.topics.create(f"/default/t{first}", partitions=size)
        rate = count / (time.monotonic() - began)
        table.row(f"creating {count:,} as partitions", f"{rate:,.0f} /s")
    table.row("broker with them", f"{memory(broker.pid):,.0f} MB")
    data = sum(
        file.stat().st_size
        for file in (directory / "etcd").rglob("db")
        if file.is_file()
    )
    table.row("etcd's database", f"{data / 2**20:,.0f} MB")
    await asyncio.to_thread(broker.stop)
    began = time.monotonic()
    broker.start()
    await serving(url)
    table.row("restart until all are served", f"{time.monotonic() - began:.1f} s")
    table.row("broker after the restart", f"{memory(broker.pid):,.0f} MB")
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
        began = time.monotonic()
        listed = await client.topics.list("default")
        assert len(listed) == count + single
        table.row("listing all", f"{time.monotonic() - began:.2f} s")
        asked = listed[:: max(1, len(listed) // LOOKUPS_MAX)]

        async def look_up(number: int) -> None:
            await client.topics.partitions(asked[number])

        async def open_topic(number: int) -> None:
            await client.topics.describe(asked[number])

        for work, what in ((look_up, "looking up"), (open_topic, "opening")):
            began = time.monotonic()
            await for_each(range(len(asked)), work)
            rate = len(asked) / (time.monotonic() - began)
            table.row(f"{what} {len(asked):,}", f"{rate:,.0f} /s")
    for path in ("/metrics", "/metrics?topic=/default/t0*"):
        seconds, size = await asyncio.to_thread(get, http_port, path)
        table.row(f"`{path}`", f"{seconds:.2f} s, {size / 2**20:,.1f} MB")


async def serving(url: str) -> None:
    """Wait until the broker serves all shards."""
    async with pydanube.connect(url, wait_s=120, retry_s=120) as client:
        await settled(client, 1)


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    return memory_bytes([pid]) / 2**20


def get(port: int, path: str) -> tuple[float, int]:
    """Request a page, and return the seconds and bytes of the answer."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}") as answer:
        size = len(answer.read())
    return time.monotonic() - began, size


if __name__ == "__main__":
    main()
