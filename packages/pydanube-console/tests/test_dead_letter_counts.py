"""Dead letters are counted until somebody has handled them."""

import pydanube
from pydanube_console.pure.dead_letter_counts import (
    count_dead_letters,
    dead_letter_topics,
)
from support.worlds.current import memory_broker

TOPIC, DEAD = "/default/t", "/default/t-dead"


async def test_handled_dead_letters_are_not_counted():
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC)
        await client.topics.create("/default/other")
        await client.subscriptions.create(TOPIC, "s", type="shared", start="earliest")
        policy = pydanube.FailurePolicy(
            redeliveries_max=0,
            poison=pydanube.PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=DEAD,
        )
        await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
        described = [await client.topics.describe(TOPIC)]
        assert dead_letter_topics(described) == {DEAD}
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"a", b"b", b"c"])
        async with client.consumer(TOPIC, subscription="s", type="shared") as consumer:
            for _ in range(3):
                (await consumer.receive(timeout_s=30)).nack(reason="too old")
            while (letters := await found(client)) < 3:
                pass
        assert letters == 3
        handler = client.dead_letters(TOPIC, "s")
        first, *_ = [each async for each in handler.messages()]
        await handler.drop([first])
        assert await found(client) == 2


async def found(client):
    if DEAD not in await client.topics.list():
        return 0
    return count_dead_letters([await client.topics.describe(DEAD)])[DEAD]
