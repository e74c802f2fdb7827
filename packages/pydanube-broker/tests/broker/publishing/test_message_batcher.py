import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from pydanube.model.batch import attributes_of
from pydanube.model.errors import (
    Draining,
    InvalidRequest,
    MessageTooLarge,
    ProducerFenced,
    TopicFenced,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    NamespacePolicy,
    ProducerAccess,
    Start,
    SubscriptionType,
)
from pydanube_broker.broker.publishing.message_batcher import (
    BATCH_TARGET_BYTES,
    GATHERED_BYTES_MAX,
    MessageBatcher,
    SingleMessage,
)
from support.drivers.running import using
from support.fakes.batches import A_TIME, frame_of, payloads_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    Outcome,
    Port,
)
from support.fakes.storages import seal, until


def message(payload=b"x", producer="p", **fields):
    return SingleMessage(producer, payload, fields.pop("time", A_TIME), **fields)


def publish(broker, topic, *messages):
    outcomes = []
    for each in messages:
        outcomes.append(Outcome())
        broker.batcher.publish(topic, each, outcomes[-1])
    return outcomes


async def offsets(outcomes):
    return [await outcome.offset() for outcome in outcomes]


def frames_in(topic):
    return topic.log.read_tail(0, bytes_max=1 << 30)


async def test_messages_of_one_iteration_become_one_batch(broker, topic):
    outcomes = publish(
        broker, topic, message(b"a", "p"), message(b"b", "q"), message(b"c", "p")
    )
    assert await offsets(outcomes) == [0, 1, 2]
    (frame,) = frames_in(topic)
    batch = frame.check()
    assert batch.column("payload").to_pylist() == [b"a", b"b", b"c"]
    assert batch.column("producer").to_pylist() == ["p", "q", "p"]
    assert (frame.header.producer, frame.header.producer_id) == ("", 0)


@pytest.fixture
def when_free():
    """Return the callbacks that wait until the journal is free."""
    return []


@pytest.fixture
async def waiting(broker, when_free):
    """Return the broker with a batcher whose journal is busy."""
    loop = asyncio.get_running_loop()
    return SimpleNamespace(batcher=MessageBatcher(loop, when_free.append))


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_messages_that_wait_for_the_journal_become_one_batch(
    waiting, when_free, topic
):
    outcomes = publish(waiting, topic, message(b"a"))
    await turns()
    outcomes += publish(waiting, topic, message(b"b"))
    await turns()
    assert frames_in(topic) == []
    [publish_all] = when_free
    publish_all()
    assert await offsets(outcomes) == [0, 1]
    assert [frame.count for frame in frames_in(topic)] == [2]
    publish(waiting, topic, message(b"c"))
    assert len(when_free) == 2


async def test_messages_that_wait_for_the_journal_are_bounded(waiting, topic):
    size = BATCH_TARGET_BYTES - 1024
    count = -(-GATHERED_BYTES_MAX // size)
    outcomes = publish(
        waiting,
        topic,
        *(
            message(bytes(size), schema_id=1 + at, schema_version=1)
            for at in range(count)
        ),
    )
    assert await offsets(outcomes) == list(range(count))


async def test_messages_of_non_reliable_topics_do_not_wait_for_the_journal(
    waiting, when_free, broker
):
    topic = await broker.topics.get_or_create(A_TOPIC, NON_RELIABLE)
    outcomes = publish(waiting, topic, message(b"a"))
    assert await offsets(outcomes) == [0]
    assert not when_free


async def test_next_iteration_makes_the_next_batch(broker, topic):
    first = publish(broker, topic, message(b"a"))
    await asyncio.sleep(0)
    second = publish(broker, topic, message(b"b"))
    assert await offsets(first + second) == [0, 1]
    assert [frame.count for frame in frames_in(topic)] == [1, 1]


async def test_single_producer_is_named_in_the_header(broker, topic):
    await offsets(publish(broker, topic, message(b"a", "p"), message(b"b", "p")))
    (frame,) = frames_in(topic)
    assert frame.header.producer == "p"
    assert frame.check().schema.names == ["payload"]


async def test_single_message_makes_a_plain_batch(broker, topic):
    await offsets(publish(broker, topic, message(b"a")))
    (frame,) = frames_in(topic)
    assert frame.decode_small_batch().payloads() == [b"a"]
    frame.verify()


async def test_message_keeps_all_its_properties(broker, topic):
    outcomes = publish(
        broker,
        topic,
        message(b"a", key=b"k", attributes={"x": "1", "y": "2"}, time=A_TIME),
        message(b"b", time=A_TIME + 5, deliver_at_us=A_TIME + 60),
        message(b"c", time=A_TIME + 3, expires_at_us=A_TIME + 90),
    )
    await offsets(outcomes)
    (frame,) = frames_in(topic)
    rows = frame.check().to_pylist()
    assert [row["key"] for row in rows] == [b"k", None, None]
    assert [attributes_of(row["attributes"]) for row in rows] == [
        {"x": "1", "y": "2"},
        {},
        {},
    ]
    assert [row["publish_time"] for row in rows] == [
        moment(A_TIME),
        moment(A_TIME + 5),
        moment(A_TIME + 3),
    ]
    assert [row["deliver_at"] for row in rows] == [None, moment(A_TIME + 60), None]
    assert [row["expires_at"] for row in rows] == [None, None, moment(A_TIME + 90)]
    header = frame.header
    assert header.first_publish_time == A_TIME
    assert header.last_publish_time == A_TIME + 3


def moment(time_us):
    return datetime.fromtimestamp(time_us // 10**6, UTC).replace(
        microsecond=time_us % 10**6
    )


async def test_other_schemas_and_topics_make_separate_batches(broker, topic):
    other = await broker.topics.create(TopicName.parse("/default/other"), RELIABLE)
    apart = publish(broker, other, message(b"z", schema_id=1, schema_version=1))
    outcomes = publish(
        broker,
        topic,
        message(b"a", schema_id=1, schema_version=1),
        message(b"b", schema_id=1, schema_version=2),
        message(b"c", schema_id=1, schema_version=1),
    )
    assert await offsets(outcomes) == [0, 2, 1]
    assert [
        (frame.header.schema_id, frame.header.schema_version, frame.count)
        for frame in frames_in(topic)
    ] == [(1, 1, 2), (1, 2, 1)]
    assert await offsets(apart) == [0]
    assert payloads_of(frames_in(other)) == [b"z"]


async def refused(broker, topic, broken, error, match):
    """Check that only *broken* fails, between two other messages."""
    await broker.topics.configure(A_TOPIC, limits=NamespacePolicy(max_message_size=100))
    before, bad, after = publish(
        broker, topic, message(b"a", "p"), broken, message(b"b", "q")
    )
    first = await before.offset()
    assert await after.offset() == first + 1
    with pytest.raises(error, match=match):
        await bad.offset()
    assert payloads_of(frames_in(topic))[first:] == [b"a", b"b"]


async def test_message_that_is_too_large_fails_alone(broker, topic):
    await refused(
        broker,
        topic,
        message(bytes(101)),
        MessageTooLarge,
        "Message size 101 exceeds maximum allowed 100 for topic /default/orders",
    )


async def test_message_with_invalid_time_fails_alone(broker, topic):
    await refused(broker, topic, message(time=2**62), InvalidRequest, "publish time")
    await refused(
        broker, topic, message(expires_at_us=-(2**62)), InvalidRequest, "expiry time"
    )


async def test_message_with_invalid_schema_fails_alone(broker, topic):
    await refused(
        broker, topic, message(schema_id=2**63), InvalidRequest, "out of range"
    )
    await refused(
        broker,
        topic,
        message(schema_id=1, schema_version=2**31),
        InvalidRequest,
        "out of range",
    )


async def test_message_that_cannot_be_encoded_fails_alone(broker, topic):
    await refused(
        broker,
        topic,
        message(attributes={"\ud800": ""}),
        InvalidRequest,
        "cannot be stored",
    )


@using(broker_options={"batch_bytes_max": 10_000})
async def test_message_larger_than_a_batch_is_refused(broker, topic):
    small, large, larger = publish(
        broker, topic, message(b"a"), message(bytes(9_900)), message(bytes(10_001))
    )
    assert await small.offset() == 0
    assert isinstance(await large.error(), MessageTooLarge)
    assert isinstance(await larger.error(), MessageTooLarge)
    assert topic.end_offset == 1


@using(broker_options={"batch_bytes_max": 10_000})
async def test_batches_do_not_exceed_the_maximum_size(broker, topic):
    count = 200
    outcomes = publish(
        broker,
        topic,
        *(message(bytes(100), attributes={"a": "b"}) for _ in range(count)),
    )
    assert await offsets(outcomes) == list(range(count))
    frames = frames_in(topic)
    assert len(frames) > 1
    assert all(frame.byte_count <= 10_000 for frame in frames)


async def test_failing_callback_does_not_stop_other_callbacks(broker, topic, caplog):
    def broken(offset, error):
        raise RuntimeError("a bug")

    first, last = Outcome(), Outcome()
    broker.batcher.publish(topic, message(b"a"), first)
    broker.batcher.publish(topic, message(b"b"), broken)
    broker.batcher.publish(topic, message(b"c"), last)
    assert await offsets([first, last]) == [0, 2]
    assert "a callback of a published message failed" in caplog.text


async def test_all_callbacks_get_the_error_of_a_rejected_batch(broker, topic):
    topic.log.refusal = TopicFenced("another broker has it")
    outcomes = publish(broker, topic, message(b"a"), message(b"b"))
    assert [type(await each.error()) for each in outcomes] == [TopicFenced] * 2


async def test_deleted_topic_refuses_messages(broker, topic):
    await broker.topics.delete(A_TOPIC)
    (outcome,) = publish(broker, topic, message())
    assert isinstance(await outcome.error(), TopicNotFound)


async def test_draining_broker_refuses_messages(broker, topic):
    (outcome,) = publish(broker, topic, message())
    await broker.drain()
    assert isinstance(await outcome.error(), Draining)
    assert topic.end_offset == 0


async def test_only_the_exclusive_producer_may_publish(broker, topic):
    access = ProducerAccess.EXCLUSIVE
    await broker.producers.attach(A_TOPIC, "p", policy=None, access=access)
    mine, other = publish(broker, topic, message(b"a", "p"), message(b"b", "q"))
    assert await mine.offset() == 0
    assert isinstance(await other.error(), ProducerFenced)


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
async def test_consumers_receive_batched_messages(broker, topic):
    _, subscription = await broker.subscriptions.open(
        A_TOPIC, SubscriptionName("s"), SubscriptionType.SHARED, Start.LATEST
    )
    port = Port()
    consumer = subscription.attach("c", port)
    subscription.credit(consumer, 100, 1 << 20)
    await offsets(publish(broker, topic, message(b"a", "p"), message(b"b", "q")))
    await offsets(publish(broker, topic, message(b"c", "r")))
    await until(lambda: sum(frame.count for frame in port.frames) == 3)
    assert payloads_of(port.frames) == [b"a", b"b", b"c"]
    assert topic.counts.published == 3


async def test_messages_without_a_session_add_no_producer_to_the_journal():
    world = BrokerWorld()
    async with world.broker() as broker:
        topic, session = await broker.producers.open(A_TOPIC, "p", policy=RELIABLE)
        numbered = Outcome()
        frame = frame_of(
            [b"1"], producer="p", producer_id=session.producer_id, producer_epoch=1
        )
        topic.publish(session, frame, numbered)
        assert await numbered.offset() == 0
        await offsets(publish(broker, topic, message(b"2", "p"), message(b"3", "q")))
        await offsets(publish(broker, topic, message(b"4", "p")))
        state = broker.storage.find_state(topic.topic_id)
        assert [*state.producers] == ["p"]
        assert state.producers["p"].next_sequence == 1
    # Recovered from the journal, then from a segment.
    for is_sealed in (False, True):
        async with world.broker() as broker:
            topic = await broker.topics.get(A_TOPIC)
            state = broker.storage.find_state(topic.topic_id)
            assert [*state.producers] == ["p"]
            assert state.producers["p"].next_sequence == 1
            frames = await topic.log.read(0, bytes_max=1 << 20)
            assert payloads_of(frames) == [b"1", b"2", b"3", b"4"]
            assert producers_of(frames) == ["p", "p", "q", "p"]
            if not is_sealed:
                await seal(broker.storage, topic.topic_id)


def producers_of(frames):
    names = []
    for frame in frames:
        batch = frame.check()
        if "producer" in batch.schema.names:
            names += batch.column("producer").to_pylist()
        else:
            names += [frame.header.producer] * frame.count
    return names


@pytest.mark.parametrize("id_", ["", "x" * 257])
async def test_messages_with_empty_and_long_ids_are_refused(broker, topic, id_):
    malformed = message(attributes={"x-deduplication-id": id_})
    refused, stored = publish(broker, topic, malformed, message())
    with pytest.raises(InvalidRequest, match="it must have 1 to 256"):
        await refused.offset()
    assert await stored.offset() == 0
