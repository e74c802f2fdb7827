"""The manifest in the metadata store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import TopicFenced
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.manifest import MetadataManifest, SharedManifest
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import DeletedTopicRecord
from pydanube_broker.metadata.store import OPERATIONS_MAX
from support.fakes.brokers import A_TOPIC
from support.fakes.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube_broker.metadata.store import Comparison, Operation, Revision

TOPIC = TopicId(1)
SEGMENTS = [
    SegmentEntry(
        base=base,
        end=base + 1,
        epoch=1,
        count=1,
        byte_count=1,
        object_name=str(base),
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
    )
    for base in range(250)
]


class CountingStore(MemoryStore):
    """A store that counts the operations of each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    async def transaction(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Revision:
        self.counts.append(len(operations))
        return await super().transaction(comparisons, operations)


@pytest.fixture
async def store() -> CountingStore:
    store = CountingStore()
    await store.put(keys.EPOCHS.key(TOPIC), 1)
    return store


async def test_a_shared_manifest_leaves_uploads_to_the_owners_of_topics(
    store: CountingStore,
) -> None:
    uploaded = replace(SEGMENTS[0], is_uploaded=True)
    alone, shared = MetadataManifest(store), SharedManifest(store)
    await alone.change(TOPIC, 1, added=[uploaded, SEGMENTS[1]])
    assert [each async for each in alone.transferable_segments()] == [
        (TOPIC, uploaded),
        (TOPIC, SEGMENTS[1]),
    ]
    # The broker may have the local copy of one that is uploaded, and may evict it.
    assert [each async for each in shared.transferable_segments()] == [
        (TOPIC, uploaded)
    ]


async def test_many_segments_are_removed_in_several_transactions(
    store: CountingStore,
) -> None:
    manifest = MetadataManifest(store)
    await manifest.change(TOPIC, 1, added=SEGMENTS)
    store.counts.clear()
    await manifest.change(TOPIC, 1, removed=SEGMENTS[:230])
    assert store.counts == [100, 100, 30]
    assert max(store.counts) <= OPERATIONS_MAX
    assert len(await store.scan(keys.SEGMENTS)) == 20


async def test_segments_are_replaced_in_one_transaction(store: CountingStore) -> None:
    manifest = MetadataManifest(store)
    await manifest.change(TOPIC, 1, added=SEGMENTS)
    store.counts.clear()
    await manifest.change(TOPIC, 1, removed=SEGMENTS, added=SEGMENTS[:1])
    assert store.counts == [250]


async def test_a_change_without_segments_compares_the_epoch(
    store: CountingStore,
) -> None:
    manifest = MetadataManifest(store)
    await manifest.change(TOPIC, 1)
    with pytest.raises(TopicFenced, match="newer writer than epoch 2"):
        await manifest.change(TOPIC, 2)


async def test_a_change_in_a_cluster_compares_the_epoch_of_the_shard(
    store: CountingStore,
) -> None:
    await store.put(keys.SHARD_EPOCHS.key(7), 5)
    manifest = MetadataManifest(store)
    await manifest.change(TOPIC, 5, shard=7, added=SEGMENTS[:1])
    assert await manifest.load(TOPIC) == (SEGMENTS[0],)
    # The topic's own epoch is 1.
    with pytest.raises(TopicFenced, match="newer writer than epoch 1"):
        await manifest.change(TOPIC, 1, shard=7, removed=SEGMENTS[:1])
    with pytest.raises(TopicFenced, match="newer writer than epoch 5"):
        await manifest.change(TOPIC, 5, shard=8, removed=SEGMENTS[:1])
    assert await manifest.load(TOPIC) == (SEGMENTS[0],)


async def test_the_records_of_a_deleted_topic_are_removed_in_several_transactions(
    store: CountingStore,
) -> None:
    await MetadataManifest(store).change(TOPIC, 1, added=SEGMENTS)
    record = DeletedTopicRecord(topic_id=TOPIC, deleted_at=0)
    await store.put(keys.deleted_topic(A_TOPIC), record)
    store.counts.clear()
    namespaces: Any = None
    async with asyncio.TaskGroup() as tasks:
        catalog = Catalog(store, namespaces, lambda: 0, tasks=tasks)
        await catalog.forget_content(TOPIC, A_TOPIC)
    # The mark of the deletion is in the last one.
    assert store.counts == [100, 100, 51, 1]
    assert await store.scan(keys.SEGMENTS) == []
    assert await store.scan(keys.DELETED_TOPICS) == []
