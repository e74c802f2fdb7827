import asyncio

import pyarrow as pa
import pytest

from pydanube.model.batch import Column, schema_of
from pydanube.model.envelope import ATTRIBUTES_TYPE
from pydanube.model.errors import (
    InvalidRequest,
    MessageTooLarge,
    QuotaExceeded,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import NamespacePolicy, Start, SubscriptionType
from pydanube.wire.batches import BATCH_MESSAGES_MAX, BatchFrame, Codec, encode
from pydanube_broker.broker.pure.limits import verify
from support.drivers.running import using
from support.fakes.batches import empty_messages, frame_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    Outcome,
    Port,
)

NO_LIMITS = NamespacePolicy()


def subscription_name(text):
    return SubscriptionName(text)


def test_small_batch_is_decoded_once():
    class CountingFrame(BatchFrame):
        decodings = 0

        def decode_small_batch(self):
            self.decodings += 1
            return super().decode_small_batch()

    published = frame_of([b"a", b"b"])
    frame = CountingFrame(published.header, published.buffer, published.body_at)
    verify(frame, 1, A_TOPIC)
    assert frame.decodings == 1


# The attributes of messages.


def frame_with(attributes, codec=Codec.NONE):
    rows = pa.record_batch(
        {
            "payload": pa.array([b"x"] * len(attributes), pa.binary()),
            "attributes": pa.array(attributes, ATTRIBUTES_TYPE),
        },
        schema=schema_of(Column.PAYLOAD | Column.ATTRIBUTES),
    )
    return encode(rows, frame_of([b"x"] * len(attributes)).header, codec)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size_max", [0, 10])
@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ([[("a", "1")], [("b", None)]], "attribute 'b' of message 1 of the batch"),
        ([[("x-deduplication-id", "")]], "it must have 1 to 256"),
        ([[("x-deduplication-id", "x" * 257)], None], "it must have 1 to 256"),
    ],
)
def test_attributes_that_send_refuses_are_refused(codec, size_max, attributes, words):
    with pytest.raises(InvalidRequest, match=words):
        verify(frame_with(attributes, codec), size_max, A_TOPIC)
    verify(frame_with([None, [("a", "")]], codec), size_max, A_TOPIC)


# The size of messages.


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("payloads", [[b"x" * 101], [b"", b"x" * 101, b"y" * 5]])
def test_batch_with_one_too_large_message_is_refused(payloads, codec):
    text = "Message size 101 exceeds maximum allowed 100 for topic /default/orders"
    with pytest.raises(MessageTooLarge, match=text):
        verify(frame_of(payloads, codec=codec), 100, A_TOPIC)


@pytest.mark.parametrize("codec", list(Codec))
def test_large_batch_of_small_messages_is_accepted(codec):
    verify(frame_of([b"x" * 100] * 50, codec=codec), 100, A_TOPIC)
    verify(frame_of([b"x" * 100], codec=codec), 100, A_TOPIC)
    verify(frame_of([b"x" * 100_000], codec=codec), 0, A_TOPIC)


@pytest.mark.parametrize("size_max", [0, 10, 10_000])
def test_damaged_batch_is_detected_with_any_limit(size_max):
    for payloads in ([b"abcdefgh" * 4], [b"abcd", b"efgh" * 8]):
        frame = frame_of(payloads)
        frame.buffer[-9] ^= 1
        with pytest.raises(InvalidRequest, match="damaged"):
            verify(frame, size_max, A_TOPIC)


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_of_too_many_messages_is_refused_before_it_is_decoded(codec):
    verify(empty_messages(BATCH_MESSAGES_MAX, codec), 0, A_TOPIC)
    frame = empty_messages(BATCH_MESSAGES_MAX + 1, codec)
    # Other errors are not looked for.
    frame.buffer[-1] ^= 1
    with pytest.raises(InvalidRequest, match=r"65537 messages; at most 65536"):
        verify(frame, 0, A_TOPIC)


# In a broker.


@pytest.fixture
def limits():
    return {}


@pytest.fixture
async def topic(broker, policy, limits):
    topic = await broker.topics.create(A_TOPIC, policy)
    await broker.topics.configure(A_TOPIC, limits=NamespacePolicy(**limits))
    return topic


async def subscribed(broker, name, type_=SubscriptionType.SHARED):
    _, subscription = await broker.subscriptions.open(
        A_TOPIC, subscription_name(name), type_, Start.LATEST
    )
    return subscription


@using(limits={"max_message_size": 10})
async def test_batch_with_a_large_message_is_refused_whole(broker, topic):
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=None)

    def publish(*payloads):
        frame = frame_of(
            payloads,
            producer="p",
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=session.next_sequence,
        )
        topic.publish(session, frame, outcome := Outcome())
        return outcome

    with pytest.raises(MessageTooLarge):
        publish(b"a", bytes(11))
    assert await publish(b"a", bytes(10)).offset() == 0
    await broker.topics.configure(A_TOPIC, limits=NO_LIMITS)
    assert await publish(bytes(11)).offset() == 2


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
@using(limits={"max_publish_rate": 10})
async def test_publish_delay_is_positive_when_a_topic_is_published_to_too_fast(
    broker, topic
):
    now = asyncio.get_running_loop().time()
    assert topic.publish_delay_s(now) == 0.0
    topic.publish_unchecked(frame_of([b"x"] * 310), outcome := Outcome())
    assert await outcome.offset() == 0
    slow = topic.publish_delay_s(now)
    assert slow > 10.0
    await broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_publish_rate=1000)
    )
    assert 0.0 < topic.publish_delay_s(now) < slow / 10
    await broker.topics.configure(A_TOPIC, limits=NO_LIMITS)
    assert topic.publish_delay_s(now) == 0.0


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
@using(limits={"max_subscriptions_per_topic": 2})
async def test_subscription_limit_does_not_affect_existing_subscriptions(broker, topic):
    await subscribed(broker, "a")
    await subscribed(broker, "b")
    text = "Not allowed to create the subscription for the topic: /default/orders"
    with pytest.raises(QuotaExceeded, match=text):
        await subscribed(broker, "c")
    await subscribed(broker, "a")
    await broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_subscriptions_per_topic=1)
    )
    await subscribed(broker, "a")
    await subscribed(broker, "b")
    await broker.subscriptions.delete(A_TOPIC, subscription_name("a"))
    with pytest.raises(QuotaExceeded, match="Current: 1, Limit: 1"):
        await subscribed(broker, "c")


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
@using(limits={"max_consumers_per_topic": 3, "max_consumers_per_subscription": 2})
async def test_consumer_limits_of_topic_and_subscription(broker, topic):
    a, b = await subscribed(broker, "a"), await subscribed(broker, "b")
    one, _ = a.attach("one", Port()), a.attach("two", Port())
    with pytest.raises(QuotaExceeded, match="Consumer limit per subscription"):
        a.attach("three", Port())
    b.attach("one", Port())
    text = "Consumer limit per topic reached for /default/orders. Current: 3, Limit"
    with pytest.raises(QuotaExceeded, match=text):
        b.attach("two", Port())
    # A producer that registers again does not count twice.
    again = a.attach("one", Port())
    a.detach(one)
    assert a.consumer_count == 2
    a.detach(again)
    b.attach("two", Port())


async def test_limits_survive_a_restart(world):
    limits = NamespacePolicy(max_producers_per_topic=1)
    async with world.broker() as broker:
        await broker.topics.create(A_TOPIC, RELIABLE)
        await broker.topics.configure(A_TOPIC, limits=limits)
    async with world.broker() as broker:
        assert (await broker.topics.get(A_TOPIC)).limits == limits
        assert (await broker.catalog.get(A_TOPIC)).limits == limits


async def test_topic_without_limits_of_its_own_has_those_of_its_namespace(broker):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    few = NamespacePolicy(max_message_size=5)
    await broker.namespaces.configure(A_TOPIC.namespace, policy=few)
    assert (await broker.catalog.get(A_TOPIC)).limits is None
    await broker.topics.configure(A_TOPIC, limits=NO_LIMITS)
    assert topic.limits == NO_LIMITS
    assert (await broker.catalog.get(A_TOPIC)).limits == NO_LIMITS
    await broker.topics.configure(A_TOPIC, limits=None)
    assert topic.limits == few
    other = TopicName.parse("/default/other")
    assert (await broker.topics.create(other, NON_RELIABLE)).limits == few
