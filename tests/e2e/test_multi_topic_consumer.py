"""A consumer of a pattern follows its topics through a kill of the broker."""

import pytest

import pydanube
from support.drivers.running import published
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(120)]

TOPICS = [f"/default/orders-{n}" for n in range(3)]


@pytest.mark.soak
async def test_topics_before_and_after_a_kill_are_consumed_completely(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        async with (
            pydanube.connect(broker.url) as client,
            client.consumer("/default/orders-*", subscription="s") as consumer,
        ):
            seen = set()

            async def take(count):
                while len(seen) < count:
                    message = await consumer.receive(timeout_s=60)
                    seen.add(message.id)
                    await consumer.ack(message)

            await published(client, b"1", b"2", topic=TOPICS[0])
            await published(client, b"1", topic=TOPICS[1])
            await take(3)
            await consumer.flush()
            broker.kill()
            broker.start()
            await published(client, b"2", topic=TOPICS[1])
            await published(client, b"1", topic=TOPICS[2])
            await take(5)
            await consumer.flush()
            for name, end in zip(TOPICS, (2, 2, 1), strict=True):
                facts = await client.subscriptions.describe(name, "s")
                assert (facts.cursor, facts.backlog) == (end, 0)
