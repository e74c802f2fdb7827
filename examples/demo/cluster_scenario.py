"""The steps of the cluster demo."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from rich.live import Live

import pydanube
from examples.demo.cluster_chart import draw_cluster
from examples.demo.cluster_ledger import Failover, TopicLedger, prove_topics
from examples.demo.cluster_processes import ClusterBroker, ending, running_etcd
from examples.demo.cluster_view import view
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from examples.demo.proofs import Claim
    from pydanube.model.clusters import ClusterDescription

BROKERS = 3
REST_S = 3.0
"""How long all topics are published to before each kill."""
INTERVAL_S = 0.25
"""The interval of the terminal view, and of looking at the cluster."""
PAUSE_S = 0.01
"""The pause between two messages of a topic."""
UNKNOWN = "not known"
"""The owner of a message whose topic moved just before its acknowledgement."""
ARRIVAL_S = 0.1
"""How long answers may take to arrive that a broker sent before it was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The results of the cluster demo."""

    facts: Mapping[str, str]
    """Figures by what they are about."""
    claims: Sequence[Claim]
    chart: Path


def run_cluster_demo(
    directory: Path, output: Path, *, etcd: str, kills: int, topic_count: int
) -> ClusterReport:
    """
    Run a cluster, kill its brokers in turn, and compare what was sent and stored.

    Args:
        directory: The new or empty directory for etcd, brokers and their store.
        output: The directory for the chart and the logs.
        etcd: The program.
        kills: How many times a broker is killed.
        topic_count: The number of topics.

    Cancellation: All processes are stopped in any case, also by SIGTERM.

    Raises:
        InvalidRequest: *directory* is not empty, or etcd cannot be run.
        ProcessFailed: A process did not start or has ended.
        KeyboardInterrupt: SIGINT or SIGTERM arrived.
    """
    if directory.exists() and any(directory.iterdir()):
        raise InvalidRequest(
            f"{directory} is not empty. The demo needs a new cluster; choose a new or "
            "empty directory."
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The client logs every lost connection, which the demo is about.
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    directory, output = directory.resolve(), output.resolve()
    for each in (directory, output):
        each.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = stack.enter_context(
            running_etcd(etcd, directory / "etcd", output / "etcd.log")
        )
        store_url = (directory / "store").as_uri()
        brokers = [
            ClusterBroker(f"broker-{number}", directory, output, url, store_url)
            for number in range(1, BROKERS + 1)
        ]
        stack.enter_context(ending(brokers))
        for broker in brokers:
            broker.start()
        run = _Run(brokers, topic_count)
        with Live(refresh_per_second=4) as live:
            report = pydanube.run(run.carry_out(kills, output, live))
        if not live.console.is_terminal:
            # In a file, the view does not end its last line.
            live.console.line()
        return report


class _Run:
    """One run: the cluster, its topics, and what was counted."""

    def __init__(self, brokers: Sequence[ClusterBroker], topic_count: int) -> None:
        self._brokers = brokers
        self._names = {each.url: each.name for each in brokers}
        self._topics = [
            TopicLedger(f"/default/t{number}") for number in range(topic_count)
        ]
        self._failovers: list[Failover] = []
        self._lost_sessions = 0
        self._cluster: ClusterDescription | None = None
        self._step = ""
        self._started_at = time.monotonic()
        self._is_over = False

    def _now(self) -> float:
        return time.monotonic() - self._started_at

    async def carry_out(self, kills: int, output: Path, live: Live) -> ClusterReport:
        """Kill brokers while topics are published to, and check everything."""
        url = "danube://" + ",".join(
            broker.url.removeprefix("danube://") for broker in self._brokers
        )
        async with (
            pydanube.connect(url, wait_s=60, retry_s=60) as client,
            task_scope() as tasks,
        ):
            tasks.run(self._look(client))
            tasks.run(self._show(client, live))
            self._step = f"waiting until {len(self._brokers)} brokers serve all shards"
            await self._until_settled()
            for topic in self._topics:
                await client.topics.create(topic.name)
            for topic in self._topics:
                tasks.run(self._consume(topic, client))
            publishing = [
                tasks.run(self._publish(topic, client)) for topic in self._topics
            ]
            await self._kill_brokers(kills, client)
            await asyncio.sleep(REST_S)
            self._is_over = True
            await asyncio.wait(publishing)
            end = self._now()
            self._step = "waiting for the last deliveries"
            await self._until(self._is_delivered)
            self._step = "reading all topics"
            stored = [await _numbers(topic, client) for topic in self._topics]
        claims = prove_topics(self._topics, stored)
        chart = output / "danube-cluster-demo.png"
        facts = self._facts(end)
        hold = sum(claim.holds for claim in claims)
        headline = (
            f"{claims[0].expected:,} messages acknowledged, {kills} brokers killed"
            f"   ·   {hold} of {len(claims)} checks hold"
        )
        draw_cluster(chart, self._topics, self._failovers, end=end, headline=headline)
        return ClusterReport(facts=facts, claims=claims, chart=chart)

    async def _publish(self, topic: TopicLedger, client: pydanube.Client) -> None:
        async with client.producer(topic.name) as producer:
            while not self._is_over:
                await producer.send(b"%d" % len(topic.acknowledged))
                owner = client.requester.owners.find(topic.name) or ""
                topic.on_acknowledged(self._now(), self._names.get(owner, UNKNOWN))
                await asyncio.sleep(PAUSE_S)

    async def _consume(self, topic: TopicLedger, client: pydanube.Client) -> None:
        async with client.consumer(
            topic.name, subscription="demo", start="earliest"
        ) as consumer:
            async for message in consumer:
                topic.on_delivered(int(message.payload), self._now())
                await consumer.ack(message)

    async def _kill_brokers(self, kills: int, client: pydanube.Client) -> None:
        for turn in range(kills):
            broker = self._brokers[turn % len(self._brokers)]
            self._step = f"kill {turn + 1} of {kills} follows: {broker.name}"
            await asyncio.sleep(REST_S)
            owned = [
                topic
                for topic in self._topics
                if client.requester.owners.find(topic.name) == broker.url
            ]
            killed_at = self._now()
            broker.kill()
            self._step = f"{broker.name} was killed; its topics: {len(owned)}"
            await asyncio.sleep(ARRIVAL_S)
            # The numbers of the next messages; the killed broker has none of them.
            nexts = [len(topic.acknowledged) for topic in owned]
            pairs = list(zip(owned, nexts, strict=True))
            await self._until(partial(_are_delivered, pairs))
            self._failovers.append(
                Failover(
                    broker=broker.name,
                    killed_at=killed_at,
                    acknowledged_s=[t.acknowledged[n] - killed_at for t, n in pairs],
                    delivered_s=[t.delivered[n] - killed_at for t, n in pairs],
                )
            )
            self._step = f"{broker.name} starts again"
            broker.start()
            await self._until_settled()

    async def _look(self, client: pydanube.Client) -> None:
        """Look at the cluster, regularly."""
        while True:
            self._cluster = await client.cluster.describe()
            await asyncio.sleep(INTERVAL_S)

    async def _show(self, client: pydanube.Client, live: Live) -> None:
        """Show the cluster and its topics, regularly."""
        while True:
            owners = {
                topic.name: self._names.get(
                    client.requester.owners.find(topic.name) or "", ""
                )
                for topic in self._topics
            }
            live.update(
                view(
                    self._brokers,
                    self._topics,
                    owners,
                    self._cluster,
                    now=self._now(),
                    step=self._step,
                )
            )
            await asyncio.sleep(INTERVAL_S)

    def _is_delivered(self) -> bool:
        return all(
            len(topic.delivered) >= len(topic.acknowledged) for topic in self._topics
        )

    def _is_settled(self) -> bool:
        if self._cluster is None or self._cluster.unserved_count:
            return False
        serving = [each for each in self._cluster.brokers if each.shard_count]
        return len(serving) == len(self._brokers) and not any(
            each.incoming_count for each in serving
        )

    async def _until_settled(self) -> None:
        """Wait until all brokers serve shards, and no shard moves."""
        self._cluster = None
        await self._until(self._is_settled)

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        while not is_reached():
            for broker in self._brokers:
                self._lost_sessions += broker.restart_if_ended()
            await asyncio.sleep(0.05)

    def _facts(self, end: float) -> dict[str, str]:
        acknowledged = sum(len(topic.acknowledged) for topic in self._topics)
        facts = {
            "brokers, topics": f"{len(self._brokers)}, {len(self._topics)}",
            "messages acknowledged, one at a time for each topic": f"{acknowledged:,}",
            "… in": f"{end:.0f} s",
            "brokers killed": f"{len(self._failovers)}",
        }
        for text, times in (
            ("first acknowledgement", [f.acknowledged_s for f in self._failovers]),
            ("first delivery", [f.delivered_s for f in self._failovers]),
        ):
            all_times = [each for found in times for each in found]
            if all_times:
                facts[f"… to the {text} of a topic, median and longest"] = (
                    f"{median(all_times):.2f} s, {max(all_times):.2f} s"
                )
        again = sum(topic.redelivered for topic in self._topics)
        facts["messages delivered again, whose acknowledgement was under way"] = (
            f"{again:,}"
        )
        if self._lost_sessions:
            facts["brokers that lost their session without a kill"] = (
                f"{self._lost_sessions}"
            )
        return facts


def _are_delivered(pairs: Sequence[tuple[TopicLedger, int]]) -> bool:
    """Return whether these messages of topics are acknowledged and delivered."""
    return all(
        min(len(topic.acknowledged), len(topic.delivered)) > number
        for topic, number in pairs
    )


async def _numbers(topic: TopicLedger, client: pydanube.Client) -> list[int]:
    """Return the messages of a topic as they are stored."""
    return [
        int(message.payload)
        async for batch in client.read(topic.name)
        for message in batch
    ]
