"""
What a run consists of: who publishes and consumes what, and what will go wrong.

Everything is drawn from the seed, before the run begins.  A run has only some of
what is possible, and that in varying strength: what hides one bug (a broker that
never lives long enough) is needed for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.storage.config import JournalConfig, StorageConfig

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic."""

    name: str
    is_reliable: bool
    durability: str
    ttl_s: float | None
    retention_bytes_max: int | None

    @property
    def is_simple(self) -> bool:
        """Whether everything in it stays until it was delivered."""
        return self.is_reliable and not self.ttl_s and not self.retention_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """An application that publishes."""

    name: str
    topic: str
    message_count: int
    pause_s: float
    """Between two sendings, on average."""
    together_max: int
    """So many messages are sent at once."""
    payload_bytes_max: int
    compression: str | None
    leave_share: float
    """How often it closes its producer and opens a new one."""
    key_count: int
    """Of how many keys its messages are; 0: of none."""
    delay_share: float
    """How many messages are to be delivered later,"""
    delay_s_max: float
    ttl_share: float
    """and how many may expire."""
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
    """How many messages it takes and never answers."""
    leave_share: float
    flush_share: float
    is_cumulative: bool
    nack_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """A subscription and its consumers."""

    topic: str
    name: str
    type: SubscriptionType
    start: str
    ack_timeout_s: float | None
    """What its consumers ask for."""
    policy: FailurePolicy | None
    limits: DispatchLimits | None
    consumers: tuple[ConsumerPlan, ...]
    operations: tuple[str, ...]
    """What an administrator does with it now and then."""
    operation_pause_s: float
    is_replayed: bool
    """Whether all is delivered once more in the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeatherPlan:
    """What goes wrong, and how often."""

    length_s: float
    pause_s: float
    """Between two disturbances, on average."""
    kinds: dict[str, float]
    """The kinds of disturbances and their weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    seed: int
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    weather: WeatherPlan
    storage: StorageConfig
    latency_s: float
    cut_share: float
    window_bytes: int
    sync_s_max: float
    last_blow: str
    """What happens to the broker before everything is read again."""

    @property
    def message_count(self) -> int:
        """How many messages are published."""
        return sum(each.message_count for each in self.producers)

    def summary(self) -> str:
        """The run in a few lines."""
        weather_s = self.weather.length_s
        count = self.message_count
        lines = [f"seed {self.seed}: {count} messages, {weather_s:.0f} s of weather"]
        for topic in self.topics:
            kind = topic.durability if topic.is_reliable else "in memory"
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
        kinds = ", ".join(sorted(self.weather.kinds)) or "none"
        lines.append(f"  weather every {self.weather.pause_s:.1f} s: {kinds}")
        return "\n".join(lines)


DISTURBANCES = {
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
"""What may go wrong, and how often it does where it does."""


PATIENT = FailurePolicy(
    redeliveries_max=1_000_000,
    ack_timeout_s=5.0,
    redelivery_delay_s=0.1,
    redelivery_delay_s_max=1.0,
)
"""The policy that everything ends under: it gives nothing up."""

OPERATIONS = ("pause", "seek", "skip", "policy", "mark done")
"""What an administrator may do with a subscription."""


def plan_run(seed: int, *, scale: float = 1.0) -> Plan:
    """The run of *seed*; *scale* makes it longer."""
    chance = Random(f"plan {seed}")
    topics = tuple(_topic(chance, index) for index in range(chance.choice((1, 1, 2))))
    return Plan(
        seed=seed,
        topics=topics,
        producers=tuple(
            _producer(chance, topic, index, scale)
            for topic in topics
            for index in range(chance.randint(1, 3))
        ),
        subscriptions=tuple(
            _subscription(chance, topic, index)
            for topic in topics
            for index in range(chance.choice((1, 1, 2, 3)))
        ),
        weather=_weather(chance, scale),
        storage=_storage(chance),
        latency_s=chance.choice((0.0002, 0.002, 0.02)),
        cut_share=chance.choice((0.0, 0.1, 0.5)),
        window_bytes=chance.choice((512, 8 * KIB, 256 * KIB)),
        sync_s_max=chance.choice((0.001, 0.005, 0.05)),
        last_blow=chance.choice(("stop", "kill", "power", "power")),
    )


def _topic(chance: Random, index: int) -> TopicPlan:
    return TopicPlan(
        name=f"/default/t{index}",
        is_reliable=chance.random() < 0.9,
        durability="durable" if chance.random() < 0.9 else "written",
        ttl_s=chance.choice((0.5, 5.0)) if chance.random() < 0.1 else None,
        retention_bytes_max=2 * KIB if chance.random() < 0.1 else None,
    )


def _producer(
    chance: Random, topic: TopicPlan, index: int, scale: float
) -> ProducerPlan:
    has_delays, has_ttl = chance.random() < 0.15, chance.random() < 0.1
    return ProducerPlan(
        name=f"p{topic.name[-1]}{index}",
        topic=topic.name,
        message_count=max(1, int(chance.choice((3, 10, 20, 40)) * scale)),
        pause_s=chance.choice((0.0, 0.01, 0.1, 0.3)),
        together_max=chance.choice((1, 3, 20)),
        payload_bytes_max=chance.choice((20, 20, 200, 2000)),
        compression=chance.choice((None, None, "lz4", "zstd")),
        leave_share=chance.choice((0.0, 0.0, 0.05)),
        key_count=chance.choice((0, 0, 1, 3, 30)),
        delay_share=0.3 if has_delays and topic.is_reliable else 0.0,
        delay_s_max=chance.choice((0.1, 3.0)),
        ttl_share=0.3 if has_ttl and topic.is_reliable else 0.0,
        ttl_s=chance.choice((0.2, 2.0)),
    )


def _subscription(chance: Random, topic: TopicPlan, index: int) -> SubscriptionPlan:
    name = f"s{index}"
    type_ = chance.choice(
        (
            SubscriptionType.EXCLUSIVE,
            SubscriptionType.FAILOVER,
            SubscriptionType.SHARED,
            SubscriptionType.SHARED,
            SubscriptionType.KEY_SHARED,
        )
    )
    ack_timeout_s = chance.choice((None, None, None, 0.5, 2.0))
    policy = _policy(chance, f"{topic.name}-dead-{name}") if topic.is_reliable else None
    times_out = bool(ack_timeout_s or (policy and policy.ack_timeout_s))
    count = chance.choice((1, 1, 2))
    if type_ is not SubscriptionType.EXCLUSIVE:
        count = chance.randint(1, 4)
    return SubscriptionPlan(
        topic=topic.name,
        name=name,
        type=type_,
        start=chance.choice(("earliest", "earliest", "latest")),
        ack_timeout_s=ack_timeout_s,
        policy=policy,
        limits=_limits(chance) if topic.is_reliable else None,
        consumers=tuple(
            _consumer(
                chance,
                f"c{topic.name[-1]}{index}{number}",
                is_cumulative=type_
                in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
                and chance.random() < 0.3,
                forget_share=0.05 if times_out and chance.random() < 0.5 else 0.0,
            )
            for number in range(count)
        ),
        operations=_operations(chance) if topic.is_simple else (),
        operation_pause_s=chance.choice((0.3, 2.0)),
        is_replayed=topic.is_simple and chance.random() < 0.2,
    )


def _policy(chance: Random, dead_letter_topic: str) -> FailurePolicy | None:
    if chance.random() < 0.4:
        return None
    poison = chance.choice(list(PoisonPolicy))
    return FailurePolicy(
        redeliveries_max=chance.choice((0, 1, 3, 100)),
        ack_timeout_s=chance.choice((None, 0.5, 2.0, 30.0)),
        redelivery_delay_s=chance.choice((0.0, 0.05, 1.0)),
        redelivery_delay_s_max=chance.choice((1.0, 5.0)),
        backoff=chance.choice(list(Backoff)),
        poison=poison,
        dead_letter_topic=dead_letter_topic
        if poison is PoisonPolicy.DEAD_LETTER
        else None,
        dead_letter_expired=poison is PoisonPolicy.DEAD_LETTER
        and chance.random() < 0.5,
    )


def _limits(chance: Random) -> DispatchLimits | None:
    if chance.random() < 0.7:
        return None
    return DispatchLimits(
        unacked_messages_max=chance.choice((None, 1, 5, 20)),
        unacked_messages_max_per_consumer=chance.choice((None, 1, 3)),
    )


def _consumer(
    chance: Random, name: str, *, is_cumulative: bool, forget_share: float
) -> ConsumerPlan:
    return ConsumerPlan(
        name=name,
        prefetch_messages=chance.choice((1, 3, 10, 100)),
        together_max=chance.choice((1, 5, 50)),
        work_s=chance.choice((0.0, 0.001, 0.05, 0.3)),
        nack_share=chance.choice((0.0, 0.0, 0.1)),
        forget_share=forget_share,
        leave_share=chance.choice((0.0, 0.02, 0.1)),
        flush_share=chance.choice((0.0, 0.1, 0.5)),
        is_cumulative=is_cumulative,
        nack_delay_s=chance.choice((0.0, 0.0, 0.3, 2.0)),
    )


def _operations(chance: Random) -> tuple[str, ...]:
    if chance.random() < 0.6:
        return ()
    return tuple(each for each in OPERATIONS if chance.random() < 0.4)


def _weather(chance: Random, scale: float) -> WeatherPlan:
    share = chance.choice((0.0, 0.15, 0.3, 0.6))
    return WeatherPlan(
        length_s=chance.choice((3.0, 6.0, 12.0)) * scale,
        pause_s=chance.choice((0.2, 0.7, 2.0)),
        kinds={
            kind: weight
            for kind, weight in DISTURBANCES.items()
            if chance.random() < share
        },
    )


def _storage(chance: Random) -> StorageConfig:
    seal_bytes = chance.choice((1 * KIB, 4 * KIB, 64 * KIB))
    return StorageConfig(
        journal=JournalConfig(
            file_bytes_max=chance.choice((1 * KIB, 4 * KIB, 64 * KIB)),
            pending_bytes_max=chance.choice((1 * KIB, 16 * KIB, 1024 * KIB)),
        ),
        seal_bytes=seal_bytes,
        seal_age_s=chance.choice((0.5, 5.0, 600.0)),
        seal_pace=chance.choice((0.0, 1.0)),
        seal_interval_s=chance.choice((0.1, 1.0)),
        tail_bytes_max=seal_bytes * chance.choice((2, 8)),
        journal_bytes_max=chance.choice((8 * KIB, 1024 * KIB)),
        row_group_bytes=chance.choice((1 * KIB, 64 * KIB)),
        frame_bytes=chance.choice((512, 64 * KIB)),
        cache_bytes_max=chance.choice((0, 32 * KIB, 1024 * KIB)),
    )
