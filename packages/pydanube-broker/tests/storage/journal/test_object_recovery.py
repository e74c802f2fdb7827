"""Objects that the store has lost are reported, and hidden by no fence."""

import re

import pytest

from pydanube.model.errors import CorruptJournal
from pydanube.wire.files.journal_format import TopicOpened
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from support.fakes.object_journals import (
    Batches,
    GatedObjects,
    MemorySessions,
    append_each,
    object_journal,
    put_each,
)

OPENED = TopicOpened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)


@pytest.fixture
def objects():
    return GatedObjects()


@pytest.fixture
def sessions():
    return MemorySessions()


async def write(objects, sessions, count):
    """Write a session of *count* groups, with a message each; return it."""
    async with object_journal(objects, sessions, config=JournalConfig()) as journal:
        batches = Batches(0)
        journal.append(OPENED, None)
        await append_each(journal, batches, count)
        return journal.session


async def recovered_end(objects, sessions):
    async with object_journal(objects, sessions) as journal:
        return journal.state.topics[1].end_offset


@pytest.mark.parametrize(("count", "number"), [(3, 2), (3, 1), (300, 2), (300, 150)])
@pytest.mark.parametrize("can_list", [True, False])
async def test_lost_object_is_reported_and_gets_no_fence(
    objects, sessions, count, number, can_list
):
    session = await write(objects, sessions, count)
    objects.supports_listing = can_list
    name = session.object_name(number)
    lost = objects.stored.pop(name)
    for _ in range(2):
        with pytest.raises(CorruptJournal, match=re.escape(name)):
            await recovered_end(objects, sessions)
    assert name not in objects.stored
    await objects.put(name, lost)
    assert await recovered_end(objects, sessions) == count


async def test_many_lost_objects_are_reported_if_the_store_can_list(objects, sessions):
    session = await write(objects, sessions, 300)
    for number in range(2, 299):
        del objects.stored[session.object_name(number)]
    with pytest.raises(CorruptJournal, match=re.escape(session.object_name(2))):
        await recovered_end(objects, sessions)


async def test_lost_object_before_a_fence_is_reported(objects, sessions):
    """A start that was interrupted after it had put a fence is repeated."""
    session = await write(objects, sessions, 3)
    frozen = sessions.sessions
    await recovered_end(objects, sessions)
    sessions.sessions = frozen
    del objects.stored[session.object_name(3)]
    with pytest.raises(CorruptJournal, match=re.escape(session.object_name(3))):
        await recovered_end(objects, sessions)


async def test_group_that_was_never_stored_is_the_end(objects, sessions):
    """The groups behind it were in flight with it, so they were not acknowledged."""
    limits, told = ObjectJournalConfig(linger_ms=0, in_flight_max=4), []
    async with object_journal(
        objects, sessions, config=JournalConfig(), limits=limits, close_s=0.0
    ) as journal:
        batches = Batches(0)
        journal.append(OPENED, None)
        await append_each(journal, batches, 2)
        objects.is_open = False
        await put_each(journal, batches, 3, told)
        objects.let_through(4)
        objects.let_through(5)
        session = journal.session
    assert all(error is not None for _, error in told)
    assert session.object_name(4) in objects.stored
    objects.is_open = True
    assert await recovered_end(objects, sessions) == 2


async def test_journal_with_many_groups_in_flight_has_no_proof(objects, sessions):
    """An entry cannot say so."""
    limits, told = ObjectJournalConfig(linger_ms=0, in_flight_max=256), []
    async with object_journal(
        objects, sessions, config=JournalConfig(), limits=limits
    ) as journal:
        batches = Batches(0)
        journal.append(OPENED, None)
        await append_each(journal, batches, 2)
        with objects.closed():
            await put_each(journal, batches, 200, told)
        await journal.sync()
        session = journal.session
    assert len(told) == 200
    del objects.stored[session.object_name(2)]
    assert await recovered_end(objects, sessions) == 1


async def test_foreign_object_behind_the_end_is_named(objects, sessions):
    session = await write(objects, sessions, 3)
    await objects.put(f"{session.prefix}9-copy", b"")
    with pytest.raises(CorruptJournal, match=r"9-copy: expected a name"):
        await recovered_end(objects, sessions)
