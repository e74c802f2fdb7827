"""The contract of all kinds of journal."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from pydanube.model.errors import Closed
from pydanube.model.ranges import RangeSet
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.memory import MemoryObjects
from pydanube.objects.opening import open_objects
from pydanube.objects.redis_objects import open_redis
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    ProducerOpened,
    SubscriptionDeleted,
    TopicDeleted,
    TopicOpened,
)
from pydanube_broker.storage.config import JournalConfig
from pydanube_broker.storage.files import DirectoryFiles, MemoryFiles
from pydanube_broker.storage.journal.journal import open_journal
from support.fakes.batches import frame_of, payloads_of
from support.fakes.object_journals import MemorySessions, object_journal
from support.servers.object_stores import StoreServers
from support.servers.redis_servers import DurableRedis

CONFIG = JournalConfig(file_bytes_max=1024)
OPENED = TopicOpened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)


class LocalKind:
    """Opens the journal in the same files again and again."""

    def __init__(self, files) -> None:
        self._files = files

    @asynccontextmanager
    async def open(self, config=CONFIG):
        async with open_journal(self._files, config) as journal:
            yield journal


class ObjectKind:
    """Opens the journal in the same objects again and again."""

    def __init__(self, objects) -> None:
        self._objects = objects
        self._sessions = MemorySessions()

    @asynccontextmanager
    async def open(self, config=CONFIG):
        async with object_journal(
            self._objects, self._sessions, config=config
        ) as journal:
            yield journal


class RedisKind:
    """Opens the journal in the same Redis server again and again."""

    def __init__(self, server) -> None:
        self._server, self._url = server, server.new_url()
        self._sessions = MemorySessions()

    @asynccontextmanager
    async def open(self, config=CONFIG):
        async with (
            open_redis(
                self._url,
                self._server.options,
                timeout_s=60,
                concurrency=8,
                replicas_min=0,
            ) as objects,
            object_journal(objects, self._sessions, config=config) as journal,
        ):
            yield journal


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    """Start a Redis server when a test needs it."""
    with DurableRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Start servers of object stores when a test needs them."""
    with StoreServers(tmp_path_factory.mktemp) as servers:
        yield servers


@pytest.fixture(
    params=[
        "memory",
        "directory",
        "memory objects",
        "directory objects",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("redis", marks=pytest.mark.slow),
    ]
)
def kind(request, tmp_path):
    match request.param:
        case "memory":
            return LocalKind(MemoryFiles())
        case "directory":
            return LocalKind(DirectoryFiles(tmp_path))
        case "memory objects":
            return ObjectKind(MemoryObjects())
        case "directory objects":
            return ObjectKind(DirectoryObjects(tmp_path))
        case "redis":
            return RedisKind(request.getfixturevalue("redis"))
        case server:
            servers = request.getfixturevalue("servers")
            return ObjectKind(open_objects(*servers.get(server).new_store()))


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


class Batches:
    def __init__(self, base=0):
        self.base = base

    def next(self, size=100):
        frame = frame_of([b"%d," % self.base + b"x" * size])
        frame.stamp(self.base, 1)
        self.base += 1
        return Batch(1, frame)


async def append_each(journal, batches, count):
    """Append *count* batches, each in a group of its own."""
    for _ in range(count):
        journal.append(batches.next(), None)
        await journal.sync()


def recovered_numbers(journal):
    return [
        int(payload.split(b",")[0])
        for payload in payloads_of(journal.recovered.get(1, []))
    ]


async def test_callbacks_run_in_order_after_entries_are_in_the_state(kind):
    told = []
    async with kind.open() as journal:
        batches = Batches()
        journal.append(OPENED, lambda error: told.append(("opened", error)))
        for at in range(50):

            def done(error, at=at):
                assert journal.state.topics[1].end_offset > at
                told.append((at, error))

            journal.append(batches.next(), done)
            if at % 7 == 0:
                await asyncio.sleep(0)
        await journal.sync()
    assert told == [("opened", None), *((at, None) for at in range(50))]


async def test_what_was_committed_is_recovered(kind):
    async with kind.open() as journal:
        batches = Batches()
        journal.append(OPENED, None)
        journal.append(CursorSaved(1, "s", CursorState(3, RangeSet([(5, 7)]))), None)
        opened = ProducerOpened(topic_id=1, name="p", producer_id=3, epoch=2)
        journal.append(opened, None)
        await append_each(journal, batches, 30)
        state = journal.state
        assert journal.file_count > 3
    for end in (30, 35, 40):
        async with kind.open() as journal:
            assert journal.state.positions() == state.positions()
            assert recovered_numbers(journal) == list(range(end))
            await append_each(journal, batches, 5)
            state = journal.state


async def test_deleted_topics_and_subscriptions_are_not_recovered(kind):
    async with kind.open() as journal:
        journal.append(OPENED, None)
        journal.append(CursorSaved(1, "a", CursorState(0)), None)
        journal.append(CursorSaved(1, "b", CursorState(0)), None)
        journal.append(SubscriptionDeleted(1, "a"), None)
    async with kind.open() as journal:
        assert list(journal.state.topics[1].cursors) == ["b"]
        await append_each(journal, Batches(), 1)
        journal.append(TopicDeleted(1), None)
    async with kind.open() as journal:
        assert not journal.state.topics
        assert not journal.recovered


async def test_leaving_commits_what_was_appended(kind):
    told = []
    async with kind.open() as journal:
        journal.append(OPENED, told.append)
        journal.append(CursorSaved(1, "s", CursorState(3)), None, sync=False)
    assert told == [None]
    with pytest.raises(Closed):
        journal.append(OPENED, None)
    async with kind.open() as journal:
        assert journal.state.topics[1].cursors["s"].offset == 3


async def test_a_sync_without_entries_returns(kind):
    async with kind.open() as journal:
        await journal.sync()
        await journal.sync()


async def test_a_journal_that_was_never_written_is_empty(kind):
    for _ in range(3):
        async with kind.open() as journal:
            assert not journal.state.topics
            assert not journal.recovered


async def test_pending_bytes_are_bounded_for_those_who_wait(kind):
    config = JournalConfig(pending_bytes_max=1000)
    async with kind.open(config) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        for _ in range(30):
            await journal.wait_for_room()
            assert journal.pending_bytes <= 1000
            journal.append(batches.next(), None)
        assert not journal.has_room
        await journal.sync()
        assert journal.pending_bytes == 0
        assert journal.commit_count > 3


async def test_what_is_sealed_is_removed(kind, executor):
    async with kind.open() as journal:
        batches = Batches()
        journal.append(OPENED, None)
        await append_each(journal, batches, 30)
        first, count, size = journal.first_name, journal.file_count, journal.byte_count
        await journal.trim(lambda topic: 0, executor)
        end = journal.oldest_ends()[1]
        await journal.trim(lambda topic: end - 1, executor)
        assert journal.first_name == first
        await journal.trim(lambda topic: end, executor)
        assert journal.first_name != first
        assert journal.file_count == count - 1
        assert journal.byte_count < size
    async with kind.open() as journal:
        assert journal.first_name != first
        assert recovered_numbers(journal) == list(range(end, 30))
        await journal.trim(lambda topic: None, executor)
        assert journal.file_count == 1
        await append_each(journal, batches, 1)
    async with kind.open() as journal:
        assert journal.state.topics[1].end_offset == 31


async def test_positions_only_grow(kind):
    positions = []
    batches = Batches()
    for _ in range(3):
        async with kind.open() as journal:
            positions.append(journal.durable_end)
            if batches.base == 0:
                journal.append(OPENED, None)
            await append_each(journal, batches, 10)
            positions.append(journal.durable_end)
    assert positions == sorted(positions)
    assert len(set(positions)) > 3
