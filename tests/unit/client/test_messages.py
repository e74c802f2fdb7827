import pytest

import pydanube
from support.running import (
    TOPIC,
    nothing_comes,
    published,
)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_message_acknowledges_itself_with_or_without_await(client, partitions):
    await client.create_topic(TOPIC, partitions=partitions)
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
    await client.create_topic(TOPIC)
    await client.create_topic("/default/dead")
    policy = pydanube.FailurePolicy(
        redeliveries_max=0,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    await client.set_failure_policy(TOPIC, "s", policy)
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
