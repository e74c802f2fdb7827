"""The policies and settings of topics, subscriptions and namespaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class DispatchMode(Enum):
    """Whether a topic stores its messages."""

    RELIABLE = "reliable"
    """Stored before it is acknowledged, replayable, delivered at least once."""
    NON_RELIABLE = "non_reliable"
    """In memory only, delivered at most once, with the lowest latency."""


class Durability(Enum):
    """The meaning of a receipt of a reliable topic."""

    DURABLE = "durable"
    """Synced to disk: messages survive a power failure."""
    WRITTEN = "written"
    """Written to the operating system: messages survive a crash of the broker."""


class SubscriptionType(Enum):
    """How messages are divided among the consumers of a subscription."""

    EXCLUSIVE = "exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "failover"
    """One active consumer; the others take over in the order in which they joined."""
    SHARED = "shared"
    """All consumers; each message goes to one of them."""
    KEY_SHARED = "key_shared"
    """All consumers; all messages of a key go to the same one, in order."""


class Start(Enum):
    """The position at which a new subscription begins."""

    EARLIEST = "earliest"
    """The oldest message that is kept."""
    LATEST = "latest"
    """The first message published after the subscription was created."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first message published at this time or later."""

    publish_time: int
    """Microseconds since 1970, UTC."""


Position = int | Start | AtTime
"""A position in a topic: an offset, one of its ends, or a time."""


class ProducerAccess(Enum):
    """Whether a producer shares its topic with others."""

    SHARED = "shared"
    """Any number of producers."""
    EXCLUSIVE = "exclusive"
    """The only producer; it is refused while there is another."""
    EXCLUSIVE_WAIT = "exclusive_wait"
    """The only producer; it waits until the others have left."""
    EXCLUSIVE_FENCE = "exclusive_fence"
    """The only producer; the others are fenced, and refused from then on."""


class Backoff(Enum):
    """How the delay between deliveries of one message grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class PoisonPolicy(Enum):
    """The handling of messages that failed too often."""

    DEAD_LETTER = "dead_letter"
    """It is copied to the dead-letter topic, and then done."""
    BLOCK = "block"
    """No new message (of its key, if key-shared) is delivered until it is done."""
    DROP = "drop"
    """It is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """
    The redelivery of messages that are not acknowledged.

    A message fails when it is nacked or not acknowledged in time.  It is not delivered
    again after more than ``redeliveries_max`` failures.
    """

    redeliveries_max: int = 5
    ack_timeout_s: float | None = 30.0
    """None: no timeout."""
    redelivery_delay_s: float = 1.0
    """The delay before the second delivery."""
    redelivery_delay_s_max: float = 60.0
    backoff: Backoff = Backoff.EXPONENTIAL
    poison: PoisonPolicy = PoisonPolicy.BLOCK
    dead_letter_topic: str | None = None
    dead_letter_expired: bool = False
    """Whether expired messages also go to the dead-letter topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """Limits on messages in flight; None: no limit besides credit."""

    unacked_messages_max: int | None = None
    """For all consumers of the subscription together."""
    unacked_messages_max_per_consumer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """An administrator's settings of a subscription, which need not exist yet."""

    failure_policy: FailurePolicy | None = None
    """None: the defaults of FailurePolicy."""
    limits: DispatchLimits | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicy:
    """
    Limits of every topic in a namespace; 0: no limit.

    The names are those of Danube's policy documents.
    """

    max_producers_per_topic: int = 0
    max_subscriptions_per_topic: int = 0
    max_consumers_per_topic: int = 0
    max_consumers_per_subscription: int = 0
    max_publish_rate: int = 0
    """Messages per second of one topic; faster producers are slowed down."""
    max_subscription_dispatch_rate: int = 0
    """Messages per second of one subscription; others wait, and none is lost."""
    max_message_size: int = 0
    """The largest payload, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The age and size up to which segments are kept; None: no limit."""

    age_s: float | None = None
    bytes_max: int | None = None


class CorruptionPolicy(Enum):
    """The behaviour of subscriptions if a segment of the topic cannot be read."""

    STOP = "stop"
    """Consumers get an error until the segment is repaired or a seek passes it."""
    SKIP = "skip"
    """The unreadable messages count as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The settings with which a topic was created."""

    dispatch: DispatchMode = DispatchMode.RELIABLE
    durability: Durability = Durability.DURABLE
    retention: Retention = Retention()
    ttl_s: float | None = None
    """The age at which messages expire; None: never."""
    on_corruption: CorruptionPolicy = field(
        default=CorruptionPolicy.STOP, compare=False
    )
    """It may change later, so comparisons of policies ignore it."""

    @property
    def is_reliable(self) -> bool:
        """Whether messages are stored."""
        return self.dispatch is DispatchMode.RELIABLE
