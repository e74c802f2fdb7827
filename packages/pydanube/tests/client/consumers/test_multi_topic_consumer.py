"""A consumer of several topics gets the messages of all that are selected."""

import pytest

import pydanube
from pydanube.client.connections import channel
from support.drivers.running import nothing_comes, published, received, using

A, B, C = "/default/eu-a", "/default/eu-b", "/default/us-c"
EARLIEST = {"subscription": "s", "start": "earliest"}


@pytest.fixture
async def topics(client):
    """Three topics, one of them with partitions, with a message each."""
    await published(client, b"a", topic=A)
    await client.topics.create(B, partitions=2)
    await published(client, b"b", topic=f"{B}-part-1")
    await published(client, b"c", topic=C)


async def backlogs(client, *names):
    found = [await client.subscriptions.describe(name, "s") for name in names]
    return [each.backlog for each in found]


@pytest.mark.usefixtures("topics")
async def test_named_topics_are_consumed_and_acknowledged_each(client):
    async with client.consumer([A, C], **EARLIEST) as consumer:
        assert isinstance(consumer, pydanube.MultiTopicConsumer)
        assert consumer.topics == [A, C]
        messages = [await consumer.receive(timeout_s=60) for _ in range(2)]
        assert {m.topic: m.payload for m in messages} == {A: b"a", C: b"c"}
        await consumer.ack(messages[0])
        messages[1].ack()
        stranger = pydanube.MessageId(B, 0)
        with pytest.raises(pydanube.InvalidRequest, match="not a topic of it"):
            await consumer.ack(stranger)
    assert await backlogs(client, A, C) == [0, 0]


@pytest.mark.usefixtures("topics")
async def test_pattern_selects_topics_and_their_partitions(client):
    async with client.consumer("/default/eu-*", **EARLIEST) as consumer:
        assert consumer.topics == [A, f"{B}-part-0", f"{B}-part-1"]
        assert sorted(await received(consumer, 2)) == [b"a", b"b"]
        assert await nothing_comes(consumer)


async def test_topic_that_is_created_later_is_consumed_from_its_beginning(
    client, monkeypatch
):
    monkeypatch.setattr(channel, "PARTITIONS_LOOKUP_INTERVAL_S", 0.01)
    async with client.consumer("/default/eu-*", subscription="s") as consumer:
        assert consumer.topics == []
        await published(client, b"a", topic=A)
        await published(client, b"c", topic=C)
        message = await consumer.receive(timeout_s=60)
        assert (message.topic, message.payload) == (A, b"a")
        await consumer.ack(message)
        await client.topics.create(B, partitions=2)
        await published(client, b"b", topic=f"{B}-part-1")
        message = await consumer.receive(timeout_s=60)
        assert (message.topic, message.payload) == (f"{B}-part-1", b"b")


@pytest.mark.usefixtures("topics")
async def test_topic_of_a_pattern_leaves_when_it_is_deleted(client):
    async with client.consumer("/default/*", **EARLIEST) as consumer:
        messages = [await consumer.receive(timeout_s=60) for _ in range(3)]
        await client.topics.delete(A, force=True)
        await published(client, b"c2", topic=C)
        assert await received(consumer, 1) == [b"c2"]
        assert A not in consumer.topics
        # There is nothing left to acknowledge in the topic that was deleted.
        for message in messages:
            message.ack()
        await consumer.ack(messages)
        await consumer.flush()
        await published(client, b"again", topic=A)
        await consumer._discover_partitions()
        assert await received(consumer, 1) == [b"again"]
        [stale] = [each for each in messages if each.topic == A]
        with pytest.raises(pydanube.InvalidRequest, match="deletion of the topic"):
            await consumer.ack(stale)
    assert await backlogs(client, A, C) == [1, 1]


async def test_named_topics_that_are_missing_are_created(client):
    async with client.consumer([A, C, "/default/x-*"], **EARLIEST) as consumer:
        assert sorted(await client.topics.list()) == [A, C]
        await published(client, b"c", topic=C)
        assert await received(consumer, 1) == [b"c"]


@using(broker_options={"auto_create_topics": False})
async def test_named_topics_must_exist_if_the_broker_creates_none(client):
    await client.topics.create(A)
    with pytest.raises(pydanube.TopicNotFound):
        async with client.consumer([A, C], subscription="s"):
            pass
    assert await client.topics.list() == [A]


@pytest.mark.usefixtures("topics")
async def test_deletion_of_a_named_topic_fails_the_consumer(client):
    async with client.consumer([A, "/default/us-*"], subscription="s") as consumer:
        await client.topics.delete(A, force=True)
        with pytest.raises(pydanube.TopicNotFound):
            await consumer.receive(timeout_s=60)


@pytest.mark.usefixtures("topics")
async def test_topic_that_cannot_be_consumed_does_not_keep_others_waiting(client):
    async with client.consumer("/default/eu-*", **EARLIEST) as consumer:
        await received(consumer, 2)
        await published(client, b"1", topic="/default/eu-1")
        await published(client, b"2", topic="/default/eu-2")
        async with client.consumer("/default/eu-1", **EARLIEST):
            with pytest.raises(pydanube.ConsumerBusy):
                await consumer._discover_partitions()
            assert await received(consumer, 1) == [b"2"]
        await consumer._discover_partitions()
        assert await received(consumer, 1) == [b"1"]


async def test_topics_share_the_credit(client):
    names = [f"/default/n-{n}" for n in range(4)]
    for name in names:
        await published(client, *[b"m"] * 100, topic=name)
    options = EARLIEST | {"prefetch_messages": 40}
    async with client.consumer("/default/n-*", **options) as consumer:
        await consumer.receive(timeout_s=60)
        facts = [await client.subscriptions.describe(name, "s") for name in names]
        # The credit, and the batch that is being handed out.
        assert sum(each.in_flight for each in facts) <= 40 + 10
        assert len(await received(consumer, 399)) == 399


@pytest.mark.parametrize(
    ("topic", "start", "error"),
    [
        ([A, "/default/none-part-0"], "latest", pydanube.TopicNotFound),
        ("/none/*", "latest", pydanube.NamespaceNotFound),
        ([A], 5, pydanube.InvalidRequest),
        ([A, 7], "latest", pydanube.InvalidRequest),
    ],
)
@pytest.mark.usefixtures("topics")
async def test_selection_that_cannot_be_consumed_is_refused(
    client, topic, start, error
):
    with pytest.raises(error):
        async with client.consumer(topic, subscription="s", start=start):
            pass
