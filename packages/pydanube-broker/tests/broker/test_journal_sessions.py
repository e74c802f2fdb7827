from dataclasses import replace

import pytest

from pydanube.model.errors import RevisionConflict
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import TopicOpened
from pydanube_broker.broker.journal_sessions import MetadataSessions
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import object_journal


def session(number, **fields):
    return JournalSession(
        number=number, session_id=f"{number:032x}", prefix=f"{number}/", **fields
    )


@pytest.fixture
def sessions():
    return MetadataSessions(MemoryStore())


async def test_sessions_are_loaded_in_order(sessions):
    assert await sessions.load() == ()
    listed = (
        session(2, first=7, end=9, is_frozen=True),
        session(9, end=3),
        session(10),
    )
    await sessions.replace((), listed)
    assert await sessions.load() == listed


async def test_sessions_are_changed_and_removed_together(sessions):
    first, second = session(1), session(2)
    await sessions.replace((), (first,))
    frozen = replace(first, is_frozen=True, end=4)
    await sessions.replace((first,), (frozen, second))
    assert await sessions.load() == (frozen, second)
    await sessions.replace((frozen, second), (second,))
    assert await sessions.load() == (second,)


async def test_a_list_that_has_changed_is_not_replaced(sessions):
    first = session(1)
    await sessions.replace((), (first,))
    with pytest.raises(RevisionConflict):
        await sessions.replace((), (session(1, first=2),))
    frozen = replace(first, is_frozen=True)
    await sessions.replace((first,), (frozen,))
    for change in [(), (replace(first, first=2),), (first, session(2))]:
        with pytest.raises(RevisionConflict):
            await sessions.replace((first,), change)
    assert await sessions.load() == (frozen,)


async def test_a_journal_is_recovered_with_sessions_in_the_metadata_store(sessions):
    objects = MemoryObjects()
    for epoch in range(1, 5):
        async with object_journal(objects, sessions) as journal:
            opened = TopicOpened(
                topic_id=epoch, name="t", epoch=epoch, end_offset=0, sealed_offset=0
            )
            journal.append(opened, None)
            await journal.sync()
            assert len(journal.state.topics) == epoch
    assert [each.number for each in await sessions.load()] == [1, 2, 3, 4]
