"""Shards of one source are read in one pass."""

from __future__ import annotations

from functools import partial

from pydanube.aio.futures import completion
from pydanube.aio.tasks import gather
from pydanube.cluster.journal_host import JournalHost
from pydanube.metadata import keys
from pydanube.metadata.cluster_records import SessionJournalRecord
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import ShardLeft, TopicAdopted
from support.manifests import MemoryManifest
from support.memory_store import MemoryStore
from support.object_journals import JOURNAL_ID, MemorySessions, object_journal

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
    record = SessionJournalRecord(kind="object", prefix=source.prefix, first=1)
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
        )
        objects.reads.clear()
        await gather(host.read(shard, source.session_id, 1) for shard in SHARDS)
        # One shard begins the first pass alone; the others wait for the second one.
        assert max(map(objects.reads.count, objects.reads)) <= 2
        await gather(host.adopt(shard, 2) for shard in SHARDS)
        assert {
            shard: (own.state.topics[shard].epoch, own.state.topics[shard].end_offset)
            for shard in SHARDS
        } == {shard: (2, shard) for shard in SHARDS}
