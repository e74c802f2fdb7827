"""The changes of the metadata store that a recovery makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.metadata import keys
from pydanube.metadata.records import (
    ClusterRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pydanube.metadata.store import Delete, Put
from pydanube.model.names import TopicName
from pydanube.model.policy import SubscriptionType, TopicPolicy
from pydanube.servers.recovery.contents import (
    DirectoryContents,
    RecoveredTopic,
    TopicReport,
)

if TYPE_CHECKING:
    from pydanube.metadata.sqlite import SqliteStore
    from pydanube.metadata.store import Operation


async def plan(contents: DirectoryContents, store: SqliteStore) -> list[Operation]:
    """Return the changes of the metadata store, and complete the report."""
    cluster_id = contents.report.cluster_id
    assert cluster_id is not None
    cluster = ClusterRecord(cluster_id=cluster_id, created_at=contents.now)
    operations: list[Operation] = [Put(keys.CLUSTER, cluster)]
    last = await store.get(keys.LAST_TOPIC_ID)
    highest = max(contents.topics, default=0)
    highest = max(highest, 0 if last is None else last.value)
    operations.append(Put(keys.LAST_TOPIC_ID, highest))
    last = await store.get(keys.LAST_SCHEMA_ID)
    ids = [each.schema_id for topic in contents.topics.values() for each in topic.found]
    ids += [
        frame.header.schema_id
        for frames in contents.frames.values()
        for frame in frames
    ]
    schema_id = max([0 if last is None else last.value, *ids], default=0)
    operations.append(Put(keys.LAST_SCHEMA_ID, schema_id))
    for topic in contents.topics.values():
        operations += await _plan_topic(contents, store, topic)
    operations += await _plan_names(contents, store)
    return operations


async def _plan_topic(
    contents: DirectoryContents, store: SqliteStore, topic: RecoveredTopic
) -> list[Operation]:
    operations: list[Operation] = []
    if topic.record is None:
        record = TopicRecord(
            topic_id=topic.topic_id, policy=TopicPolicy(), created_at=contents.now
        )
        operations.append(Put(keys.topic(TopicName.parse(topic.name)), record))
    operations.append(Put(keys.EPOCHS.key(topic.topic_id), topic.epoch + 1))
    kept = {entry.base: entry for entry in topic.kept}
    operations += [
        Delete(keys.segment(topic.topic_id, entry.base))
        for entry in topic.manifest
        if entry.base not in kept
    ]
    before = {entry.object_name for entry in topic.manifest}
    added = [each for each in topic.kept if each.object_name not in before]
    operations += [Put(keys.segment(topic.topic_id, each.base), each) for each in added]
    for name, cursor in (topic.state.cursors if topic.state else {}).items():
        key = keys.SUBSCRIPTIONS.key(topic.topic_id, name)
        if await store.get(key) is None and topic.record is None:
            topic.subscriptions[name] = cursor.offset
            subscription = SubscriptionRecord(
                type=SubscriptionType.EXCLUSIVE, created_at=contents.now
            )
            operations.append(Put(key, subscription))
    runs = topic.runs if contents.replaces_journal else []
    salvaged = sum(frame.header.count for run in runs for frame in run)
    bases = [each.base for each in topic.kept]
    bases += [run[0].base for run in topic.runs]
    contents.report.topics.append(
        TopicReport(
            topic=topic.name,
            topic_id=topic.topic_id,
            is_rebuilt=topic.record is None,
            segments=len(topic.kept),
            rebuilt_segments=len(added),
            base=min(bases, default=None),
            end=topic.end,
            salvaged=salvaged,
            next_offset=contents.next_offset(topic),
            subscriptions=topic.subscriptions,
        )
    )
    return operations


async def _plan_names(
    contents: DirectoryContents, store: SqliteStore
) -> list[Operation]:
    """Return the changes for namespaces and partitioned topics of rebuilt topics."""
    operations: list[Operation] = []
    names = [
        TopicName.parse(topic.name)
        for topic in contents.topics.values()
        if topic.record is None
    ]
    for namespace in sorted({name.namespace for name in names}):
        if await store.get(keys.NAMESPACES.key(namespace)) is None:
            record = NamespaceRecord(created_at=contents.now)
            operations.append(Put(keys.NAMESPACES.key(namespace), record))
    partitions: dict[TopicName, set[int]] = {}
    for name in names:
        split = name.split_partition()
        if split is not None:
            partitions.setdefault(split[0], set()).add(split[1])
    for base, numbers in partitions.items():
        key = keys.partitioned_topic(base)
        stored = await store.get(key)
        if stored is not None:
            before = stored.value
            numbers |= set(range(before.partitions))
            numbers -= {n for low, high in before.missing for n in range(low, high)}
        count = max(numbers) + 1
        missing = sorted(set(range(count)) - numbers)
        partitioned = PartitionedTopicRecord(
            partitions=count,
            policy=TopicPolicy() if stored is None else stored.value.policy,
            created_at=contents.now,
            missing=tuple((n, n + 1) for n in missing),
        )
        operations.append(Put(key, partitioned))
    return operations
