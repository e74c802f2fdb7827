"""
The values of the metadata store.

Times are microseconds since 1970, UTC.  docs/format/compatibility.md
says how records may change.
"""

from __future__ import annotations

import msgspec

from pydanube.model.policy import (
    KEEP_ALL,
    NamespacePolicy,
    Retention,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaType,
    TopicSchema,
)
from pydanube.model.stored_connectors import ConnectorReport
from pydanube.security.principals import Principal


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the broker, set at its first start."""

    broker_id: str
    created_at: int


class ActiveBrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The broker that uses the metadata in etcd; the record has its session's lease."""

    session_id: str
    host: str
    process_id: int
    data_dir: str
    started_at: int


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a cluster."""

    cluster_id: str
    """32 hexadecimal digits; also the id of the journal, and in the object store."""
    created_at: int


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A position up to which the journal is durable."""

    file_number: int
    """The number of the file; of an object journal, of the session."""
    position: int
    """The position in the file, in bytes; of an object journal, the next group."""
    kind: str
    """The kind of the journal, as in the setting ``storage.journal.kind``."""


class JournalSessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an object journal; its number is in the key."""

    session_id: str
    """32 hexadecimal digits; also in every object that the session wrote."""
    prefix: str
    """The prefix of the names of its objects."""
    first: int
    """The first group that is still needed."""
    end: int | None = None
    """The number of the fence, if the session is known to be fenced."""
    is_frozen: bool = False
    """Whether another session is taking over or has taken over."""


class NamespaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace, and the limits and retention of its topics."""

    created_at: int
    policy: NamespacePolicy = NamespacePolicy()
    retention: Retention = KEEP_ALL
    """The retention of topics that have none of their own."""


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its number and settings."""

    topic_id: int
    policy: TopicPolicy
    created_at: int
    limits: NamespacePolicy | None = None
    """Replaces the namespace's limits."""
    schema: TopicSchema | None = None
    """The schema of its messages."""
    shard: int | None = None
    """Its shard; None if it was created outside of a cluster."""
    start_offset: int = 0
    """The messages before it were trimmed."""


class PartitionedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A partitioned topic: its name and number of partitions."""

    partitions: int
    policy: TopicPolicy
    """The policy of each partition."""
    created_at: int
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges of partition numbers that have no topic yet."""
    limits: NamespacePolicy | None = None
    """Replaces the namespace's limits; also in each partition's record."""
    schema: TopicSchema | None = None
    """The schema of its messages; also in each partition's record."""


class DeletedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted topic whose data must still be removed."""

    topic_id: int
    deleted_at: int
    shard: int | None = None
    """Its shard, whose owner removes the data."""


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription; its cursor is in the journal."""

    type: SubscriptionType
    created_at: int


class ConsumerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer to which a Danube client's number was assigned."""

    topic: str
    subscription: str
    consumer: str
    type: SubscriptionType
    key_filters: tuple[str, ...] = ()


class SettingsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a subscription, which need not exist yet."""

    settings: SubscriptionSettings
    changed_at: int
    author: Principal | None = None
    """The principal that has named the dead-letter topic; None if there is none."""


class HoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A retention hold: it keeps a topic's segments as they are."""

    reason: str
    created_at: int
    expires_at: int | None = None
    """When the broker releases it by itself; None: never."""


class SubjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subject of the schema registry."""

    schema_id: int
    type: SchemaType
    """The type of the latest version."""
    compatibility: Compatibility
    created_at: int
    last_version: int
    """The highest version that was ever assigned."""
    versions: tuple[int, ...]
    """The versions that were not deleted, in order. Others may be read by their ids."""


class SchemaVersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a subject."""

    type: SchemaType
    definition: str
    message: str | None
    message_path: tuple[int, ...] = ()
    """Protobuf only: the index of the message in its file, after those of the messages
    in which it is nested, from the outermost on; empty if another file has it."""
    fingerprint: str
    description: str
    created_at: int
    created_by: str
    tags: tuple[str, ...]
    references: tuple[ReferencedVersion, ...] = ()
    is_deleted: bool = False
    """Whether only the type and the path are left, for readers of its messages."""


class StagedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a commit appends to."""

    topic_id: int
    name: str
    message_count: int
    parts: tuple[str, ...] = ()
    """In a cluster: the objects with its messages, in order; the last parts of their
    names."""
    is_done: bool = False
    """In a cluster: whether the messages are in the topic."""


class CommittedAcksRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a subscription that a commit acknowledges."""

    topic_id: int
    name: str
    """The name of the topic."""
    subscription: str
    created_at: int
    """When the subscription was created; a later one of the same name is another."""
    ranges: tuple[tuple[int, int], ...]
    note: str = ""
    """A text for the cursor, if it is at the end of the ranges then."""
    is_done: bool = False
    """In a cluster: whether the cursor of the subscription has them."""


class StagingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A committed version, with all data to complete it after a crash."""

    version: int
    commit_id: int
    """The id of the producer that appends; higher than earlier ones of the query."""
    parts: tuple[tuple[int, str], ...]
    """The file number and id of each part, in order; none in a cluster."""
    topics: tuple[StagedTopicRecord, ...]
    acks: tuple[CommittedAcksRecord, ...] = ()


class RoleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A role of the access policy: permissions on resources."""

    permissions: tuple[str, ...]
    patterns: tuple[str, ...]
    """The resources on which it permits them."""
    created_at: int


class BindingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Roles that a member has."""

    member: str
    roles: tuple[str, ...]
    patterns: tuple[str, ...]
    """The resources on which the roles apply."""
    created_at: int
    is_service_account: bool = False
    """Whether Danube's tools made it for a service account, which is a user here."""


class QuotaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of a principal, a namespace or a topic; 0: no limit."""

    target: str
    """``user:NAME``, ``anonymous``, ``/namespace`` or ``/namespace/topic``."""
    created_at: int
    connections: int = 0
    requests_per_s: int = 0
    topics: int = 0
    subscriptions: int = 0
    bytes_in_per_s: int = 0
    bytes_out_per_s: int = 0
    sessions: int = 0
    storage_bytes: int = 0


class ConnectorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a connector, and what was asked of it."""

    definition: str
    """A JSON object with ``kind``, ``topic`` and more, without literal secrets."""
    revision: int
    """Rises with each change of the definition."""
    changed_at: int
    author: Principal
    """The principal that wrote the definition, whose permissions limit it."""
    is_paused: bool = False
    restarts: int = 0
    """Rises with each restart that somebody has asked for."""


class ConnectorReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of the worker that runs a connector."""

    report: ConnectorReport


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a query that stages batches."""

    version: int | None = None
    """The last version whose messages are all in their topics."""
    message_count: int = 0
    """The number of messages of that version."""
    committed_at: int = 0
    commit_id: int = 0
    """The last commit id."""
    decision: StagingDecision | None = None
    """The commit that is decided and not completed yet."""
    begun: int | None = None
    """In a cluster: the newest transaction that has begun; others are fenced."""
    dropping: tuple[str, ...] = ()
    """In a cluster: parts that are being removed, and cannot be committed any more:
    the ends of their objects' names."""
    owner: str = ""
    """The principal that used the query first, as a member of bindings. Empty: without
    security."""
    writer: bytes = b""
    """In a cluster: the bytes that a listener keeps about the program that writes the
    query's transactions."""


class ApiKeySecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One key of an API key's name."""

    key_id: str
    hash: str
    """The SHA-256 of the key, in hexadecimal digits."""
    scram_stored_key: bytes
    scram_server_key: bytes
    """The verifier of the key as a password of SCRAM-SHA-256."""
    created_at: int
    expires_at: int | None = None


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key by its name; after a rotation it has several secrets for a while."""

    principal: str
    groups: tuple[str, ...] = ()
    secrets: tuple[ApiKeySecretRecord, ...]
