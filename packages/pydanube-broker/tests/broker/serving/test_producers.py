import asyncio
import errno

import pytest

from pydanube.model.errors import (
    Closed,
    DiskFull,
    Draining,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    TopicNotFound,
)
from pydanube.model.policy import NamespacePolicy, ProducerAccess
from pydanube_broker.broker.serving.producers import IDLE_PRODUCERS_MAX
from support.fakes.batches import frame_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    Outcome,
)
from support.fakes.recording_files import RecordingFiles

EXCLUSIVE = ProducerAccess.EXCLUSIVE
WAIT = ProducerAccess.EXCLUSIVE_WAIT
FENCE = ProducerAccess.EXCLUSIVE_FENCE


async def opened(broker, name="p", *, policy=RELIABLE, **options):
    return await broker.producers.open(A_TOPIC, name, policy=policy, **options)


async def attached(broker, name="p", *, policy=RELIABLE, **options):
    return await broker.producers.attach(A_TOPIC, name, policy=policy, **options)


def publish(topic, session, payload=b"x"):
    outcome = Outcome()
    frame = frame_of(
        [payload],
        producer=session.name,
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        base_sequence=session.next_sequence,
    )
    topic.publish(session, frame, outcome)
    return outcome


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_late_close_does_not_close_the_reopened_producer(broker):
    topic, lost = await opened(broker)
    assert await publish(topic, lost).offset() == 0
    resume = (lost.producer_id, lost.epoch)
    _, back = await opened(broker, resume=resume)
    assert (back.producer_id, back.epoch, back.next_sequence) == (*resume, 1)
    broker.producers.close(topic, lost, forget=True)
    assert list(topic.registrations) == ["p"]
    assert await publish(topic, back).offset() == 1
    with pytest.raises(ProducerFenced):
        publish(topic, lost)


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
async def test_returning_producer_does_not_create_its_deleted_topic_again(
    broker, policy
):
    _, lost = await opened(broker, policy=policy)
    await broker.topics.delete(A_TOPIC, force=True)
    with pytest.raises(TopicNotFound):
        await opened(broker, policy=policy, resume=(lost.producer_id, lost.epoch))
    _, new = await opened(broker, policy=policy)
    assert new.next_sequence == 0


async def test_replaced_producer_is_notified(broker):
    told = []
    topic, before = await opened(broker, on_fenced=told.append)
    await opened(broker)
    assert [type(error) for error in told] == [ProducerFenced]
    with pytest.raises(ProducerFenced, match="another producer named p is open"):
        publish(topic, before)


async def test_producer_of_deleted_topic_is_notified(broker):
    told = []
    await opened(broker, "p", on_fenced=told.append)
    await attached(broker, "q", on_fenced=told.append)
    await broker.topics.delete(A_TOPIC, force=True)
    assert [type(error) for error in told] == [TopicNotFound] * 2


async def test_closed_producer_is_not_notified_and_cannot_publish(broker):
    told = []
    topic, session = await opened(broker, on_fenced=told.append)
    broker.producers.close(topic, session, forget=False)
    broker.producers.close(topic, session, forget=False)
    with pytest.raises(Closed):
        publish(topic, session)
    assert told == []


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
async def test_limit_counts_producers_with_and_without_sessions(broker, policy):
    topic, session = await opened(broker, "native", policy=policy)
    limits = NamespacePolicy(max_producers_per_topic=2)
    await broker.topics.configure(A_TOPIC, limits=limits)
    _, registration = await attached(broker, "grpc", policy=policy)
    with pytest.raises(QuotaExceeded, match="Producer limit per topic reached"):
        await opened(broker, "another", policy=policy)
    # Producers of these names may open again.
    assert (await attached(broker, "grpc", policy=policy))[1] is registration
    _, session = await opened(broker, "native", policy=policy)
    broker.producers.close(topic, session, forget=False)
    _, session = await opened(broker, "another", policy=policy)
    with pytest.raises(QuotaExceeded):
        await attached(broker, "more", policy=policy)
    topic.registrations.leave(registration)
    await attached(broker, "more", policy=policy)
    assert sorted(topic.registrations) == ["another", "more"]


async def test_lower_limits_disconnect_nobody(broker):
    topic, session = await opened(broker, "a")
    await opened(broker, "b")
    await broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_producers_per_topic=1)
    )
    assert await publish(topic, session).offset() == 0
    with pytest.raises(QuotaExceeded, match="Current: 2, Limit: 1"):
        await opened(broker, "c")


async def test_exclusive_producer_is_the_only_one(broker):
    topic, session = await opened(broker, "a", access=EXCLUSIVE)
    for access in (ProducerAccess.SHARED, EXCLUSIVE):
        with pytest.raises(ProducerBusy):
            await opened(broker, "b", access=access)
        with pytest.raises(ProducerBusy):
            await attached(broker, "b", access=access)
    broker.producers.close(topic, session, forget=False)
    _, registration = await attached(broker, "b", access=EXCLUSIVE)
    assert registration.is_valid
    with pytest.raises(ProducerBusy):
        await opened(broker, "a", access=EXCLUSIVE)


async def test_queued_producers_are_admitted_in_order(broker):
    topic, first = await opened(broker, "first")
    order = []

    async def wait(name):
        _, session = await opened(broker, name, access=WAIT)
        order.append(name)
        return session

    async with asyncio.TaskGroup() as tasks:
        waiting = []
        for name in ("b", "a", "c"):
            waiting.append(tasks.create_task(wait(name)))
            await turns()
        assert order == []
        broker.producers.close(topic, first, forget=False)
        for task in waiting:
            session = await task
            assert list(topic.registrations) == [session.name]
            assert isinstance(await publish(topic, session).offset(), int)
            broker.producers.close(topic, session, forget=False)
    assert order == ["b", "a", "c"]


@pytest.mark.parametrize("is_at_turn", [False, True])
async def test_cancelled_wait_leaves_no_registration(broker, is_at_turn):
    topic, first = await opened(broker, "first")
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(opened(broker, "gone", access=WAIT))
        await turns()
        last = tasks.create_task(opened(broker, "last", access=WAIT))
        await turns()
        if is_at_turn:
            # The producer is admitted, and its connection breaks before it is told.
            broker.producers.close(topic, first, forget=False)
            gone.cancel()
        else:
            gone.cancel()
            await turns()
            broker.producers.close(topic, first, forget=False)
        _, session = await last
        assert list(topic.registrations) == ["last"]
        broker.producers.close(topic, session, forget=False)
    assert gone.cancelled()
    await opened(broker, "shared")


@pytest.mark.parametrize("reason", [Draining, TopicNotFound])
async def test_queued_producers_fail_when_the_topic_closes(broker, reason):
    await opened(broker, "first")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(outcome_of(opened(broker, "b", access=WAIT)))
        await turns()
        if reason is Draining:
            await broker.drain()
        else:
            await broker.topics.delete(A_TOPIC, force=True)
        assert isinstance(await waiting, reason)


async def outcome_of(opening):
    try:
        return await opening
    except (Draining, TopicNotFound) as error:
        return error


async def test_fenced_producer_cannot_publish_but_its_messages_stay(broker):
    told = []
    topic, fenced = await opened(broker, "a", on_fenced=told.append)
    _, registration = await attached(broker, "b", on_fenced=told.append)
    on_its_way = publish(topic, fenced)
    _, newcomer = await opened(broker, "c", access=FENCE)
    assert await on_its_way.offset() == 0
    assert [type(error) for error in told] == [ProducerFenced] * 2
    assert isinstance(registration.refusal, ProducerFenced)
    with pytest.raises(
        ProducerFenced, match="c has exclusive access to /default/orders"
    ):
        publish(topic, fenced)
    with pytest.raises(ProducerBusy):
        await opened(broker, "a")
    assert await publish(topic, newcomer).offset() == 1


async def test_fenced_producer_that_reopens_continues_its_sequence(broker):
    topic, fenced = await opened(broker, "a")
    assert await publish(topic, fenced).offset() == 0
    _, newcomer = await opened(broker, "b", access=FENCE)
    broker.producers.close(topic, newcomer, forget=False)
    _, back = await opened(broker, "a")
    assert back.next_sequence == 1
    assert await publish(topic, back).offset() == 1


@pytest.mark.parametrize("after", range(8))
async def test_cancellation_during_admission_leaves_no_registration(broker, after):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(opened(broker, "gone", access=EXCLUSIVE))
        for _ in range(after):
            await asyncio.sleep(0)
        gone.cancel()
    if not gone.cancelled():
        _, session = gone.result()
        broker.producers.close(topic, session, forget=False)
    assert list(topic.registrations) == []
    await opened(broker, "next", access=EXCLUSIVE)


@pytest.fixture
def full():
    """Return a list; while it has items, the disk of `the broker` is full."""
    return []


@pytest.fixture
def world(full):
    def fail(operation):
        if full and operation.kind == "write":
            return OSError(errno.ENOSPC, "on purpose")
        return None

    world = BrokerWorld()
    world.files = RecordingFiles(fail=fail)
    return world


async def test_batches_refused_by_a_full_disk_are_not_counted(broker, full):
    told = []
    topic, session = await opened(broker, on_fenced=told.append)
    assert await publish(topic, session).offset() == 0
    full.append(True)
    outcomes = [publish(topic, session) for _ in range(2)]
    assert [type(await each.error()) for each in outcomes] == [DiskFull] * 2
    with pytest.raises(DiskFull):
        publish(topic, session)
    assert list(topic.registrations) == []
    assert told == []
    full.clear()
    resume = (session.producer_id, session.epoch)
    _, session = await opened(broker, resume=resume)
    assert session.next_sequence == 1
    assert await publish(topic, session).offset() == 1


async def test_producer_that_took_over_an_unwritten_sequence_must_reopen(broker, full):
    told = []
    topic, lost = await opened(broker)
    full.append(True)
    on_its_way = publish(topic, lost)
    resume = (lost.producer_id, lost.epoch)
    _, back = await opened(broker, resume=resume, on_fenced=told.append)
    assert back.next_sequence == 1
    assert isinstance(await on_its_way.error(), DiskFull)
    assert [type(error) for error in told] == [DiskFull]
    with pytest.raises(DiskFull):
        publish(topic, back)
    full.clear()
    _, again = await opened(broker, resume=resume)
    assert again.next_sequence == 0
    assert await publish(topic, again).offset() == 0


async def test_all_recovered_producers_may_resume_after_a_restart(world):
    names = [f"p-{number}" for number in range(IDLE_PRODUCERS_MAX + 10)]
    async with world.broker() as broker:
        before = [(await opened(broker, name))[1] for name in names]
    async with world.broker() as broker:
        for name, session in zip(names, before, strict=True):
            resume = (session.producer_id, session.epoch)
            _, after = await opened(broker, name, resume=resume)
            assert (after.producer_id, after.epoch) == resume
