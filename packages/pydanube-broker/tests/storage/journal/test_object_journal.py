import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from pydanube.aio.tasks import gather, task_scope
from pydanube.model.errors import (
    Closed,
    CorruptJournal,
    DiskFull,
    InvalidConfig,
    JournalFailed,
    ObjectsUnavailable,
    Overloaded,
    Remedy,
)
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.group_format import GroupKind, decode_group_header
from pydanube.wire.files.journal_format import (
    CursorSaved,
    CursorState,
    TopicSealed,
)
from pydanube.wire.files.journal_format import TopicOpened as Opened
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from pydanube_broker.storage.journal.object_journal import SECTION_ENTRIES
from support.fakes.object_journals import (
    Batches,
    GatedObjects,
    Link,
    MemorySessions,
    append_each,
    object_journal,
    put_each,
    turns,
)
from support.fakes.storages import until

OPENED = Opened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)
ROOMY = JournalConfig()


@pytest.fixture
def objects():
    return GatedObjects()


@pytest.fixture
def sessions():
    return MemorySessions()


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


def kinds(objects):
    return [
        decode_group_header(data).kind for _, data in sorted(objects.stored.items())
    ]


# Putting.


async def test_groups_are_put_at_the_same_time_and_acknowledged_in_order(
    objects, sessions
):
    told = []
    async with object_journal(objects, sessions, config=ROOMY) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        with objects.closed():
            await put_each(journal, Batches(), 3, told)
            assert list(objects.waiting) == ["002", "003", "004"]
            objects.let_through(4)
            objects.let_through(3)
            await turns()
            assert told == []
            assert journal.state.topics[1].end_offset == 0
            objects.let_through(2)
            await turns()
            assert told == [(0, None), (1, None), (2, None)]
            assert journal.state.topics[1].end_offset == 3


async def test_at_most_so_many_groups_are_in_flight(objects, sessions):
    limits = ObjectJournalConfig(linger_ms=0, in_flight_max=2)
    told = []
    async with object_journal(
        objects, sessions, config=ROOMY, limits=limits
    ) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        with objects.closed():
            await put_each(journal, Batches(), 5, told)
            assert list(objects.waiting) == ["002", "003"]
            objects.let_through(2)
            await turns()
            # What arrived in the meantime is one group.
            assert list(objects.waiting) == ["003", "004"]
        await journal.sync()
        assert [base for base, _ in told] == [0, 1, 2, 3, 4]
        assert journal.commit_count == 4


async def test_hurried_entry_does_not_wait_for_others(objects, sessions):
    limits = ObjectJournalConfig(linger_ms=10_000)
    async with object_journal(
        objects, sessions, config=ROOMY, limits=limits
    ) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        told = []
        await put_each(journal, Batches(), 1, told)
        assert told == []
        journal.hurry()
        await until(lambda: told)
        assert await objects.names("") == [
            journal.session.object_name(number) for number in (1, 2)
        ]


async def test_sections_of_small_groups_end_when_they_are_many(objects, sessions):
    limits = ObjectJournalConfig(linger_ms=0, groups_max=6)
    async with object_journal(
        objects, sessions, config=ROOMY, limits=limits
    ) as journal:
        for number in range(7):
            assert number != 2 or not journal.has_many_groups
            journal.append(OPENED, None)
            await journal.sync()
        group_count = journal.durable_end.position - 1
        assert group_count > 6
        assert journal.file_count == -(-group_count // 3)
        assert journal.has_many_groups


async def test_sections_of_many_entries_end_and_are_counted(objects, sessions):
    async with object_journal(objects, sessions, config=ROOMY) as journal:
        batches = Batches()
        for file_count in (1, 2, 3):
            assert journal.file_count == file_count - 1
            journal.append(OPENED if file_count == 1 else batches.next(), None)
            for _ in range(SECTION_ENTRIES - 1):
                journal.append(batches.next(), None)
            await journal.sync()
        assert journal.file_count == 3
        appended = 3 * SECTION_ENTRIES
        assert journal.entry_count == appended
        journal.close()
    async with object_journal(objects, sessions, config=ROOMY) as journal:
        assert journal.entry_count == appended
        journal.append(TopicSealed(1, batches.base), None)
        await journal.sync()
        await journal.trim(lambda _: batches.base, None)
        assert journal.entry_count == 1


async def test_an_entry_alone_is_put_at_once_and_the_next_ones_wait(objects, sessions):
    limits = ObjectJournalConfig(linger_ms=10_000, group_bytes_max=2048)
    told = []
    async with object_journal(
        objects, sessions, config=ROOMY, limits=limits
    ) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        await until(lambda: journal.commit_count == 1)
        await put_each(journal, batches, 3, told)
        assert journal.commit_count == 1
        # A full group does not wait.
        while journal.commit_count == 1:
            await put_each(journal, batches, 1, told)
        assert [base for base, _ in told] == list(range(batches.base))
        assert journal.byte_count > 2048
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await journal.sync()
        journal.close()


async def test_entries_that_nobody_waits_for_go_with_the_next_group(objects, sessions):
    async with object_journal(objects, sessions) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        journal.append(CursorSaved(1, "s", CursorState(5)), None, sync=False)
        await turns(50)
        assert journal.commit_count == 1
        await append_each(journal, Batches(), 1)
        assert journal.commit_count == 2
        assert journal.state.topics[1].cursors["s"].offset == 5


async def test_a_group_with_a_snapshot_is_put_alone(objects, sessions):
    told, config = [], JournalConfig(file_bytes_max=4096)
    async with object_journal(objects, sessions, config=config) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        await append_each(journal, batches, 2)
        before = len(objects.stored)
        with objects.closed():
            await put_each(journal, batches, 20, told)
            *others, last = map(int, list(objects.waiting))
            assert others
            for number in others:
                objects.let_through(number)
            await turns()
            assert list(objects.waiting) == [f"{last:03d}"]
            objects.let_through(last)
            await turns()
            # The rest is one group, with a snapshot of all before it.
            assert list(objects.waiting) == [f"{last + 1:03d}"]
        await journal.sync()
        assert [base for base, _ in told] == list(range(2, 22))
    new = kinds(objects)[before:]
    assert new == [GroupKind.ENTRIES] * (len(others) + 1) + [GroupKind.SNAPSHOT]


async def test_puts_are_repeated_while_the_store_does_not_answer(sessions):
    link = Link(MemoryObjects(), Random(1))
    told = []
    async with object_journal(link, sessions) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        link.error_rate = 1.0
        await put_each(journal, Batches(), 3, told)
        await until(lambda: journal.outage)
        await turns(50)
        assert isinstance(journal.outage, ObjectsUnavailable)
        assert told == []
        assert journal.failure is None
        link.error_rate = 0.0
        await journal.sync()
        assert journal.outage is None
        assert told == [(0, None), (1, None), (2, None)]


async def test_closing_does_not_wait_for_ever(sessions):
    link = Link(MemoryObjects(), Random(1))
    told = []
    async with object_journal(link, sessions, close_s=0.0) as journal:
        journal.append(OPENED, told.append)
        link.error_rate = 1.0
    assert [type(error) for error in told] == [Closed]


async def test_an_unexpected_error_fails_the_journal(objects, sessions):
    told = []
    async with object_journal(objects, sessions) as journal:
        await journal.sync()
        # The journal's next number is taken by something else.
        name = journal.session.object_name(1)
        await objects.put(name, b"not a group")
        journal.append(OPENED, told.append)
        await until(lambda: told)
        assert isinstance(told[0], JournalFailed)
        assert journal.failure is told[0]


async def test_batches_are_refused_while_segments_cannot_be_uploaded(objects, sessions):
    async with object_journal(objects, sessions) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        journal.refusal = "too many segments wait"
        with pytest.raises(DiskFull, match="too many segments wait"):
            journal.append(Batches(7).next(), None)
        journal.append(CursorSaved(1, "s", CursorState(0)), None)
        await journal.sync()
        journal.refusal = ""
        await append_each(journal, batches, 1)
        assert journal.state.topics[1].end_offset == 1


async def test_batches_are_refused_when_the_store_is_away_for_long(sessions):
    now = 0.0
    link = Link(MemoryObjects(), Random(1))
    limits = ObjectJournalConfig(linger_ms=0, outage_s=30)
    config = JournalConfig(pending_bytes_max=1)
    async with object_journal(
        link, sessions, config=config, limits=limits, clock=lambda: now
    ) as journal:
        batches, told = Batches(), []
        journal.append(OPENED, None)
        await journal.sync()
        assert journal.problem == ""
        link.error_rate = 1.0
        journal.append(batches.next(), told.append)
        await until(lambda: journal.outage)
        assert "on purpose" in journal.problem
        assert journal.failure_count > 0
        assert not journal.has_room
        now = 29.9
        async with task_scope() as tasks:
            waiting = tasks.run(journal.wait_for_room())
            await turns()
            assert not waiting.done()
            now = 30.0
            # Publishers get the error instead of waiting.
            await waiting
        with pytest.raises(ObjectsUnavailable, match=r"after 30 s .* on purpose"):
            journal.append(batches.next(), None)
        journal.append(CursorSaved(1, "s", CursorState(0)), None)
        link.error_rate = 0.0
        await journal.sync()
        assert journal.problem == ""
        assert told == [None]
        journal.append(Batches(1).next(), None)
        await journal.sync()
        assert journal.state.topics[1].end_offset == 2


async def test_batches_are_refused_while_the_journal_is_too_large(
    objects, sessions, executor
):
    limits = ObjectJournalConfig(linger_ms=0, bytes_max=5000)
    async with object_journal(objects, sessions, limits=limits) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        await append_each(journal, batches, 5)
        assert journal.problem == ""
        while journal.byte_count <= 5000:
            await append_each(journal, batches, 1)
        assert sum(len(data) for data in objects.stored.values()) == journal.byte_count
        with pytest.raises(Overloaded, match="5000 are allowed"):
            journal.append(batches.next(), None)
        assert "5000 are allowed" in journal.problem
        # Publishers are to get the error, and cursors are saved.
        assert journal.has_room
        journal.append(CursorSaved(1, "s", CursorState(0)), None)
        await journal.sync()
    async with object_journal(objects, sessions, limits=limits) as journal:
        assert "5000 are allowed" in journal.problem
        await journal.trim(lambda _: batches.base, executor)
        assert journal.problem == ""
        base = journal.state.topics[1].end_offset
        await append_each(journal, Batches(base), 1)


# Fencing.


async def test_an_idle_session_notices_that_it_is_taken_over(objects, sessions):
    async with object_journal(objects, sessions, check_s=0) as old:
        await turns()
        assert old.failure is None
        async with object_journal(objects, sessions):
            await until(lambda: old.failure)
            assert "another broker has ended session 1" in str(old.failure)


async def test_a_session_that_is_taken_over_fails_with_its_next_group(
    objects, sessions
):
    told, watched = [], []
    async with object_journal(objects, sessions) as old:
        batches = Batches()
        old.append(OPENED, None)
        await append_each(old, batches, 5)
        old.watch_failures(lambda: watched.append(len(told)))
        async with object_journal(objects, sessions) as new:
            assert new.state.topics[1].end_offset == 5
            old.append(batches.next(), told.append)
            await until(lambda: told)
            assert isinstance(told[0], JournalFailed)
            assert "another broker" in str(told[0])
            assert watched == [0]
            with pytest.raises(JournalFailed):
                old.append(batches.next(), None)
            await append_each(new, Batches(5), 2)
    async with object_journal(objects, sessions) as journal:
        assert journal.state.topics[1].end_offset == 7


async def test_what_is_in_flight_at_the_fence_is_recovered_or_fails(objects, sessions):
    told = []
    async with object_journal(objects, sessions, config=ROOMY) as old:
        old.append(OPENED, None)
        await old.sync()
        with objects.closed():
            await put_each(old, Batches(), 3, told)
            objects.let_through(2)
            objects.let_through(4)
            await turns()
            objects.is_open = True
            async with object_journal(objects, sessions) as new:
                # Group 3 does not exist, so group 4 is not committed.
                assert new.state.topics[1].end_offset == 1
                objects.let_through(3)
                await until(lambda: len(told) == 3)
        assert told[0] == (0, None)
        assert isinstance(told[1][1], JournalFailed)
        assert isinstance(told[2][1], JournalFailed)


class LateAnswers(GatedObjects):
    """Objects of which the second is stored at once, and answered late."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answered = asyncio.Event()

    async def put_if_absent(self, name, data):
        if not name.endswith("002") or self.is_answered.is_set():
            return await super().put_if_absent(name, data)
        stored = await MemoryObjects.put_if_absent(self, name, data)
        await self.is_answered.wait()
        return stored


async def test_outcome_of_messages_before_a_fence_is_unknown_and_not_refused(sessions):
    objects, told = LateAnswers(), []
    async with object_journal(objects, sessions, config=ROOMY) as old:
        old.append(OPENED, None)
        await old.sync()
        with objects.closed():
            await put_each(old, Batches(), 2, told)
            objects.is_open = True
            async with object_journal(objects, sessions) as new:
                # The first message is stored, and the old session does not know it.
                assert new.state.topics[1].end_offset == 1
                objects.let_through(3)
                await until(lambda: len(told) == 2)
            objects.is_answered.set()
    for _, error in told:
        assert isinstance(error, JournalFailed)
        assert error.remedy is Remedy.RETRY
        assert "is unknown: send them again" in str(error)


async def test_of_two_that_take_over_at_the_same_time_one_succeeds(objects, sessions):
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 3)

        async def take_over(seed):
            link = Link(objects, Random(seed))
            try:
                async with object_journal(link, sessions) as journal:
                    await journal.sync()
                    return journal.state.topics[1].end_offset
            except JournalFailed:
                return None

        outcomes = await gather(map(take_over, range(2)))
        assert sorted(outcomes, key=str) == [3, None]


@pytest.mark.parametrize("lists", [True, False])
async def test_an_older_copy_of_the_list_of_sessions_is_refused(
    objects, sessions, lists
):
    objects.supports_listing = lists
    async with object_journal(objects, sessions) as journal:
        journal.append(OPENED, None)
        await journal.sync()
    older = sessions.sessions
    async with object_journal(objects, sessions) as journal:
        await append_each(journal, Batches(), 1)
    stored = dict(objects.stored)
    sessions.sessions = older
    with pytest.raises(CorruptJournal, match="older than the journal"):
        async with object_journal(objects, sessions):
            pass
    assert objects.stored == stored


async def test_a_start_that_was_interrupted_is_repeated(objects, sessions):
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 3)

    def refuse(recovery):
        raise CorruptJournal("on purpose")

    for _ in range(2):
        with pytest.raises(CorruptJournal, match="on purpose"):
            async with object_journal(objects, sessions, check=refuse):
                pass
    async with object_journal(objects, sessions) as journal:
        assert journal.state.topics[1].end_offset == 3


async def test_a_store_without_put_if_absent_is_refused(objects, sessions):
    objects.supports_put_if_absent = False
    with pytest.raises(InvalidConfig, match="only if it is absent"):
        async with object_journal(objects, sessions):
            pass


async def test_leftovers_stay_in_a_store_that_cannot_list(objects, sessions, executor):
    objects.supports_listing = False
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 5)
    async with object_journal(objects, sessions) as journal:
        await append_each(journal, Batches(5), 5)
        await journal.trim(lambda topic: None, executor)
        assert journal.failure is None
        assert len(sessions.sessions) == 1


# Trimming.


async def test_objects_are_removed_with_their_session_and_the_fence_stays(
    objects, sessions, executor
):
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 20)
    async with object_journal(objects, sessions) as journal:
        await append_each(journal, Batches(20), 20)
        assert len(sessions.sessions) == 2
        before = len(objects.stored)
        await journal.trim(
            lambda topic: journal.state.topics[topic].end_offset, executor
        )
        assert len(sessions.sessions) == 1
        assert journal.file_count == 1
        assert len(objects.stored) < before - 30
        assert kinds(objects)[0] is GroupKind.FENCE
        await journal.sync()
        assert journal.state.topics[1].sealed_offset > 20
    async with object_journal(objects, sessions) as journal:
        assert journal.state.topics[1].end_offset == 40


async def test_the_last_section_stays_until_the_next_one_has_a_snapshot(
    objects, sessions, executor
):
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 3)
    async with object_journal(objects, sessions) as journal:
        with objects.closed():
            journal.append(CursorSaved(1, "s", CursorState(3)), None)
            await turns()
            await journal.trim(lambda topic: 3, executor)
            async with object_journal(GatedCopy(objects), copy_of(sessions)) as other:
                assert other.state.topics[1].end_offset == 3


class GatedCopy(MemoryObjects):
    """A copy of the objects at this moment."""

    def __init__(self, objects):
        super().__init__()
        self._objects = dict(objects.stored)
        self._modified_at = dict.fromkeys(self._objects, 0)


def copy_of(sessions):
    copy = MemorySessions()
    copy.sessions = sessions.sessions
    return copy


async def test_objects_that_a_crash_left_are_removed_later(objects, sessions, executor):
    link = Link(objects, Random(1))
    async with object_journal(link, sessions, close_s=0.0) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 20)
        replace = sessions.replace

        async def replace_and_die(*lists):
            await replace(*lists)
            link.is_cut = True

        sessions.replace = replace_and_die
        await old.trim(lambda topic: 20, executor)
    sessions.replace = replace
    first = sessions.sessions[0]
    assert first.first > 1
    assert first.object_name(1) in objects.stored
    async with object_journal(objects, sessions) as journal:
        assert journal.state.topics[1].end_offset == 20
        await journal.trim(lambda topic: 0, executor)
        assert min(objects.stored) == first.object_name(first.first)


async def test_trimming_goes_on_after_a_change_with_an_unknown_outcome(
    objects, sessions, executor
):
    async with object_journal(objects, sessions) as journal:
        journal.append(OPENED, None)
        await append_each(journal, Batches(), 20)
        sessions.is_failing = True
        await journal.trim(lambda topic: 20, executor)
        assert journal.failure is None
        await journal.trim(lambda topic: 20, executor)
        assert journal.failure is None
        assert journal.file_count == 1
        assert min(objects.stored) == journal.first_name


async def test_a_session_that_is_being_taken_over_removes_nothing(
    objects, sessions, executor
):
    async with object_journal(objects, sessions) as old:
        old.append(OPENED, None)
        await append_each(old, Batches(), 20)
        async with object_journal(objects, sessions) as new:
            count = len(objects.stored)
            await old.trim(lambda topic: 20, executor)
            assert len(objects.stored) == count
            assert isinstance(old.failure, JournalFailed)
            assert new.failure is None


# Damage.


async def write_three_sessions(objects, sessions):
    base = 0
    for _ in range(3):
        async with object_journal(objects, sessions) as journal:
            if not base:
                journal.append(OPENED, None)
            await append_each(journal, Batches(base), 5)
            base += 5


async def refusal(objects, sessions):
    with pytest.raises(CorruptJournal) as refused:
        async with object_journal(objects, sessions):
            pass
    return str(refused.value)


async def test_a_missing_object_is_reported(objects, sessions):
    await write_three_sessions(objects, sessions)
    name = sessions.sessions[1].object_name(2)
    del objects.stored[name]
    said = await refusal(objects, sessions)
    assert said == f"{name}: expected a group, there is no object"


async def test_a_damaged_object_is_reported(objects, sessions):
    await write_three_sessions(objects, sessions)
    name = sessions.sessions[2].object_name(2)
    await objects.put(name, bytes(objects.stored[name])[:-8])
    said = await refusal(objects, sessions)
    assert said.startswith(f"{name}: expected an entry")


@pytest.mark.parametrize(
    ("session", "number", "reason"),
    [
        (1, 2, "expected a group of session"),
        (0, 3, "expected group 2, the header says 3"),
    ],
)
async def test_an_object_in_the_place_of_another_is_reported(
    objects, sessions, session, number, reason
):
    await write_three_sessions(objects, sessions)
    name = sessions.sessions[0].object_name(2)
    other = sessions.sessions[session].object_name(number)
    await objects.put(name, bytes(objects.stored[other]))
    assert (await refusal(objects, sessions)).startswith(f"{name}: {reason}")


async def test_the_journal_of_another_cluster_is_refused(objects, sessions):
    await write_three_sessions(objects, sessions)
    with pytest.raises(CorruptJournal, match="it belongs to cluster"):
        async with object_journal(objects, sessions, journal_id=b"another one 16 B"):
            pass


async def test_a_store_that_does_not_answer_at_the_start_is_reported(objects, sessions):
    await write_three_sessions(objects, sessions)
    link = Link(objects, Random(1), error_rate=1.0)
    with pytest.raises(ObjectsUnavailable):
        async with object_journal(link, sessions):
            pass
    async with object_journal(objects, sessions) as journal:
        assert journal.state.topics[1].end_offset == 15
