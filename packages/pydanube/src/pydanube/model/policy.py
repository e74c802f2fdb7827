"""The policies and settings of topics, subscriptions and namespaces."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass


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
    """
    The rules by which whole segments are dropped, the oldest first.

    A segment is dropped as soon as one of the rules says so.
    """

    age_s: float | None = None
    """Drop segments whose messages are all older; None: no limit."""
    bytes_max: int | None = None
    """Drop segments while the topic is larger without them; None: no limit."""
    drops_acknowledged: bool = False
    """
    Whether to drop segments that all subscriptions have acknowledged.

    A topic without subscriptions keeps them.
    """

    def check(self) -> None:
        """
        Raise if a limit is out of range.

        Raises:
            InvalidRequest: It is.
        """
        # Written so that it refuses NaN.
        if self.age_s is not None and not 0 < self.age_s <= RETENTION_AGE_S_MAX:
            raise InvalidRequest(
                f"the retention age is {self.age_s} s; it must be more than 0 and at "
                f"most {RETENTION_AGE_S_MAX} s, or absent for no limit"
            )
        if self.bytes_max is not None and not 0 < self.bytes_max <= BYTES_MAX:
            raise InvalidRequest(
                f"the retention size is {self.bytes_max} bytes; it must be more than "
                f"0 and at most {BYTES_MAX} bytes, or absent for no limit"
            )


RETENTION_AGE_S_MAX = 1000 * 365 * 86_400
"""A thousand years; times in microseconds stay far below 64 bits."""
BYTES_MAX = 2**63 - 1

KEEP_ALL = Retention()
"""The retention that drops nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSettings:
    """The settings of a namespace, for topics that have none of their own."""

    policy: NamespacePolicy = NamespacePolicy()
    retention: Retention = KEEP_ALL


SEAL_BYTES_MIN = 64 * 1024
SEAL_BYTES_MAX = 1024 * 1024 * 1024
SEAL_AGE_S_MIN = 1.0
SEAL_AGE_S_MAX = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplication:
    """
    The window in which a topic drops messages whose ids it has stored already.

    An id counts as known if one of the topic's last *messages_max* messages has it, and
    that message was published at most *age_s* ago.
    """

    age_s: float = 600.0
    messages_max: int = 100_000
    """With or without an id.  A broker needs about 300 bytes of memory for each id."""

    @property
    def age_us(self) -> float:
        """The age in microseconds."""
        return self.age_s * 1_000_000

    def check(self) -> None:
        """
        Raise if a limit is out of range.

        Raises:
            InvalidRequest: It is.
        """
        if not 0 < self.age_s <= DEDUPLICATION_AGE_S_MAX:
            raise InvalidRequest(
                f"the age of deduplication is {self.age_s} s; it must be more than 0 "
                f"and at most {DEDUPLICATION_AGE_S_MAX:.0f} s"
            )
        if not 0 < self.messages_max <= DEDUPLICATION_MESSAGES_MAX:
            raise InvalidRequest(
                f"deduplication of the last {self.messages_max} messages; it must be "
                f"1 to {DEDUPLICATION_MESSAGES_MAX}"
            )


DEFAULT_DEDUPLICATION = Deduplication(age_s=120.0)
"""The window of topics without one, from their first message with an id on."""

DEDUPLICATION_AGE_S_MAX = 7 * 86_400.0
DEDUPLICATION_MESSAGES_MAX = 1_000_000


class CorruptionPolicy(Enum):
    """The behaviour of subscriptions if a segment of the topic cannot be read."""

    STOP = "stop"
    """Consumers get an error until the segment is repaired or a seek passes it."""
    SKIP = "skip"
    """The unreadable messages count as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """
    The settings of a topic.

    Comparisons of policies ignore the settings that may change later.
    """

    dispatch: DispatchMode = DispatchMode.RELIABLE
    durability: Durability = Durability.DURABLE
    retention: Retention | None = field(default=None, compare=False)
    """None: that of the namespace.  It may change later."""
    ttl_s: float | None = None
    """The age at which messages expire; None: never."""
    on_corruption: CorruptionPolicy = field(
        default=CorruptionPolicy.STOP, compare=False
    )
    """It may change later."""
    seal_bytes: int | None = field(default=None, compare=False)
    """The size at which messages are sealed; None: that of the broker's settings.
    It may change later."""
    seal_age_s: float | None = field(default=None, compare=False)
    """The age at which messages are sealed; None: that of the broker's settings.
    It may change later."""
    deduplication: Deduplication | None = field(default=None, compare=False)
    """The window of known ids; None: ``DEFAULT_DEDUPLICATION`` for messages that
    producers send with ids.  It may change later."""

    @property
    def is_reliable(self) -> bool:
        """Whether messages are stored."""
        return self.dispatch is DispatchMode.RELIABLE

    def effective_retention(self, of_namespace: Retention) -> Retention:
        """Return the retention that applies in a namespace with *of_namespace*."""
        return of_namespace if self.retention is None else self.retention

    def check(self) -> None:
        """
        Raise if a setting that may change later is out of range.

        Raises:
            InvalidRequest: It is.
        """
        if self.retention is not None:
            self.retention.check()
        if self.deduplication is not None:
            self.deduplication.check()
            if not self.is_reliable:
                raise InvalidRequest(
                    "a non-reliable topic stores no messages, so it cannot deduplicate"
                )
        size, age_s = self.seal_bytes, self.seal_age_s
        if size is not None and not SEAL_BYTES_MIN <= size <= SEAL_BYTES_MAX:
            raise InvalidRequest(
                f"the size of segments is {size} bytes; it must be {SEAL_BYTES_MIN} to "
                f"{SEAL_BYTES_MAX} bytes, or absent for the broker's setting"
            )
        if age_s is not None and not SEAL_AGE_S_MIN <= age_s <= SEAL_AGE_S_MAX:
            raise InvalidRequest(
                f"the age at which messages are sealed is {age_s} s; it must be "
                f"{SEAL_AGE_S_MIN:.0f} to {SEAL_AGE_S_MAX:.0f} s, or absent for the "
                "broker's setting"
            )
