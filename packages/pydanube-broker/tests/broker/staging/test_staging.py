"""Versions of staged batches are published completely and once."""

from __future__ import annotations

import errno

import pytest

from pydanube.model.errors import (
    CorruptStage,
    DiskFull,
    Draining,
    InvalidRequest,
    MetadataUnavailable,
    ProducerBusy,
    QuotaExceeded,
    StagedPartNotFound,
    StagingClosed,
    SubscriptionInUse,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import NamespacePolicy, ProducerAccess
from pydanube_broker.metadata import keys
from pydanube_broker.storage.config import StagingConfig
from pydanube_broker.storage.files import MemoryFiles
from support.drivers.running import using
from support.fakes.brokers import (
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
)
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import object_journal_world
from support.fakes.recording_files import RecordingFiles
from support.fakes.staging import A_QUERY, PartMaker, stage_part, stored
from support.fakes.storages import until

A, B = "/default/a", "/default/b"


@pytest.fixture
async def broker(world, broker_options):
    """Run a broker that has the topics A and B."""
    async with world.broker(**broker_options) as broker:
        await create_topics(broker)
        yield broker


async def create_topics(broker):
    for name in (A, B):
        await broker.topics.create(TopicName.parse(name), RELIABLE, exist_ok=True)


class FailingStore(MemoryStore):
    """A store that fails before or after it changes a query."""

    def __init__(self):
        super().__init__()
        self.fails = ""
        """``before`` or ``after`` the change."""
        self.successes = 0
        """The number of changes that succeed before one fails."""
        self.is_gone = False

    async def get(self, key):
        if self.is_gone:
            raise MetadataUnavailable("gone")
        return await super().get(key)

    async def put(self, key, value, *, expected=None):
        if not key.path.startswith("/queries/") or not self.fails:
            return await super().put(key, value, expected=expected)
        if self.successes:
            self.successes -= 1
            return await super().put(key, value, expected=expected)
        fails, self.fails = self.fails, ""
        if fails == "after":
            await super().put(key, value, expected=expected)
        raise MetadataUnavailable(f"failed {fails} the change")

    async def delete(self, key, *, expected=None):
        found = await super().delete(key, expected=expected)
        if self.fails:
            self.fails = ""
            raise MetadataUnavailable("the answer is lost")
        return found


class StagingFaults:
    """The error number with which staged batches cannot be written, or 0."""

    def __init__(self):
        self._number = 0

    def __call__(self, number):
        self._number = number

    def error(self, operation):
        if self._number and b"staged/" in operation.data:
            return OSError(self._number, "on purpose")
        return None


@pytest.fixture
def fail():
    return StagingFaults()


@pytest.fixture
def world(fail):
    world = BrokerWorld()
    world.files = RecordingFiles(fail=fail.error)
    world.staged = RecordingFiles()
    return world


# Commits.


async def test_parts_are_published_in_the_order_in_which_they_are_named(broker):
    first = await stage_part(broker, 0, "0", [(A, [b"1", b"2"]), (B, [b"x"])])
    second = await stage_part(broker, 0, "1", [(A, [b"3"]), (A, [b"4"])])
    assert await stored(broker, A) == []
    commit = await broker.staging.commit(A_QUERY, 0, [second, first])
    assert (commit.message_count, commit.is_repeat) == (5, False)
    assert await stored(broker, A) == [b"3", b"4", b"1", b"2"]
    assert await stored(broker, B) == [b"x"]
    topic = await broker.topics.get_reliable(TopicName.parse(A))
    assert topic.counts.published == 4
    assert not topic.is_in_use


async def test_repeated_commit_changes_nothing(broker):
    part = await stage_part(broker, 3, "0", [(A, [b"1"])])
    await broker.staging.commit(A_QUERY, 3, [part])
    again = await broker.staging.commit(A_QUERY, 3, [part])
    assert (again.message_count, again.is_repeat) == (1, True)
    earlier = await broker.staging.commit(A_QUERY, 2, [])
    assert (earlier.message_count, earlier.is_repeat) == (0, True)
    assert await stored(broker, A) == [b"1"]


async def test_progress_is_described_without_the_parts(broker):
    await stage_part(broker, 1, "0", [(A, [b"1"])])
    facts = await broker.staging.describe(A_QUERY)
    assert facts.part_count == 1
    assert facts.byte_count
    facts = await broker.staging.describe(A_QUERY, counts_parts=False)
    assert (facts.part_count, facts.byte_count) == (0, 0)
    assert facts.committed_version is None


async def test_version_without_messages_is_committed_as_well(broker):
    commit = await broker.staging.commit(A_QUERY, 0, [])
    assert (commit.message_count, commit.is_repeat) == (0, False)
    facts = await broker.staging.describe(A_QUERY)
    assert (facts.committed_version, facts.is_finished) == (0, True)


async def test_versions_follow_each_other_and_queries_do_not_see_each_other(broker):
    for version in range(3):
        for query in ("one", "two"):
            payload = f"{query} {version}".encode()
            part = await stage_part(broker, version, "0", [(A, [payload])], query=query)
            await broker.staging.commit(query, version, [part])
    expected = [f"{q} {v}".encode() for v in range(3) for q in ("one", "two")]
    assert await stored(broker, A) == expected
    await broker.storage.journal.sync()
    state = broker.storage.find_state(1)
    assert state.producers == {}


async def test_other_parts_are_dropped_and_their_writers_notified(broker):
    named = await stage_part(broker, 1, "0", [(A, [b"1"])])
    await stage_part(broker, 1, "0-again", [(A, [b"1"])])
    slow = PartMaker(broker, 0, "late")
    await slow.write(A, [b"0"])
    await broker.staging.commit(A_QUERY, 1, [named])
    assert isinstance(await slow.ports[A].closed(), StagingClosed)
    with pytest.raises(StagingClosed, match="has committed version 1"):
        await PartMaker(broker, 1, "later").open(A)
    with pytest.raises(StagingClosed):
        await slow.finish()
    later = await stage_part(broker, 2, "0", [(A, [b"2"])])
    await broker.staging.commit(A_QUERY, 2, [later])
    assert await stored(broker, A) == [b"1", b"2"]
    assert len(broker.staging.parts) == 0
    assert broker.staging.parts.byte_count == 0


# Refused commits.


async def test_commit_with_a_missing_part_is_refused_and_keeps_the_others(broker):
    part = await stage_part(broker, 0, "0", [(A, [b"1"])])
    gone = await stage_part(broker, 0, "1", [(A, [b"2"])])
    await broker.staging.drop_part(PartMaker(broker, 0, "1").key)
    with pytest.raises(StagedPartNotFound, match="stage the version again"):
        await broker.staging.commit(A_QUERY, 0, [part, gone])
    with pytest.raises(InvalidRequest, match="twice"):
        await broker.staging.commit(A_QUERY, 0, [part, part])
    assert await stored(broker, A) == []
    await broker.staging.commit(A_QUERY, 0, [part])
    assert await stored(broker, A) == [b"1"]


async def test_part_that_is_not_finished_cannot_be_committed(broker):
    part = await stage_part(broker, 0, "0", [(A, [b"1"])])
    open_part = PartMaker(broker, 0, "1")
    await open_part.write(A, [b"2"])
    named = part.__class__(
        name="1",
        part_id=open_part.key.part_id,
        batch_count=1,
        message_count=1,
        byte_count=0,
    )
    with pytest.raises(StagedPartNotFound, match="not finished"):
        await broker.staging.commit(A_QUERY, 0, [part, named])


@pytest.mark.parametrize("at", [12, 100, 200, -1])
async def test_part_damaged_on_disk_is_never_partly_published(world, broker, at):
    await create_topics(broker)
    good = await stage_part(broker, 0, "0", [(A, [b"1"])])
    bad = await stage_part(broker, 0, "1", [(A, [b"2" * 99])])
    world.staged.contents[world.staged.names()[1]][at] ^= 1
    with pytest.raises(CorruptStage):
        await broker.staging.commit(A_QUERY, 0, [good, bad])
    assert await stored(broker, A) == []
    assert (await broker.staging.describe(A_QUERY)).committed_version is None
    await broker.staging.commit(A_QUERY, 0, [good])
    assert await stored(broker, A) == [b"1"]


async def test_part_that_was_damaged_while_the_broker_was_down_is_refused(world):
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"]), (A, [b"2"])])
    [name] = world.staged.names()
    world.staged.contents[name][-20] ^= 1
    async with world.broker() as broker:
        with pytest.raises(CorruptStage, match="damaged"):
            await broker.staging.commit(A_QUERY, 0, [part])


@pytest.mark.parametrize("is_created_again", [False, True])
async def test_topic_that_was_deleted_refuses_the_commit(broker, is_created_again):
    part = await stage_part(broker, 0, "0", [(A, [b"1"]), (B, [b"2"])])
    await broker.topics.delete(TopicName.parse(B))
    if is_created_again:
        await create_topics(broker)
    with pytest.raises(TopicNotFound):
        await broker.staging.commit(A_QUERY, 0, [part])
    assert await stored(broker, A) == []
    assert not (await broker.topics.get_reliable(TopicName.parse(A))).is_in_use


async def test_topic_with_an_exclusive_producer_refuses_the_commit(broker):
    part = await stage_part(broker, 0, "0", [(B, [b"1"]), (A, [b"2"])])
    topic, session = await broker.producers.open(
        TopicName.parse(A), "p", policy=None, access=ProducerAccess.EXCLUSIVE
    )
    with pytest.raises(ProducerBusy):
        await broker.staging.commit(A_QUERY, 0, [part])
    assert await stored(broker, B) == []
    broker.producers.close(topic, session, forget=True)
    await broker.staging.commit(A_QUERY, 0, [part])
    assert await stored(broker, A) == [b"2"]


async def test_topic_with_as_many_producers_as_it_may_have_refuses_the_commit(broker):
    part = await stage_part(broker, 0, "0", [(A, [b"2"])])
    name = TopicName.parse(A)
    await broker.topics.configure(
        name, limits=NamespacePolicy(max_producers_per_topic=1)
    )
    await broker.producers.open(name, "p", policy=None)
    with pytest.raises(QuotaExceeded):
        await broker.staging.commit(A_QUERY, 0, [part])


async def test_only_reliable_topics_that_exist_are_staged_for(broker):
    await broker.topics.create(TopicName.parse("/default/fast"), NON_RELIABLE)
    with pytest.raises(InvalidRequest, match="not reliable"):
        await PartMaker(broker, 0, "0").open("/default/fast")
    with pytest.raises(TopicNotFound):
        await PartMaker(broker, 0, "0").open("/default/none")
    with pytest.raises(InvalidRequest, match="at most"):
        await PartMaker(broker, 2**63, "0").open(A)
    assert len(broker.staging.parts) == 0


async def test_draining_broker_stages_nothing(broker):
    await broker.drain()
    with pytest.raises(Draining):
        await PartMaker(broker, 0, "0").open(A)


# Decided commits.


async def test_topics_of_a_pending_commit_are_in_use(broker, fail):
    part = await stage_part(broker, 0, "0", [(A, [b"1"]), (B, [b"2"])])
    fail(errno.ENOSPC)
    with pytest.raises(DiskFull):
        await broker.staging.commit(A_QUERY, 0, [part])
    assert broker.staging.pending_count == 1
    # The version can be neither committed again nor dropped.
    await broker.staging.drop_version(A_QUERY, 0)
    with pytest.raises(StagingClosed):
        await PartMaker(broker, 0, "1").open(A)
    with pytest.raises(SubscriptionInUse):
        await broker.topics.delete(TopicName.parse(A))
    await broker.topics.delete(TopicName.parse(A), force=True)
    fail(0)
    commit = await broker.staging.commit(A_QUERY, 0, [part])
    assert (commit.message_count, commit.is_repeat) == (2, True)
    assert await stored(broker, B) == [b"2"]
    assert broker.staging.dropped_count == 1
    assert broker.staging.pending_count == 0


async def test_pending_commit_is_carried_out_without_a_request(broker, fail):
    part = await stage_part(broker, 0, "0", [(A, [b"1"])])
    fail(errno.ENOSPC)
    with pytest.raises(DiskFull):
        await broker.staging.commit(A_QUERY, 0, [part])
    fail(0)
    await until(lambda: not broker.staging.pending_count)
    assert await stored(broker, A) == [b"1"]


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_unconfirmed_decision_is_read_from_the_store(fails):
    world = BrokerWorld(FailingStore())
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"])])
        world.store.fails, world.store.is_gone = fails, True
        with pytest.raises(MetadataUnavailable):
            await broker.staging.commit(A_QUERY, 0, [part])
        # The outcome is unknown: the version can be neither dropped nor staged.
        with pytest.raises(MetadataUnavailable):
            await broker.staging.drop_version(A_QUERY, 0)
        assert broker.staging.pending_count == 1
        assert not (await broker.staging.describe(A_QUERY)).is_finished
        world.store.is_gone = False
        commit = await broker.staging.commit(A_QUERY, 0, [part])
        assert commit.is_repeat is (fails == "after")
        assert await stored(broker, A) == [b"1"]
        assert broker.staging.pending_count == 0
        assert broker.staging.parts.byte_count == 0
    assert not world.staged.names()


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_commit_is_done_although_the_store_fails_when_it_is_marked(fails):
    world = BrokerWorld(FailingStore())
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"])])
        world.store.fails, world.store.successes = fails, 1
        with pytest.raises(MetadataUnavailable):
            await broker.staging.commit(A_QUERY, 0, [part])
        commit = await broker.staging.commit(A_QUERY, 0, [part])
        assert (commit.message_count, commit.is_repeat) == (1, True)
        other = await stage_part(broker, 1, "0", [(A, [b"2"])])
        await broker.staging.commit(A_QUERY, 1, [other])
        assert await stored(broker, A) == [b"1", b"2"]
        assert broker.staging.pending_count == 0
    assert not world.staged.names()


async def test_query_is_forgotten_although_the_answer_of_the_store_is_lost():
    world = BrokerWorld(FailingStore())
    async with world.broker() as broker:
        queries = broker.staging._queries
        await broker.staging.commit(A_QUERY, 0, [])
        world.store.fails = "after"
        with pytest.raises(MetadataUnavailable):
            await queries.forget(A_QUERY)
        assert queries.old(3600, 0) == [A_QUERY]
        await queries.forget(A_QUERY)
        assert queries.old(3600, 0) == []


# Restarts.


async def test_finished_part_is_committed_after_a_restart(world):
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"]), (B, [b"2"])])
    async with world.broker() as broker:
        facts = await broker.staging.describe(A_QUERY)
        assert (facts.part_count, facts.byte_count) == (1, part.byte_count)
        await broker.staging.commit(A_QUERY, 0, [part])
        assert await stored(broker, A) == [b"1"]
        assert await stored(broker, B) == [b"2"]
    assert not world.staged.names()


async def test_part_continues_after_a_restart(world):
    async with world.broker() as broker:
        await create_topics(broker)
        before = PartMaker(broker, 0, "0")
        await before.write(A, [b"1", b"2"])
        await before.write(B, [b"3"])
    # The crash tore the end of the file.
    world.staged.contents[world.staged.names()[0]] += b"DsE1 and no more"
    async with world.broker() as broker:
        part = PartMaker(broker, 0, "0")
        part.batch_count = 2
        stage = await part.open(A)
        assert stage.next_sequence == 2
        await part.open(B)
        await part.write(A, [b"4"])
        await broker.staging.commit(A_QUERY, 0, [await part.finish()])
        assert await stored(broker, A) == [b"1", b"2", b"4"]
        assert await stored(broker, B) == [b"3"]


@pytest.fixture
def lasting():
    """A world whose journal and metadata survive the loss of its disk."""
    return object_journal_world()


async def test_commit_whose_parts_are_lost_with_the_disk_can_be_repeated(
    lasting, caplog
):
    parts = [[(A, [b"1", b"2"])], [(B, [b"3"])]]
    async with lasting.broker() as broker:
        await create_topics(broker)
        staged = [
            await stage_part(broker, 0, f"{at}", part) for at, part in enumerate(parts)
        ]
        broker.storage.journal.refusal = "on purpose"
        with pytest.raises(DiskFull):
            await broker.staging.commit(A_QUERY, 0, staged)
        assert broker.staging.pending_count == 1
    lasting.staged = MemoryFiles()
    async with lasting.broker() as broker:
        await until(lambda: not broker.staging.pending_count)
        assert "must be staged again; 0 of its 3 messages" in caplog.text
        facts = await broker.staging.describe(A_QUERY)
        assert (facts.committed_version, facts.is_finished) == (None, True)
        staged = [
            await stage_part(broker, 0, f"{at}", part) for at, part in enumerate(parts)
        ]
        commit = await broker.staging.commit(A_QUERY, 0, staged)
        assert (commit.message_count, commit.is_repeat) == (3, False)
        assert await stored(broker, A) == [b"1", b"2"]
        assert await stored(broker, B) == [b"3"]


async def test_finished_parts_that_are_lost_with_the_disk_are_refused(lasting):
    async with lasting.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"])])
    lasting.staged = MemoryFiles()
    async with lasting.broker() as broker:
        with pytest.raises(StagedPartNotFound, match="stage the version again"):
            await broker.staging.commit(A_QUERY, 0, [part])


async def test_committed_version_is_known_after_a_restart(world):
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 7, "0", [(A, [b"1"])])
        await broker.staging.commit(A_QUERY, 7, [part])
    async with world.broker() as broker:
        assert (await broker.staging.describe(A_QUERY)).committed_version == 7
        assert (await broker.staging.commit(A_QUERY, 7, [part])).is_repeat
        assert await stored(broker, A) == [b"1"]


async def test_files_of_versions_that_are_committed_are_removed_at_the_start(world):
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"])])
        left = {n: bytes(world.staged.map(n)) for n in world.staged.names()}
        await broker.staging.commit(A_QUERY, 0, [part])
    for name, content in left.items():
        world.staged.create(name).write([content])
    async with world.broker() as broker:
        await broker.staging.describe(A_QUERY)
        await until(lambda: not world.staged.names())
        assert await stored(broker, A) == [b"1"]


async def test_broker_starts_if_the_topic_of_a_commit_cannot_be_opened():
    class Store(FailingStore):
        failing = ()

        async def scan(self, prefix, **page):
            if any(prefix.path.startswith(each) for each in self.failing):
                raise MetadataUnavailable(f"{prefix}: on purpose")
            return await super().scan(prefix, **page)

    world = BrokerWorld(Store())
    async with world.broker() as broker:
        await create_topics(broker)
        part = await stage_part(broker, 0, "0", [(A, [b"1"])])
        world.store.fails, world.store.is_gone = "after", True
        with pytest.raises(MetadataUnavailable):
            await broker.staging.commit(A_QUERY, 0, [part])
        world.store.is_gone = False
    failing = {keys.SUBSCRIPTIONS.path}
    world.store.failing = failing
    async with world.broker() as broker:
        assert broker.staging.pending_count == 1
        failing.clear()
        commit = await broker.staging.commit(A_QUERY, 0, [part])
        assert (commit.message_count, commit.is_repeat) == (1, True)
        assert await stored(broker, A) == [b"1"]


# Writers.


async def begin(broker, query):
    """Begin a transaction as the writer of *query*; return the record's revision."""
    staging = broker.staging
    before = await staging.read_writer(query)
    await staging.begin_as_writer(query, lambda _: b"1", before.revision)
    return (await staging.read_writer(query)).revision


@using(broker_options={"staging": StagingConfig(queries_max=2)})
async def test_nobody_pushes_out_the_writers_of_others(broker):
    for query, owner in (("a", "alice"), ("m1", "mallory"), ("m2", "mallory")):
        await broker.staging.claim(query, owner)
        await begin(broker, query)
    assert [query for query, _ in broker.staging.known_writers()] == ["a", "m2"]


@using(broker_options={"staging": StagingConfig(queries_max=1)})
async def test_a_writer_that_was_forgotten_has_no_earlier_revision_again(broker):
    first = await begin(broker, "a")
    await begin(broker, "b")
    assert await begin(broker, "a") > first


# Expiry.


@using(broker_options={"staging": StagingConfig(expiry_s=0.05)})
async def test_abandoned_part_expires(broker):
    part = await stage_part(broker, 0, "0", [(A, [b"1"])])
    slow = PartMaker(broker, 0, "1")
    await slow.write(A, [b"2"])
    await until(lambda: not len(broker.staging.parts))
    assert isinstance(await slow.ports[A].closed(), StagedPartNotFound)
    assert broker.staging.parts.expired_count == 2
    assert broker.staging.parts.byte_count == 0
    with pytest.raises(StagedPartNotFound):
        await broker.staging.commit(A_QUERY, 0, [part])


@using(broker_options={"staging": StagingConfig(expiry_s=0.05, queries_max=2)})
async def test_number_of_stored_queries_is_bounded(broker):
    for query in ("one", "two", "three"):
        await broker.staging.commit(query, 0, [])

    await until(lambda: len(broker.staging._queries._records) == 2)
    one, two = [await broker.staging.describe(each) for each in ("one", "two")]
    assert {one.committed_version, two.committed_version} == {0, None}


async def test_dropped_version_can_be_staged_again(broker):
    slow = PartMaker(broker, 0, "0")
    await slow.write(A, [b"1"])
    await broker.staging.drop_version(A_QUERY, 0)
    assert isinstance(await slow.ports[A].closed(), StagingClosed)
    part = await stage_part(broker, 0, "0", [(A, [b"2"])])
    await broker.staging.commit(A_QUERY, 0, [part])
    await broker.staging.drop_version(A_QUERY, 0)
    assert await stored(broker, A) == [b"2"]
