"""
A replication: it reads topics of the source and publishes their messages at the target.

Each round reads a bounded number of messages and commits them at the target together
with the position, as sources of connectors do.  Each message is therefore at the target
once and in order, even if a replicator is killed or two of them run at once.

The source is the store while the target is away.  A retention hold keeps what is not
replicated; a subscription that is only reported shows the lag.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from pydanube.client.client import Client
from pydanube.client.messages.messages import MessageBatch
from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import (
    BackupRunning,
    InvalidRequest,
    NotFound,
    OffsetDropped,
    TopicNotFound,
)
from pydanube.model.names import parse_client_name
from pydanube.model.policy import Retention
from pydanube.model.token_bucket import TokenBucket
from pydanube_connect.encoding import MessageGroup
from pydanube_connect.publishing import (
    POSITION_RETENTION_BYTES,
    StagedPublisher,
    ensure_topic,
)
from pydanube_connect.replication.checkpoints import Checkpoints, read_subscriptions
from pydanube_connect.replication.pure.naming import INTERNAL_PREFIX, TopicNaming
from pydanube_connect.replication.pure.positions import (
    ReplicationPosition,
    TopicPosition,
    decode_position,
)
from pydanube_connect.replication.target_topics import TargetTopics

TOPICS_MAX = 1000
"""How many topics and partitions one replication has; a commit has all positions."""
ROUND_BYTES = 4 * 1024 * 1024
"""How many bytes of messages a commit has, and one batch of each topic more."""
TOPIC_BYTES_MIN = 64 * 1024
LIMITED_ROUND_S = 0.25
"""How long a round takes at least if the bandwidth is limited."""
POLL_S = 0.2
DISCOVERY_S = 5.0
REPORT_S = 5.0
RETENTION_S = 60.0
CHECKPOINT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Replication:
    """The settings of a replication."""

    name: str
    naming: TopicNaming
    from_latest: bool = False
    """Whether topics that exist at the beginning start at their end."""
    skips_lost: bool = False
    """Whether to continue after messages that the source has dropped."""
    bytes_per_s: float | None = None

    @property
    def hold(self) -> str:
        """The name of the retention hold, the subscription and the commits' query."""
        return f"replicate-{parse_client_name('replication', self.name)}"

    @property
    def positions_topic(self) -> str:
        """The topic of the target with the position."""
        return f"{INTERNAL_PREFIX}{self.name}.positions"

    @property
    def subscriptions_topic(self) -> str:
        """The topic of the target with the cursors of the source."""
        return f"{INTERNAL_PREFIX}{self.name}.subscriptions"


@dataclass(kw_only=True)
class ReplicationStatus:
    """Counts of a replication since it was started, and its state."""

    replication: str
    state: str = "connecting"
    topics: int = 0
    messages: int = 0
    bytes: int = 0
    commits: int = 0
    checkpoints: int = 0
    """How often the subscriptions of the source were stored at the target."""
    lag: int = 0
    """How many offsets of the source are not replicated."""
    lost: int = 0
    """How many offsets the source had dropped before they were replicated."""
    retries: int = 0
    error: str = ""
    lag_by_topic: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """Return the status as a line for people."""
        parts = [
            f"{self.replication}: {self.state}",
            f"{self.topics:,} topics",
            f"{self.messages:,} messages",
            f"lag {self.lag:,}",
        ]
        if self.lost:
            parts.append(f"{self.lost:,} lost")
        if self.error and self.state != "running":
            parts.append(self.error)
        return ", ".join(parts)


class Replicator:
    """A connection of a source to a target; one task uses it."""

    def __init__(
        self,
        replication: Replication,
        source: Client,
        target: Client,
        status: ReplicationStatus,
        *,
        now: Callable[[], float],
    ) -> None:
        self.position = ReplicationPosition()
        self._replication = replication
        self._source = source
        self._target = target
        self._status = status
        self._now = now
        self._topics = TargetTopics(source, target)
        self._publisher = StagedPublisher(
            target, replication.hold, replication.positions_topic
        )
        self._checkpoints = Checkpoints(target, replication.subscriptions_topic)
        self._due: dict[str, float] = {}
        self._ends: dict[str, TopicOffsets] = {}
        self._is_new = False
        rate = replication.bytes_per_s
        self._bucket = None if rate is None else TokenBucket(rate, now())
        # With a limit, rounds are short enough for an even flow.
        self._round_bytes = ROUND_BYTES
        if rate is not None:
            self._round_bytes = max(1, min(ROUND_BYTES, int(rate * LIMITED_ROUND_S)))

    async def open(self, *, may_be_cut_over: bool = False) -> None:
        """
        Load the position of the last commit.

        Raises:
            InvalidRequest: The target has taken over, unless *may_be_cut_over*.
        """
        topic = self._replication.positions_topic
        await ensure_topic(
            self._target, topic, retention=Retention(bytes_max=POSITION_RETENTION_BYTES)
        )
        await self._publisher.load()
        self._is_new = self._publisher.position is None
        self.position = decode_position(self._publisher.position)
        if self.position.is_cut_over and not may_be_cut_over:
            raise InvalidRequest(
                f"the replication {self._replication.name} has been cut over: programs "
                "use the target. To replicate again, 'danube replicate remove' it first"
            )

    async def run(self, stop: asyncio.Event, *, to_end: bool = False) -> None:
        """
        Replicate until *stop* is set; with *to_end*, until nothing is left.

        Raises:
            TakenOver: Another replicator has committed meanwhile.
            BrokerError: A broker fails; what was committed stays.
        """
        # A replicator that was killed while retention ran has left no holds.
        for topic in self.position.topics:
            with suppress(TopicNotFound):
                await self._hold(topic)
        await self._discover()
        self._status.state = "running"
        while not stop.is_set():
            if self._is_due("discovery", DISCOVERY_S):
                await self._discover()
            has_more = await self._round(stop)
            await self._tend()
            if not has_more:
                if to_end:
                    return
                await _wait(stop, POLL_S)

    async def cut_over(self) -> None:
        """Let no replicator commit any more."""
        position = copy.deepcopy(self.position)
        position.is_cut_over = True
        await self._publisher.publish([], position)
        self.position = position

    # Topics.

    async def _discover(self) -> None:
        """Begin with topics that exist at the source and match."""
        matching = [
            each
            for each in await self._source.topics.list()
            if self._replication.naming.matches(each)
        ]
        new = [each for each in sorted(matching) if each not in self.position.topics]
        if len(self.position.topics) + len(new) > TOPICS_MAX:
            raise InvalidRequest(
                f"the patterns match more than {TOPICS_MAX} topics and partitions: "
                "divide them among several replications"
            )
        for topic in new:
            await self._begin(topic)
        if new:
            # A restart continues where the topic has begun.
            await self._publisher.publish([], self.position)
        self._is_new = False
        self._status.topics = len(self.position.topics)

    async def _begin(self, topic: str) -> None:
        try:
            described = await self._source.topics.describe(topic)
        except TopicNotFound:
            # It was deleted after it was listed.
            return
        if not described.policy.is_reliable:
            return
        name = self._replication.naming.target_of(topic)
        await self._topics.ensure(described, name)
        await self._hold(topic)
        end = (await self._target.topics.list_offsets([name]))[name].end_offset
        is_latest = self._is_new and self._replication.from_latest
        self.position.topics[topic] = TopicPosition(
            target=name,
            topic_id=described.topic_id,
            next=described.end_offset if is_latest else described.base_offset,
            target_end=end,
        )

    async def _hold(self, topic: str) -> None:
        reason = f"danube replicate {self._replication.name}"
        await self._source.topics.hold(topic, self._replication.hold, reason)

    # Messages.

    async def _round(self, stop: asyncio.Event) -> bool:
        """Replicate some messages, and return whether there may be more."""
        self._ends = await self._source.topics.list_offsets(self.position.topics)
        behind = self._find_backlogs()
        if not behind:
            return False
        position = copy.deepcopy(self.position)
        groups: list[MessageGroup] = []
        least = min(TOPIC_BYTES_MIN, self._round_bytes)
        share = max(least, self._round_bytes // len(behind))
        size = count = 0
        for topic in behind:
            if size >= self._round_bytes:
                break
            state, end = position.topics[topic], self._ends[topic].end_offset
            some: list[MessageGroup] = []
            # A topic that was deleted since is missing in the next round.
            with suppress(TopicNotFound):
                await self._read(topic, state, end, share, some)
            groups += some
            size += sum(each.batch.nbytes for each in some)
            count += sum(each.batch.num_rows for each in some)
        await self._check_target([each.topic for each in groups])
        await self._publisher.publish(groups, position)
        self.position = position
        status = self._status
        status.commits += 1
        status.messages += count
        status.bytes += size
        status.error = ""
        self._find_backlogs()
        await self._pace(size, stop)
        return True

    def _find_backlogs(self) -> list[str]:
        """Return the topics that are behind, the furthest first."""
        lags = {}
        for topic, offsets in self._ends.items():
            state = self.position.topics[topic]
            if offsets.topic_id != state.topic_id or offsets.end_offset < state.next:
                raise InvalidRequest(
                    f"{topic} was deleted and created again at the source, or lost "
                    f"messages: {state.target} at the target has its old messages. "
                    "'danube replicate remove' the replication, and begin with another "
                    "name or target topic"
                )
            lags[topic] = offsets.end_offset - state.next
        self._status.lag = sum(lags.values())
        self._status.lag_by_topic = {topic: lag for topic, lag in lags.items() if lag}
        return sorted(self._status.lag_by_topic, key=lags.__getitem__, reverse=True)

    async def _read(
        self,
        topic: str,
        state: TopicPosition,
        end: int,
        bytes_max: int,
        groups: list[MessageGroup],
    ) -> None:
        """
        Read messages of *topic* with one schema into *groups*.

        *state* advances over them.
        """
        base = self._ends[topic].base_offset
        if state.next < base:
            if not self._replication.skips_lost:
                raise OffsetDropped(
                    f"{topic} begins at {base}, and {state.next} is not replicated: "
                    "the source has dropped messages. Continue with --skip-lost"
                )
            self._status.lost += base - state.next
            state.next = base
        size, schema = 0, None
        batches: Any = self._source.read(
            topic, start=state.next, end=end, prefetch_bytes=2 * bytes_max
        )
        async with aclosing(batches):
            async for batch in batches:
                first: MessageBatch = batch
                written_with = (first[0].schema_id, first[0].schema_version)
                if schema not in {None, written_with}:
                    return
                schema = written_with
                rows = first.to_arrow()
                reference = await self._topics.copy_schema(*written_with)
                messages = rows.select(_COLUMNS)
                groups.append(MessageGroup(state.target, messages, None, reference))
                offsets = first.offsets
                state.advance(offsets, offsets[-1] + 1)
                size += messages.nbytes
                if size >= bytes_max:
                    return
        # What follows up to the end was removed by compaction.
        state.next = max(state.next, end)

    async def _check_target(self, topics: list[str]) -> None:
        """
        Check that nobody else has published to *topics* at the target.

        Raises:
            InvalidRequest: Somebody has, so that offsets cannot be translated.
        """
        expected = {each.target: each for each in self.position.topics.values()}
        found = await self._target.topics.list_offsets(set(topics))
        for topic in topics:
            end = found[topic].end_offset if topic in found else None
            if end != expected[topic].target_end:
                raise InvalidRequest(
                    f"{topic} at the target ends at {end}, and not at "
                    f"{expected[topic].target_end}: another program has published "
                    "there, or it was deleted. The target of a replication is passive "
                    "until 'danube replicate cut-over'"
                )

    async def _pace(self, size: int, stop: asyncio.Event) -> None:
        if self._bucket is not None and size:
            self._bucket.take(size, self._now())
            await _wait(stop, self._bucket.delay_s(self._now()))

    # What happens from time to time.

    def _is_due(self, work: str, interval_s: float) -> bool:
        now = self._now()
        if now < self._due.get(work, now):
            return False
        self._due[work] = now + interval_s
        return True

    async def _tend(self) -> None:
        if self._is_due("report", REPORT_S):
            await self.report_progress()
        if self._is_due("checkpoint", CHECKPOINT_S):
            await self.checkpoint()
        if self._is_due("retention", RETENTION_S):
            await self._apply_retention()

    async def report_progress(self) -> None:
        """Show the lag at the source, as that of a subscription."""
        offsets = {topic: self.position.topics[topic].next for topic in self._ends}
        await self._source.subscriptions.report_positions(
            self._replication.hold, offsets
        )

    async def checkpoint(self) -> None:
        """Store the subscriptions of the source at the target."""
        topics = list(self.position.topics)
        own = self._replication.hold
        states = await read_subscriptions(self._source, topics, own)
        await self._checkpoints.store(states)
        self._status.checkpoints += 1

    async def _apply_retention(self) -> None:
        """Let retention drop segments of topics whose segments are all replicated."""
        for topic, offsets in self._ends.items():
            is_replicated = self.position.topics[topic].next >= offsets.sealed_offset
            if not is_replicated or offsets.base_offset == offsets.sealed_offset:
                continue
            with suppress(NotFound):
                await self._source.topics.release(topic, self._replication.hold)
            try:
                with suppress(BackupRunning):
                    await self._source.topics.apply_retention(topic)
            finally:
                await self._hold(topic)


async def release_source(
    source: Client, replication: Replication, topics: Iterable[str]
) -> None:
    """Remove the holds and subscriptions of *replication* from *topics*."""
    for topic in topics:
        with suppress(NotFound):
            await source.topics.release(topic, replication.hold)
        with suppress(NotFound):
            await source.subscriptions.delete(topic, replication.hold, force=True)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


_COLUMNS = ["publish_time", "key", "payload", "attributes", "deliver_at", "expires_at"]
