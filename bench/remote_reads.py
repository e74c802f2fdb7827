"""
Reading history from an S3 server: throughput, and what live consumers notice.

``python -m bench.remote_reads`` needs ``versitygw`` (``go install
github.com/versity/versitygw/cmd/versitygw@latest``), starts it and a broker, and
publishes a topic whose segments it moves to the server.  It compares

- a read of the whole topic, through the broker and with a program that opens the
  segments itself as Spark tasks do, with reading the same objects from the server in
  ranges, round by round, because the machine may be busy; and
- the latency of a live consumer alone, beside a reader of history, beside one that
  takes ``PACED_MIB_PER_S``, and beside a reader of another broker's history.  The last
  one shows what the broker of the consumer has no part in: the other programs on the
  machine need its processors, too.  The paced one leaves them some time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import pyarrow as pa

import pydanube
from bench.systems.system import BenchFailed
from bench.usage import Meter
from pydanube.aio.tasks import gather
from pydanube.objects.opening import open_objects
from pydanube.wire.files.segment_format import parse_object_name
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.pure.scans import Scan, plan_scans
from pydanube_spark.reader.scan_reader import SCHEMA_DEFAULT, read_scan

HISTORY = "/default/history"
LIVE = "/default/live"
MESSAGE_BYTES = 1000
BATCH_MESSAGES = 2000
RANGE_BYTES = 4 * 1024 * 1024
RANGES_MAX = 16
LIVE_INTERVAL_S = 0.005
BUCKET = "danube"
KEY = "benchmarkkey"
MIB = 1024 * 1024
SCAN_BYTES_MAX = 64 * MIB
DIRECT_TASKS = 2
PACED_MIB_PER_S = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--versitygw", default=shutil.which("versitygw"))
    parser.add_argument("--mib", type=int, default=512, help="size of the history")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--live-s", type=float, default=10.0)
    parser.add_argument("--read-for", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--pace", type=float, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.url is not None:
        asyncio.run(read_history_for(arguments.url, arguments.read_for, arguments.pace))
        return
    if arguments.versitygw is None:
        raise BenchFailed("versitygw is not installed; name it with --versitygw")
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    with (
        tempfile.TemporaryDirectory(prefix="remote-reads-") as scratch,
        s3_server(arguments.versitygw, Path(scratch)) as options,
    ):
        run(Path(scratch), options, arguments)


def say(line: str) -> None:
    """Print *line* at once."""
    print(line, flush=True)  # noqa: T201


def run(scratch: Path, options: dict[str, str], arguments: Any) -> None:
    """Measure with the S3 server that *options* describe."""
    url = f"s3://{BUCKET}/history"
    with (
        broker_with_history(scratch, "history", options, arguments.mib) as broker,
        broker_with_history(scratch, "other", options, arguments.mib) as other,
    ):
        ratios, direct_ratios = [], []
        for at in range(arguments.rounds):
            gib = arguments.mib / 1024
            with Meter([os.getpid()]) as meter:
                raw = asyncio.run(read_ranges(url, options))
            raw_s = meter.cpu_s / gib
            with Meter([os.getpid()]) as meter, Meter([broker.pid]) as own:
                through = asyncio.run(read_history(broker.url()))
            through_s, own_s = meter.cpu_s / gib, own.cpu_s / gib
            with Meter([os.getpid()]) as meter:
                direct = read_directly(broker.url())
            direct_s = meter.cpu_s / gib
            ratios.append(through / raw)
            direct_ratios.append(direct / raw)
            say(
                f"round {at + 1}: ranges {raw:.0f} MiB/s, through the broker "
                f"{through:.0f} MiB/s: {ratios[-1]:.0%}, directly {direct:.0f} MiB/s: "
                f"{direct_ratios[-1]:.0%}; processor seconds of all processes for a "
                f"GiB: {raw_s:.2f}, {through_s:.2f} ({own_s:.2f} of them the broker's) "
                f"and {direct_s:.2f}"
            )
        say(
            f"median: {median(ratios):.0%} through the broker, "
            f"{median(direct_ratios):.0%} directly"
        )
        cases = (
            ("alone", None, 0),
            ("beside a reader", broker, 0),
            (f"beside a reader of {PACED_MIB_PER_S} MiB/s", broker, PACED_MIB_PER_S),
            ("beside a reader of another broker", other, 0),
        )
        found_of: dict[str, list[float]] = {name: [] for name, _, _ in cases}
        seconds = arguments.live_s
        for _ in range(arguments.rounds):
            for name, read, pace in cases:
                with ExitStack() as stack:
                    if read is not None:
                        reading = reader_of_history(read.url(), seconds + 2, pace)
                        stack.enter_context(reading)
                    found_of[name] += asyncio.run(live(broker.url(), seconds))
        for name, found in found_of.items():
            p99 = quantiles(found, n=100)[98]
            say(
                f"live consumer {name}: p50 {median(found) * 1e3:.2f} ms, "
                f"p99 {p99 * 1e3:.2f} ms of {len(found)} messages"
            )


@contextmanager
def broker_with_history(
    scratch: Path, name: str, options: dict[str, str], mib: int
) -> Iterator[BrokerProcess]:
    """Run a broker whose history is in the S3 server only."""
    settings = {
        "DANUBE_STORAGE__REMOTE__URL": f"s3://{BUCKET}/{name}",
        "DANUBE_STORAGE__REMOTE__OPTIONS": json.dumps(options),
        "DANUBE_STORAGE__REMOTE__READ_CACHE_BYTES_MAX": "0",
        "DANUBE_STORAGE__SEAL_AGE_S": "5",
    }
    with running_broker(scratch / name, scratch / f"{name}.log", settings) as broker:
        asyncio.run(fill(broker.url(), mib))
        yield broker


@contextmanager
def s3_server(program: str, scratch: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with an empty bucket; yield the options of its store."""
    (scratch / "s3" / BUCKET).mkdir(parents=True)
    (scratch / "sidecar").mkdir()
    port = 17071
    command = [
        program,
        "--port",
        f"127.0.0.1:{port}",
        "--access",
        KEY,
        "--secret",
        KEY,
        "posix",
        "--sidecar",
        str(scratch / "sidecar"),
        str(scratch / "s3"),
    ]
    with (
        (scratch / "s3.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,  # noqa: S603
    ):
        try:
            _await_server(f"http://127.0.0.1:{port}", server)
            yield {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}
        finally:
            server.terminate()


def _await_server(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        if server.poll() is not None:
            raise BenchFailed("the S3 server ended; see its log")
        try:
            httpx.get(url)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise BenchFailed("the S3 server does not answer")


async def fill(url: str, mib: int) -> None:
    """Publish *mib* of incompressible messages; leave them only in the store."""
    chance = random.Random(1)  # noqa: S311
    async with pydanube.connect(url) as client:
        await client.topics.create(LIVE)
        async with client.producer(HISTORY) as producer:
            for _ in range(mib * MIB // (MESSAGE_BYTES * BATCH_MESSAGES)):
                data = chance.randbytes(MESSAGE_BYTES * BATCH_MESSAGES)
                payloads = [
                    data[at : at + MESSAGE_BYTES]
                    for at in range(0, len(data), MESSAGE_BYTES)
                ]
                await producer.send_batch(pa.table({"payload": payloads}))
        await client.storage.upload(HISTORY)
        while True:
            found = await client.topics.describe(HISTORY)
            if found.sealed_offset == found.end_offset:
                break
            await asyncio.sleep(0.5)
        await client.storage.upload(HISTORY)
        await client.storage.evict(HISTORY)


async def read_ranges(url: str, options: dict[str, str]) -> float:
    """Return the rate, in MiB/s, of reading all segments from the server in ranges."""
    store = open_objects(url, options)
    spans = []
    for name in await store.names(""):
        info = await store.stat(name)
        if parse_object_name(name) is not None and info is not None:
            size = info.byte_count
            spans += [(name, at, size) for at in range(0, size, RANGE_BYTES)]
    left = iter(spans)
    byte_count = 0

    async def read() -> None:
        nonlocal byte_count
        for name, at, size in left:
            data = await store.read(name, at, min(at + RANGE_BYTES, size))
            byte_count += len(data or b"")

    began = time.perf_counter()
    await gather(read() for _ in range(RANGES_MAX))
    return byte_count / MIB / (time.perf_counter() - began)


async def read_history(url: str) -> float:
    """Return the rate, in MiB/s of segments, of reading the topic with a client."""
    async with pydanube.connect(url) as client:
        segments = (await client.storage.segments(HISTORY)).segments
        if any(each.url != each.remote_url for each in segments):
            raise BenchFailed("the broker has local copies of some segments")
        began = time.perf_counter()
        count = 0
        async for batch in client.read(HISTORY, end=segments[-1].end):
            count += len(batch)
        seconds = time.perf_counter() - began
    if count != segments[-1].end:
        raise BenchFailed(f"{count} messages were read of {segments[-1].end}")
    return sum(each.byte_count for each in segments) / MIB / seconds


def read_directly(url: str) -> float:
    """Return the rate, in MiB/s, of opening the segments in this process."""
    given = {"url": url, "subscribe": HISTORY, "readThrough": "never"}
    options = parse_read_options(given, Mode.BATCH)
    catalog = Catalog(options)
    head, _ = catalog.layouts({HISTORY: (0, 1)})[HISTORY]
    _, found = catalog.layouts({HISTORY: (0, head.end)})[HISTORY]
    scans = plan_scans([found], scan_bytes_max=SCAN_BYTES_MAX)

    def count(scan: Scan) -> int:
        batches = read_scan(scan, SCHEMA_DEFAULT, catalog, fail_on_data_loss=True)
        return sum(batch.num_rows for batch in batches)

    began = time.perf_counter()
    with ThreadPoolExecutor(DIRECT_TASKS) as threads:
        read = sum(threads.map(count, scans))
    seconds = time.perf_counter() - began
    if read != head.end:
        raise BenchFailed(f"{read} messages were read of {head.end}")
    return sum(each.byte_count for each in found.segments) / MIB / seconds


async def read_history_for(url: str, seconds: float, pace: float) -> None:
    """Read the topic again and again, at *pace* MiB/s; 0: as fast as possible."""
    began, count = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        if not pace:
            await read_history(url)
            continue
        async with pydanube.connect(url) as client:
            async for batch in client.read(HISTORY):
                count += len(batch)
                due = began + count * MESSAGE_BYTES / MIB / pace
                await asyncio.sleep(max(0, due - time.monotonic()))
                if due > began + seconds:
                    break


@contextmanager
def reader_of_history(url: str, seconds: float, pace: float) -> Iterator[None]:
    """Read the history in another process during the body."""
    command = [sys.executable, "-m", "bench.remote_reads"]
    given = ["--url", url, "--read-for", str(seconds), "--pace", str(pace)]
    with subprocess.Popen(command + given) as reader:  # noqa: S603
        try:
            yield
            if reader.poll() is not None:
                raise BenchFailed("the reader of history ended too early")
        finally:
            reader.terminate()


async def live(url: str, seconds: float) -> list[float]:
    """Return how long messages took from their producer to a consumer, in seconds."""
    latencies: list[float] = []
    async with (
        pydanube.connect(url) as client,
        client.consumer(LIVE, subscription="live", start="latest") as consumer,
        client.producer(LIVE) as producer,
    ):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            await producer.send(b"x" * 100)
            await consumer.ack(await consumer.receive(timeout_s=10))
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(LIVE_INTERVAL_S)
    return latencies


if __name__ == "__main__":
    main()
