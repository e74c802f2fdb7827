"""
A greedy tenant: what a well-behaved client notices of one that floods the broker.

``python -m bench.greedy_tenant`` starts two brokers with API keys.  The *steady* client
publishes to some topics at a fixed rate, and consumes them.  The *greedy* client, a
process of its own with several connections, publishes large messages as fast as it can,
and reads them again and again.

In each round, the latencies of the steady client are measured alone, beside the greedy
client without a quota and with one, and beside a greedy client of another broker.  The
last one shows what the broker has no part in: both clients need the same processors.
Latencies count from the time at which a message was due, so a late message also counts
for those that wait behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pydanube
from bench.remote_reads import say
from bench.run import interruptible
from bench.servers import end_with_parent
from pydanube.aio.tasks import task_scope
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker
from pydanube_cli.bench.figures import percentile

STEADY_TOPICS = 10
STEADY_BYTES = 1000
GREEDY_CONNECTIONS = 4
GREEDY_BYTES = 64 * 1024
MIB = 1024 * 1024
RETENTION = pydanube.Retention(bytes_max=256 * MIB)
WARM_UP_S = 2.0
CONDITIONS = ("alone", "elsewhere", "greedy", "greedy with quota")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of each condition")
    parser.add_argument("--rate", type=float, default=200, help="messages per second")
    parser.add_argument("--quota-mib", type=float, default=4, help="per s, in and out")
    parser.add_argument("--quota-requests", type=int, default=50, help="per s")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--flood", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # The end of a run interrupts the producers.
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    if arguments.flood:
        asyncio.run(flood(arguments.flood))
        return
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="greedy-") as scratch,
        ExitStack() as stack,
    ):
        brokers = [
            stack.enter_context(secured_broker(Path(scratch), name))
            for name in ("broker", "other")
        ]
        run = Run(brokers[0].url(), brokers[1].url(), Path(scratch), arguments)
        try:
            asyncio.run(run.measure())
        except KeyboardInterrupt:
            say("interrupted; these are the figures until then")
        if arguments.format == "json":
            sys.stdout.write(json.dumps(run.figures(), indent=2) + "\n")
        else:
            say("\n".join(run.report()))


@contextmanager
def secured_broker(scratch: Path, name: str) -> Iterator[BrokerProcess]:
    """Run a broker whose clients need API keys."""
    settings = {
        "DANUBE_SECURITY__ENABLED": "true",
        "DANUBE_SECURITY__BOOTSTRAP_KEY_FILE": str(scratch / "bootstrap.key"),
    }
    with running_broker(scratch / name, scratch / f"{name}.log", settings) as broker:
        yield broker


async def flood(url: str) -> None:
    """Publish and read as fast as possible, with several connections, for ever."""
    async with task_scope() as tasks:
        for number in range(GREEDY_CONNECTIONS):
            tasks.run(_flood(url, f"/greedy/t{number}"), "flood")
        await asyncio.Event().wait()


async def _flood(url: str, topic: str) -> None:
    async with pydanube.connect(url) as client, task_scope() as tasks:
        await client.topics.create(topic, exist_ok=True)
        tasks.run(_read(client, topic), "read")
        payload = os.urandom(GREEDY_BYTES)
        async with client.producer(topic) as producer:
            while True:
                await producer.send_batch([payload] * 16)


async def _read(client: pydanube.Client, topic: str) -> None:
    while True:
        async for _ in client.read(topic):
            pass
        await asyncio.sleep(0)


class Latencies:
    """The latencies of one condition, in seconds."""

    def __init__(self) -> None:
        self.receipts = array("d")
        self.deliveries = array("d")

    def p99_ms(self) -> tuple[float, float]:
        """Return the 99th percentiles of receipts and deliveries."""
        receipts, deliveries = sorted(self.receipts), sorted(self.deliveries)
        return percentile(receipts, 99) * 1e3, percentile(deliveries, 99) * 1e3


class Run:
    """One run: all rounds, and what was measured."""

    def __init__(self, url: str, other: str, scratch: Path, arguments: Any) -> None:
        self._url = url
        self._urls = {"elsewhere": other}
        self._scratch = scratch
        self._arguments = arguments
        self._rounds: list[dict[str, Latencies]] = []
        self._current = Latencies()
        self._is_measuring = False

    async def measure(self) -> None:
        """Measure all conditions, round by round."""
        for url in (self._url, *self._urls.values()):
            await self._set_up(url)
        async with pydanube.connect(self._with_key("steady")) as client:
            topics = [f"/steady/t{number}" for number in range(STEADY_TOPICS)]
            for topic in topics:
                await client.topics.create(topic)
            async with task_scope() as tasks:
                for number, topic in enumerate(topics):
                    tasks.run(self._publish(client, topic, number), "publish")
                    tasks.run(self._consume(client, topic), "consume")
                for number in range(self._arguments.rounds):
                    await self._round(number)

    async def _set_up(self, url: str) -> None:
        async with pydanube.connect(self._with_key("bootstrap", url)) as client:
            for name in ("steady", "greedy"):
                await client.namespaces.create(name)
                created = await client.security.create_api_key(name)
                file = self._key_file(name, url)
                file.write_text(created.key)
                await client.security.add_binding(
                    f"user:{name}", ["developer"], [f"/{name}", f"/{name}/*"]
                )
            await client.namespaces.configure("greedy", retention=RETENTION)

    async def _round(self, number: int) -> None:
        found: dict[str, Latencies] = {}
        self._rounds.append(found)
        for condition in CONDITIONS:
            await self._set_quota(is_limited=condition == "greedy with quota")
            with ExitStack() as stack:
                if condition != "alone":
                    url = self._urls.get(condition, self._url)
                    stack.enter_context(self._greedy(url))
                await asyncio.sleep(WARM_UP_S)
                self._current, self._is_measuring = Latencies(), True
                await asyncio.sleep(self._arguments.seconds)
                self._is_measuring = False
                found[condition] = self._current
            receipt, delivery = found[condition].p99_ms()
            say(
                f"round {number + 1}, {condition}: p99 {receipt:.1f} ms until the "
                f"receipt, {delivery:.1f} ms until the delivery"
            )

    async def _set_quota(self, *, is_limited: bool) -> None:
        rate = int(self._arguments.quota_mib * MIB)
        quota = pydanube.Quota(
            bytes_in_per_s=rate,
            bytes_out_per_s=rate,
            requests_per_s=self._arguments.quota_requests,
        )
        async with pydanube.connect(self._with_key("bootstrap")) as client:
            found = await client.security.describe_quota("user:greedy")
            is_set = found is not None and not found.is_default
            if is_limited:
                await client.security.set_quota("user:greedy", quota)
            elif is_set:
                await client.security.remove_quota("user:greedy")

    @contextmanager
    def _greedy(self, url: str) -> Iterator[None]:
        process = subprocess.Popen(  # noqa: S603  # It is this program.
            [
                sys.executable,
                "-m",
                "bench.greedy_tenant",
                "--flood",
                self._with_key("greedy", url),
            ],
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # It takes no lock.
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    async def _publish(self, client: pydanube.Client, topic: str, number: int) -> None:
        interval_s = STEADY_TOPICS / self._arguments.rate
        due = time.monotonic() + interval_s * number / STEADY_TOPICS
        async with client.producer(topic) as producer:
            while True:
                due += interval_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                payload = repr(due).encode().ljust(STEADY_BYTES)
                await producer.send(payload)
                if self._is_measuring:
                    self._current.receipts.append(time.monotonic() - due)

    async def _consume(self, client: pydanube.Client, topic: str) -> None:
        async with client.consumer(topic, subscription="bench") as consumer:
            async for message in consumer:
                if self._is_measuring:
                    late_s = time.monotonic() - float(message.payload)
                    self._current.deliveries.append(late_s)
                await consumer.ack(message)

    def _with_key(self, name: str, url: str = "") -> str:
        url = url or self._url
        return f"{url}?api_key_file={self._key_file(name, url)}"

    def _key_file(self, name: str, url: str) -> Path:
        if name == "bootstrap":
            return self._scratch / "bootstrap.key"
        return self._scratch / f"{name}-{url.rpartition(':')[2]}.key"

    def figures(self) -> dict[str, Any]:
        """Return the medians over the rounds, by condition."""
        rounds = [each for each in self._rounds if len(each) == len(CONDITIONS)]
        return {
            condition: {
                "p99_receipt_ms": _median(rounds, condition, 0),
                "p99_delivery_ms": _median(rounds, condition, 1),
                "of_alone_receipt": _ratio(rounds, condition, 0),
                "of_alone_delivery": _ratio(rounds, condition, 1),
            }
            for condition in CONDITIONS
            if rounds
        }

    def report(self) -> Iterator[str]:
        """Yield the lines of the table: medians over the rounds."""
        yield f"{'p99, median of the rounds':28}{'receipt':>20}{'delivery':>20}"
        for condition, found in self.figures().items():
            yield f"{condition:28}" + "".join(
                f"{found[f'p99_{what}_ms']:9.1f} ms{found[f'of_alone_{what}']:6.2f} x"
                for what in ("receipt", "delivery")
            )


def _median(rounds: Sequence[dict[str, Latencies]], condition: str, at: int) -> float:
    return median(each[condition].p99_ms()[at] for each in rounds)


def _ratio(rounds: Sequence[dict[str, Latencies]], condition: str, at: int) -> float:
    return median(
        each[condition].p99_ms()[at] / each["alone"].p99_ms()[at] for each in rounds
    )


if __name__ == "__main__":
    main()
