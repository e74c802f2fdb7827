from dataclasses import dataclass

import pyarrow as pa
import pytest

import pydanube
from pydanube.model.deduplication import DEDUPLICATION_ID
from support.drivers.running import TOPIC


@dataclass
class Order:
    """A value."""

    number: int


async def payloads_of(client, topic=TOPIC):
    return [p async for batch in client.read(topic) for p in batch.payloads]


@pytest.fixture
async def topic(client):
    """Create a topic that deduplicates."""
    await client.topics.create(TOPIC, deduplication=pydanube.Deduplication(age_s=600))
    return TOPIC


async def test_message_with_a_known_id_is_not_stored_again(client, topic):
    async with client.producer(topic) as producer:
        first = await producer.send(b"paid", id="order-17", key="k")
        again = await producer.send(b"paid", id="order-17", key="k")
        other = await producer.send(b"paid", id="order-18", key="k")
    async with client.producer(topic) as producer:
        assert await producer.send(b"paid", id="order-18") == other
    assert first == again == (topic, 0)
    messages = [each async for batch in client.read(topic) for each in batch]
    assert [each.attributes for each in messages] == [
        {DEDUPLICATION_ID: "order-17"},
        {DEDUPLICATION_ID: "order-18"},
    ]


async def test_messages_sent_without_waiting_may_have_ids(client, topic):
    async with client.producer(topic) as producer:
        ids = ["a", "b", None, "a", "c", "b", None]
        pending = [producer.send_nowait(str(n), id=id_) for n, id_ in enumerate(ids)]
        found = [(await each).offset for each in pending]
    assert found == [0, 1, 2, 0, 3, 1, 4]
    assert await payloads_of(client) == [b"0", b"1", b"2", b"4", b"6"]


async def test_batch_returns_the_id_of_each_message(client, topic):
    async with client.producer(topic) as producer:
        await producer.send_batch([b"a", b"b"], ids=["a", "b"])
        table = pa.table({"payload": ["x", "b", "y"], "key": ["1", "2", "3"]})
        found = await producer.send_batch(table, ids=["x", "b", "y"])
        assert list(found.offsets) == [2, 1, 3]
        same = await producer.send_batch([b"a", b"b"], ids=["a", "b"])
        assert list(same.offsets) == [0, 1]
        with pytest.raises(pydanube.InvalidRequest, match="1 ids for 2 messages"):
            await producer.send_batch([b"a", b"b"], ids=["a"])
    assert await payloads_of(client) == [b"a", b"b", b"x", b"y"]


async def test_ids_keep_the_attributes_of_messages(client, topic):
    attributes = pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string()))
    table = pa.table({"payload": ["x", "y"], "attributes": attributes})
    async with client.producer(topic) as producer:
        await producer.send_batch(table, ids=["x", "y"])
    [batch] = [batch async for batch in client.read(topic)]
    assert [m.attributes for m in batch] == [
        {"a": "1", DEDUPLICATION_ID: "x"},
        {DEDUPLICATION_ID: "y"},
    ]


async def test_keys_and_attributes_are_given_for_each_payload(client, topic):
    async with client.producer(topic) as producer:
        await producer.send_batch(
            ["x", "y"], keys=["k", None], attributes=[None, {"a": "1"}], ids=["x", "y"]
        )
    [batch] = [batch async for batch in client.read(topic)]
    assert [(m.payload, m.key, m.attributes) for m in batch] == [
        (b"x", "k", {DEDUPLICATION_ID: "x"}),
        (b"y", None, {"a": "1", DEDUPLICATION_ID: "y"}),
    ]


async def test_compressed_batches_are_deduplicated(client, topic):
    async with client.producer(topic, compression="zstd") as producer:
        await producer.send_batch([b"a", b"b"], ids=["a", "b"])
        found = await producer.send_batch([b"b", b"c"], ids=["b", "c"])
    assert list(found.offsets) == [1, 2]
    assert await payloads_of(client) == [b"a", b"b", b"c"]


async def test_ids_need_no_configuration(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"x")
        first = [await producer.send(b"y", id="a"), await producer.send(b"z", id="b")]
        again = await producer.send_batch([b"y", b"z", b"w"], ids=["a", "b", "c"])
    assert [each.offset for each in first] == [1, 2]
    assert list(again.offsets) == [1, 2, 3]
    assert await payloads_of(client) == [b"x", b"y", b"z", b"w"]
    # The topic has no setting that nobody has made.
    assert (await client.topics.describe(TOPIC)).policy.deduplication is None


async def test_ids_need_no_configuration_in_partitions(client):
    await client.topics.create(TOPIC, partitions=3)
    ids = [f"order-{n}" for n in range(9)]
    async with client.producer(TOPIC) as producer:
        first = await producer.send_batch([b"x"] * 9, ids=ids)
        assert [await producer.send(b"x", id=each) for each in ids] == list(first)


async def test_tenants_with_the_same_topic_and_ids_do_not_meet(client):
    topics = ["/shop/orders", "/bank/orders"]
    for topic in topics:
        await client.namespaces.create(topic.split("/")[1])
        await client.topics.create(topic)
    for topic in topics:
        async with client.producer(topic) as producer:
            first = await producer.send(topic, id="order-1")
            assert await producer.send("again", id="order-1") == first == (topic, 0)
    # What one tenant deletes is forgotten for it alone.
    await client.topics.delete(topics[0])
    await client.topics.create(topics[0])
    for topic in topics:
        async with client.producer(topic) as producer:
            await producer.send("later", id="order-1")
    assert await payloads_of(client, topics[0]) == [b"later"]
    assert await payloads_of(client, topics[1]) == [b"/bank/orders"]


async def test_default_window_ends_after_two_minutes(broker, client):
    async with client.producer(TOPIC) as producer:
        first = await producer.send(b"x", id="a")
        broker.advance(119)
        assert await producer.send(b"x", id="a") == first
        broker.advance(2)
        assert (await producer.send(b"x", id="a")).offset == 1


async def test_attributes_that_are_passed_on_are_no_ids(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"x", id="a")
        for _ in range(2):
            await producer.send(b"x", attributes={DEDUPLICATION_ID: "a"})
    assert await payloads_of(client) == [b"x"] * 3


async def test_a_configured_window_replaces_the_default_and_may_end(broker, client):
    async with client.producer(TOPIC) as producer:
        first = await producer.send(b"x", id="a")
        long = pydanube.Deduplication(age_s=600)
        await client.topics.configure(TOPIC, deduplication=long)
        broker.advance(300)
        assert await producer.send(b"x", id="a") == first
        await client.topics.configure(TOPIC, deduplication=None)
        assert (await producer.send(b"x", id="a")).offset == 1
        assert (await producer.send(b"x", id="a")).offset == 1
    assert (await client.topics.describe(TOPIC)).policy.deduplication is None


async def test_non_reliable_topics_refuse_ids(client):
    await client.topics.create(TOPIC, reliable=False)
    async with client.producer(TOPIC, reliable=False) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="is not reliable"):
            await producer.send(b"x", id="a")


@pytest.mark.parametrize("id_", ["", "x" * 257, 17])
async def test_malformed_ids_are_refused(client, topic, id_):
    async with client.producer(topic) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="the id of a message"):
            await producer.send(b"x", id=id_)


async def test_non_reliable_topic_cannot_deduplicate(client):
    with pytest.raises(pydanube.InvalidRequest, match="cannot deduplicate"):
        await client.topics.create(
            TOPIC, reliable=False, deduplication=pydanube.Deduplication(age_s=600)
        )


async def test_same_ids_meet_in_one_partition(client):
    await client.topics.create(
        TOPIC, partitions=4, deduplication=pydanube.Deduplication(age_s=600)
    )
    ids = [f"order-{n}" for n in range(20)]
    async with client.producer(TOPIC) as producer:
        first = await producer.send_batch([b"x"] * 20, ids=ids)
        again = [await producer.send(b"x", id=each) for each in ids]
        keyed = pa.table({"payload": ["x"] * 20, "key": ["k", None] * 10})
        await producer.send_batch(keyed, ids=ids)
        producer.send_nowait(b"x", id="order-0", key="k")
    assert list(first) == again
    assert len({each.topic for each in again}) > 1
    # Messages with the key go to its partition, whatever their id.
    described = [
        await client.topics.describe(each)
        for each in await client.topics.partitions(TOPIC)
    ]
    assert 20 < sum(each.message_count for each in described) <= 30


async def test_values_may_have_ids(client, topic):
    async with client.producer(topic, schema=Order) as producer:
        await producer.send(Order(1), id="a")
        await producer.send_nowait(Order(1), id="a")
        await producer.send_batch([Order(1), Order(2)], ids=["a", "b"])
    assert len(await payloads_of(client)) == 2
