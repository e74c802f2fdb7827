"""
The keys of the metadata store.

Everything below a topic is stored under its number, so data of a deleted topic can
never be confused with that of a new one with the same name.  Numbers that are scanned
in order are padded to 20 digits.  docs/format/metadata.md is the normative description.
"""

from __future__ import annotations

from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName, parse_subject
from pydanube.model.segments import SegmentEntry
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    LoadRecord,
    SessionJournalRecord,
    SessionRecord,
    ShardRecord,
)
from pydanube_broker.metadata.key import Key, key_of, prefix_of
from pydanube_broker.metadata.records import (
    ActiveBrokerRecord,
    ApiKeyRecord,
    BindingRecord,
    BrokerRecord,
    ClusterRecord,
    ConnectorRecord,
    ConnectorReportRecord,
    ConsumerRecord,
    DeletedTopicRecord,
    HoldRecord,
    JournalRecord,
    JournalSessionRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    QueryRecord,
    QuotaRecord,
    RoleRecord,
    SchemaVersionRecord,
    SettingsRecord,
    SubjectRecord,
    SubscriptionRecord,
    TopicRecord,
)


def _parse_topic(name: str) -> TopicName:
    return TopicName.parse("/" + name)


BROKER = key_of("/broker", BrokerRecord)
"""The identity of the broker that owns the store."""

ACTIVE = prefix_of("/active/", ActiveBrokerRecord)
ACTIVE_BROKER = ACTIVE.key("broker")
"""The broker that uses the store, if it is in etcd, with its session's lease."""

CLUSTER = key_of("/cluster", ClusterRecord)
"""The cluster id, also in the journal and the object store."""

JOURNAL = key_of("/journal", JournalRecord)
"""The kind of the journal, and a position up to which it is durable."""

JOURNAL_SESSIONS = prefix_of("/journals/", JournalSessionRecord)
"""``/journals/{session number, 20 digits}``"""

LAST_TOPIC_ID = key_of("/counters/topic-id", int)
"""The highest topic number that was ever assigned."""

NAMESPACES = prefix_of("/namespaces/", NamespaceRecord)
"""``/namespaces/{namespace}``"""

TOPICS = prefix_of("/topics/", TopicRecord, _parse_topic)
"""``/topics/{namespace}/{topic}``"""

PARTITIONED_TOPICS = prefix_of(
    "/partitioned-topics/", PartitionedTopicRecord, _parse_topic
)
"""``/partitioned-topics/{namespace}/{base name}``"""

DELETED_TOPICS = prefix_of("/deleted-topics/", DeletedTopicRecord, _parse_topic)
"""``/deleted-topics/{namespace}/{topic}``: no topic may have the name meanwhile"""

EPOCHS = prefix_of("/epochs/", int)
"""``/epochs/{topic id}``: the number of times the topic was claimed"""

SUBSCRIPTIONS = prefix_of("/subscriptions/", SubscriptionRecord)
"""``/subscriptions/{topic id}/{subscription}``"""

CONSUMERS = prefix_of("/consumers/", ConsumerRecord, int)
"""``/consumers/{number}``"""

SETTINGS = prefix_of("/settings/", SettingsRecord)
"""``/settings/{topic id}/{subscription}``"""

SEGMENTS = prefix_of("/segments/", SegmentEntry)
"""``/segments/{topic id}/{base offset, 20 digits}``"""

HOLDS = prefix_of("/holds/", HoldRecord)
"""``/holds/{topic id}/{name}``"""

QUERIES = prefix_of("/queries/", QueryRecord)
"""``/queries/{query}``"""

LAST_SCHEMA_ID = key_of("/counters/schema-id", int)
"""The highest schema id that was ever assigned."""

SUBJECTS = prefix_of("/schemas/subjects/", SubjectRecord)
"""``/schemas/subjects/{subject}``"""

SCHEMA_IDS = prefix_of("/schemas/ids/", str)
"""``/schemas/ids/{schema id}``: the subject that has it"""

SCHEMA_VERSIONS = prefix_of("/schemas/versions/", SchemaVersionRecord)
"""``/schemas/versions/{schema id}/{version, 20 digits}``"""

SCHEMA_REFERENCES = prefix_of("/schemas/references/", str)
"""``/schemas/references/{schema id}/{version}/{schema id}/{version}``: the name by
which the second version refers to the first"""

API_KEYS = prefix_of("/security/api-keys/", ApiKeyRecord)
"""``/security/api-keys/{name}``"""
ROLES = prefix_of("/security/roles/", RoleRecord)
"""``/security/roles/{name}``"""

BINDINGS = prefix_of("/security/bindings/", BindingRecord)
"""``/security/bindings/{id}``"""

CONNECTORS = prefix_of("/connectors/", ConnectorRecord)
"""``/connectors/{name}``"""

CONNECTOR_REPORTS = prefix_of("/connector-reports/", ConnectorReportRecord)
"""``/connector-reports/{name of the connector}``"""

QUOTAS = prefix_of("/security/quotas/", QuotaRecord)
"""``/security/quotas/{target, percent-encoded}``"""

# The keys of clusters; docs/format/cluster.md describes them.

SESSIONS = prefix_of("/sessions/", SessionRecord)
"""``/sessions/{session}``, with the session's lease"""

BROKER_SESSIONS = prefix_of("/broker-sessions/", str)
"""``/broker-sessions/{broker id}``: the broker's session, with its lease"""

BROKER_MODES = prefix_of("/broker-modes/", BrokerModeRecord)
"""``/broker-modes/{broker id}``"""

CONTROLLERS = prefix_of("/controller/", str)
CONTROLLER = CONTROLLERS.key("session")
"""The session that is the controller, with its lease."""
REBALANCE = CONTROLLERS.key("rebalance")
"""When the controller was asked to balance the cluster; it deletes the key."""

LEAVING = prefix_of("/leaving/", str)
"""``/leaving/{session}``: the broker that is about to stop, with its lease"""

SHARDS = prefix_of("/shards/", ShardRecord, int)
"""``/shards/{shard}``"""

SHARD_EPOCHS = prefix_of("/shard-epochs/", int)
"""``/shard-epochs/{shard}``: the number of times the shard was claimed"""

SESSION_JOURNALS = prefix_of("/session-journals/", SessionJournalRecord)
"""``/session-journals/{session}``"""

SHARD_TOPICS = prefix_of("/shard-topics/", str)
"""``/shard-topics/{shard}/{topic id}``: the name of the topic"""

LOADS = prefix_of("/loads/", LoadRecord)
"""``/loads/{session}``, with the session's lease"""


def journal_session(number: int) -> Key[JournalSessionRecord]:
    """Return the key of a session of the object journal."""
    return JOURNAL_SESSIONS.key(f"{number:020d}")


def topic(name: TopicName) -> Key[TopicRecord]:
    """Return the key of a topic."""
    return TOPICS.key(name.namespace, name.topic)


def partitioned_topic(base: TopicName) -> Key[PartitionedTopicRecord]:
    """Return the key of a partitioned topic."""
    return PARTITIONED_TOPICS.key(base.namespace, base.topic)


def deleted_topic(name: TopicName) -> Key[DeletedTopicRecord]:
    """Return the key of a deleted topic whose contents must still be removed."""
    return DELETED_TOPICS.key(name.namespace, name.topic)


def writer_epoch(topic_id: TopicId, shard: int | None) -> Key[int]:
    """
    Return the key that the next writer of a topic changes first.

    In a cluster it is that of the topic's shard.  Who compares it in a transaction
    changes nothing after another broker has begun to read the topic.
    """
    if shard is not None:
        return SHARD_EPOCHS.key(shard)
    return EPOCHS.key(topic_id)


def segment(topic_id: TopicId, base: int) -> Key[SegmentEntry]:
    """Return the key of the segment of a topic that begins at *base*."""
    return SEGMENTS.key(topic_id, f"{base:020d}")


def subject(name: str) -> Key[SubjectRecord]:
    """
    Return the key of a subject.

    Raises:
        InvalidName: *name* is no valid subject.
    """
    return SUBJECTS.key(parse_subject(name))


def schema_version(number: int, version: int) -> Key[SchemaVersionRecord]:
    """Return the key of a version of the subject with schema id *number*."""
    return SCHEMA_VERSIONS.key(number, f"{version:020d}")
