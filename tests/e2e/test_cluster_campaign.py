"""
Everything at once: brokers, etcd and links fail, while clients of all kinds go on.

The ledger of the simulation compares what producers were told, what consumers got, and
what is stored in the end.  With DANUBE_TEST_SEEDS in the environment, as in 5-8, the
campaign has these seeds; with DANUBE_TEST_FAULTS, it is that many faults of each track.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import pydanube
from pydanube.aio.tasks import gather
from pydanube.client.messages.schema import Schema
from pydanube.model.errors import BrokerError
from pydanube.model.policy import SubscriptionType
from support.drivers.campaign_clients import (
    RETRY_S,
    SUBJECT,
    BatchSender,
    Book,
    Group,
    GrpcGroup,
    GrpcSender,
    KeyedSender,
    RefusedSender,
    RepeatingSender,
    Sender,
    SingleSender,
    follow,
)
from support.drivers.campaign_spark import SparkCopy
from support.servers.campaign_cluster import (
    CampaignCluster,
    Log,
    campaign_cluster,
)
from support.servers.campaign_processes import CampaignProcesses, campaign_processes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

FIRST, _, LAST = os.environ.get("DANUBE_TEST_SEEDS", "1-3").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
FAULTS = int(os.environ.get("DANUBE_TEST_FAULTS", "12"))
PARTITIONS = 3
if TYPE_CHECKING:
    Fault = Callable[[Any], Awaitable[None]]
    Opening = Callable[
        [Path, Log, Random], AbstractAsyncContextManager[CampaignCluster]
    ]


class Campaign:
    """The clients of a cluster, and the faults that they survive."""

    def __init__(
        self, cluster: CampaignCluster, book: Book, copy: SparkCopy | None = None
    ) -> None:
        self.cluster = cluster
        self.book = book
        self.copy = copy
        ports = [each.grpc.port for each in cluster.brokers]
        keyed = KeyedSender(book, "/default/keyed", "keyed", partitions=PARTITIONS)
        batches = BatchSender(book, "/default/batches", "batches")
        single = SingleSender(book, "/default/single", "single")
        self.grpc = GrpcSender(book, "/default/grpc", "grpc", ports)
        self.senders: list[Sender] = [
            *(keyed, batches, single, self.grpc),
            RepeatingSender(book, "/default/repeated", "repeated"),
            RefusedSender(book, "/default/refused", "refused"),
        ]
        types = SubscriptionType
        self.groups = [
            Group(book, keyed, types.KEY_SHARED, 3),
            Group(book, keyed, types.EXCLUSIVE, 1),
            Group(book, batches, types.SHARED, 2),
            Group(book, batches, types.FAILOVER, 2),
            Group(book, single, types.EXCLUSIVE, 1),
            Group(book, self.grpc, types.FAILOVER, 2),
            GrpcGroup(book, self.grpc, types.SHARED, 2, ports=ports),
        ]

    async def run(self, faults: Callable[[Campaign], Awaitable[None]]) -> None:
        """Run all clients while *faults* happen, and until all is consumed."""
        book, cluster = self.book, self.cluster
        async with pydanube.connect(cluster.url, retry_s=RETRY_S) as client:
            await self._create_topics(client)
            async with asyncio.TaskGroup() as tasks:
                consuming = [
                    tasks.create_task(each.run(client)) for each in self.groups
                ]
                consuming += [
                    tasks.create_task(follow(book, client, each))
                    for each in ("/default/single", "/default/batches")
                ]
                if self.copy is not None:
                    copying = self.copy.run(client, cluster.url)
                    consuming.append(tasks.create_task(copying))
                sending = [tasks.create_task(each.run(client)) for each in self.senders]
                await self.progress()
                await faults(self)
                book.log.add("all faults are over")
                await self.progress()
                book.is_over.set()
                await asyncio.wait(sending)
                book.log.add("all producers have ended")
                await book.check_stored(client)
                await asyncio.wait(consuming)
                book.log.add("all consumers have ended")
            self.grpc.check(book.violations)
            for group in self.groups:
                await group.check(client)
            if self.copy is not None:
                await self.copy.check(client)

    async def progress(self) -> None:
        """Wait until every producer has new acknowledgements."""
        acks = self.book.log.acks
        before = {each.name: len(acks[each.name]) for each in self.senders}
        while any(len(acks[name]) <= count for name, count in before.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def one_by_one(self, faults: Sequence[Fault]) -> None:
        """Let one fault happen after the other, and measure how long clients wait."""
        for fault in faults:
            with self.book.log.measuring(fault.__name__):
                await fault(self.cluster)
                await self.progress()

    async def at_once(self, count: int) -> None:
        """Let *count* faults of brokers happen, and as many others besides."""

        rng = self.cluster.rng

        async def some_of(faults: Sequence[Fault]) -> None:
            for _ in range(count):
                await asyncio.sleep(rng.random() * 4)
                await rng.choice(faults)(self.cluster)

        async with asyncio.TaskGroup() as tasks:
            moving = tasks.create_task(self._move(rng))
            await gather(
                [
                    some_of(self.cluster.BROKER_FAULTS),
                    some_of(self.cluster.OTHER_FAULTS),
                ]
            )
            moving.cancel()

    async def _move(self, rng: Random) -> None:
        async with pydanube.connect(self.cluster.url, retry_s=1) as client:
            while True:
                topic = rng.choice(list(self.book.ledger.topics))
                with suppress(BrokerError):
                    await client.cluster.move_topic(
                        topic, rng.choice(self.cluster.names)
                    )
                    self.book.log.add(f"move {topic}")
                await asyncio.sleep(rng.random() * 8)

    async def _create_topics(self, client: pydanube.Client) -> None:
        for sender in self.senders:
            is_repeated = isinstance(sender, RepeatingSender)
            await client.topics.create(
                sender.topic,
                partitions=PARTITIONS if isinstance(sender, KeyedSender) else None,
                deduplication=pydanube.Deduplication(age_s=3600)
                if is_repeated
                else None,
            )
        for group in self.groups:
            if isinstance(group, GrpcGroup):
                # Danube's clients begin at the end of the topic.
                await client.subscriptions.create(
                    *(group.topic, group.subscription),
                    type=group.type.value,
                    start="earliest",
                )
        await client.schemas.register(SUBJECT, Schema.json_schema('{"type": "string"}'))
        await client.topics.configure(
            "/default/refused",
            schema=pydanube.TopicSchema(
                subject=SUBJECT,
                policy=pydanube.SchemaPolicy.ENFORCE,
                validates_payload=True,
            ),
        )

    def state(self) -> str:
        """Return what clients wait for."""
        acks = {name: len(times) for name, times in self.book.log.acks.items()}
        backlogs = {
            f"{each.topic}:{each.subscription}": each.backlog for each in self.groups
        }
        return f"acknowledged: {acks}; not consumed: {backlogs}"


async def run_campaign(
    directory: Path,
    seed: int,
    faults: Callable[[Campaign], Awaitable[None]],
    timeout_s: float = 900,
    spark: Any = None,
    opening: Opening = campaign_cluster,
) -> None:
    """Run a campaign, with a stream of *spark*; an error says what happened before."""
    rng, log = Random(seed), Log()
    book = Book(log, Random(seed))
    campaign = None
    log.add(f"seed {seed}")
    try:
        async with (
            asyncio.timeout(timeout_s),
            opening(directory, log, rng) as cluster,
        ):
            copy = None
            if spark is not None:
                checkpoint = directory / "checkpoint"
                copy = SparkCopy(book, spark, "/default/batches", checkpoint)
            campaign = Campaign(cluster, book, copy)
            await campaign.run(faults)
            await cluster.stop()
        found = [*map(str, book.violations.found), *cluster.violations()]
        assert not found, "\n".join(found)
    finally:
        for line in log.summary():
            log.add(line)
        if campaign is not None:
            log.add(campaign.state())


@pytest.mark.timeout(240)
async def test_clients_lose_and_repeat_nothing_when_one_thing_fails(
    tmp_path: Path,
) -> None:
    faults = (
        CampaignCluster.kill_broker_and_wipe_its_disk,
        CampaignCluster.suspend_broker,
        CampaignCluster.cut_answers_of_etcd,
        CampaignCluster.kill_member,
    )
    await run_campaign(tmp_path, 1, lambda each: each.one_by_one(faults), 120)


@pytest.mark.smoke
@pytest.mark.timeout(240)
async def test_clients_lose_and_repeat_nothing_when_processes_are_killed(
    tmp_path: Path,
) -> None:
    faults = (
        CampaignProcesses.kill_process,
        CampaignProcesses.suspend_process,
        CampaignProcesses.kill_supervisor,
        CampaignProcesses.kill_all,
    )
    await run_campaign(
        *(tmp_path, 1, lambda each: each.one_by_one(faults), 120),
        opening=campaign_processes,
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_lose_and_repeat_nothing_when_processes_fail_at_once(
    tmp_path: Path, seed: int
) -> None:
    await run_campaign(
        *(tmp_path, seed, lambda each: each.at_once(FAULTS)),
        opening=campaign_processes,
    )


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_lose_and_repeat_nothing_when_everything_fails(
    tmp_path: Path, seed: int, spark: Any
) -> None:
    await run_campaign(tmp_path, seed, lambda each: each.at_once(FAULTS), spark=spark)
