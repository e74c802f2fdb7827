"""
The plan of a run: topics, applications and faults.

The plan is drawn from the seed before the run begins.  Each run has only some faults
and features, in varying strength, because one of them (such as a broker that never runs
for long) may hide a bug that another one shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from msgspec.structs import replace as replace_fields

from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube_broker.storage.config import JournalConfig, RemoteConfig, StorageConfig

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic."""

    name: str
    is_reliable: bool
    durability: str
    ttl_s: float | None
    retention_bytes_max: int | None
    drops_acknowledged: bool

    @property
    def is_simple(self) -> bool:
        """Whether its messages stay until they are delivered."""
        return self.is_reliable and not self.ttl_s and not self.retention_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """An application that publishes."""

    name: str
    topic: str
    message_count: int
    pause_s: float
    """The mean time between two sends."""
    together_max: int
    """The most messages that are sent at once."""
    payload_bytes_max: int
    compression: str | None
    leave_share: float
    """The probability of reopening the producer after a send."""
    key_count: int
    """The number of keys of its messages; 0: no keys."""
    delay_share: float
    """The fraction of messages with a delay."""
    delay_s_max: float
    ttl_share: float
    """The fraction of messages with a time to live."""
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan:
    """An application that consumes."""

    name: str
    prefetch_messages: int
    together_max: int
    work_s: float
    nack_share: float
    forget_share: float
    """The fraction of messages that it neither acks nor nacks."""
    leave_share: float
    flush_share: float
    is_cumulative: bool
    nack_delay_s: float
    extend_share: float = 0.0
    """The fraction of receives after which it extends the ack timeout."""
    release_share: float = 0.0
    """The fraction of receives after which it releases the messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """A subscription and its consumers."""

    topic: str
    name: str
    type: SubscriptionType
    start: str
    ack_timeout_s: float | None
    """The ack timeout of its consumers."""
    policy: FailurePolicy | None
    limits: DispatchLimits | None
    consumers: tuple[ConsumerPlan, ...]
    operations: tuple[str, ...]
    """The operations of an administrator."""
    operation_pause_s: float
    is_replayed: bool
    """Whether all messages are replayed at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """The faults of a run."""

    length_s: float
    pause_s: float
    """The mean time between two faults."""
    kinds: dict[str, float]
    """The kinds of faults and their weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run."""

    seed: int
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    faults: FaultPlan
    storage: StorageConfig
    latency_s: float
    cut_share: float
    window_bytes: int
    sync_s_max: float
    merge_interval_s: float
    final_fault: str
    """The fault of the broker before all messages are read."""

    @property
    def message_count(self) -> int:
        """The number of messages that are published."""
        return sum(each.message_count for each in self.producers)

    def summary(self) -> str:
        """Return a description in a few lines."""
        faults_s = self.faults.length_s
        count = self.message_count
        lines = [f"seed {self.seed}: {count} messages, {faults_s:.0f} s of faults"]
        for topic in self.topics:
            kind = topic.durability if topic.is_reliable else "in memory"
            if topic.drops_acknowledged:
                kind += ", drops what is acknowledged"
            lines.append(f"  {topic.name} ({kind})")
            lines += [
                f"    producer {each.name}: {each.message_count} messages, up to "
                f"{each.together_max} at once"
                for each in self.producers
                if each.topic == topic.name
            ]
            lines += [
                f"    subscription {each.name}: {each.type.value} from {each.start}, "
                f"{len(each.consumers)} consumers"
                + (f", timeout {each.ack_timeout_s} s" if each.ack_timeout_s else "")
                + (f", {each.policy.poison.value}" if each.policy else "")
                + (f", {', '.join(each.operations)}" if each.operations else "")
                for each in self.subscriptions
                if each.topic == topic.name
            ]
        if self.storage.remote.url:
            limit = self.storage.remote.local_bytes_max
            lines.append(f"  a remote object store, {limit} bytes of local segments")
        if self.storage.merge_bytes:
            lines.append(f"  merges segments every {self.merge_interval_s} s")
        kinds = ", ".join(sorted(self.faults.kinds)) or "none"
        lines.append(f"  faults every {self.faults.pause_s:.1f} s: {kinds}")
        return "\n".join(lines)


FAULTS = {
    "kill": 2.0,
    "power": 2.0,
    "power at the disk": 2.0,
    "restart": 1.0,
    "reset a link": 4.0,
    "reset all links": 1.0,
    "stall a link": 3.0,
    "silence a link": 1.0,
    "kill an application": 3.0,
    "failing writes": 1.0,
    "failing syncs": 1.0,
    "full disk": 1.0,
    "slow disk": 1.0,
    "slow network": 1.0,
    "no objects": 1.0,
    "no metadata": 1.0,
    "clock jump": 1.0,
}
"""The kinds of faults and their weights."""


LENIENT_POLICY = FailurePolicy(
    redeliveries_max=1_000_000,
    ack_timeout_s=5.0,
    redelivery_delay_s=0.1,
    redelivery_delay_s_max=1.0,
)
"""The policy at the end of runs, which gives up no message."""

OPERATIONS = ("pause", "seek", "skip", "policy", "mark done")
"""The operations of administrators."""


def plan_run(seed: int, *, scale: float = 1.0) -> Plan:
    """Return the plan of *seed*; *scale* makes it longer."""
    rng = Random(f"plan {seed}")
    # Its own random numbers do not change the rest of the plan.
    retention_rng = Random(f"retention {seed}")
    extending_rng = Random(f"extending {seed}")
    merging_rng = Random(f"merging {seed}")
    topics = tuple(_topic(rng, index) for index in range(rng.choice((1, 1, 2))))
    topics = tuple(_with_retention(retention_rng, topic) for topic in topics)
    return Plan(
        seed=seed,
        topics=topics,
        producers=tuple(
            _producer(rng, topic, index, scale)
            for topic in topics
            for index in range(rng.randint(1, 3))
        ),
        subscriptions=tuple(
            _with_extending(extending_rng, _subscription(rng, topic, index))
            for topic in topics
            for index in range(rng.choice((1, 1, 2, 3)))
        ),
        faults=_faults(rng, scale),
        storage=replace_fields(
            _with_merging(merging_rng, _with_remote_store(seed, _storage(rng))),
            retention_interval_s=_retention_interval_s(retention_rng, topics),
        ),
        latency_s=rng.choice((0.0002, 0.002, 0.02)),
        cut_share=rng.choice((0.0, 0.1, 0.5)),
        window_bytes=rng.choice((512, 8 * KIB, 256 * KIB)),
        sync_s_max=rng.choice((0.001, 0.005, 0.05)),
        merge_interval_s=merging_rng.choice((0.2, 1.0)),
        final_fault=rng.choice(("stop", "kill", "power", "power")),
    )


def _topic(rng: Random, index: int) -> TopicPlan:
    return TopicPlan(
        name=f"/default/t{index}",
        is_reliable=rng.random() < 0.9,
        durability="durable" if rng.random() < 0.9 else "written",
        ttl_s=rng.choice((0.5, 5.0)) if rng.random() < 0.1 else None,
        retention_bytes_max=2 * KIB if rng.random() < 0.1 else None,
        drops_acknowledged=False,
    )


def _with_retention(rng: Random, topic: TopicPlan) -> TopicPlan:
    return replace(topic, drops_acknowledged=topic.is_reliable and rng.random() < 0.3)


def _retention_interval_s(rng: Random, topics: tuple[TopicPlan, ...]) -> float:
    # A subscription that loses messages before it has acknowledged them forgets its
    # acks of later ones, so topics with a size limit lose messages at the end only.
    interval_s = rng.choice((0.3, 2.0, 60.0))
    return 60.0 if any(each.retention_bytes_max for each in topics) else interval_s


def _producer(rng: Random, topic: TopicPlan, index: int, scale: float) -> ProducerPlan:
    has_delays, has_ttl = rng.random() < 0.15, rng.random() < 0.1
    return ProducerPlan(
        name=f"p{topic.name[-1]}{index}",
        topic=topic.name,
        message_count=max(1, int(rng.choice((3, 10, 20, 40)) * scale)),
        pause_s=rng.choice((0.0, 0.01, 0.1, 0.3)),
        together_max=rng.choice((1, 3, 20)),
        payload_bytes_max=rng.choice((20, 20, 200, 2000)),
        compression=rng.choice((None, None, "lz4", "zstd")),
        leave_share=rng.choice((0.0, 0.0, 0.05)),
        key_count=rng.choice((0, 0, 1, 3, 30)),
        delay_share=0.3 if has_delays and topic.is_reliable else 0.0,
        delay_s_max=rng.choice((0.1, 3.0)),
        ttl_share=0.3 if has_ttl and topic.is_reliable else 0.0,
        ttl_s=rng.choice((0.2, 2.0)),
    )


def _subscription(rng: Random, topic: TopicPlan, index: int) -> SubscriptionPlan:
    name = f"s{index}"
    type_ = rng.choice(
        (
            SubscriptionType.EXCLUSIVE,
            SubscriptionType.FAILOVER,
            SubscriptionType.SHARED,
            SubscriptionType.SHARED,
            SubscriptionType.KEY_SHARED,
        )
    )
    ack_timeout_s = rng.choice((None, None, None, 0.5, 2.0))
    policy = _policy(rng, f"{topic.name}-dead-{name}") if topic.is_reliable else None
    times_out = bool(ack_timeout_s or (policy and policy.ack_timeout_s))
    count = rng.choice((1, 1, 2))
    if type_ is not SubscriptionType.EXCLUSIVE:
        count = rng.randint(1, 4)
    return SubscriptionPlan(
        topic=topic.name,
        name=name,
        type=type_,
        start=rng.choice(("earliest", "earliest", "latest")),
        ack_timeout_s=ack_timeout_s,
        policy=policy,
        limits=_limits(rng) if topic.is_reliable else None,
        consumers=tuple(
            _consumer(
                rng,
                f"c{topic.name[-1]}{index}{number}",
                is_cumulative=type_
                in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
                and rng.random() < 0.3,
                forget_share=0.05 if times_out and rng.random() < 0.5 else 0.0,
            )
            for number in range(count)
        ),
        operations=_operations(rng) if topic.is_simple else (),
        operation_pause_s=rng.choice((0.3, 2.0)),
        is_replayed=topic.is_simple and rng.random() < 0.2,
    )


def _with_extending(rng: Random, plan: SubscriptionPlan) -> SubscriptionPlan:
    consumers = [
        replace(
            each,
            extend_share=rng.choice((0.0, 0.0, 0.2)),
            release_share=rng.choice((0.0, 0.0, 0.1)),
        )
        for each in plan.consumers
    ]
    return replace(plan, consumers=tuple(consumers))


def _policy(rng: Random, dead_letter_topic: str) -> FailurePolicy | None:
    if rng.random() < 0.4:
        return None
    poison = rng.choice(list(PoisonPolicy))
    return FailurePolicy(
        redeliveries_max=rng.choice((0, 1, 3, 100)),
        ack_timeout_s=rng.choice((None, 0.5, 2.0, 30.0)),
        redelivery_delay_s=rng.choice((0.0, 0.05, 1.0)),
        redelivery_delay_s_max=rng.choice((1.0, 5.0)),
        backoff=rng.choice(list(Backoff)),
        poison=poison,
        dead_letter_topic=dead_letter_topic
        if poison is PoisonPolicy.DEAD_LETTER
        else None,
        dead_letter_expired=poison is PoisonPolicy.DEAD_LETTER and rng.random() < 0.5,
    )


def _limits(rng: Random) -> DispatchLimits | None:
    if rng.random() < 0.7:
        return None
    return DispatchLimits(
        unacked_messages_max=rng.choice((None, 1, 5, 20)),
        unacked_messages_max_per_consumer=rng.choice((None, 1, 3)),
    )


def _consumer(
    rng: Random, name: str, *, is_cumulative: bool, forget_share: float
) -> ConsumerPlan:
    return ConsumerPlan(
        name=name,
        prefetch_messages=rng.choice((1, 3, 10, 100)),
        together_max=rng.choice((1, 5, 50)),
        work_s=rng.choice((0.0, 0.001, 0.05, 0.3)),
        nack_share=rng.choice((0.0, 0.0, 0.1)),
        forget_share=forget_share,
        leave_share=rng.choice((0.0, 0.02, 0.1)),
        flush_share=rng.choice((0.0, 0.1, 0.5)),
        is_cumulative=is_cumulative,
        nack_delay_s=rng.choice((0.0, 0.0, 0.3, 2.0)),
    )


def _operations(rng: Random) -> tuple[str, ...]:
    if rng.random() < 0.6:
        return ()
    return tuple(each for each in OPERATIONS if rng.random() < 0.4)


def _faults(rng: Random, scale: float) -> FaultPlan:
    share = rng.choice((0.0, 0.15, 0.3, 0.6))
    return FaultPlan(
        length_s=rng.choice((3.0, 6.0, 12.0)) * scale,
        pause_s=rng.choice((0.2, 0.7, 2.0)),
        kinds={kind: weight for kind, weight in FAULTS.items() if rng.random() < share},
    )


def _storage(rng: Random) -> StorageConfig:
    seal_bytes = rng.choice((1 * KIB, 4 * KIB, 64 * KIB))
    return StorageConfig(
        journal=JournalConfig(
            file_bytes_max=rng.choice((1 * KIB, 4 * KIB, 64 * KIB)),
            pending_bytes_max=rng.choice((1 * KIB, 16 * KIB, 1024 * KIB)),
        ),
        seal_bytes=seal_bytes,
        seal_age_s=rng.choice((0.5, 5.0, 600.0)),
        seal_pace=rng.choice((0.0, 1.0)),
        seal_interval_s=rng.choice((0.1, 1.0)),
        tail_bytes_max=seal_bytes * rng.choice((2, 8)),
        journal_bytes_max=rng.choice((8 * KIB, 1024 * KIB)),
        row_group_bytes=rng.choice((1 * KIB, 64 * KIB)),
        frame_bytes=rng.choice((512, 64 * KIB)),
        cache_bytes_max=rng.choice((0, 32 * KIB, 1024 * KIB)),
    )


def _with_merging(rng: Random, config: StorageConfig) -> StorageConfig:
    """Return *config*; a quarter of the runs merges segments, and has many."""
    if rng.random() < 0.75:
        return replace_fields(config, merge_bytes=0)
    return replace_fields(
        config,
        merge_bytes=rng.choice((64 * KIB, 1024 * KIB)),
        seal_age_s=rng.choice((0.05, 0.2)),
        seal_interval_s=0.1,
        # Only segments with local copies are merged.
        remote=replace_fields(
            config.remote, local_bytes_max=rng.choice((64 * KIB, 1024 * KIB))
        ),
    )


def _with_remote_store(seed: int, config: StorageConfig) -> StorageConfig:
    """Return *config*, in some runs with a remote object store."""
    # A generator of its own, so that the rest of the plan does not depend on it.
    rng = Random(f"remote store {seed}")
    if rng.random() < 0.5:
        return config
    remote = RemoteConfig(
        url="s3://simulated",
        concurrency=rng.choice((1, 4)),
        upload_bytes_per_s=rng.choice((0, 0, 20 * KIB)),
        local_bytes_max=rng.choice((2 * KIB, 16 * KIB, 1024 * KIB)),
    )
    return replace_fields(
        config, remote=remote, orphan_keep_s=rng.choice((0.5, 7 * 86_400.0))
    )
