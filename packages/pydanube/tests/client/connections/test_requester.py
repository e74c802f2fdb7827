"""Clients of a cluster, which follow topics to the brokers that serve them."""

import asyncio
from collections import Counter

import pytest

import pydanube
from pydanube.model.errors import (
    Draining,
    MetadataUnavailable,
    NotOwner,
    SessionLost,
)
from pydanube.model.names import TopicName
from pydanube.wire.native.kinds import KIND_OF, Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.cluster.pure.shard_topics import shard_of
from support.drivers.running import TOPIC, received
from support.fakes.broker_clusters import SHARDS
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.served_clusters import ServedCluster
from support.fakes.storages import until

SHARD = shard_of(TopicName.parse(TOPIC), SHARDS)
PARTITIONS = 6
BOTH = "danube://a,b"
TURNS = 20


async def publish_until_told(producer, payloads, told):
    """Publish with awaits in between, and add what is acknowledged to *payloads*."""
    while not told.is_set():
        payload = b"%d" % len(payloads)
        await producer.send(payload)
        payloads.append(payload)


async def disturbed(client, cluster, disturb):
    """Publish and receive while *disturb* runs; compare all messages, in order."""
    payloads, told = [], asyncio.Event()
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish_until_told(producer, payloads, told))
            got = await received_and_acked(consumer, 3)
            await disturb()
            count = len(payloads)
            while len(payloads) < count + 3:
                got += await received_and_acked(consumer, 1)
            told.set()
        while len(set(got)) < len(payloads):
            got += await received_and_acked(consumer, 1)
    # What was acknowledged shortly before may be delivered again.
    assert list(dict.fromkeys(got)) == payloads
    batches = [batch async for batch in client.read(TOPIC)]
    assert [each for batch in batches for each in batch.payloads] == payloads


async def received_and_acked(consumer, count):
    got = []
    for _ in range(count):
        message = await consumer.receive(timeout_s=60)
        await consumer.ack(message)
        got.append(message.payload)
    return got


@pytest.mark.parametrize("url", ["danube://a", "danube://b"])
async def test_any_broker_leads_to_the_owner(cluster, url):
    async with pydanube.connect(url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")
        async with client.consumer(
            TOPIC, subscription="s", start="earliest"
        ) as consumer:
            assert await received(consumer, 1) == [b"x"]
        assert (await client.topics.describe(TOPIC)).end_offset == 1
    assert set(cluster.connects) == {url[-1], cluster.owner_of(SHARD)}
    # Channels and requests share a connection to each broker.
    assert len(cluster.connects) == len(set(cluster.connects))


async def test_partitions_have_different_owners(cluster):
    async with pydanube.connect("danube://a") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        sent = [b"%d" % each for each in range(60)]
        async with (
            client.producer(TOPIC) as producer,
            client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
        ):
            for payload in sent:
                await producer.send(payload, key=payload)
            assert sorted(await received(consumer, 60)) == sorted(sent)
        assert sorted(cluster.connects) == ["a", "b"]
        read = [batch async for batch in client.read(TOPIC)]
    assert sorted(each for batch in read for each in batch.payloads) == sorted(sent)


async def test_partitions_of_different_owners_are_deleted_together(cluster):
    async with pydanube.connect("danube://a") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        last = f"{TOPIC}-part-{PARTITIONS - 1}"
        async with client.producer(last):
            with pytest.raises(pydanube.SubscriptionInUse, match=last):
                await client.topics.delete(TOPIC)
        async with client.consumer(last, subscription="s"):
            with pytest.raises(pydanube.SubscriptionInUse, match=last):
                await client.topics.delete(TOPIC)
        await client.topics.hold(last, "lakehouse")
        with pytest.raises(pydanube.TopicHeld, match=f"{last} is held by lakehouse"):
            await client.topics.delete(TOPIC)
        await client.topics.release(last, "lakehouse")
        await client.topics.delete(TOPIC)
        assert await client.topics.list() == []
        with pytest.raises(pydanube.TopicNotFound):
            await client.topics.delete(TOPIC)


async def test_offsets_are_listed_by_the_owners_also_after_a_move(cluster):
    async with pydanube.connect("danube://a,b") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        names = await client.topics.partitions(TOPIC)
        async with client.producer(TOPIC) as producer:
            for number in range(60):
                await producer.send(b"m", key=b"%d" % number)
        before = await client.topics.list_offsets(names)
        assert list(before) == names
        assert sum(each.end_offset for each in before.values()) == 60
        await cluster.drain("a")
        assert await client.topics.list_offsets(names) == before


async def test_producer_and_consumer_follow_a_drained_broker(cluster):
    async with pydanube.connect(BOTH) as client:
        await disturbed(client, cluster, lambda: cluster.drain(cluster.owner_of(SHARD)))


async def test_producer_and_consumer_follow_when_the_owner_loses_its_session(cluster):
    async def lose():
        cluster.lose(cluster.owner_of(SHARD))

    async with pydanube.connect(BOTH) as client:
        await disturbed(client, cluster, lose)


async def test_producer_and_consumer_leave_a_broker_that_was_killed(cluster):
    async def kill():
        cluster.kill(cluster.owner_of(SHARD))

    async with pydanube.connect(BOTH) as client:
        await disturbed(client, cluster, kill)


async def test_topics_of_a_single_broker_are_not_looked_up():
    broker = ScriptedBroker()
    for kind in (Kind.CLOSE_PRODUCER, Kind.CLOSE_CONSUMER, Kind.DELETE_SUBSCRIPTION):
        broker.answers[kind] = lambda _: (Kind.OK, pb.Ok())
    async with (
        broker.connect() as client,
        client.producer(TOPIC),
        client.consumer(TOPIC, subscription="s"),
    ):
        await client.subscriptions.delete(TOPIC, "s")
    (connection,) = broker.connections
    assert Kind.OPEN_PRODUCER in connection.received
    assert Kind.LOOKUP not in connection.received


async def test_clients_wait_for_a_broker_to_take_the_topic_over(cluster):
    owner = cluster.owner_of(SHARD)
    async with (
        pydanube.connect(BOTH) as client,
        client.producer(TOPIC) as producer,
    ):
        await producer.send(b"a")
        cluster.cut_off(owner)
        # Its session goes on, so nobody else may serve the topic yet.
        sending = producer.send_nowait(b"b")
        describing = client.requester.tasks.start(client.topics.describe(TOPIC))
        await until(lambda: cluster.refusals > 3)
        assert not sending.done()
        cluster.lose(owner)
        assert (await sending).offset == 1
        assert (await describing).topic == TOPIC


async def published_and_cut_off(client, cluster, *payloads):
    """Publish, and cut off the owner, whose session goes on; return the owner."""
    async with client.producer(TOPIC) as producer:
        await producer.send_batch(payloads)
    owner = cluster.owner_of(SHARD)
    cluster.cut_off(owner)
    return owner


async def test_requests_that_must_not_be_repeated_wait_for_an_owner(cluster):
    async with pydanube.connect(BOTH) as client:
        owner = await published_and_cut_off(client, cluster, b"a", b"b", b"c")
        creating = client.requester.tasks.start(
            client.subscriptions.create(TOPIC, "s", start="earliest")
        )
        await until(lambda: cluster.refusals > 2)
        cluster.lose(owner)
        await creating
        await client.subscriptions.skip(TOPIC, "s", 1)
        assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 1


async def test_reader_follows_a_topic(cluster):
    async with pydanube.connect(BOTH) as client, client.producer(TOPIC) as producer:
        await producer.send_batch([b"a", b"b"])
        batches = client.read(TOPIC, follow=True)
        assert (await anext(batches)).payloads == [b"a", b"b"]
        # The reader waits for more at the first owner.
        coming = client.requester.tasks.start(anext(batches))
        await asyncio.sleep(0)
        cluster.kill(cluster.owner_of(SHARD))
        await producer.send(b"c")
        assert (await coming).payloads == [b"c"]
        await batches.aclose()


async def test_topics_are_looked_up_at_another_broker_if_one_has_no_session(cluster):
    async with pydanube.connect(BOTH) as client:
        assert cluster.connects == ["a"]
        cluster.lose("a")
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")
        assert cluster.connects == ["a", "b"]


async def test_requests_without_an_owner_leave_a_broker_that_stops(cluster):
    async with pydanube.connect(BOTH, retry_s=60) as client:
        assert cluster.connects == ["a"]
        cluster.cluster.members["a"].broker.topics.drain()
        # Neither of them may be repeated after another error.
        await client.topics.create(TOPIC, partitions=2)
        assert cluster.connects == ["a", "b"]
        await client.namespaces.create("other")
        assert len(await client.topics.partitions(TOPIC)) == 2
        assert cluster.connects == ["a", "b"]


@pytest.mark.parametrize(
    "error", [SessionLost("s"), Draining("s"), NotOwner("s"), MetadataUnavailable("s")]
)
async def test_after_an_error_of_one_broker_another_one_is_asked(cluster, error):
    async with pydanube.connect(BOTH) as client:
        client.requester.on_error("", "danube://a", error)
        await client.topics.list()
        assert cluster.connects == ["a", "b"]


async def test_topics_are_looked_up_at_another_broker_if_one_is_silent(cluster):
    async with pydanube.connect(BOTH, connect_timeout_s=0.5) as client:
        await client.topics.create(TOPIC)
        cluster.silence("a")
        if cluster.owner_of(SHARD) == "a":
            cluster.lose("a")
        assert (await client.topics.describe(TOPIC)).topic == TOPIC
        # On a busy machine, the other one is asked again; the silent one is not.
        assert cluster.connects[0] == "a"
        assert set(cluster.connects[1:]) == {"b"}
        # The client need not wait for the silent one.
        cluster.cut_off("a")


async def test_a_producer_leaves_a_silent_broker_that_is_replaced(cluster):
    async with pydanube.connect(BOTH) as client:
        await client.topics.create(TOPIC)
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")
            owner = cluster.owner_of(SHARD)
            connection = await client.requester.connection(TOPIC)
            cluster.silence(owner)
            connection._write_buffer._transport.pause_reading()
            # It answers nothing, but nobody else serves the topic yet.
            sending = client.requester.tasks.start(producer.send(b"y"))
            for _ in range(5):
                await check(client, connection)
            assert not connection.is_lost
            cluster.lose(owner)
            other = "b" if owner == "a" else "a"
            await until(lambda: SHARD in cluster.cluster.served(other))
            for _ in range(5):
                await check(client, connection)
            with pytest.raises(pydanube.ConnectionLost, match="is silent, and the one"):
                await connection.request(pb.Ping())
            await sending
        cluster.cut_off(owner)
        [batch] = [batch async for batch in client.read(TOPIC, start=1)]
        assert list(batch.payloads) == [b"y"]


async def check(client, connection):
    """Let a second pass for *connection*, and wait for what follows from it."""
    if not connection.is_lost:
        # It is scheduled again.
        connection._next_check.cancel()
        connection._check_alive()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    await until(lambda: not client.requester._examined)


async def test_requests_without_an_owner_leave_a_silent_broker():
    async with (
        ServedCluster().running("a", "b", "c") as cluster,
        pydanube.connect("danube://a,b,c", connect_timeout_s=0.5) as client,
    ):
        await client.topics.create(TOPIC, partitions=2)
        cluster.silence("a")
        assert len(await client.topics.partitions(TOPIC)) == 2
        cluster.silence("b")
        assert len(await client.topics.list()) == 2
        # Each request goes to the broker that answered last.
        assert cluster.connects == ["a", "b", "c"]
        for each in "ab":
            cluster.cut_off(each)


async def test_requests_at_silent_brokers_end_after_the_retry_time(cluster):
    async with pydanube.connect(BOTH, connect_timeout_s=0.2, retry_s=0.1) as client:
        for each in "ab":
            cluster.silence(each)
        with pytest.raises(
            pydanube.ConnectionLost, match=r"danube://a has not answered for 0\.2 s"
        ):
            await client.topics.list()
        for each in "ab":
            cluster.cut_off(each)


async def test_unknown_topic_is_not_found(cluster):
    async with pydanube.connect(BOTH) as client:
        with pytest.raises(pydanube.TopicNotFound):
            await client.topics.describe(TOPIC)
        with pytest.raises(pydanube.TopicNotFound):
            await client.topics.add_partitions(TOPIC, 2)
        with pytest.raises(pydanube.TopicNotFound):
            await client.topics.delete(TOPIC)


async def test_deleted_topic_that_is_created_again_is_served(cluster):
    async with pydanube.connect(BOTH) as client:
        for payload in (b"a", b"b"):
            async with client.producer(TOPIC) as producer:
                await producer.send(payload)
            batches = [batch.payloads async for batch in client.read(TOPIC)]
            assert batches == [[payload]]
            await client.topics.delete(TOPIC)


async def test_requests_find_a_topic_that_has_moved(cluster):
    async with pydanube.connect(BOTH) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"a", b"b"])
        await client.subscriptions.create(TOPIC, "s", start="earliest")
        first = cluster.owner_of(SHARD)
        await cluster.drain(first)
        await client.subscriptions.skip(TOPIC, "s", 1)
        await cluster.activate(first)
        await cluster.drain(cluster.owner_of(SHARD))
        assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 1


async def publish_at_lost_broker(client, topic, cluster, broker_id):
    async with client.producer(topic) as producer:
        cluster.cut_off(broker_id)
        producer.send_nowait(b"x")


async def test_a_topic_that_cannot_be_closed_does_not_disturb_other_brokers(cluster):
    async with pydanube.connect(BOTH, close_timeout_s=0.1) as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        names = [f"{TOPIC}-part-{number}" for number in range(PARTITIONS)]
        by_owner = {
            cluster.owner_of(shard_of(TopicName.parse(each), SHARDS)): each
            for each in names
        }
        (first, lost), (_, kept) = by_owner.items()
        async with client.producer(kept) as producer:
            await producer.send(b"a")
            with pytest.raises(pydanube.TimedOut, match="did not acknowledge"):
                await publish_at_lost_broker(client, lost, cluster, first)
            await producer.send(b"b")
            assert client.counters().reconnects == 0
        assert sorted(cluster.connects) == ["a", "b"]


async def test_offsets_and_segments_of_all_partitions_take_one_request_per_broker(
    cluster,
):
    async with pydanube.connect("danube://a,b") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        names = await client.topics.partitions(TOPIC)
    async with pydanube.connect("danube://a,b") as client:
        request_at, kinds = client.requester.request_at, []

        async def counted(connection, message, **options):
            kinds.append(KIND_OF[type(message)])
            return await request_at(connection, message, **options)

        client.requester.request_at = counted
        assert list(await client.topics.list_offsets(names)) == names
        assert (
            list(await client.storage.list_segments(dict.fromkeys(names, (0, 0))))
            == names
        )
    assert kinds == [Kind.LIST_OFFSETS] * 2 + [Kind.FIND_SEGMENTS] * 2


async def test_every_broker_says_who_serves_a_topic(cluster):
    async with pydanube.connect("danube://a") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        names = await client.topics.partitions(TOPIC)
        places = await client.topics.places()
        assert list(places) == names
        assert {each.broker_id for each in places.values()} == {"a", "b"}
        for name in names:
            described = await client.topics.describe(name)
            shard = shard_of(TopicName.parse(name), SHARDS)
            assert places[name].shard == described.shard == shard
            assert places[name].broker_id == described.broker_id
            assert described.broker_id == cluster.owner_of(shard)
        found = await client.cluster.describe(counts_topics=True)
        counts = Counter(each.broker_id for each in places.values())
        assert {each.broker_id: each.topic_count for each in found.brokers} == counts
    async with pydanube.connect("danube://b") as client:
        assert await client.topics.places("default") == places
