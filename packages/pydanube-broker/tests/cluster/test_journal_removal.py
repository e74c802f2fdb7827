"""Journals of ended sessions are removed when no shard needs them, but fences stay."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.aio.futures import completion
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import ShardForgotten
from pydanube_broker.cluster.journal_removal import (
    LOOKS_PER_INTERVAL,
    JournalRemoval,
    find_unneeded,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    SessionJournalRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from pydanube_broker.storage.journal.shard_recovery import SourceReading
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import JOURNAL_ID, MemorySessions, object_journal
from support.fakes.storages import until

GROUPS = 20
ENDED = SessionRecord(broker_id="b", addresses={}, started_at=0)
SESSIONS = st.sampled_from(["a", "b", "c", "d"])


class UnlistedObjects(MemoryObjects):
    """A store that cannot list its objects."""

    supports_listing = False


class FailingObjects(MemoryObjects):
    """A store that answers so many requests to delete objects."""

    deletes_left = 0

    async def delete(self, name):
        if not self.deletes_left:
            raise ObjectsUnavailable("on purpose")
        self.deletes_left -= 1
        await super().delete(name)


class LeftJournal:
    """A journal of an ended session in an object store, and its record."""

    def __init__(self, objects: MemoryObjects) -> None:
        self.objects = objects
        self.store = MemoryStore()
        self.removal = JournalRemoval(self.store, objects, lambda: True, interval_s=0.0)
        self.session = ""
        self.fence = ""

    async def begin(self) -> None:
        sessions = MemorySessions()
        async with object_journal(self.objects, sessions) as journal:
            for number in range(GROUPS):
                await completion(partial(journal.append, ShardForgotten(number, 1)))
        (session,) = sessions.sessions
        self.session = session.session_id
        reading = SourceReading(
            self.objects, journal_id=JOURNAL_ID, reader_id=b"another session."
        )
        await reading.read_to_end(session)
        self.fence = max(await self.objects.names(""))
        await self.objects.put("elsewhere", b"x")
        record = SessionJournalRecord(
            kind="object", broker_id="b", prefix=session.prefix, first=1
        )
        await self.store.put(keys.SESSION_JOURNALS.key(self.session), record)
        await self.name(owner="other", source="other")

    async def name(self, **sessions: str) -> None:
        record = ShardRecord(state=ShardState.OPEN, epoch=2, **sessions)
        await self.store.put(keys.SHARDS.key(0), record)

    async def is_recorded(self) -> bool:
        return await self.store.get(keys.SESSION_JOURNALS.key(self.session)) is not None

    async def check_is_removed(self) -> None:
        assert not await self.is_recorded()
        assert await self.objects.names("") == [self.fence, "elsewhere"]

    async def check_is_kept(self) -> None:
        before = await self.objects.names("")
        await self.removal.remove()
        assert await self.is_recorded()
        assert await self.objects.names("") == before
        assert len(before) > GROUPS


@pytest.fixture(params=[MemoryObjects, UnlistedObjects])
async def left(request) -> LeftJournal:
    left = LeftJournal(request.param())
    await left.begin()
    return left


@given(
    st.sets(SESSIONS),
    st.sets(SESSIONS),
    st.lists(st.tuples(st.none() | SESSIONS, st.none() | SESSIONS)),
)
def test_journals_of_sessions_that_are_named_or_present_are_needed(
    journals, sessions, named
):
    shards = [ShardRecord(owner=owner, source=source) for owner, source in named]
    kept = sessions | {each for pair in named for each in pair}
    assert find_unneeded(journals, sessions, shards) == sorted(journals - kept)


async def test_journal_is_removed_but_its_fence_stays(left: LeftJournal) -> None:
    await left.removal.remove()
    await left.check_is_removed()
    assert left.removal.counts.journals == 1
    assert left.removal.counts.objects >= GROUPS
    await left.removal.remove()
    assert left.removal.counts.journals == 1


async def test_journal_of_a_present_session_stays(left: LeftJournal) -> None:
    await left.store.put(keys.SESSIONS.key(left.session), ENDED)
    await left.check_is_kept()


@pytest.mark.parametrize("role", ["owner", "source"])
async def test_journal_that_a_shard_names_stays(left: LeftJournal, role: str) -> None:
    await left.name(**{"owner": "other", "source": "other", role: left.session})
    await left.check_is_kept()


async def test_objects_of_other_sessions_stay(left: LeftJournal) -> None:
    """Prefixes have eight digits of a session's id, so two may be the same."""
    foreign = MemoryObjects()
    async with object_journal(foreign, MemorySessions()) as journal:
        await completion(partial(journal.append, ShardForgotten(1, 1)))
    (name,) = (await foreign.names(""))[:1]
    later = f"{left.fence[:-1]}{int(left.fence[-1]) + 1}"
    await left.objects.put(later, await foreign.read(name))
    await left.objects.put(f"{later}0", b"damaged")
    await left.removal.remove()
    assert await left.objects.names(".journal") == [left.fence, later, f"{later}0"]


@pytest.mark.parametrize("supports_listing", [True, False])
async def test_removal_goes_on_after_a_crash_at_any_moment(
    supports_listing: bool,
) -> None:
    for deletes in range(GROUPS):
        objects = FailingObjects()
        objects.supports_listing = supports_listing
        left = LeftJournal(objects)
        await left.begin()
        objects.deletes_left = deletes
        with pytest.raises(ObjectsUnavailable):
            await left.removal.remove()
        assert await left.is_recorded()
        objects.deletes_left = 2 * GROUPS
        # Another broker is the controller then.
        await JournalRemoval(left.store, objects, lambda: True).remove()
        await left.check_is_removed()


async def test_only_the_controller_removes_and_tries_again() -> None:
    objects = FailingObjects()
    left = LeftJournal(objects)
    await left.begin()
    asked: list[bool] = []

    def is_controller() -> bool:
        asked.append(len(asked) > 3)
        return asked[-1]

    removal = JournalRemoval(left.store, objects, is_controller, interval_s=0.0)
    async with task_scope() as tasks:
        tasks.run(removal.run())
        await until(lambda: len(asked) > 5)
        assert await left.is_recorded()
        objects.deletes_left = 2 * GROUPS
        await until(lambda: removal.counts.journals)
        await asyncio.sleep(0)
        tasks.cancel()
    await left.check_is_removed()


class CountingRemoval(JournalRemoval):
    """Notes at which looks it would remove journals."""

    def __init__(self, looks: list[bool]) -> None:
        self.removed_at: list[int] = []
        self.looked = 0
        self._looks = looks
        super().__init__(MemoryStore(), MemoryObjects(), self._look, interval_s=0.0)

    def _look(self) -> bool:
        self.looked += 1
        return self._looks[min(self.looked, len(self._looks)) - 1]

    async def remove(self) -> None:
        self.removed_at.append(self.looked)


async def test_a_new_controller_removes_journals_soon_and_then_once_an_interval() -> (
    None
):
    looks = [False, True, True, False, True]
    removal = CountingRemoval(looks)
    async with task_scope() as tasks:
        tasks.run(removal.run())
        await until(lambda: len(removal.removed_at) == 3)
        tasks.cancel()
    assert removal.removed_at == [2, 5, 5 + LOOKS_PER_INTERVAL]


async def test_a_journal_that_cannot_be_removed_does_not_keep_the_others() -> None:
    left = LeftJournal(FailingObjects())
    await left.begin()
    record = await left.store.get(keys.SESSION_JOURNALS.key(left.session))
    assert record is not None
    # It comes later, and has no objects.
    later = keys.SESSION_JOURNALS.key("f" * 32)
    await left.store.put(later, record.value)
    with pytest.raises(ObjectsUnavailable):
        await left.removal.remove()
    assert await left.is_recorded()
    assert await left.store.get(later) is None
