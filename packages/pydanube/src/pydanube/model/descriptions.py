"""Descriptions of topics, subscriptions, segments, namespaces and brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import (
    KEEP_ALL,
    CorruptionPolicy,
    Deduplication,
    NamespacePolicy,
    Retention,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.ranges import Range
from pydanube.model.schemas import TopicSchema
from pydanube.model.segments import SegmentEntry

NO_LIMITS = NamespacePolicy()
DEFAULT_SETTINGS = SubscriptionSettings()

RANGES_SHOWN_MAX = 1000
"""The most ranges in a description; a subscription may have a million."""

DROPS_SHOWN_MAX = 1000
"""The most segments in the answer about what retention drops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCounts:
    """Counts of a subscription's messages since the broker started."""

    delivered: int = 0
    """Deliveries, including redeliveries."""
    redelivered: int = 0
    """Deliveries of messages that had been delivered before."""
    nacked: int = 0
    timed_out: int = 0
    """Messages that were not acknowledged in time."""
    expired: int = 0
    """Messages that expired before they were delivered."""
    dead_lettered: int = 0
    given_up: int = 0
    """Messages that the poison policy *drop* has dropped."""
    skipped: int = 0
    """Messages in unreadable segments that the corruption policy has skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """A subscription at one moment."""

    subscription: str
    type: SubscriptionType
    cursor: int
    """Every message below this offset is done."""
    done: tuple[Range, ...]
    """The first RANGES_SHOWN_MAX done ranges above the cursor."""
    backlog: int
    """The number of published messages that are not done."""
    in_flight: int
    """The number of messages that were delivered and neither acked nor nacked."""
    consumers: tuple[str, ...]
    """The names; the active consumer, if there is one, is the first."""
    backlog_bytes: int = 0
    """The approximate stored size of the backlog."""
    oldest_publish_time: int | None = None
    """
    The approximate publish time of the first message of the backlog, in microseconds
    since 1970, UTC; None if there is none.
    """
    delayed: int = 0
    """The number of messages that are delayed or wait for redelivery."""
    blocked: tuple[Range, ...] = ()
    """The first RANGES_SHOWN_MAX ranges that failed too often and block others."""
    parked: int = 0
    """The number of messages that are being copied to the dead-letter topic."""
    dead_letter_error: str | None = None
    """The error of the last attempt to copy them, which is retried."""
    stopped_by: str | None = None
    """The unreadable segment that the subscription waits for, if any."""
    skipped: tuple[Range, ...] = ()
    """The first RANGES_SHOWN_MAX ranges that were skipped as unreadable."""
    is_paused: bool = False
    settings: SubscriptionSettings = DEFAULT_SETTINGS
    counts: SubscriptionCounts = SubscriptionCounts()
    note: str = ""
    """The text that a group of Kafka has committed with the cursor's offset."""


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
    """Older messages are in segments, the rest in the broker's memory."""
    tail_bytes: int
    segment_bytes: int
    segment_count: int
    producers: tuple[str, ...]
    subscriptions: tuple[SubscriptionDescription, ...]
    dropped: int
    """Messages of a non-reliable topic that slow consumers missed."""
    limits: NamespacePolicy = NO_LIMITS
    """The effective limits: the topic's own, or its namespace's."""
    own_limits: NamespacePolicy | None = None
    """The topic's own limits; None if those of the namespace apply."""
    schema: TopicSchema | None = None
    """The schema of its messages."""
    message_count: int = 0
    """The number of readable messages; fewer than offsets if some were removed."""
    holds: tuple[Hold, ...] = ()
    """The retention holds, which keep its segments."""
    retention: Retention = KEEP_ALL
    """The effective retention: the topic's own, or its namespace's."""
    broker_id: str = ""
    """The broker that serves it."""
    shard: int | None = None
    """Its shard; None without a cluster."""

    @property
    def settings(self) -> TopicSettings:
        """The settings that can change."""
        return TopicSettings.of(self.policy, self.own_limits, self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlace:
    """The broker that serves a topic, and the shard of the topic."""

    broker_id: str
    """Empty if no broker serves it at the moment."""
    shard: int | None = None
    """Its shard; None without a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that can change; the fields are those of TopicPolicy."""

    limits: NamespacePolicy | None = None
    """None: those of the namespace."""
    retention: Retention | None = None
    on_corruption: CorruptionPolicy = CorruptionPolicy.STOP
    seal_bytes: int | None = None
    seal_age_s: float | None = None
    deduplication: Deduplication | None = None
    schema: TopicSchema | None = None

    @classmethod
    def of(
        cls,
        policy: TopicPolicy,
        limits: NamespacePolicy | None = None,
        schema: TopicSchema | None = None,
    ) -> TopicSettings:
        """Return the settings of a topic with *policy*."""
        return cls(
            limits=limits,
            retention=policy.retention,
            on_corruption=policy.on_corruption,
            seal_bytes=policy.seal_bytes,
            seal_age_s=policy.seal_age_s,
            deduplication=policy.deduplication,
            schema=schema,
        )

    def check(self) -> None:
        """
        Raise if a setting is out of range.

        Raises:
            InvalidRequest: It is.
        """
        TopicPolicy(
            retention=self.retention,
            seal_bytes=self.seal_bytes,
            seal_age_s=self.seal_age_s,
            deduplication=self.deduplication,
        ).check()


# Not frozen: queries request those of all partitions all the time, and it takes long.
@dataclass(slots=True, kw_only=True)
class TopicOffsets:
    """The offsets of a topic at one moment; half-open, as in its description."""

    topic_id: int
    base_offset: int
    end_offset: int
    sealed_offset: int
    """Older messages are in segments, the rest in the broker's memory."""
    tail_bytes: int
    is_reliable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChanges:
    """The offsets of topics, or what has changed in them."""

    topics: dict[str, TopicOffsets]
    is_complete: bool
    """True: these are all topics that were asked for and exist; False: those that have
    changed."""
    revisions: dict[str, tuple[str, int]]
    """The revision of each broker by its URL, from which the next call continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An external reader's claim that keeps the segments of a topic as they are."""

    name: str
    reason: str
    created_at: int
    """Microseconds since 1970, UTC."""
    expires_at: int | None = None
    """When the broker releases it; None: it lasts until it is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProgress:
    """The last backup that a broker has made since its start, or is making."""

    id: str = ""
    """Empty if there was none."""
    url: str = ""
    """The object store that it is written to."""
    is_running: bool = False
    error: str = ""
    """Why it failed."""
    segment_count: int = 0
    segments_done: int = 0
    """How many of these are in the backup."""
    segments_shared: int = 0
    """How many of these an earlier backup had stored already."""
    byte_count: int = 0
    """The size of the state that is backed up."""
    bytes_done: int = 0
    damaged: tuple[str, ...] = ()
    """Segments that cannot be read, so the backup lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker's description of itself."""

    broker_id: str
    version: str
    """For people, such as ``pydanube 0.1.0``."""
    url: str
    """The address at which the caller reached it."""
    http_url: str = ""
    """Its HTTP port at the same host; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceDescription:
    """A namespace at one moment."""

    namespace: str
    policy: NamespacePolicy
    topic_count: int
    retention: Retention = KEEP_ALL
    """The retention of topics that have none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedSegment:
    """A segment that retention drops."""

    base: int
    end: int
    """The first offset after the segment."""
    count: int
    """The number of messages."""
    byte_count: int
    object_name: str
    last_publish_time: int
    """The latest publish time in it, in microseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDrops:
    """The segments that retention drops, or would drop, from a topic at one moment."""

    topic: str
    base_offset: int
    """The first offset that is kept."""
    segment_count: int
    message_count: int
    byte_count: int
    segments: tuple[DroppedSegment, ...]
    """The first DROPS_SHOWN_MAX of these segments."""
    held_by: tuple[str, ...] = ()
    """The retention holds; while there are any, nothing is dropped."""
    has_subscriptions: bool = False
    """Whether the topic has subscriptions; without, nothing counts as acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SegmentEntry):
    """One immutable Parquet file with the messages ``base … end`` of a topic."""

    url: str
    """The URL at which engines read it: of the local copy, if there is one."""
    remote_url: str = ""
    """The URL of its copy in the remote object store; empty if there is none."""
    store_options: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The options that say where the remote store is, such as its endpoint."""

    def __post_init__(self) -> None:
        """Accept any numbers: the broker has checked them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDescription:
    """The segments of a broker, and their uploads since it started."""

    remote_url: str
    """The remote object store; empty if there is none."""
    local_bytes: int
    """The size of the segments on the local disk."""
    local_bytes_max: int = 0
    backlog_segments: int = 0
    """The number of segments that are not uploaded yet."""
    backlog_bytes: int = 0
    backlog_age_s: float = 0.0
    """The time since the oldest of them was sealed."""
    uploads: int = 0
    uploaded_bytes: int = 0
    upload_failures: int = 0
    evictions: int = 0
    evicted_bytes: int = 0
    is_refusing: bool = False
    """Whether publishing is refused until more segments are uploaded."""
    problems: tuple[str, ...] = ()
    journal_kind: str = "local"
    """Where the journal is, as in the setting ``storage.journal.kind``."""
    journal_url: str = ""
    """The object store of the journal; empty if it is in the data directory."""
    journal_bytes: int = 0


class CopyState(Enum):
    """The state of one copy of a segment, as verification has found it."""

    NONE = "none"
    """There is no copy, and there need not be one."""
    INTACT = "intact"
    DAMAGED = "damaged"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It was not read: the broker has no remote object store."""
    REPAIRED = "repaired"
    """It was damaged or missing, and was replaced by the other copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment:
    """A segment with a copy that is damaged or missing."""

    object_name: str
    base: int
    end: int
    """The first offset after the segment."""
    byte_count: int
    local: CopyState
    remote: CopyState
    problem: str
    """The defects of each copy, and the reason if it could not be repaired."""

    @property
    def is_repaired(self) -> bool:
        """Whether every copy is intact now."""
        return CopyState.REPAIRED in {self.local, self.remote}

    @property
    def has_intact_copy(self) -> bool:
        """Whether one copy is intact, so that no message is lost."""
        good = {CopyState.INTACT, CopyState.REPAIRED}
        return not good.isdisjoint({self.local, self.remote})


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsVerified:
    """The outcome of one page of a verification, or of copying to another store."""

    segment_count: int = 0
    """The number of segments that were verified."""
    byte_count: int = 0
    """The number of bytes of copies that were read."""
    without_checksum: int = 0
    """Recovered segments, of which only the length could be verified."""
    copied_count: int = 0
    """The number of segments that were copied to another store."""
    damaged: tuple[DamagedSegment, ...] = ()
    after: str = ""
    """The position from which to continue; empty if this was the last page."""
    segments_left: int = 0
    """The number of segments from the beginning of this page on, if asked for."""
    bytes_left: int = 0
    """The size of these segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """The segments of a topic; newer messages are in the broker's memory."""

    topic_id: int
    segments: tuple[Segment, ...]
    base_offset: int
    sealed_offset: int
    end_offset: int
    epoch: int = 0
    """The epoch of the topic; the names of new segments contain it."""
    objects_url: str = ""
    """The URL of the directory where maintenance writes new segments."""
