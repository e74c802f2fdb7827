"""
Failover: how long publishers of a cluster wait when a broker is killed or drained.

``python -m bench.failover`` needs ``etcd``.  It starts one member of it and three
brokers, whose journals and segments are in a shared directory, and a client that
publishes to many topics, one message at a time.  It kills brokers in turn, starts them
again, and drains and activates them.  For each topic of such a broker, it measures the
longest time without an acknowledgement.  At the end it reads all topics: what was
acknowledged must be there once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pydanube
from bench.remote_reads import say
from bench.servers import HOST, accepts, clean_environ, free_port, running
from bench.systems.system import BenchFailed
from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerMode, ClusterDescription

LOOK_S = 0.1
REST_S = 3.0
"""The pause before each event, in which all topics are published to."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--etcd", default=shutil.which("etcd"))
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--drains", type=int, default=5)
    parser.add_argument("--session-ttl-s", type=int, default=2)
    parser.add_argument("--pause-ms", type=float, default=10, help="between messages")
    arguments = parser.parse_args()
    if arguments.etcd is None:
        raise BenchFailed("etcd is not installed; name it with --etcd")
    with (
        tempfile.TemporaryDirectory(prefix="failover-") as scratch,
        ExitStack() as stack,
    ):
        endpoint = stack.enter_context(etcd_server(arguments.etcd, Path(scratch)))
        brokers = [
            Broker(f"broker-{number}", Path(scratch), endpoint, arguments.session_ttl_s)
            for number in range(1, arguments.brokers + 1)
        ]
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
        asyncio.run(Run(brokers, arguments).measure())


@contextmanager
def etcd_server(program: str, scratch: Path) -> Iterator[str]:
    """Run one member of etcd; yield its URL."""
    port = free_port()
    url, peer_url = f"http://{HOST}:{port}", f"http://{HOST}:{free_port()}"
    command = [
        program,
        f"--data-dir={scratch / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--heartbeat-interval=50",
        "--election-timeout=500",
    ]
    log = scratch / "etcd.log"
    with running(command, log, is_ready=lambda: accepts(port)):
        yield url


class Broker:
    """A broker of the cluster, which is killed and started again."""

    def __init__(self, name: str, scratch: Path, etcd: str, ttl_s: int) -> None:
        self.name = name
        self.port = free_port()
        self._log = scratch / f"{name}.log"
        self._command = [sys.executable, "-m", "pydanube", "broker"]
        self._command += ["--stream-port", str(self.port), "--http-port", "0"]
        self._command += ["--grpc-port", "0", "--admin-port", "0"]
        self._command += ["--data-dir", str(scratch / name)]
        self._environ = clean_environ() | {
            "DANUBE_CLUSTER__ENABLED": "true",
            "DANUBE_CLUSTER__BROKER_ID": name,
            "DANUBE_METADATA__KIND": "etcd",
            "DANUBE_METADATA__ETCD__ENDPOINTS": etcd,
            "DANUBE_METADATA__ETCD__SESSION_TTL_S": str(ttl_s),
            "DANUBE_STORAGE__JOURNAL__KIND": "object",
            "DANUBE_STORAGE__REMOTE__URL": (scratch / "remote").as_uri(),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker, without waiting for it."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # It is ours.
                self._command,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Kill the broker, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Topic:
    """A topic that one producer publishes to, one message at a time."""

    def __init__(self, name: str, pause_s: float) -> None:
        self.name = name
        self.acknowledged_at: list[float] = []
        """When each of its messages was acknowledged."""
        self._acknowledged = asyncio.Event()
        self._pause_s = pause_s

    async def publish(self, client: pydanube.Client) -> None:
        """Publish until cancelled."""
        async with client.producer(self.name) as producer:
            while True:
                await producer.send(b"%d" % len(self.acknowledged_at))
                self.acknowledged_at.append(time.monotonic())
                self._acknowledged.set()
                await asyncio.sleep(self._pause_s)

    async def acknowledged_after(self, moment: float) -> None:
        """Wait for an acknowledgement after *moment*."""
        while self.acknowledged_at[-1] <= moment:
            self._acknowledged.clear()
            await self._acknowledged.wait()

    def longest_gap(self, since: float) -> float:
        """Return the longest time between acknowledgements, up to one after *since*."""
        return max(
            (
                after - before
                for before, after in pairwise(self.acknowledged_at)
                if after > since
            ),
            default=0.0,
        )

    async def count_errors(self, client: pydanube.Client) -> int:
        """Return how many acknowledged messages are lost, repeated or out of order."""
        found: list[int] = []
        async for batch in client.read(self.name):
            found += [int(message.payload) for message in batch]
        expected = list(range(len(self.acknowledged_at)))
        # The last message may be stored without an acknowledgement.
        if found in (expected, [*expected, len(expected)]):
            return 0
        return max(1, len(set(expected) - set(found)))


class Run:
    """One run: the cluster, its topics, and what was measured."""

    def __init__(self, brokers: Sequence[Broker], arguments: Any) -> None:
        self._brokers = {each.name: each for each in brokers}
        self._arguments = arguments
        self._topics = [
            Topic(f"/default/t{number}", arguments.pause_ms / 1000)
            for number in range(arguments.topics)
        ]

    async def measure(self) -> None:
        """Kill and drain brokers, and print the gaps and the errors."""
        url = "danube://" + ",".join(
            f"{HOST}:{each.port}" for each in self._brokers.values()
        )
        async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
            await self._settled(client)
            for topic in self._topics:
                await client.create_topic(topic.name)
            async with task_scope() as tasks:
                for topic in self._topics:
                    tasks.run(topic.publish(client))
                kills = await self._kill_brokers(client)
                drains = await self._drain_brokers(client)
                await asyncio.sleep(REST_S)
            say(f"killed brokers: {_summary(kills)}")
            say(f"drained brokers: {_summary(drains)}")
            errors = [await topic.count_errors(client) for topic in self._topics]
            count = sum(len(topic.acknowledged_at) for topic in self._topics)
            say(f"{count:,} acknowledged messages, {sum(errors)} lost or repeated")

    async def _kill_brokers(self, client: pydanube.Client) -> list[float]:
        gaps: list[float] = []
        names = sorted(self._brokers)
        for number in range(self._arguments.kills):
            broker = self._brokers[names[number % len(names)]]
            await asyncio.sleep(REST_S)
            topics, began = self._topics_of(broker, client), time.monotonic()
            broker.kill()
            gaps += await self._gaps(topics, began)
            broker.start()
            await self._settled(client)
        return gaps

    async def _drain_brokers(self, client: pydanube.Client) -> list[float]:
        gaps: list[float] = []
        names = sorted(self._brokers)
        for number in range(self._arguments.drains):
            broker = self._brokers[names[number % len(names)]]
            await asyncio.sleep(REST_S)
            topics, began = self._topics_of(broker, client), time.monotonic()
            await client.drain_broker(broker.name)
            await _until(client, partial(_is_drained, broker.name))
            gaps += await self._gaps(topics, began)
            await client.activate_broker(broker.name)
            await self._settled(client)
        return gaps

    def _topics_of(self, broker: Broker, client: pydanube.Client) -> list[Topic]:
        """Return the topics that a broker serves, as the client knows them."""
        url = f"danube://{HOST}:{broker.port}"
        return [each for each in self._topics if client.owners.find(each.name) == url]

    async def _gaps(self, topics: Sequence[Topic], began: float) -> list[float]:
        """Return the longest gap of each topic, when all are published to again."""
        for topic in topics:
            await topic.acknowledged_after(began)
        await asyncio.sleep(REST_S)
        return [topic.longest_gap(began) for topic in topics]

    async def _settled(self, client: pydanube.Client) -> None:
        """Wait until all brokers serve shards, and no shard moves."""
        await _until(client, partial(_is_settled, len(self._brokers)))


async def _until(
    client: pydanube.Client, is_reached: Callable[[ClusterDescription], bool]
) -> None:
    """Ask for the state of the cluster until it is as *is_reached* says."""
    found = await client.describe_cluster()
    while not is_reached(found):
        await asyncio.sleep(LOOK_S)
        found = await client.describe_cluster()


def _is_drained(name: str, cluster: ClusterDescription) -> bool:
    return any(
        each.broker_id == name and each.mode is BrokerMode.DRAINED
        for each in cluster.brokers
    )


def _is_settled(count: int, cluster: ClusterDescription) -> bool:
    serving = [each for each in cluster.brokers if each.shard_count]
    return (
        len(serving) == count
        and not cluster.unserved_count
        and not any(each.incoming_count for each in cluster.brokers)
    )


def _summary(gaps: Sequence[float]) -> str:
    if not gaps:
        return "no topic was interrupted"
    ordered = sorted(gaps)
    return (
        f"{len(gaps)} interruptions of topics, median {median(gaps):.2f} s, "
        f"p99 {ordered[int(0.99 * (len(ordered) - 1))]:.2f} s, "
        f"longest {ordered[-1]:.2f} s"
    )


if __name__ == "__main__":
    main()
