"""
A session that serves a shard, leaves it and takes it back may crash at any moment.

Whatever group of its journal is the last one, another session recovers what the source
of the shard promised.
"""

from __future__ import annotations

from functools import partial

import pytest

from pydanube.aio.futures import completion
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    ShardLeft,
    TopicAdopted,
)
from pydanube_broker.storage.journal.shard_recovery import (
    SourceReading,
    entries_of_adoption,
)
from support.fakes.batches import frame_of, payloads_of
from support.fakes.object_journals import JOURNAL_ID, MemorySessions, object_journal

SHARD = 7
TOPICS = (1, 2)
READER = b"reader of 16 B.."
FIRST, RETURNED = 1, 3
"""The epochs of the two claims."""


class Life:
    """The journal of one session, and what it had promised after each group."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.sessions = MemorySessions()
        self.acked: list[tuple[int, int, bytes]] = []
        """The epoch, the topic and the payload of each acknowledged message."""
        self.adopted_at: int | None = None
        """The number of groups from which on the later claim may be opened."""
        self.left_at: int | None = None
        self.acked_at: list[int] = []
        """How many messages were acknowledged with so many groups."""

    async def append(self, journal, *entries) -> None:
        for entry in entries:
            await completion(partial(journal.append, entry))
            self.note_groups(journal)

    def note_groups(self, journal) -> None:
        while len(self.acked_at) < journal.durable_end.position:
            self.acked_at.append(len(self.acked))

    async def publish(self, journal, topic_id) -> None:
        topic = journal.state.topics[topic_id]
        frame = frame_of([b"%d" % len(self.acked)])
        frame.stamp(topic.end_offset, topic.epoch)
        await completion(partial(journal.append, Batch(topic_id, frame)))
        self.acked.append((topic.epoch, topic_id, *payloads_of([frame])))
        self.note_groups(journal)

    async def run(self) -> None:
        async with object_journal(self.objects, self.sessions) as journal:
            for topic_id in TOPICS:
                await self.append(journal, begin(topic_id))
            for at in range(8):
                await self.publish(journal, TOPICS[at % 2])
            cursor = CursorSaved(1, "s", CursorState(3))
            await self.append(journal, cursor, ShardLeft(SHARD, FIRST))
            self.left_at = journal.durable_end.position - 1
            found = await self.recover(self.objects, FIRST, have_left=True)
            for topic_id, topic in found.state.topics.items():
                frames = found.frames[topic_id]
                adoption = entries_of_adoption(topic_id, topic, frames, (), RETURNED)
                await self.append(journal, *adoption)
            self.adopted_at = journal.durable_end.position - 1
            for at in range(4):
                await self.publish(journal, TOPICS[at % 2])

    async def recover(self, objects, epoch, *, have_left):
        reading = SourceReading(objects, journal_id=JOURNAL_ID, reader_id=READER)
        session = self.sessions.sessions[0]
        if have_left:
            await reading.read_until_left(session, SHARD, epoch)
        else:
            await reading.read_to_end(session)
        return reading.fold.recovery_of(SHARD, epoch)

    def promised(self, count: int, epochs: set[int]) -> dict[int, list[bytes]]:
        """Return the acknowledged messages by topic, if *count* groups are there."""
        acked = self.acked[: self.acked_at[count]]
        return {
            topic_id: [
                payload
                for epoch, topic, payload in acked
                if topic == topic_id and epoch in epochs
            ]
            for topic_id in TOPICS
        }


def begin(topic_id: int) -> TopicAdopted:
    return TopicAdopted(
        topic_id=topic_id,
        shard=SHARD,
        name=f"t{topic_id}",
        epoch=FIRST,
        end_offset=0,
        sealed_offset=0,
    )


async def first_groups(objects: MemoryObjects, count: int) -> MemoryObjects:
    """Return what a crash leaves that loses all but *count* groups."""
    left = MemoryObjects()
    for name in sorted(await objects.names(""))[:count]:
        await left.put_if_absent(name, await objects.read(name))
    return left


@pytest.fixture
async def life() -> Life:
    life = Life()
    await life.run()
    return life


def payloads_in(found) -> dict[int, list[bytes]]:
    return {
        topic_id: payloads_of(found.frames.get(topic_id, ())) for topic_id in TOPICS
    }


async def test_the_first_claim_is_recovered_after_every_group(life: Life) -> None:
    """Until the later claim is open, the source is the first one."""
    count = len(await life.objects.names(""))
    for groups in range(1, count + 1):
        objects = await first_groups(life.objects, groups)
        has_left = groups >= life.left_at
        found = await life.recover(objects, FIRST, have_left=has_left)
        expected = life.promised(min(groups, life.left_at), {FIRST})
        assert payloads_in(found) == expected
        if has_left:
            assert found.state.topics[1].cursors["s"].offset == 3


async def test_the_later_claim_is_recovered_after_every_group(life: Life) -> None:
    count = len(await life.objects.names(""))
    assert count > life.adopted_at > life.left_at
    for groups in range(life.adopted_at, count + 1):
        objects = await first_groups(life.objects, groups)
        found = await life.recover(objects, RETURNED, have_left=False)
        assert payloads_in(found) == life.promised(groups, {FIRST, RETURNED})
        assert found.state.topics[1].cursors["s"].offset == 3
