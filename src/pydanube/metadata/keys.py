"""
The keys of the metadata store.

Everything below a topic is stored under its number, so data of a deleted topic can
never be confused with that of a new one with the same name.  Numbers that are scanned
in order are padded to 20 digits.  docs/format/metadata.md is the normative description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.metadata.key import Key, Prefix, key_of, prefix_of
from pydanube.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    ConsumerRecord,
    DeletedTopicRecord,
    HoldRecord,
    JournalRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    QueryRecord,
    SchemaVersionRecord,
    SegmentRecord,
    SettingsRecord,
    SubjectRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pydanube.model.errors import InvalidName

if TYPE_CHECKING:
    from pydanube.model.ids import Offset, TopicId
    from pydanube.model.names import NamespaceName, SubscriptionName, TopicName

BROKER: Key[BrokerRecord] = key_of("/broker", BrokerRecord)
"""The identity of the broker that owns the store."""

CLUSTER: Key[ClusterRecord] = key_of("/cluster", ClusterRecord)
"""The cluster id, also in the journal and the object store."""

JOURNAL: Key[JournalRecord] = key_of("/journal", JournalRecord)
"""A position up to which the journal is on disk."""

LAST_TOPIC_ID: Key[int] = key_of("/counters/topic-id", int)
"""The highest topic number that was ever assigned."""

NAMESPACES: Prefix[NamespaceRecord] = prefix_of("/namespaces/", NamespaceRecord)
"""``/namespaces/{namespace}``"""

TOPICS: Prefix[TopicRecord] = prefix_of("/topics/", TopicRecord)
"""``/topics/{namespace}/{topic}``"""

PARTITIONED_TOPICS: Prefix[PartitionedTopicRecord] = prefix_of(
    "/partitioned-topics/", PartitionedTopicRecord
)
"""``/partitioned-topics/{namespace}/{base name}``"""

DELETED_TOPICS: Prefix[DeletedTopicRecord] = prefix_of(
    "/deleted-topics/", DeletedTopicRecord
)
"""``/deleted-topics/{topic id}``"""

EPOCHS: Prefix[int] = prefix_of("/epochs/", int)
"""``/epochs/{topic id}``: the number of times the topic was claimed"""

SUBSCRIPTIONS: Prefix[SubscriptionRecord] = prefix_of(
    "/subscriptions/", SubscriptionRecord
)
"""``/subscriptions/{topic id}/{subscription}``"""

CONSUMERS: Prefix[ConsumerRecord] = prefix_of("/consumers/", ConsumerRecord)
"""``/consumers/{number}``"""

SETTINGS: Prefix[SettingsRecord] = prefix_of("/settings/", SettingsRecord)
"""``/settings/{topic id}/{subscription}``"""

SEGMENTS: Prefix[SegmentRecord] = prefix_of("/segments/", SegmentRecord)
"""``/segments/{topic id}/{base offset, 20 digits}``"""

HOLDS: Prefix[HoldRecord] = prefix_of("/holds/", HoldRecord)
"""``/holds/{topic id}/{name}``"""

QUERIES: Prefix[QueryRecord] = prefix_of("/queries/", QueryRecord)
"""``/queries/{query}``"""

LAST_SCHEMA_ID: Key[int] = key_of("/counters/schema-id", int)
"""The highest schema id that was ever assigned."""

SUBJECTS: Prefix[SubjectRecord] = prefix_of("/schemas/subjects/", SubjectRecord)
"""``/schemas/subjects/{subject}``"""

SCHEMA_IDS: Prefix[str] = prefix_of("/schemas/ids/", str)
"""``/schemas/ids/{schema id}``: the subject that has it"""

SCHEMA_VERSIONS: Prefix[SchemaVersionRecord] = prefix_of(
    "/schemas/versions/", SchemaVersionRecord
)
"""``/schemas/versions/{schema id}/{version, 20 digits}``"""


def namespace(name: NamespaceName) -> Key[NamespaceRecord]:
    """Return the key of a namespace."""
    return NAMESPACES.key(name)


def topic(name: TopicName) -> Key[TopicRecord]:
    """Return the key of a topic."""
    return TOPICS.key(f"{name.namespace}/{name.topic}")


def topics_of(namespace: NamespaceName) -> Prefix[TopicRecord]:
    """Return the prefix of the topics of a namespace."""
    return TOPICS.within(namespace)


def partitioned_topic(base: TopicName) -> Key[PartitionedTopicRecord]:
    """Return the key of a partitioned topic."""
    return PARTITIONED_TOPICS.key(f"{base.namespace}/{base.topic}")


def partitioned_topics_of(
    namespace: NamespaceName,
) -> Prefix[PartitionedTopicRecord]:
    """Return the prefix of the partitioned topics of a namespace."""
    return PARTITIONED_TOPICS.within(namespace)


def deleted_topic(topic_id: TopicId) -> Key[DeletedTopicRecord]:
    """Return the key of a deleted topic whose data must still be removed."""
    return DELETED_TOPICS.key(str(topic_id))


def topic_epoch(topic_id: TopicId) -> Key[int]:
    """Return the key of a topic's epoch, which every change of the topic compares."""
    return EPOCHS.key(str(topic_id))


def subscription(topic_id: TopicId, name: SubscriptionName) -> Key[SubscriptionRecord]:
    """Return the key of a subscription."""
    return subscriptions_of(topic_id).key(name)


def subscriptions_of(topic_id: TopicId) -> Prefix[SubscriptionRecord]:
    """Return the prefix of the subscriptions of a topic."""
    return SUBSCRIPTIONS.within(str(topic_id))


def consumer(number: int) -> Key[ConsumerRecord]:
    """Return the key of the consumer with a number."""
    return CONSUMERS.key(str(number))


def settings(topic_id: TopicId, name: SubscriptionName) -> Key[SettingsRecord]:
    """Return the key of a subscription's settings."""
    return settings_of(topic_id).key(name)


def settings_of(topic_id: TopicId) -> Prefix[SettingsRecord]:
    """Return the prefix of the settings of a topic's subscriptions."""
    return SETTINGS.within(str(topic_id))


def segment(topic_id: TopicId, base: Offset) -> Key[SegmentRecord]:
    """Return the key of the segment of a topic that begins at *base*."""
    return segments_of(topic_id).key(f"{base:020d}")


def segments_of(topic_id: TopicId) -> Prefix[SegmentRecord]:
    """Return the prefix of the segments of a topic; scans return them by offset."""
    return SEGMENTS.within(str(topic_id))


def hold(topic_id: TopicId, name: str) -> Key[HoldRecord]:
    """Return the key of a retention hold on a topic."""
    return holds_of(topic_id).key(name)


def holds_of(topic_id: TopicId) -> Prefix[HoldRecord]:
    """Return the prefix of the retention holds on a topic."""
    return HOLDS.within(str(topic_id))


def query(name: str) -> Key[QueryRecord]:
    """Return the key of the progress of a query that stages batches."""
    return QUERIES.key(name)


def subject(name: str) -> Key[SubjectRecord]:
    """
    Return the key of a subject.

    Raises:
        InvalidName: *name* is no valid subject.
    """
    if not name or "/" in name:
        raise InvalidName(
            f"The subject name {name[:80]!r} is empty or contains a slash"
        )
    return SUBJECTS.key(name)


def schema_id(number: int) -> Key[str]:
    """Return the key of the subject with schema id *number*."""
    return SCHEMA_IDS.key(str(number))


def schema_version(number: int, version: int) -> Key[SchemaVersionRecord]:
    """Return the key of a version of the subject with schema id *number*."""
    return schema_versions_of(number).key(f"{version:020d}")


def schema_versions_of(number: int) -> Prefix[SchemaVersionRecord]:
    """Return the prefix of the versions of a subject; scans return them in order."""
    return SCHEMA_VERSIONS.within(str(number))
