"""What a user may decide about a topic and a subscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class DispatchMode(Enum):
    """How much a topic promises."""

    RELIABLE = "reliable"
    """On disk before it is acknowledged, replayable, delivered at least once."""
    NON_RELIABLE = "non_reliable"
    """In memory only, delivered at most once, lowest latency."""


class Durability(Enum):
    """What an acknowledgement of a reliable topic means."""

    DURABLE = "durable"
    """On disk: it survives the loss of power."""
    WRITTEN = "written"
    """With the operating system: it survives the end of the broker process."""


class SubscriptionType(Enum):
    """How the consumers of one subscription share its messages."""

    EXCLUSIVE = "exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "failover"
    """One active consumer; the others stand by and take over in the order they came."""
    SHARED = "shared"
    """All consumers, each message to one of them."""
    KEY_SHARED = "key_shared"
    """All consumers, all messages of one key to the same one, in order."""


class Start(Enum):
    """Where a new subscription begins."""

    EARLIEST = "earliest"
    """At the oldest message that is kept."""
    LATEST = "latest"
    """At the first message published after the subscription was created."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """At the first message that was published at this time or later."""

    publish_time: int
    """Microseconds since 1970, UTC."""


Position = int | Start | AtTime
"""A place in a topic: an offset, one of its ends, or a time."""


class ProducerAccess(Enum):
    """Whether a producer tolerates others on its topic."""

    SHARED = "shared"
    """Any number of producers."""
    EXCLUSIVE = "exclusive"
    """The only one; it is refused while there is another."""
    EXCLUSIVE_WAIT = "exclusive_wait"
    """The only one; it waits until the others are gone."""
    EXCLUSIVE_FENCE = "exclusive_fence"
    """The only one; the others are fenced, and refused from then on."""


class Backoff(Enum):
    """How the delay between deliveries of one message grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class PoisonPolicy(Enum):
    """What becomes of a message that failed too often."""

    DEAD_LETTER = "dead_letter"
    """It is copied to the dead-letter topic, and done."""
    BLOCK = "block"
    """Nothing new is delivered (of its key, if key-shared) until it is dealt with."""
    DROP = "drop"
    """It is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """
    What a subscription does with messages that are not acknowledged.

    A message fails when it is given back (nack) or not acknowledged in time; its
    failure number n is final if n > ``redeliveries_max``.
    """

    redeliveries_max: int = 5
    ack_timeout_s: float | None = 30.0
    """None: a consumer may take as long as it is there."""
    redelivery_delay_s: float = 1.0
    """Before the second delivery."""
    redelivery_delay_s_max: float = 60.0
    backoff: Backoff = Backoff.EXPONENTIAL
    poison: PoisonPolicy = PoisonPolicy.BLOCK
    dead_letter_topic: str | None = None
    dead_letter_expired: bool = False
    """Also messages whose time to live is over go to the dead-letter topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """How much may be unacknowledged at a time; None: what credit allows."""

    unacked_messages_max: int | None = None
    """By all consumers of the subscription together."""
    unacked_messages_max_per_consumer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """What an administrator decides about a subscription, also before it exists."""

    failure_policy: FailurePolicy | None = None
    """None: the defaults of FailurePolicy."""
    limits: DispatchLimits | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicy:
    """
    Limits of every topic in a namespace; 0: no limit.

    The names are those of the original's policy documents.
    """

    max_producers_per_topic: int = 0
    max_subscriptions_per_topic: int = 0
    max_consumers_per_topic: int = 0
    max_consumers_per_subscription: int = 0
    max_publish_rate: int = 0
    """Messages a second, of one topic; who is faster is slowed down."""
    max_subscription_dispatch_rate: int = 0
    """Messages a second, of one subscription; the others wait, none is lost."""
    max_message_size: int = 0
    """Bytes of one payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long sealed history is kept; None means for ever."""

    age_s: float | None = None
    bytes_max: int | None = None


class CorruptionPolicy(Enum):
    """What subscriptions do when a segment of the topic cannot be read."""

    STOP = "stop"
    """Consumers get an error, until the segment is repaired or passed by a seek."""
    SKIP = "skip"
    """The messages that cannot be read count as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """What was decided about a topic when it was created."""

    dispatch: DispatchMode = DispatchMode.RELIABLE
    durability: Durability = Durability.DURABLE
    retention: Retention = Retention()
    ttl_s: float | None = None
    """What is older when it could be delivered is expired instead; None: never."""
    on_corruption: CorruptionPolicy = field(
        default=CorruptionPolicy.STOP, compare=False
    )
    """It may change later, so it does not count when policies are compared."""

    @property
    def is_reliable(self) -> bool:
        """Whether messages are stored."""
        return self.dispatch is DispatchMode.RELIABLE
