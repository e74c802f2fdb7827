import pytest

import pydanube
from pydanube.model.names import TopicName
from support.drivers.running import (
    TOPIC,
    nothing_comes,
    published,
)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_message_acknowledges_itself_with_or_without_await(client, partitions):
    await client.topics.create(TOPIC, partitions=partitions)
    await published(client, b"0", b"1", b"2")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        first, second, third = [await consumer.receive() for _ in range(3)]
        first.ack()
        await second.ack()
        await third.nack(reason="not now")
        again = await consumer.receive()
        assert (again.id, again.attempt) == (third.id, 2)
        again.ack()
        await consumer.flush()
    async with client.consumer(TOPIC, subscription="s") as consumer:
        assert await nothing_comes(consumer)


async def test_a_rejected_message_keeps_its_delay_and_its_reason(client):
    await client.topics.create(TOPIC)
    await client.topics.create("/default/dead")
    policy = pydanube.FailurePolicy(
        redeliveries_max=0,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    await published(client, b"0")
    async with (
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
        client.consumer("/default/dead", subscription="d", start="earliest") as dead,
    ):
        message = await consumer.receive()
        with pytest.raises(pydanube.InvalidRequest, match="delay_s is -1"):
            message.nack(delay_s=-1)
        message.nack(reason="no such customer")
        assert "no such customer" in (await dead.receive()).attributes.values()


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_a_message_extends_its_ack_timeout(broker, client, kind):
    await published(client, b"0", b"1", b"2")
    options = {"subscription": "s", "start": "earliest", "ack_timeout_s": 600}
    async with client.consumer(TOPIC, type=kind, **options) as consumer:
        batch = await consumer.receive_batch()
        assert len(batch) == 3
        batch[0].ack()
        batch[0].extend()
        await batch[1].extend(7200)
        batch[2:][0].extend(3600)
        await batch.extend(1800)
        # The broker processes frames in order.
        await consumer.flush()
        [subscription] = broker.broker.topics.opened[
            TopicName.parse(TOPIC)
        ].subscriptions.values()
        deadlines_s = deadlines_of(subscription)
        assert deadlines_s == pytest.approx([3600, 7200], abs=300)


def deadlines_of(subscription):
    """Return the times until each message in flight times out, in order."""
    machine, now = subscription._machine, subscription._clock()
    found = []
    while (deadline := machine.next_deadline()) is not None:
        found.append(deadline - now)
        machine.in_flight.withdraw_due(deadline)
    return found


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_released_messages_go_to_another_consumer(client, kind):
    await published(client, b"0", b"1", b"2")
    options = {"subscription": "s", "start": "earliest", "type": kind}
    async with client.consumer(TOPIC, **options) as one:
        batch = await one.receive_batch()
        batch[0].ack()
        async with client.consumer(TOPIC, priority=-1, **options) as other:
            one._release_nowait(batch)
            again = await other.receive_batch()
            assert [(m.offset, m.attempt) for m in again] == [(1, 2), (2, 2)]
            await other.ack(again)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.backlog, facts.counts.nacked, facts.counts.timed_out) == (0, 0, 0)


async def test_an_invalid_extension_is_refused(client):
    await published(client, b"0")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        message = await consumer.receive()
        for timeout_s in (0, -1, float("inf")):
            with pytest.raises(pydanube.InvalidRequest, match="more than 0"):
                message.extend(timeout_s)
        with pytest.raises(pydanube.InvalidRequest, match="must be a number"):
            message.extend("soon")


async def test_a_message_without_a_live_consumer_cannot_be_acknowledged(client):
    await published(client, b"0")
    [batch] = [batch async for batch in client.read(TOPIC)]
    with pytest.raises(
        pydanube.InvalidRequest, match="was read without a subscription"
    ):
        batch[0].ack()
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        before = await consumer.receive()
        await consumer.seek("earliest")
        with pytest.raises(pydanube.InvalidRequest, match="before a seek"):
            before.nack()
        message = await consumer.receive()
    with pytest.raises(pydanube.Closed):
        message.ack()


async def test_key_that_is_not_utf_8_becomes_surrogates(client):
    async with client.producer(TOPIC) as producer:
        for key in (b"\xff", "\u00fc", None):
            await producer.send(b"m", key=key)
    keys = [
        (message.key, message.key_bytes)
        async for batch in client.read(TOPIC)
        for message in batch
    ]
    assert keys == [("\udcff", b"\xff"), ("\u00fc", b"\xc3\xbc"), (None, None)]


async def test_columns_of_several_deliveries_are_joined_in_their_order(client):
    await client.topics.create(TOPIC)
    async with client.producer(TOPIC) as producer:
        await producer.send_batch([b"0", b"1"])
        await producer.send_batch([b"2", b"3"])
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        messages = [await consumer.receive() for _ in range(4)]
        batch = pydanube.MessageBatch.of(TOPIC, [messages[at] for at in (0, 2, 3, 1)])
        assert list(batch.offsets) == [0, 2, 3, 1]
        # Each list is the caller's own.
        batch.payloads.clear()
        pydanube.MessageBatch.of(TOPIC, messages[2:]).payloads.clear()
        assert batch.payloads == [b"0", b"2", b"3", b"1"]
        assert messages[1].payload == b"1"
