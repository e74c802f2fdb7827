"""
Failover: how long the topics of a broker stand still when it is killed or drained.

``python -m bench.failover`` needs ``etcd``.  It starts one member of it, or as many as
``--members`` says, and three brokers, whose journals and segments are in a shared
directory, and a client that publishes to many topics, one message at a time, and
consumes them.  It kills brokers in turn, starts them again, drains and activates them,
and restarts them with SIGTERM.  With ``--kill-leader`` it kills the leader of etcd
together with each broker.

For each topic of a killed broker, it measures the time from the kill to the first new
acknowledgement, and to the first delivery of a new message.  For each topic of a
drained or restarted broker, it measures the longest time without an acknowledgement;
for each broker that starts, the time from its start, processes and all, until no shard
moves to it any more.  At the end it reads all topics: what was acknowledged must be
there once and in order.  Ctrl-C ends the run, and prints what was measured so far.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pydanube
from bench.etcd_members import EtcdMembers
from bench.remote_reads import say
from bench.run import interruptible
from bench.servers import (
    HOST,
    accepts,
    clean_environ,
    end_with_parent,
    free_port,
    log_tail,
    running,
)
from bench.systems.system import BenchFailed
from examples.demo.cluster_processes import (
    SESSION_LOST,
    broker_command,
    broker_settings,
    etcd_command,
)
from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerMode, ClusterDescription
from pydanube_cli.bench.figures import percentile

LOOK_S = 0.1
REST_S = 3.0
"""The pause before each event, in which all topics are published to."""
ARRIVAL_S = 0.1
"""How long answers may take to arrive that a broker has sent before it was killed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--etcd", default=shutil.which("etcd"))
    parser.add_argument("--members", type=int, default=1, help="of etcd")
    parser.add_argument(
        "--kill-leader", action="store_true", help="of etcd, with each broker"
    )
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--drains", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--session-ttl-s", type=int, default=2)
    parser.add_argument("--moves-max", type=int, help="cluster.moves_max")
    parser.add_argument("--pause-ms", type=float, default=10, help="between messages")
    parser.add_argument("--scratch", type=Path, help="keep data and logs here")
    arguments = parser.parse_args()
    # It tells of every lost connection, which is what is measured.
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    if arguments.etcd is None:
        raise BenchFailed("etcd is not installed; name it with --etcd")
    if arguments.kill_leader and arguments.members < 3:
        raise BenchFailed("--kill-leader needs --members 3, so that others are left")
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="failover-") as temporary,
        ExitStack() as stack,
    ):
        scratch = arguments.scratch or temporary
        members = EtcdMembers(arguments.etcd, Path(scratch), arguments.members)
        stack.callback(members.kill)
        members.start()
        members.wait()
        brokers = [
            Broker(f"broker-{number}", Path(scratch), members.endpoints, arguments)
            for number in range(1, arguments.brokers + 1)
        ]
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
        run = Run(brokers, members, arguments)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(run.measure())
        finally:
            say("\n".join(run.report()))


@contextmanager
def etcd_server(program: str, scratch: Path) -> Iterator[str]:
    """Run one member of etcd; yield its URL."""
    port = free_port()
    command = etcd_command(program, scratch / "etcd", port)
    log = scratch / "etcd.log"
    with running(command, log, is_ready=lambda: accepts(port)):
        yield f"http://{HOST}:{port}"


class Broker:
    """A broker of the cluster, which is killed and started again."""

    def __init__(
        self,
        name: str,
        scratch: Path,
        etcd: str,
        arguments: Any,
        *,
        http_port: int = 0,
    ) -> None:
        self.name = name
        self.port = free_port()
        self._log = scratch / f"{name}.log"
        self._command = broker_command(scratch / name, self.port)
        store_url = (scratch / "remote").as_uri()
        self._environ = clean_environ() | broker_settings(
            name, etcd, store_url, arguments.session_ttl_s
        )
        if http_port:
            self._command += ["--http-port", str(http_port)]
        if arguments.moves_max is not None:
            self._environ["DANUBE_CLUSTER__MOVES_MAX"] = str(arguments.moves_max)
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
                # Ctrl-C is for this process, which then ends its brokers.
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # It takes no lock.
            )

    @property
    def pid(self) -> int:
        """The number of its process, which runs."""
        assert self._process is not None
        return self._process.pid

    def restart_if_ended(self) -> bool:
        """
        Start the broker again if it has lost its session; return whether it had.

        On a machine that is too busy, keepalives may be later than the session's TTL.

        Raises:
            BenchFailed: It has ended for another reason.
        """
        if self._process is None or self._process.poll() is None:
            return False
        if self._process.returncode != SESSION_LOST:
            raise BenchFailed(
                f"{self.name} ended with exit code {self._process.returncode}. Its "
                f"output:\n{log_tail(self._log)}"
            )
        self.start()
        return True

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and wait until it has ended."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """Kill the broker, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Times:
    """When the messages of a topic, in their order, were acknowledged or delivered."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._grown = asyncio.Event()

    def add(self) -> None:
        """Note the time of the next message."""
        self.at.append(time.monotonic())
        self._grown.set()

    async def first_from(self, number: int) -> float:
        """Return the time of the message *number*, when it has come."""
        while len(self.at) <= number:
            self._grown.clear()
            await self._grown.wait()
        return self.at[number]

    def longest_gap(self, since: float) -> float:
        """Return the longest time between two messages, up to one after *since*."""
        return max(
            (after - before for before, after in pairwise(self.at) if after > since),
            default=0.0,
        )


class Topic:
    """A topic with a producer, which sends one message at a time, and a consumer."""

    def __init__(self, name: str, pause_s: float) -> None:
        self.name = name
        self.acknowledged = Times()
        self.delivered = Times()
        self._pause_s = pause_s

    async def publish(self, client: pydanube.Client) -> None:
        """Publish until cancelled."""
        async with client.producer(self.name) as producer:
            while True:
                await producer.send(b"%d" % len(self.acknowledged.at))
                self.acknowledged.add()
                await asyncio.sleep(self._pause_s)

    async def consume(self, client: pydanube.Client) -> None:
        """Consume until cancelled; messages that are delivered again do not count."""
        async with client.consumer(
            self.name, subscription="bench", start="earliest"
        ) as consumer:
            async for message in consumer:
                if int(message.payload) == len(self.delivered.at):
                    self.delivered.add()
                await consumer.ack(message)

    async def count_errors(self, client: pydanube.Client) -> int:
        """Return how many acknowledged messages are lost, repeated or out of order."""
        found: list[int] = []
        async for batch in client.read(self.name):
            found += [int(message.payload) for message in batch]
        expected = list(range(len(self.acknowledged.at)))
        # The last message may be stored without an acknowledgement.
        if found in (expected, [*expected, len(expected)]):
            return 0
        return max(1, len(set(expected) - set(found)))


class Run:
    """One run: the cluster, its topics, and what was measured."""

    def __init__(
        self, brokers: Sequence[Broker], members: EtcdMembers, arguments: Any
    ) -> None:
        self._brokers = {each.name: each for each in brokers}
        self._members = members
        self._arguments = arguments
        self._topics = [
            Topic(f"/default/t{number}", arguments.pause_ms / 1000)
            for number in range(arguments.topics)
        ]
        self._acknowledgements: list[float] = []
        self._deliveries: list[float] = []
        self._publish_pauses: list[float] = []
        self._delivery_pauses: list[float] = []
        self._joins: list[float] = []
        self._restarts: list[float] = []
        self._errors: int | None = None

    def report(self) -> Iterator[str]:
        """Yield the lines of the table of what was measured so far."""
        yield f"{'':40}{'topics':>8}{'p50':>9}{'p99':>9}{'longest':>9}"
        for title, times in (
            ("killed, until an acknowledgement", self._acknowledgements),
            ("killed, until a delivery", self._deliveries),
            ("moved, longest without acknowledgement", self._publish_pauses),
            ("moved, longest without delivery", self._delivery_pauses),
            ("restarted, longest without ack.", self._restarts),
            ("broker started, until it has its share", self._joins),
        ):
            yield f"{title:40}{len(times):8}" + "".join(
                f"{percentile(sorted(times), percent):7.2f} s" if times else f"{'-':>9}"
                for percent in (50, 99, 100)
            )
        count = sum(len(topic.acknowledged.at) for topic in self._topics)
        if self._errors is None:
            yield f"{count:,} acknowledged messages, not checked"
        else:
            yield f"{count:,} acknowledged messages, {self._errors} lost or repeated"

    async def measure(self) -> None:
        """Kill and drain brokers, and check all messages at the end."""
        url = "danube://" + ",".join(
            f"{HOST}:{each.port}" for each in self._brokers.values()
        )
        async with pydanube.connect(url, wait_s=60, retry_s=60) as client:
            say(f"waiting until {len(self._brokers)} brokers serve all shards")
            await self._settled(client)
            for topic in self._topics:
                await client.topics.create(topic.name)
            async with task_scope() as tasks:
                for topic in self._topics:
                    tasks.run(topic.publish(client))
                    tasks.run(topic.consume(client))
                await self._kill_brokers(client)
                await self._drain_brokers(client)
                await self._restart_brokers(client)
                await asyncio.sleep(REST_S)
            say("reading all topics")
            self._errors = sum(
                [await topic.count_errors(client) for topic in self._topics]
            )

    async def _kill_brokers(self, client: pydanube.Client) -> None:
        names = sorted(self._brokers)
        for turn in range(self._arguments.kills):
            broker = self._brokers[names[turn % len(names)]]
            await asyncio.sleep(REST_S)
            topics, began = self._topics_of(broker, client), time.monotonic()
            if self._arguments.kill_leader:
                await asyncio.to_thread(self._members.kill_leader)
                began = time.monotonic()
            broker.kill()
            await asyncio.sleep(ARRIVAL_S)
            # The numbers of the next messages; the killed broker has none of them.
            nexts = [len(topic.acknowledged.at) for topic in topics]
            acknowledged, delivered = [], []
            for topic, number in zip(topics, nexts, strict=True):
                at = await topic.acknowledged.first_from(number)
                acknowledged.append(at - began)
                at = await topic.delivered.first_from(number)
                delivered.append(at - began)
            self._acknowledgements += acknowledged
            self._deliveries += delivered
            say(
                f"kill {turn + 1} of {self._arguments.kills}: {broker.name}, "
                f"{len(topics)} topics; first acknowledgement after "
                f"{_range(acknowledged)}, first delivery after {_range(delivered)}"
            )
            self._members.start()
            await asyncio.to_thread(self._members.wait)
            await self._join(broker, client)

    async def _join(self, broker: Broker, client: pydanube.Client) -> None:
        """Start a broker, and wait until it has its share of the shards."""
        began = time.monotonic()
        broker.start()
        await self._settled(client)
        self._joins.append(time.monotonic() - began)

    async def _restart_brokers(self, client: pydanube.Client) -> None:
        """Restart one broker after the other, as an upgrade does."""
        names = sorted(self._brokers)
        for turn in range(self._arguments.restarts):
            broker = self._brokers[names[turn % len(names)]]
            await asyncio.sleep(REST_S)
            topics, began = self._topics_of(broker, client), time.monotonic()
            await asyncio.to_thread(broker.stop)
            stopped = time.monotonic()
            for topic in topics:
                await topic.acknowledged.first_from(len(topic.acknowledged.at))
            pauses = [topic.acknowledged.longest_gap(began) for topic in topics]
            self._restarts += pauses
            say(
                f"restart {turn + 1} of {self._arguments.restarts}: {broker.name}, "
                f"{len(topics)} topics, stopped in {stopped - began:.2f} s; longest "
                f"time without an acknowledgement {_range(pauses)}"
            )
            await self._join(broker, client)

    async def _drain_brokers(self, client: pydanube.Client) -> None:
        names = sorted(self._brokers)
        for turn in range(self._arguments.drains):
            broker = self._brokers[names[turn % len(names)]]
            await asyncio.sleep(REST_S)
            topics, began = self._topics_of(broker, client), time.monotonic()
            await client.cluster.drain_broker(broker.name)
            await self._until(client, partial(_is_drained, broker.name))
            drained = time.monotonic()
            for topic in topics:
                await topic.acknowledged.first_from(len(topic.acknowledged.at))
                await topic.delivered.first_from(len(topic.delivered.at))
            pauses = [topic.acknowledged.longest_gap(began) for topic in topics]
            self._publish_pauses += pauses
            self._delivery_pauses += [
                topic.delivered.longest_gap(began) for topic in topics
            ]
            say(
                f"drain {turn + 1} of {self._arguments.drains}: {broker.name}, "
                f"{len(topics)} topics, in {drained - began:.2f} s; longest time "
                f"without an acknowledgement {_range(pauses)}"
            )
            await client.cluster.activate_broker(broker.name)
            await self._settled(client)

    def _topics_of(self, broker: Broker, client: pydanube.Client) -> list[Topic]:
        """Return the topics that a broker serves, as the client knows them."""
        url = f"danube://{HOST}:{broker.port}"
        return [
            each
            for each in self._topics
            if client.requester.owners.find(each.name) == url
        ]

    async def _settled(self, client: pydanube.Client) -> None:
        """Wait until all brokers serve shards, and no shard moves."""
        await self._until(client, partial(_is_settled, len(self._brokers)))

    async def _until(
        self,
        client: pydanube.Client,
        is_reached: Callable[[ClusterDescription], bool],
    ) -> None:
        """Ask for the state of the cluster until it is as *is_reached* says."""
        while not is_reached(await client.cluster.describe()):
            for broker in self._brokers.values():
                if broker.restart_if_ended():
                    say(f"{broker.name} lost its session and is started again")
            await asyncio.sleep(LOOK_S)


def _is_drained(name: str, cluster: ClusterDescription) -> bool:
    return any(
        each.broker_id == name and each.mode is BrokerMode.DRAINED
        for each in cluster.brokers
    )


async def settled(client: pydanube.Client, count: int) -> None:
    """Wait until *count* brokers serve shards, and no shard moves."""
    while not _is_settled(count, await client.cluster.describe()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


def _is_settled(count: int, cluster: ClusterDescription) -> bool:
    serving = [each for each in cluster.brokers if each.shard_count]
    return (
        len(serving) == count
        and not cluster.unserved_count
        and not any(each.incoming_count for each in cluster.brokers)
    )


def _range(times: Sequence[float]) -> str:
    """Return the shortest and the longest of the times of topics."""
    if not times:
        return "(no topic)"
    return f"{min(times):.2f} to {max(times):.2f} s"


if __name__ == "__main__":
    main()
