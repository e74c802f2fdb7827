"""Shards of one source are read in one pass."""

from __future__ import annotations

from functools import partial

import pytest

from pydanube.aio.futures import completion
from pydanube.aio.tasks import gather
from pydanube.model.errors import CorruptJournal
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.group_format import GroupKind, decode_group_header
from pydanube.wire.files.journal_format import ShardLeft, TopicAdopted
from pydanube_broker.cluster.journal_host import JournalHost
from pydanube_broker.cluster.shard_owners import TakeoverCounts
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionJournalRecord
from pydanube_broker.storage.config import ObjectJournalConfig
from pydanube_broker.storage.journal.state import SKIPPED_OFFSETS
from support.fakes.manifests import MemoryManifest
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import JOURNAL_ID, MemorySessions, object_journal

SHARDS = range(20)
OWN = "0" * 32


class CountingObjects(MemoryObjects):
    """Counts how often each object is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def read(self, name, begin=0, end=None):
        self.reads.append(name)
        return await super().read(name, begin, end)


class Source:
    """A session that goes on, and a host that takes a shard over from it."""

    def __init__(self, objects, store, sessions, journal, own) -> None:
        self.objects, self.store, self.journal = objects, store, journal
        self.session = sessions.sessions[0]
        self.counts = TakeoverCounts()
        self.host = JournalHost(
            *(OWN, store, None),
            journal=own,
            journal_id=JOURNAL_ID,
            objects=objects,
            manifest=MemoryManifest(),
            counts=self.counts,
        )

    async def append(self, entry) -> None:
        await completion(partial(self.journal.append, entry))

    async def record(self, first: int, **fields) -> None:
        record = SessionJournalRecord(
            kind="object",
            prefix=self.session.prefix,
            first=first,
            broker_id="a",
            **fields,
        )
        await self.store.put(keys.SESSION_JOURNALS.key(self.session.session_id), record)

    def name(self, number: int) -> str:
        return self.session.object_name(number)


@pytest.fixture
async def source():
    objects, store, sessions = CountingObjects(), MemoryStore(), MemorySessions()
    limits = ObjectJournalConfig(linger_ms=0, groups_max=4)
    async with (
        object_journal(objects, sessions, limits=limits) as journal,
        object_journal(objects, MemorySessions()) as own,
    ):
        source = Source(objects, store, sessions, journal, own)
        await source.record(first=1)
        await store.put(keys.SHARD_TOPICS.key(0, 1), "t")
        for end in range(4):
            await source.append(adopted_at(end))
        yield source


def adopted_at(end: int) -> TopicAdopted:
    return TopicAdopted(
        topic_id=1, shard=0, name="t", epoch=1, end_offset=end, sealed_offset=end
    )


async def adopted_end(source: Source) -> int:
    await source.host.read(0, source.session.session_id, 1)
    await source.host.adopt(0, 2)
    return source.host._journal.state.topics[1].end_offset  # noqa: SLF001


async def test_what_was_read_before_the_owner_left_is_not_read_again(source) -> None:
    await source.host.prepare(source.session.session_id)
    source.objects.reads.clear()
    await source.append(adopted_at(9))
    await source.append(ShardLeft(0, 1))
    assert await adopted_end(source) == 9
    assert source.name(1) not in source.objects.reads
    source.host.keep_sources([])
    source.objects.reads.clear()
    await source.host.read(0, source.session.session_id, 1)
    assert source.name(1) in source.objects.reads


async def test_nothing_is_read_for_a_shard_without_topics_that_has_left(source) -> None:
    await source.append(ShardLeft(7, 1))
    source.objects.reads.clear()
    await source.host.read(7, source.session.session_id, 1)
    await source.host.adopt(7, 2)
    assert source.objects.reads == []


async def test_a_journal_is_fenced_also_for_a_shard_without_topics(source) -> None:
    await source.host.fence(source.session.session_id)
    await source.host.read(7, source.session.session_id, 1)
    end = source.journal.durable_end.position
    assert await kind_of(source, end) is GroupKind.FENCE


async def test_a_journal_without_its_first_group_is_damaged(source) -> None:
    await source.objects.delete(source.name(1))
    with pytest.raises(CorruptJournal, match="expected the first group"):
        await source.host.read(0, source.session.session_id, 1)
    # No fence was put in its place.
    assert await source.objects.read(source.name(1)) is None


async def test_a_journal_that_is_given_up_is_read_if_it_is_whole(source) -> None:
    await source.append(ShardLeft(0, 1))
    await source.record(first=1, is_given_up=True)
    assert await adopted_end(source) == 3


async def test_a_damaged_journal_that_is_given_up_leaves_a_gap(source) -> None:
    await source.record(first=1, is_given_up=True)
    await source.objects.delete(source.name(1))
    assert await adopted_end(source) == SKIPPED_OFFSETS
    assert source.counts.lost_topics == 1


async def test_a_journal_with_a_hole_is_damaged(source) -> None:
    """Its shards wait, and go on without it if it is given up."""
    await source.host.fence(source.session.session_id)
    name = source.name(2)
    await source.objects.delete(name)
    for _ in range(2):
        with pytest.raises(CorruptJournal, match="the store has lost it"):
            await source.host.read(0, source.session.session_id, 1)
    assert await source.objects.read(name) is None
    await source.record(first=1, is_given_up=True)
    assert await adopted_end(source) == SKIPPED_OFFSETS


async def test_a_session_that_opens_only_empty_shards_has_a_group(source) -> None:
    await source.host.read(7, None, 0)
    await source.host.adopt(7, 1)
    own = source.host._journal  # noqa: SLF001
    assert await source.objects.read(own.session.object_name(1)) is not None


async def test_reading_begins_again_behind_groups_that_were_removed(source) -> None:
    """A fence in the place of a removed group would hide the rest of the journal."""
    await source.host.prepare(source.session.session_id)
    end = source.journal.durable_end.position
    for offset in range(10, 20):
        await source.append(adopted_at(offset))
    first = end + 1
    while await kind_of(source, first) is not GroupKind.SNAPSHOT:
        first += 1
    await source.record(first)
    for number in range(1, first):
        await source.objects.delete(source.name(number))
    await source.host.fence(source.session.session_id)
    assert await adopted_end(source) == 19
    assert await source.objects.read(source.name(end)) is None


async def kind_of(source: Source, number: int) -> GroupKind:
    return decode_group_header(await source.objects.read(source.name(number))).kind


async def test_one_pass_reads_all_shards_that_wait_for_a_source() -> None:
    objects, store = CountingObjects(), MemoryStore()
    async with object_journal(objects, sessions := MemorySessions()) as journal:
        for shard in SHARDS:
            await store.put(keys.SHARD_TOPICS.key(shard, shard), f"t{shard}")
            adopted = TopicAdopted(
                topic_id=shard,
                shard=shard,
                name=f"t{shard}",
                epoch=1,
                end_offset=shard,
                sealed_offset=shard,
            )
            journal.append(adopted, None)
            await completion(partial(journal.append, ShardLeft(shard, 1)))
    source = sessions.sessions[0]
    record = SessionJournalRecord(
        kind="object", prefix=source.prefix, first=1, broker_id="a"
    )
    await store.put(keys.SESSION_JOURNALS.key(source.session_id), record)
    async with object_journal(objects, MemorySessions()) as own:
        host = JournalHost(
            OWN,
            store,
            None,
            journal=own,
            journal_id=JOURNAL_ID,
            objects=objects,
            manifest=MemoryManifest(),
            counts=TakeoverCounts(),
        )
        objects.reads.clear()
        await gather(host.read(shard, source.session_id, 1) for shard in SHARDS)
        first, *others = sorted(await objects.names(""))
        # The first group was looked for before all groups were read.
        assert objects.reads.count(first) == 2
        assert {objects.reads.count(name) for name in others} == {1}
        await gather(host.adopt(shard, 2) for shard in SHARDS)
        assert {
            shard: (own.state.topics[shard].epoch, own.state.topics[shard].end_offset)
            for shard in SHARDS
        } == {shard: (2, shard) for shard in SHARDS}
