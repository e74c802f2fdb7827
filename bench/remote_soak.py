"""
A long run with an S3 server: memory and both tiers must keep their bounds.

``python -m bench.remote_soak --minutes 20`` needs ``versitygw``, as
``bench.remote_reads`` does.  It measures how fast a producer and a consumer transfer
messages together, and repeats that at half the rate for the given time, while segments
are uploaded, evicted and dropped by a retention of one minute.  Every ten seconds it
prints the broker's memory and the sizes of both tiers.  In the end, each message must
have been received in order, and the store must hold exactly the segments of the topic.
It exits with 1 if a bound was not kept.
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pydanube
from bench.remote_reads import BUCKET, KEY, MIB, s3_server, say
from bench.systems.system import BenchFailed
from bench.usage import memory_bytes
from pydanube.aio.tasks import task_scope
from pydanube.model.policy import Retention
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker

TOPIC = "/default/soak"
MESSAGE_BYTES = 100
BATCH_MESSAGES = 1000
RING_BYTES = 16 * MIB
"""Payloads are slices of as many random bytes, so they can hardly be compressed."""
IN_FLIGHT_MAX = 16
MEASURE_S = 20.0
SAMPLE_S = 10.0
RETENTION_AGE_S = 60.0
SEAL_AGE_S = 5.0
RETENTION_INTERVAL_S = 1.0
LOCAL_BYTES_MAX = 256 * MIB
PREFIX = "soak"
SETTLE_S = 120.0
"""How long it may take after the run until the store has what the topic has."""
SETTLE_INTERVAL_S = 1.0
REMOTE_EXCESS_MAX = 0.2
"""How much the store may have beyond what retention keeps, relative to that: objects
are deleted after the manifest has dropped their segments."""
MEMORY_GROWTH_MAX = 0.1
"""How much the median memory of the last third may exceed that of the second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One moment of the run."""

    at_s: float
    memory_bytes: int
    local_bytes: int
    kept_bytes: int
    """The size of the segments in the manifest."""
    remote_bytes: int
    """The size of the segments in the store."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--versitygw", default=shutil.which("versitygw"))
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--share", type=float, default=0.5, help="of the full rate")
    parser.add_argument(
        "--role", choices=("publish", "consume"), help=argparse.SUPPRESS
    )
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "publish":
        asyncio.run(publish(arguments.url, arguments.rate, arguments.seconds))
    elif arguments.role == "consume":
        asyncio.run(consume(arguments.url))
    elif arguments.versitygw is None:
        raise BenchFailed("versitygw is not installed; name it with --versitygw")
    else:
        os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
        with (
            tempfile.TemporaryDirectory(prefix="remote-soak-") as scratch,
            s3_server(arguments.versitygw, Path(scratch)) as options,
        ):
            sys.exit(asyncio.run(run(Path(scratch), options, arguments)))


async def run(scratch: Path, options: dict[str, str], arguments: Any) -> int:
    """Run all of it; return the exit code."""
    url = f"s3://{BUCKET}/{PREFIX}"
    settings = {
        "DANUBE_STORAGE__REMOTE__URL": url,
        "DANUBE_STORAGE__REMOTE__OPTIONS": json.dumps(options),
        "DANUBE_STORAGE__REMOTE__LOCAL_BYTES_MAX": str(LOCAL_BYTES_MAX),
        "DANUBE_STORAGE__SEAL_AGE_S": str(SEAL_AGE_S),
        "DANUBE_STORAGE__RETENTION_INTERVAL_S": str(RETENTION_INTERVAL_S),
    }
    log = scratch / "broker.log"
    with running_broker(scratch / "data", log, settings) as broker:
        async with pydanube.connect(broker.url()) as client:
            await client.topics.create(TOPIC)
            await client.topics.configure(
                TOPIC, retention=Retention(age_s=RETENTION_AGE_S)
            )
            await client.subscriptions.create(TOPIC, "soak", start="earliest")
            consumer = await start(broker, "consume", stdin=subprocess.PIPE)
            full = await published(await start(broker, "publish", seconds=MEASURE_S))
            rate = full / MEASURE_S * arguments.share
            say(f"full rate {full / MEASURE_S:,.0f} messages/s; running at {rate:,.0f}")
            seconds = arguments.minutes * 60
            publisher = await start(broker, "publish", rate=rate, seconds=seconds)
            samples = Samples(broker, client, scratch / "s3" / BUCKET / PREFIX)
            async with task_scope() as tasks:
                tasks.run(samples.take_all(), name="samples")
                count = await published(publisher)
            say(f"published {count / seconds:,.0f} messages/s")
            answer, _ = await consumer.communicate(f"{full + count}\n".encode())
            wrong = samples.broken_bounds()
            if int(answer or -1) != full + count:
                wrong.append(f"the consumer received {answer!r} of {full + count}")
            wrong += await samples.different_objects()
    wrong += [line for line in log.read_text().splitlines() if " WARNING " in line][:10]
    for line in wrong:
        say(f"NOT KEPT: {line}")
    say("a bound was not kept" if wrong else "all bounds were kept")
    return 1 if wrong else 0


# The programs of the users, each in a process of its own.


async def start(
    broker: BrokerProcess,
    role: str,
    *,
    rate: float = 0.0,
    seconds: float = 0.0,
    stdin: int | None = None,
) -> asyncio.subprocess.Process:
    """Start a producer or a consumer."""
    given = {"role": role, "url": broker.url(), "rate": rate, "seconds": seconds}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.remote_soak",
        *(f"--{name}={value}" for name, value in given.items()),
        stdin=stdin,
        stdout=subprocess.PIPE,
    )


async def published(publisher: asyncio.subprocess.Process) -> int:
    """Return the number of messages, when the publisher has ended."""
    answer, _ = await publisher.communicate()
    if publisher.returncode:
        raise BenchFailed("the publisher failed")
    return int(answer)


async def publish(url: str, rate: float, seconds: float) -> None:
    """Publish numbered messages at *rate*, or as fast as possible if it is 0."""
    count = 0
    size = MESSAGE_BYTES - 8
    chance = random.Random(1).randbytes(RING_BYTES)  # noqa: S311
    async with (
        pydanube.connect(url) as client,
        client.producer(TOPIC) as producer,
        task_scope() as tasks,
    ):
        free = asyncio.Semaphore(IN_FLIGHT_MAX)
        began = time.monotonic()

        async def send(payloads: list[bytes]) -> None:
            try:
                await producer.send_batch(payloads)
            finally:
                free.release()

        while (now := time.monotonic()) < began + seconds:
            due = began + count / rate if rate else now
            await asyncio.sleep(max(0.0, due - now))
            await free.acquire()
            payloads = []
            for number in range(count, count + BATCH_MESSAGES):
                at = number * size % (RING_BYTES - size)
                payloads.append(number.to_bytes(8) + chance[at : at + size])
            tasks.run(send(payloads), name="send")
            count += BATCH_MESSAGES
        for _ in range(IN_FLIGHT_MAX):
            await free.acquire()
    say(str(count))


async def consume(url: str) -> None:
    """
    Receive and acknowledge messages until as many came as the input says.

    Each producer numbers its messages from 0, so a number may only be that of the
    message before plus one, or 0.
    """
    loop = asyncio.get_running_loop()
    wanted = loop.run_in_executor(None, sys.stdin.readline)
    count = 0
    expected = 0
    async with (
        pydanube.connect(url) as client,
        client.consumer(
            TOPIC, subscription="soak", prefetch_messages=20_000
        ) as consumer,
    ):
        while not wanted.done() or count < int(wanted.result()):
            batch = await consumer.receive_batch(max_messages=10_000, timeout_s=1.0)
            for payload in batch.payloads:
                number = int.from_bytes(payload[:8])
                if number not in (expected, 0):
                    raise BenchFailed(f"message {number} instead of {expected}")
                expected = number + 1
            count += len(batch)
            await consumer.ack(batch)
    say(str(count))


# The bounds.


class Samples:
    """Samples of a broker and of its store."""

    def __init__(
        self, broker: BrokerProcess, client: pydanube.Client, remote: Path
    ) -> None:
        """*remote* is the directory in which the store has its objects."""
        self._broker = broker
        self._client = client
        self._remote = remote
        self._taken: list[Sample] = []

    async def take_all(self) -> None:
        """Take and print samples, for ever."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(SAMPLE_S)
            status = await self._client.storage.describe()
            segments = (await self._client.storage.segments(TOPIC)).segments
            sample = Sample(
                at_s=time.monotonic() - began,
                memory_bytes=memory_bytes([self._broker.pid]),
                local_bytes=status.local_bytes,
                kept_bytes=sum(each.byte_count for each in segments),
                remote_bytes=sum(self._sizes().values()),
            )
            self._taken.append(sample)
            say(
                f"{sample.at_s:5.0f} s: memory {sample.memory_bytes // MIB} MiB, local "
                f"{sample.local_bytes // MIB} MiB, retention keeps "
                f"{sample.kept_bytes // MIB} MiB, remote {sample.remote_bytes // MIB} "
                f"MiB; {status.backlog_segments} segments not uploaded"
            )

    def _sizes(self) -> dict[str, int]:
        """Return the names and the sizes of the segments in the store."""
        sizes = {}
        for path in self._remote.rglob("*.parquet"):
            with suppress(FileNotFoundError):
                sizes[str(path.relative_to(self._remote))] = path.stat().st_size
        return sizes

    def broken_bounds(self) -> list[str]:
        """Return the bounds that were not kept during the run."""
        wrong = []
        third = len(self._taken) // 3
        # Single samples depend on how many segments are being encoded and uploaded.
        before = round(median(s.memory_bytes for s in self._taken[third:-third]))
        after = round(median(s.memory_bytes for s in self._taken[-third:]))
        if after > before * (1 + MEMORY_GROWTH_MAX):
            wrong.append(f"memory grew from {before // MIB} to {after // MIB} MiB")
        local = max(s.local_bytes for s in self._taken)
        if local > LOCAL_BYTES_MAX:
            wrong.append(f"the local segments took {local // MIB} MiB")
        for sample in self._taken:
            excess = sample.remote_bytes - sample.kept_bytes
            if excess > sample.kept_bytes * REMOTE_EXCESS_MAX:
                wrong.append(
                    f"{excess // MIB} MiB too many remote at {sample.at_s:.0f} s"
                )
        return wrong

    async def different_objects(self) -> list[str]:
        """Return what differs between topic and store, after all work is done."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = await self._client.topics.describe(TOPIC)
            await self._client.storage.upload(TOPIC)
            segments = (await self._client.storage.segments(TOPIC)).segments
            wanted = {each.object_name: each.byte_count for each in segments}
            sizes = self._sizes()
            if sizes == wanted and found.sealed_offset == found.end_offset:
                return []
            if time.monotonic() > deadline:
                return [f"the store has {len(sizes)} segments, the topic {len(wanted)}"]
            await asyncio.sleep(SETTLE_INTERVAL_S)


if __name__ == "__main__":
    main()
