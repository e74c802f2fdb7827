"""
The values of the metadata store.

Times are microseconds since 1970, UTC, as everywhere in the formats.  A field
that is added needs a default, because values of an older broker lack it.
"""

from __future__ import annotations

import msgspec

from pydanube.model.policy import (
    NamespacePolicy,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.schemas import Compatibility, SchemaType, TopicSchema


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who the broker of this store is, decided at its first start."""

    broker_id: str
    created_at: int


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a cluster: of everything that is stored together."""

    cluster_id: str
    """32 hexadecimal digits; also the id of the journal, and in the object store."""
    created_at: int


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A position up to which the journal was on disk, for good."""

    file_number: int
    position: int
    """In bytes."""


class NamespaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a namespace exists, and the limits of its topics."""

    created_at: int
    policy: NamespacePolicy = NamespacePolicy()


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a topic exists, under which number, and what was decided about it."""

    topic_id: int
    policy: TopicPolicy
    created_at: int
    limits: NamespacePolicy | None = None
    """Instead of the namespace's."""
    schema: TopicSchema | None = None
    """What its messages keep to."""


class PartitionedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a name stands for so many topics, its partitions."""

    partitions: int
    policy: TopicPolicy
    """Of each of them."""
    created_at: int
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges of numbers below *partitions* that have no topic yet."""
    limits: NamespacePolicy | None = None
    """Instead of the namespace's; each partition's record says so, too."""
    schema: TopicSchema | None = None
    """What its messages keep to; each partition's record says so, too."""


class DeletedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a topic's name is gone, and what it held has still to be removed."""

    name: str
    """The one it had; another topic may have it now."""
    deleted_at: int


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a subscription exists; its cursor is in the journal."""

    type: SubscriptionType
    created_at: int


class ConsumerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a number that a client of Danube was given when it subscribed."""

    topic: str
    subscription: str
    consumer: str
    type: SubscriptionType
    key_filters: tuple[str, ...] = ()


class SettingsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a subscription, whether it exists yet or not."""

    settings: SubscriptionSettings
    changed_at: int


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed segment of a topic: the messages ``base … end``."""

    base: int
    end: int
    """The first offset that is *not* in the segment."""
    epoch: int
    """Of the claim under which it was written."""
    count: int
    """How many messages it has; fewer than offsets where some are missing."""
    byte_count: int
    object_name: str
    first_publish_time: int
    last_publish_time: int
    sealed_at: int
    checksum: int | None = None
    """CRC-32C of the object."""
    part_checksums: bytes | None = None
    """CRC-32C of its footer and of each column chunk; see ``segment_checksums``."""

    def __post_init__(self) -> None:
        if not 0 <= self.base < self.end or not 0 <= self.count <= self.end - self.base:
            raise ValueError(
                f"{self.count} messages of {self.base} to {self.end} are no segment"
            )


class HoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a topic's segments stay as they are, and why."""

    reason: str
    created_at: int


class SubjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subject of the schema registry."""

    schema_id: int
    type: SchemaType
    """Of the latest version."""
    compatibility: Compatibility
    created_at: int
    last_version: int
    """The highest that was ever given out."""
    versions: tuple[int, ...]
    """Those that were not deleted, in order."""


class SchemaVersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a subject."""

    type: SchemaType
    definition: str
    message: str | None
    fingerprint: str
    description: str
    created_at: int
    created_by: str
    tags: tuple[str, ...]


class StagedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a commit appends to."""

    topic_id: int
    name: str
    message_count: int


class StagingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """That a version is committed, and what is needed to carry that out."""

    version: int
    commit_id: int
    """The id of the producer that appends; higher than any before of the query."""
    parts: tuple[tuple[int, str], ...]
    """Number of the file and id of each part, in their order."""
    topics: tuple[StagedTopicRecord, ...]


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far a query is that stages what it writes."""

    version: int | None = None
    """The last version all messages of which are in their topics."""
    message_count: int = 0
    """How many that were."""
    committed_at: int = 0
    commit_id: int = 0
    """The last one."""
    decision: StagingDecision | None = None
    """What is decided and not carried out yet."""
