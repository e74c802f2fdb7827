"""Runs a replication until it is stopped, and lets the target take over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from pydanube.aio.tasks import task_scope
from pydanube.client.client import Client, connect
from pydanube.client.described_topics import describe_all
from pydanube.model.errors import InvalidRequest, StagedPartNotFound
from pydanube.model.retry import RetryPolicy
from pydanube_connect.pure.failures import TakenOver, error_line, is_transient
from pydanube_connect.replication.checkpoints import (
    Checkpoints,
    MovedSubscription,
    forget,
    move_subscription,
    read_subscriptions,
)
from pydanube_connect.replication.replicator import (
    Replication,
    ReplicationStatus,
    Replicator,
    release_source,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """How far a replication is behind in a topic."""

    topic: str
    target: str
    next: int
    """The source offset to continue at."""
    lag: int | None
    """None: the source does not have the topic any more."""


RETRIES = RetryPolicy(first_s=0.5, max_s=30.0)
TAKE_OVERS_MAX = 10
"""How often a cut-over begins anew because a replicator still commits."""


@asynccontextmanager
async def connected(*urls: str) -> AsyncIterator[list[Client]]:
    """Connect to the brokers at *urls*."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(url)) for url in urls]


async def replicate(
    replication: Replication,
    source_url: str,
    target_url: str,
    report: Callable[[ReplicationStatus], None],
    *,
    stop: asyncio.Event,
    interval_s: float,
) -> ReplicationStatus:
    """
    Run *replication* until *stop* is set; wait for brokers that are away.

    Raises:
        BrokerError: It cannot continue until somebody changes something.
    """
    status = ReplicationStatus(replication=replication.name)

    async def report_regularly() -> None:
        while True:
            await asyncio.sleep(interval_s)
            report(status)

    async with task_scope() as tasks:
        tasks.run(report_regularly())
        failures = 0
        while not stop.is_set():
            commits = status.commits
            try:
                async with connected(source_url, target_url) as [source, target]:
                    replicator = Replicator(
                        replication, source, target, status, now=time.monotonic
                    )
                    await replicator.open()
                    await replicator.run(stop)
                    await replicator.report_progress()
            except Exception as error:
                # A target that was killed may have lost what was staged.
                may_pass = isinstance(error, StagedPartNotFound) or is_transient(error)
                if not may_pass:
                    raise
                failures = 1 if status.commits > commits else failures + 1
                status.retries += 1
                status.state, status.error = "waiting", error_line(error)
                report(status)
                pause_s = RETRIES.delay_s(failures, random.random)
                waiting = tasks.start(stop.wait())
                await asyncio.wait([waiting], timeout=pause_s)
                waiting.cancel()
        status.state = "stopped"
        report(status)
    return status


async def cut_over(
    replication: Replication, source_url: str | None, target_url: str
) -> list[MovedSubscription]:
    """
    Let the target take over: replicate what is left, and move the subscriptions.

    Without *source_url*, the source is lost: the target continues with what was
    replicated, and the cursors that were stored last.

    Raises:
        InvalidRequest: Nothing was replicated.
        TakenOver: A replicator committed again and again meanwhile.
        BrokerError: A broker fails; repeat the cut-over.
    """
    status = ReplicationStatus(replication=replication.name)
    urls = [target_url] if source_url is None else [target_url, source_url]
    async with connected(*urls) as [target, *sources]:
        source = sources[0] if sources else None
        replicator = await _fenced(replication, source, target, status)
        topics = replicator.position.topics
        if not topics:
            raise InvalidRequest(
                f"the replication {replication.name} has no topics: is its name right?"
            )
        if source is None:
            stored = Checkpoints(target, replication.subscriptions_topic)
            states = await stored.load()
        else:
            own = replication.hold
            states = await read_subscriptions(source, list(topics), own)
        moved = [
            await move_subscription(target, each, topics)
            for each in states
            if each.topic in topics
        ]
        if source is not None:
            await release_source(source, replication, topics)
    return moved


async def _fenced(
    replication: Replication,
    source: Client | None,
    target: Client,
    status: ReplicationStatus,
) -> Replicator:
    """Replicate what is left, and let no replicator commit any more."""
    for attempt in range(TAKE_OVERS_MAX):
        # Without a source, only the position at the target is used.
        replicator = Replicator(
            replication, source or target, target, status, now=time.monotonic
        )
        try:
            await replicator.open(may_be_cut_over=True)
            if replicator.position.is_cut_over:
                # It was interrupted: move the subscriptions again.
                return replicator
            if source is not None:
                await replicator.run(asyncio.Event(), to_end=True)
            await replicator.cut_over()
        except TakenOver:
            if attempt + 1 == TAKE_OVERS_MAX:
                raise
        else:
            return replicator
    raise AssertionError


async def _opened(replication: Replication, target: Client) -> Replicator:
    """Return a replicator that only knows its position, not the source."""
    status = ReplicationStatus(replication=replication.name)
    replicator = Replicator(replication, target, target, status, now=time.monotonic)
    await replicator.open(may_be_cut_over=True)
    return replicator


async def find_lag(
    replication: Replication, source_url: str, target_url: str
) -> list[TopicLag]:
    """Return how far *replication* is behind in each topic."""
    async with connected(source_url, target_url) as [source, target]:
        topics = (await _opened(replication, target)).position.topics
        ends = await source.topics.list_offsets(topics)
    return [
        TopicLag(
            topic=topic,
            target=each.target,
            next=each.next,
            lag=ends[topic].end_offset - each.next if topic in ends else None,
        )
        for topic, each in sorted(topics.items())
    ]


async def remove(
    replication: Replication, source_url: str | None, target_url: str
) -> None:
    """Forget the position of *replication*, and release the topics of the source."""
    urls = [target_url] if source_url is None else [target_url, source_url]
    async with connected(*urls) as [target, *sources]:
        topics: Iterable[str] | None = None
        # If the position was trimmed, its topics are not known.
        with suppress(InvalidRequest):
            topics = (await _opened(replication, target)).position.topics
        for source in sources:
            if topics is None:
                topics = [
                    each.topic
                    for each in await describe_all(source, await source.topics.list())
                    if any(hold.name == replication.hold for hold in each.holds)
                ]
            await release_source(source, replication, topics)
        await forget(target, replication.positions_topic)
        await forget(target, replication.subscriptions_topic)
