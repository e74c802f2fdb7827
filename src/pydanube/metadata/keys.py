"""
The map of the metadata store: everything that is in it, on one page.

Topics are known by their number below ``/topics``, so that whatever is left of a
deleted topic can never be taken for that of a new one with the same name.  Numbers
that are scanned in order are padded to 20 digits.  docs/format/metadata.md is the
normative description.
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
"""The identity of the broker whose store this is."""

CLUSTER: Key[ClusterRecord] = key_of("/cluster", ClusterRecord)
"""The id that metadata, journal and object store of one cluster have in common."""

JOURNAL: Key[JournalRecord] = key_of("/journal", JournalRecord)
"""How far the journal is known to be on disk."""

LAST_TOPIC_ID: Key[int] = key_of("/counters/topic-id", int)
"""The highest topic number that was ever given out."""

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
"""``/epochs/{topic id}``: how many times the topic has been claimed."""

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
"""The highest schema id that was ever given out."""

SUBJECTS: Prefix[SubjectRecord] = prefix_of("/schemas/subjects/", SubjectRecord)
"""``/schemas/subjects/{subject}``"""

SCHEMA_IDS: Prefix[str] = prefix_of("/schemas/ids/", str)
"""``/schemas/ids/{schema id}``: the subject that has it"""

SCHEMA_VERSIONS: Prefix[SchemaVersionRecord] = prefix_of(
    "/schemas/versions/", SchemaVersionRecord
)
"""``/schemas/versions/{schema id}/{version, 20 digits}``"""


def namespace(name: NamespaceName) -> Key[NamespaceRecord]:
    """Where a namespace is recorded."""
    return NAMESPACES.key(name)


def topic(name: TopicName) -> Key[TopicRecord]:
    """Where a topic is recorded."""
    return TOPICS.key(f"{name.namespace}/{name.topic}")


def topics_of(namespace: NamespaceName) -> Prefix[TopicRecord]:
    """Where the topics of one namespace are recorded."""
    return TOPICS.within(namespace)


def partitioned_topic(base: TopicName) -> Key[PartitionedTopicRecord]:
    """Where it is recorded that a name has partitions, and how many."""
    return PARTITIONED_TOPICS.key(f"{base.namespace}/{base.topic}")


def partitioned_topics_of(
    namespace: NamespaceName,
) -> Prefix[PartitionedTopicRecord]:
    """Where the partitioned topics of one namespace are recorded."""
    return PARTITIONED_TOPICS.within(namespace)


def deleted_topic(topic_id: TopicId) -> Key[DeletedTopicRecord]:
    """Where it is recorded that what a topic held has still to be removed."""
    return DELETED_TOPICS.key(str(topic_id))


def topic_epoch(topic_id: TopicId) -> Key[int]:
    """Where a topic's epoch is; every write of its history compares it."""
    return EPOCHS.key(str(topic_id))


def subscription(topic_id: TopicId, name: SubscriptionName) -> Key[SubscriptionRecord]:
    """Where a subscription is recorded."""
    return subscriptions_of(topic_id).key(name)


def subscriptions_of(topic_id: TopicId) -> Prefix[SubscriptionRecord]:
    """Where the subscriptions of one topic are recorded."""
    return SUBSCRIPTIONS.within(str(topic_id))


def consumer(number: int) -> Key[ConsumerRecord]:
    """Where it is recorded who has a number."""
    return CONSUMERS.key(str(number))


def settings(topic_id: TopicId, name: SubscriptionName) -> Key[SettingsRecord]:
    """Where a subscription's settings are recorded."""
    return settings_of(topic_id).key(name)


def settings_of(topic_id: TopicId) -> Prefix[SettingsRecord]:
    """Where the settings of one topic's subscriptions are recorded."""
    return SETTINGS.within(str(topic_id))


def segment(topic_id: TopicId, base: Offset) -> Key[SegmentRecord]:
    """Where the segment of a topic that begins at *base* is recorded."""
    return segments_of(topic_id).key(f"{base:020d}")


def segments_of(topic_id: TopicId) -> Prefix[SegmentRecord]:
    """Where the segments of one topic are recorded; a scan gives them by offset."""
    return SEGMENTS.within(str(topic_id))


def hold(topic_id: TopicId, name: str) -> Key[HoldRecord]:
    """Where it is recorded that a topic's segments are to stay as they are."""
    return holds_of(topic_id).key(name)


def holds_of(topic_id: TopicId) -> Prefix[HoldRecord]:
    """Where the holds of one topic are recorded."""
    return HOLDS.within(str(topic_id))


def query(name: str) -> Key[QueryRecord]:
    """Where it is recorded how far a query is that stages what it writes."""
    return QUERIES.key(name)


def subject(name: str) -> Key[SubjectRecord]:
    """
    Where a subject is recorded.

    Raises:
        InvalidName: No subject can have this name.
    """
    if not name or "/" in name:
        raise InvalidName(f"The subject name {name[:80]!r} is empty or holds a slash")
    return SUBJECTS.key(name)


def schema_id(number: int) -> Key[str]:
    """Where it is recorded whose schema id *number* is."""
    return SCHEMA_IDS.key(str(number))


def schema_version(number: int, version: int) -> Key[SchemaVersionRecord]:
    """Where one version of the subject with schema id *number* is recorded."""
    return schema_versions_of(number).key(f"{version:020d}")


def schema_versions_of(number: int) -> Prefix[SchemaVersionRecord]:
    """Where the versions of one subject are recorded; a scan gives them in order."""
    return SCHEMA_VERSIONS.within(str(number))
