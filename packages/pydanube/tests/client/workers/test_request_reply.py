"""Requests get the replies that belong to them, in time or not at all."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest

import pydanube
from pydanube.client.workers import request_reply
from pydanube.model.request_reply import (
    CORRELATION_ID,
    REPLY_TO,
    REPLY_TOPIC_PREFIX,
)
from support.drivers.running import TOPIC, published

SHARED = {"subscription": "r", "type": "shared"}


@asynccontextmanager
async def replier(client, handle):
    """Handle every request on the topic while the body runs."""

    async def reply_to_all(consumer):
        async for message in consumer:
            await handle(message)
            await message.ack()

    async with (
        client.consumer(TOPIC, **SHARED) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        task = tasks.create_task(reply_to_all(consumer))
        yield
        task.cancel()


async def shout(message):
    attributes = {"by": "me"}
    await message.reply(message.payload.upper(), attributes=attributes)


async def reply_topics(client):
    found = await client.topics.list("system")
    return [name for name in found if name.startswith(REPLY_TOPIC_PREFIX)]


@pytest.fixture(autouse=True)
async def topic(client):
    await client.topics.create(TOPIC)


async def test_reply_belongs_to_its_request(broker, client):
    async with (
        replier(client, shout),
        broker.connect() as other,
        asyncio.TaskGroup() as tasks,
    ):
        asked = {
            (n, each): tasks.create_task(each.request(TOPIC, f"a{n}", timeout_s=60))
            for n in range(50)
            for each in (client, other)
        }
        for (n, _), reply in asked.items():
            assert (await reply).payload == f"A{n}".encode()
            assert (await reply).attributes["by"] == "me"


async def test_replies_of_partitions_and_with_keys_arrive(client):
    name = "/default/parts"
    await client.topics.create(name, partitions=3)
    async with client.consumer(name, **SHARED) as consumer, asyncio.TaskGroup() as run:
        asked = run.create_task(
            client.request(name, b"q", key="k", attributes={"n": "1"}, timeout_s=60)
        )
        message = await consumer.receive(timeout_s=60)
        assert (message.key, message.attributes["n"]) == ("k", "1")
        await consumer.reply(message, b"yes")
        assert (await asked).payload == b"yes"


async def test_reply_topic_is_created_once_and_deleted_when_the_client_closes(
    broker, client
):
    async with broker.connect() as other, replier(client, shout):
        assert await reply_topics(client) == []
        await other.request(TOPIC, b"1", timeout_s=60)
        await other.request(TOPIC, b"2", timeout_s=60)
        [name] = await reply_topics(client)
        assert len(name) == len(REPLY_TOPIC_PREFIX) + 32
        facts = await client.topics.describe(name)
        assert not facts.policy.is_reliable
    assert await reply_topics(client) == []


async def test_error_of_the_replier_is_raised(client):
    async def refuse(message):
        await message.reply(b"", error="no such book" + "!" * 2000)

    async with replier(client, refuse):
        with pytest.raises(pydanube.RequestFailed, match="no such book!") as caught:
            await client.request(TOPIC, b"q", timeout_s=60)
    assert len(str(caught.value)) == 1024


async def test_request_without_a_reply_times_out(client):
    with pytest.raises(pydanube.TimedOut, match="check that a consumer"):
        await client.request(TOPIC, b"q", timeout_s=0.01)


async def test_late_and_second_replies_are_dropped(client):
    async with (
        client.consumer(TOPIC, **SHARED) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        cancelled = tasks.create_task(client.request(TOPIC, b"q", timeout_s=60))
        late = await consumer.receive(timeout_s=60)
        cancelled.cancel()
        asked = tasks.create_task(client.request(TOPIC, b"next", timeout_s=60))
        message = await consumer.receive(timeout_s=60)
        await late.reply(b"late")
        await message.reply(b"first")
        await message.reply(b"second")
        assert (await asked).payload == b"first"


async def test_reply_to_a_client_that_has_gone_is_dropped(broker, client):
    async with client.consumer(TOPIC, **SHARED) as consumer:
        async with broker.connect() as other, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(other.request(TOPIC, b"q", timeout_s=60))
            message = await consumer.receive(timeout_s=60)
            asked.cancel()
        await message.reply(b"too late")
        # It does not bring the topic back.
        assert await reply_topics(client) == []


async def test_request_on_a_missing_topic_is_refused_and_creates_none(client):
    with pytest.raises(pydanube.TopicNotFound):
        await client.request("/default/none", b"q")
    assert "/default/none" not in await client.topics.list("default")
    await client.topics.create("/default/none")
    with pytest.raises(pydanube.TimedOut):
        await client.request("/default/none", b"q", timeout_s=0.01)


async def test_message_that_is_no_request_has_no_reply(client):
    async with client.consumer(TOPIC, subscription="s") as consumer:
        await published(client, b"plain")
        message = await consumer.receive(timeout_s=60)
        with pytest.raises(pydanube.InvalidRequest, match="is not a request"):
            await message.reply(b"r")
        async with client.producer(TOPIC) as producer:
            foreign = {REPLY_TO: "/default/orders", CORRELATION_ID: "1"}
            await producer.send(b"trick", attributes=foreign)
        message = await consumer.receive(timeout_s=60)
        with pytest.raises(pydanube.InvalidRequest, match="reply topics begin"):
            await message.reply(b"r")


async def test_requests_in_flight_are_bounded(client):
    requests = request_reply.RequestReply(
        client.requester, client._value_decoding(None), requests_max=2
    )
    options = {"key": None, "attributes": None}
    async with (
        aclosing(requests),
        client.consumer(TOPIC, **SHARED) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        asked = [
            tasks.create_task(requests.request(TOPIC, str(n), 60, **options))
            for n in range(3)
        ]
        held = [await consumer.receive(timeout_s=60) for _ in range(2)]
        with pytest.raises(pydanube.TimedOut):
            await consumer.receive(timeout_s=0.05)
        await held[0].reply(b"0")
        await (await consumer.receive(timeout_s=60)).reply(b"2")
        await held[1].reply(b"1")
        assert [(await each).payload for each in asked] == [b"0", b"1", b"2"]


async def test_unused_producers_are_closed_beyond_a_number(client):
    cache = request_reply.ProducerCache(client.requester, producers_max=1)
    names = [f"/default/t{n}" for n in range(2)]
    for name in names:
        await client.topics.create(name)
    async with cache.producer(names[0]) as used:
        async with cache.producer(names[1]):
            pass
        await used.send(b"m")
    async with cache.producer(names[1]) as producer:
        await producer.send(b"m")
    # It waits until no other producer has the topic.
    async with client.producer(names[0], access="exclusive_wait"):
        assert len((await client.topics.describe(names[1])).producers) == 1


async def test_reply_topic_that_was_deleted_is_created_again(client):
    async def fail():
        with pytest.raises(pydanube.TopicNotFound):
            await client.request(TOPIC, b"q", timeout_s=60)

    async with (
        client.consumer(TOPIC, **SHARED) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(fail())
        await (await consumer.receive(timeout_s=60)).ack()
        [name] = await reply_topics(client)
        await client.topics.delete(name, force=True)
    async with replier(client, shout):
        reply = await client.request(TOPIC, b"again", timeout_s=60)
        assert reply.payload == b"AGAIN"


async def test_requests_work_after_the_connection_broke(broker, client):
    async with replier(client, shout):
        await client.request(TOPIC, b"q", timeout_s=60)
        broker.disconnect_all()
        for _ in range(20):
            # The reply may come before the client consumes its reply topic again.
            try:
                reply = await client.request(TOPIC, b"again", timeout_s=1)
                break
            except pydanube.TimedOut:
                continue
        assert reply.payload == b"AGAIN"


async def test_closing_the_client_ends_waiting_requests(broker):
    async def fail(client):
        with pytest.raises(pydanube.Closed):
            await client.request(TOPIC, b"q", timeout_s=60)

    async with broker.connect() as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(fail(client))
        async with client.consumer(TOPIC, **SHARED) as consumer:
            await consumer.receive(timeout_s=60)
        await client.aclose()
