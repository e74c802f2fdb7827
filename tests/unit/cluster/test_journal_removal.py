"""Journals of ended sessions are removed when no shard needs them, but fences stay."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.aio.futures import completion
from pydanube.aio.tasks import task_scope
from pydanube.cluster.journal_removal import JournalRemoval, find_unneeded
from pydanube.metadata import keys
from pydanube.metadata.cluster_records import (
    SessionJournalRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from pydanube.model.errors import ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube.storage.shard_recovery import SourceReading
from pydanube.wire.files.journal_format import ShardForgotten
from support.memory_store import MemoryStore
from support.object_journals import JOURNAL_ID, MemorySessions, object_journal
from support.storages import until

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


class World:
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
        record = SessionJournalRecord(kind="object", prefix=session.prefix, first=1)
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
async def world(request) -> World:
    world = World(request.param())
    await world.begin()
    return world


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


async def test_journal_is_removed_but_its_fence_stays(world: World) -> None:
    await world.removal.remove()
    await world.check_is_removed()
    assert world.removal.counts.journals == 1
    assert world.removal.counts.objects >= GROUPS
    await world.removal.remove()
    assert world.removal.counts.journals == 1


async def test_journal_of_a_present_session_stays(world: World) -> None:
    await world.store.put(keys.SESSIONS.key(world.session), ENDED)
    await world.check_is_kept()


@pytest.mark.parametrize("role", ["owner", "source"])
async def test_journal_that_a_shard_names_stays(world: World, role: str) -> None:
    await world.name(**{"owner": "other", "source": "other", role: world.session})
    await world.check_is_kept()


async def test_objects_of_other_sessions_stay(world: World) -> None:
    """Prefixes have eight digits of a session's id, so two may be the same."""
    foreign = MemoryObjects()
    async with object_journal(foreign, MemorySessions()) as journal:
        await completion(partial(journal.append, ShardForgotten(1, 1)))
    (name,) = (await foreign.names(""))[:1]
    later = f"{world.fence[:-1]}{int(world.fence[-1]) + 1}"
    await world.objects.put(later, await foreign.read(name))
    await world.objects.put(f"{later}0", b"damaged")
    await world.removal.remove()
    assert await world.objects.names(".journal") == [world.fence, later, f"{later}0"]


@pytest.mark.parametrize("supports_listing", [True, False])
async def test_removal_goes_on_after_a_crash_at_any_moment(
    supports_listing: bool,
) -> None:
    for deletes in range(GROUPS):
        objects = FailingObjects()
        objects.supports_listing = supports_listing
        world = World(objects)
        await world.begin()
        objects.deletes_left = deletes
        with pytest.raises(ObjectsUnavailable):
            await world.removal.remove()
        assert await world.is_recorded()
        objects.deletes_left = 2 * GROUPS
        # Another broker is the controller then.
        await JournalRemoval(world.store, objects, lambda: True).remove()
        await world.check_is_removed()


async def test_only_the_controller_removes_and_tries_again() -> None:
    objects = FailingObjects()
    world = World(objects)
    await world.begin()
    asked: list[bool] = []

    def is_controller() -> bool:
        asked.append(len(asked) > 3)
        return asked[-1]

    removal = JournalRemoval(world.store, objects, is_controller, interval_s=0.0)
    async with task_scope() as tasks:
        tasks.run(removal.run())
        await until(lambda: len(asked) > 5)
        assert await world.is_recorded()
        objects.deletes_left = 2 * GROUPS
        await until(lambda: removal.counts.journals)
        await asyncio.sleep(0)
        tasks.cancel()
    await world.check_is_removed()
