"""What can be told about a topic, a subscription and a topic's segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.policy import NamespacePolicy, SubscriptionSettings

if TYPE_CHECKING:
    from pydanube.model.policy import SubscriptionType, TopicPolicy
    from pydanube.model.ranges import Range
    from pydanube.model.schemas import TopicSchema

NO_LIMITS = NamespacePolicy()
DEFAULT_SETTINGS = SubscriptionSettings()

RANGES_SHOWN_MAX = 1000
"""Of a subscription's ranges a description has so many; there may be a million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCounts:
    """What happened to a subscription's messages since the broker started."""

    delivered: int = 0
    """Messages that were sent to consumers, each time they were."""
    redelivered: int = 0
    """Those of them that had been delivered before."""
    nacked: int = 0
    timed_out: int = 0
    """Not acknowledged in time."""
    expired: int = 0
    """Not delivered because their time to live was over."""
    dead_lettered: int = 0
    given_up: int = 0
    """Done without success, as the poison policy *drop* says."""
    skipped: int = 0
    """Done because no segment can be read that has them; the topic's policy says so."""


NO_COUNTS = SubscriptionCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """A subscription at one moment."""

    subscription: str
    type: SubscriptionType
    cursor: int
    """Every message below this offset is done."""
    done: tuple[Range, ...]
    """What is done above the cursor: the first RANGES_SHOWN_MAX ranges."""
    backlog: int
    """How many messages were published and are not done."""
    in_flight: int
    """How many were delivered and are neither acknowledged nor given back."""
    consumers: tuple[str, ...]
    """Names; where one is active and the others stand by, it is the first."""
    backlog_bytes: int = 0
    """About how much the backlog is, as it is stored."""
    oldest_publish_time: int | None = None
    """
    About when the first message of the backlog was published, in microseconds since
    1970, UTC; None where there is none.
    """
    delayed: int = 0
    """How many wait for their time: a delay of the producer's, or the next delivery."""
    blocked: tuple[Range, ...] = ()
    """What failed too often and blocks what follows: again the first ranges."""
    parked: int = 0
    """How many are on their way to the dead-letter topic."""
    dead_letter_error: str | None = None
    """Why they have not come there yet; it is tried again."""
    stopped_by: str | None = None
    """Which segment cannot be read, if the subscription waits for it."""
    skipped: tuple[Range, ...] = ()
    """What was skipped because it could not be read: again the first ranges."""
    is_paused: bool = False
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    counts: SubscriptionCounts = NO_COUNTS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic at one moment; messages ``base_offset … end_offset`` can be read."""

    topic: str
    topic_id: int
    policy: TopicPolicy
    epoch: int
    base_offset: int
    end_offset: int
    sealed_offset: int
    """What is older stands in segments, the rest in the broker's memory."""
    tail_bytes: int
    segment_bytes: int
    segment_count: int
    producers: tuple[str, ...]
    subscriptions: tuple[SubscriptionDescription, ...]
    dropped: int
    """Messages that slow consumers of a non-reliable topic did not get."""
    limits: NamespacePolicy = NO_LIMITS
    """Those that hold: the topic's own, or its namespace's."""
    own_limits: NamespacePolicy | None = None
    """None if those of the namespace hold."""
    schema: TopicSchema | None = None
    """What its messages keep to."""
    message_count: int = 0
    """How many messages can be read; fewer than offsets where some were removed."""
    holds: tuple[Hold, ...] = ()
    """Who relies on its segments; while there are any, they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """That somebody relies on a topic's segments as they are."""

    name: str
    reason: str
    created_at: int
    """Microseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker, as it introduces itself."""

    broker_id: str
    version: str
    """For people, as in ``pydanube 0.1.0``."""
    url: str
    """Where whoever asks reached it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceDescription:
    """A namespace at one moment."""

    namespace: str
    policy: NamespacePolicy
    topic_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One immutable Parquet file with the messages ``base … end`` of a topic."""

    base: int
    end: int
    epoch: int
    count: int
    """How many messages; fewer than ``end - base`` where some were removed."""
    byte_count: int
    url: str
    """Where any engine can read it."""
    object_name: str = ""
    """What the broker calls it; the end of the url."""
    checksum: int | None = None
    """CRC-32C of the file; None where none was taken, or by an older broker."""
    part_checksums: bytes | None = None
    """CRC-32C of its footer and of each column chunk, if the broker has them."""
    first_publish_time: int = 0
    last_publish_time: int = 0
    sealed_at: int = 0
    """When it became a part of the topic; microseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Where a topic's messages are: in these segments, then with the broker."""

    topic_id: int
    segments: tuple[Segment, ...]
    base_offset: int
    sealed_offset: int
    end_offset: int
    epoch: int = 0
    """Of the topic; names of new segments have it."""
