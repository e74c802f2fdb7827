"""
The journal in an S3 server: latency and throughput of publishing.

``python -m bench.object_journal`` needs ``versitygw`` (see ``bench.remote_reads``), or
``--moto``, which uses the server of the tests and is slower.  It starts the server, a
proxy that adds latency to each answer, and a broker whose journal and segments are in
the server.  It measures

- one PUT of a small object, without the broker;
- the time from publishing to the acknowledgement, one message at a time; and
- the rate at which one producer publishes batches, until all are acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.remote_reads import BUCKET, KEY, s3_server, say
from bench.systems.system import BenchFailed
from pydanube.objects.opening import open_objects
from pydanube_cli.bench.broker_process import running_broker
from pydanube_cli.bench.native_workloads import publish_latency, publish_messages

PUTS = 50
PROXY_PORT = 17072
MOTO_PORT = 17073
_READ_BYTES = 1 << 18
_BUFFERED_MAX = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--versitygw", default=shutil.which("versitygw"))
    parser.add_argument("--moto", action="store_true")
    parser.add_argument("--added-ms", type=float, nargs="+", default=[0, 20, 80])
    parser.add_argument("--linger-ms", type=float, default=20)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--batch-messages", type=int, default=4000)
    parser.add_argument("--single", type=int, default=200, help="messages, one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--proxy", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.proxy is not None:
        port, added_ms = arguments.proxy
        asyncio.run(serve_proxy(int(port), float(added_ms) / 1000))
        return
    if not arguments.moto and arguments.versitygw is None:
        raise BenchFailed("versitygw is not installed; name it with --versitygw")
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    for added_ms in arguments.added_ms:
        with (
            tempfile.TemporaryDirectory(prefix="object-journal-") as scratch,
            store_server(arguments, Path(scratch)) as options,
            delayed(options, added_ms) as endpoint,
        ):
            run(Path(scratch), {**options, "endpoint": endpoint}, arguments, added_ms)


def run(
    scratch: Path, options: dict[str, str], arguments: Any, added_ms: float
) -> None:
    """Measure with the S3 server that *options* describe."""
    url = f"s3://{BUCKET}/journal"
    put_ms = asyncio.run(time_puts(url, options))
    settings = {
        "DANUBE_METADATA__PATH": str(scratch / "metadata.sqlite"),
        "DANUBE_STORAGE__REMOTE__URL": url,
        "DANUBE_STORAGE__REMOTE__OPTIONS": json.dumps(options),
        "DANUBE_STORAGE__JOURNAL__KIND": "object",
        "DANUBE_STORAGE__JOURNAL__OBJECT__LINGER_MS": str(arguments.linger_ms),
        "DANUBE_STORAGE__JOURNAL__OBJECT__IN_FLIGHT_MAX": str(arguments.in_flight),
    }
    with running_broker(scratch / "data", scratch / "broker.log", settings) as broker:
        times = publish_latency(
            broker.url(),
            "/default/single",
            messages=arguments.single,
            message_bytes=100,
        )
        rates = []
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            publish_messages(
                broker.url(),
                "/default/batches",
                messages=arguments.messages,
                message_bytes=100,
                batch_messages=arguments.batch_messages,
            )
            rates.append(arguments.messages / (time.perf_counter() - began))
    limit_ms = 2 * (arguments.linger_ms + put_ms)
    say(
        f"added {added_ms:g} ms: one PUT {put_ms:.1f} ms; publish to acknowledgement: "
        f"{_latencies(times)} (limit for p50: {limit_ms:.1f} ms); messages per second: "
        f"{', '.join(f'{rate:,.0f}' for rate in rates)}, median {median(rates):,.0f}"
    )


def _latencies(figures: Any) -> str:
    return ", ".join(
        f"{name} {value / 1000:.1f} ms"
        for name, value in figures.items()
        if name.endswith("_us")
    )


async def time_puts(url: str, options: dict[str, str]) -> float:
    """Return the median time of putting a small object, in milliseconds."""
    store = open_objects(url + "-puts", options)
    times = []
    for number in range(PUTS):
        began = time.perf_counter()
        await store.put_if_absent(f"{number}", bytes(1000))
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


@contextmanager
def store_server(arguments: Any, scratch: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with an empty bucket; yield the options of its store."""
    if not arguments.moto:
        with s3_server(arguments.versitygw, scratch) as options:
            yield options
        return
    command = [sys.executable, "-m", "moto.server", "-p", str(MOTO_PORT)]
    endpoint = f"http://127.0.0.1:{MOTO_PORT}"
    with (
        (scratch / "moto.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,  # noqa: S603
    ):
        try:
            _create_bucket(endpoint)
            yield {"endpoint": endpoint, "region": "us-east-1"}
        finally:
            server.terminate()


def _create_bucket(endpoint: str) -> None:
    import httpx  # noqa: PLC0415

    headers = {"Authorization": f"AWS {KEY}:x"}
    for _ in range(100):
        try:
            httpx.put(f"{endpoint}/{BUCKET}", headers=headers).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise BenchFailed("moto does not answer")


# The proxy.


@contextmanager
def delayed(options: dict[str, str], added_ms: float) -> Iterator[str]:
    """Run a proxy that adds latency to each answer; yield its URL."""
    port = options["endpoint"].rpartition(":")[2]
    command = [sys.executable, "-m", "bench.object_journal"]
    command += ["--proxy", port, str(added_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as proxy:  # noqa: S603
        try:
            assert proxy.stdout is not None
            proxy.stdout.readline()
            yield f"http://127.0.0.1:{PROXY_PORT}"
        finally:
            proxy.terminate()


async def serve_proxy(port: int, added_s: float) -> None:
    """Copy between clients and the server at *port*, answers *added_s* later."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, upstream[1]))
                tasks.create_task(_copy_late(upstream[0], writer, added_s))
        except* OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", PROXY_PORT)
    say("ready")
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _copy_late(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, added_s: float
) -> None:
    """Copy each piece *added_s* after it arrived; the rate has no limit."""
    loop = asyncio.get_running_loop()
    pieces: deque[tuple[float, bytes]] = deque()
    arrived, room = asyncio.Event(), asyncio.Event()

    async def send() -> None:
        while True:
            while not pieces:
                arrived.clear()
                await arrived.wait()
            due, data = pieces.popleft()
            room.set()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        while True:
            data = await reader.read(_READ_BYTES)
            pieces.append((loop.time() + added_s, data))
            arrived.set()
            if not data:
                return
            while len(pieces) > _BUFFERED_MAX:
                room.clear()
                await room.wait()


if __name__ == "__main__":
    main()
