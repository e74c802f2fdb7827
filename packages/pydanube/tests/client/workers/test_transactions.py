"""A transaction publishes and acknowledges, all or nothing."""

import asyncio
from contextlib import suppress
from itertools import chain, count

import pytest

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube.client.workers.transactions import ACK_RANGES_MAX, GATHERED_BYTES_MAX
from pydanube.model.names import TopicName
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube.security.permissions import Permission
from pydanube_broker.cluster.pure.shard_topics import shard_of
from support.drivers.running import TOPIC, nothing_comes, published, received
from support.fakes.broker_clusters import SHARDS
from support.fakes.guarded_clusters import running
from support.fakes.served_clusters import ServedCluster

RESULTS = "/default/results"
ORDER = '{"type": "object"}'
SUBSCRIPTION = {"subscription": "s", "start": "earliest"}


@pytest.fixture
async def topics(client):
    await published(client, b"1", b"2", b"3", b"4")
    await client.topics.create(RESULTS)


async def payloads(client, topic=RESULTS):
    return [m.payload async for found in client.read(topic) for m in found]


async def cursor(client, topic=TOPIC):
    return (await client.subscriptions.describe(topic, "s")).cursor


async def receive(consumer, count):
    return [await consumer.receive(timeout_s=60) for _ in range(count)]


async def copy(client, messages, name="copy"):
    """Publish the results of *messages*, and acknowledge them."""
    async with client.transaction(name) as transaction:
        for message in messages:
            await transaction.send(RESULTS, b"result " + message.payload)
            await transaction.ack(message)


async def fail(client, batch):
    """Return a transaction that was aborted."""
    with suppress(ZeroDivisionError):
        async with client.transaction("copy") as transaction:
            await transaction.send_batch(RESULTS, batch.payloads)
            await transaction.ack(batch)
            1 / 0  # noqa: B018
    return transaction


@pytest.mark.usefixtures("topics")
async def test_results_and_acknowledgements_are_visible_together(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 3)
        async with client.transaction("copy") as transaction:
            for message in messages:
                await transaction.send(RESULTS, message.payload, key="k")
                await transaction.ack(message)
            assert await payloads(client) == []
            assert await cursor(client) == 0
        assert await payloads(client) == [b"1", b"2", b"3"]
        assert await cursor(client) == 3
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        assert await received(consumer, 1) == [b"4"]
    counters = client.counters()
    assert (counters.acked, counters.published) == (3, 4 + 3)


@pytest.mark.usefixtures("topics")
async def test_messages_have_keys_attributes_and_delivery_windows(client):
    async with client.transaction("copy") as transaction:
        await transaction.send(RESULTS, "text", key="k", attributes={"a": "b"})
        await transaction.send(RESULTS, b"later", deliver_after_s=1000)
        await transaction.send_batch(RESULTS, ["x", "y"], ttl_s=1000)
    found = [m async for batch in client.read(RESULTS) for m in batch]
    assert [m.payload for m in found] == [b"text", b"later", b"x", b"y"]
    assert (found[0].key, found[0].attributes) == ("k", {"a": "b"})
    assert found[1].deliver_at is not None
    assert found[2].expires_at is not None


@pytest.mark.usefixtures("topics")
async def test_body_that_raises_publishes_nothing_and_rejects_the_messages(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        batch = await consumer.receive_batch(max_messages=2, timeout_s=60)
        transaction = await fail(client, batch)
        with pytest.raises(pydanube.Closed, match="open another one"):
            await transaction.send(RESULTS, b"too late")
        again = await receive(consumer, 4)
        assert {(m.payload, m.attempt) for m in again} == {
            *((b"1", 2), (b"2", 2)),
            *((b"3", 1), (b"4", 1)),
        }
        assert client.counters().nacked == 2
        await copy(client, again)
    assert sorted(await payloads(client)) == [b"result %d" % n for n in (1, 2, 3, 4)]


@pytest.mark.usefixtures("topics")
async def test_cancelled_body_gives_the_messages_back(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        [message] = await receive(consumer, 1)
        acked = asyncio.Event()

        async def work():
            async with client.transaction("copy") as transaction:
                await transaction.ack(message)
                acked.set()
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work())
            await acked.wait()
            working.cancel()
        assert client.counters().nacked == 0
        again = await receive(consumer, 4)
        assert (b"1", 2) in {(m.payload, m.attempt) for m in again}


@pytest.mark.usefixtures("topics")
async def test_first_transaction_of_a_message_that_timed_out_wins(broker, client):
    async with (
        client.consumer(
            TOPIC, **SUBSCRIPTION, type="shared", ack_timeout_s=10
        ) as first,
        broker.connect() as other_client,
    ):
        messages = await receive(first, 4)
        async with other_client.consumer(
            TOPIC, **SUBSCRIPTION, type="shared"
        ) as second:
            broker.advance(11)
            again = await receive(second, 1)
            # Slow consumers could refuse each other for ever if the last one won.
            await copy(client, [m for m in messages if m.offset == again[0].offset])
            with pytest.raises(pydanube.MessageNotHeld, match="acknowledged already"):
                await copy(other_client, again, "other")
    assert await payloads(client) == [b"result " + again[0].payload]


@pytest.mark.usefixtures("topics")
async def test_transaction_may_acknowledge_messages_that_wait_for_redelivery(
    broker, client
):
    await client.subscriptions.configure(
        TOPIC,
        "s",
        failure_policy=pydanube.FailurePolicy(ack_timeout_s=10, redelivery_delay_s=100),
    )
    async with client.consumer(TOPIC, **SUBSCRIPTION, type="shared") as consumer:
        messages = await receive(consumer, 4)
        broker.advance(11)
        await copy(client, messages)
        assert await cursor(client) == 4
    assert len(await payloads(client)) == 4


@pytest.mark.usefixtures("topics")
async def test_two_deliveries_of_a_message_are_not_acknowledged_together(
    broker, client
):
    async with client.consumer(
        TOPIC, **SUBSCRIPTION, type="shared", ack_timeout_s=10
    ) as consumer:
        messages = await receive(consumer, 4)
        broker.advance(11)
        again = await receive(consumer, 4)
        with pytest.raises(pydanube.MessageNotHeld, match="two deliveries"):
            await copy(client, [*messages, *again])
        assert await payloads(client) == []
        last = await receive(consumer, 4)
        await copy(client, last)
    assert len(await payloads(client)) == 4


@pytest.mark.usefixtures("topics")
async def test_message_is_not_acknowledged_by_two_transactions(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 2)
        await copy(client, messages[:1])
        with pytest.raises(pydanube.MessageNotHeld, match="acknowledged already"):
            await copy(client, messages)
        assert await payloads(client) == [b"result 1"]
        again = await receive(consumer, 3)
        assert [m.payload for m in again if m.attempt > 1] == [b"2"]


@pytest.mark.usefixtures("topics")
async def test_consumer_that_was_opened_again_has_other_messages(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION, name="c") as consumer:
        messages = await receive(consumer, 1)
    async with client.consumer(TOPIC, **SUBSCRIPTION, name="c") as consumer:
        again = await receive(consumer, 1)
        with pytest.raises(pydanube.MessageNotHeld):
            await copy(client, messages)
        await copy(client, again)
    assert await payloads(client) == [b"result 1"]


@pytest.mark.usefixtures("topics")
async def test_subscription_that_was_created_again_has_other_messages(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 1)
        await client.subscriptions.delete(TOPIC, "s", force=True)
        with pytest.raises(pydanube.SubscriptionNotFound, match="was deleted"):
            await copy(client, messages)
        await client.subscriptions.create(TOPIC, "s", start="earliest")
        with pytest.raises(pydanube.MessageNotHeld):
            await copy(client, messages)
    assert await payloads(client) == []
    assert await cursor(client) == 0


@pytest.mark.usefixtures("topics")
async def test_newer_transaction_of_the_same_name_fences_the_older(client):
    older = client.transaction("copy")
    transaction = await older.__aenter__()
    await transaction.send(RESULTS, b"older")
    for name in ("copy", "other"):
        async with client.transaction(name) as newer:
            await newer.send(RESULTS, name.encode())
    with pytest.raises(pydanube.TransactionFenced, match="a name of its own"):
        await older.__aexit__(None, None, None)
    assert await payloads(client) == [b"copy", b"other"]
    facts = await client.staging("transaction:copy", 0).describe()
    assert facts.part_count == 0


@pytest.mark.usefixtures("topics")
async def test_refused_commit_leaves_no_part(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 1)
        await consumer.ack(messages)
        await consumer.flush()
        with pytest.raises(pydanube.MessageNotHeld):
            await copy(client, messages)
    facts = await client.staging("transaction:copy", 0).describe()
    assert (facts.part_count, facts.committed_version) == (0, None)


@pytest.mark.usefixtures("topics")
async def test_transaction_may_only_acknowledge_or_do_nothing(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 4)
        async with client.transaction("copy") as transaction:
            await transaction.ack(messages[1:])
            await transaction.ack(messages[1:])
        assert await cursor(client) == 0
        async with client.transaction("copy") as transaction:
            pass
        async with client.transaction("copy") as transaction:
            await transaction.ack(messages[0])
        assert await cursor(client) == 4


async def test_transaction_spans_partitions_and_subscriptions(client):
    await client.topics.create(TOPIC, partitions=3)
    await client.topics.create(RESULTS, partitions=2)
    await published(client, *(b"%d" % n for n in range(30)))
    await published(client, b"x", topic="/default/more")
    async with (
        client.consumer(TOPIC, **SUBSCRIPTION) as consumer,
        client.consumer("/default/more", **SUBSCRIPTION) as more,
    ):
        messages = await receive(consumer, 30)
        async with client.transaction("copy") as transaction:
            for message in messages:
                await transaction.send(RESULTS, message.payload, key=message.payload)
            await transaction.ack(messages)
            await transaction.ack(await more.receive_batch(timeout_s=60))
    assert await cursor(client, "/default/more") == 1
    for partition in await client.topics.partitions(TOPIC):
        facts = await client.subscriptions.describe(partition, "s")
        assert facts.backlog == 0
    found = [
        await payloads(client, each) for each in await client.topics.partitions(RESULTS)
    ]
    assert all(found)
    assert sorted(chain(*found)) == sorted(m.payload for m in messages)


@pytest.mark.usefixtures("topics")
async def test_many_messages_are_sent_before_the_commit(client):
    payload = bytes(GATHERED_BYTES_MAX // 3)
    async with client.transaction("copy") as transaction:
        for _ in range(5):
            await transaction.send(RESULTS, payload)
        facts = await client.staging("transaction:copy", 0).describe()
        assert facts.part_count == 1
    assert await payloads(client) == [payload] * 5


@pytest.mark.usefixtures("topics")
async def test_what_cannot_be_acknowledged_is_refused_at_once(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        [message] = await receive(consumer, 1)
        [read] = [m async for batch in client.read(TOPIC) for m in batch][:1]
        async with client.transaction("copy") as transaction:
            for each in (message.id, read):
                with pytest.raises(pydanube.InvalidRequest, match="no consumer has"):
                    await transaction.ack(each)
            await consumer.seek("earliest")
            with pytest.raises(pydanube.InvalidRequest, match="before a seek"):
                await transaction.ack(message)


async def test_ranges_of_a_transaction_are_bounded(client):
    await published(client, *[b""] * (2 * ACK_RANGES_MAX + 2))
    async with client.consumer(
        TOPIC, **SUBSCRIPTION, prefetch_messages=2 * ACK_RANGES_MAX + 2
    ) as consumer:
        messages = []
        while len(messages) < 2 * ACK_RANGES_MAX + 2:
            messages += await consumer.receive_batch(timeout_s=60)
        async with client.transaction("copy") as transaction:
            await transaction.ack(messages[: 2 * ACK_RANGES_MAX : 2])
            with pytest.raises(pydanube.InvalidRequest, match="smaller transactions"):
                await transaction.ack(messages[-1])
        facts = await client.subscriptions.describe(TOPIC, "s")
        assert facts.backlog == ACK_RANGES_MAX + 2


@pytest.mark.usefixtures("topics")
async def test_commit_is_repeated_when_its_answer_is_lost(broker, client):
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 2)
        committed = broker.server.broker.staging.commit

        async def lose_answer(*arguments, **options):
            result = await committed(*arguments, **options)
            if not result.is_repeat:
                raise pydanube.MetadataUnavailable("the answer is lost")
            return result

        broker.server.broker.staging.commit = lose_answer
        await copy(client, messages)
        assert await payloads(client) == [b"result 1", b"result 2"]
        assert await cursor(client) == 2


async def test_unknown_topic_aborts_the_transaction(client):
    with pytest.raises(pydanube.TopicNotFound):
        async with client.transaction("copy") as transaction:
            await transaction.send("/default/nowhere", b"x")


async def test_names_are_checked(client):
    with pytest.raises(pydanube.InvalidName, match="transaction"):
        client.transaction("a/b")


@pytest.mark.usefixtures("topics")
async def test_messages_of_a_held_commit_come_to_nobody(client):
    async with client.consumer(TOPIC, **SUBSCRIPTION, type="shared") as consumer:
        messages = await receive(consumer, 4)
        await copy(client, messages)
    async with client.consumer(TOPIC, **SUBSCRIPTION, type="shared") as consumer:
        assert await nothing_comes(consumer)


# In a cluster, the broker with the consumers commits; others may publish the results.


@pytest.fixture
async def cluster():
    async with ServedCluster().running("a", "b") as cluster:
        yield cluster


def topics_of(cluster, broker_id):
    """The names of topics that a broker serves."""
    for number in count():
        name = f"/default/t{number}"
        if shard_of(TopicName.parse(name), SHARDS) in cluster.cluster.served(broker_id):
            yield name


@pytest.fixture
async def flow(cluster):
    """A client, a topic of broker a with messages, and one of broker b for results."""
    source, target = next(topics_of(cluster, "a")), next(topics_of(cluster, "b"))
    async with pydanube.connect("danube://a,b") as client:
        await client.topics.create(source)
        await client.topics.create(target)
        async with client.producer(source) as producer:
            await producer.send_batch([b"1", b"2", b"3", b"4"])
        yield client, source, target


async def transact(client, target, messages, end=None):
    """Publish results, acknowledge *messages*, and await *end* in the transaction."""
    async with client.transaction("copy") as transaction:
        for message in messages:
            await transaction.send(target, b"result " + message.payload)
            await transaction.ack(message)
        if end is not None:
            await end


async def acknowledge(client, messages):
    async with client.transaction("copy") as transaction:
        await transaction.ack(messages)


async def test_transaction_publishes_at_another_broker(flow):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 3)
        await transact(client, target, messages)
        assert await payloads(client, target) == [b"result 1", b"result 2", b"result 3"]
        assert await cursor(client, source) == 3
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        assert await received(consumer, 1) == [b"4"]


async def test_transaction_without_results_or_without_acknowledgements(flow):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 2)
        await acknowledge(client, messages)
        assert await cursor(client, source) == 2
    async with client.transaction("copy") as transaction:
        await transaction.send(source, "5")
        await transaction.send(target, "5")
    assert await payloads(client, target) == [b"5"]
    async with client.transaction("copy"):
        pass


async def divide():
    1 / 0  # noqa: B018


async def test_failed_transaction_gives_messages_back(flow):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 1)
        with pytest.raises(ZeroDivisionError):
            await transact(client, target, messages, divide())
        assert {each.payload for each in await receive(consumer, 4)} >= {b"1"}
        assert await payloads(client, target) == []
        assert await cursor(client, source) == 0


async def test_newer_transaction_fences_at_every_broker(flow):
    client, source, target = flow

    async def begin_another():
        async with (
            pydanube.connect("danube://b") as other,
            other.transaction("copy") as newer,
        ):
            await newer.send(target, "new")

    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 1)
        with pytest.raises(pydanube.TransactionFenced, match="a newer transaction"):
            await transact(client, target, messages, begin_another())
    assert await payloads(client, target) == [b"new"]


async def test_messages_of_several_brokers_are_refused(flow):
    client, source, target = flow
    async with client.producer(target) as producer:
        await producer.send(b"other")
    async with (
        client.consumer(source, **SUBSCRIPTION) as consumer,
        client.consumer(target, **SUBSCRIPTION) as other,
    ):
        messages = [*await receive(consumer, 1), *await receive(other, 1)]
        with pytest.raises(pydanube.InvalidRequest, match="for each batch"):
            await acknowledge(client, messages)
        assert await cursor(client, source) == 0
        assert await cursor(client, target) == 0


async def test_messages_are_not_acknowledged_after_their_topic_has_moved(cluster, flow):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        messages = await receive(consumer, 2)
        with pytest.raises(pydanube.MessageNotHeld):
            await transact(client, target, messages, cluster.drain("a"))
        assert [each.payload for each in await receive(consumer, 4)] == [
            *(b"1", b"2", b"3", b"4")
        ]
    assert await payloads(client, target) == []


async def test_takeover_refuses_a_commit_that_is_being_decided(cluster, flow):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer, task_scope() as run:
        messages = await receive(consumer, 2)
        with cluster.cluster.remote.holding_part_reads() as held:
            transacting = run.start(transact(client, target, messages))
            await held.wait()
            cluster.lose("a")
            await cluster.cluster.settled("b")
        with pytest.raises(pydanube.MessageNotHeld):
            await transacting
        assert len(await receive(consumer, 4)) == 4
    assert await payloads(client, target) == []


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "drained"])
async def test_next_owner_has_decided_acknowledgements(cluster, flow, is_killed):
    client, source, target = flow
    remote = cluster.cluster.remote
    async with client.consumer(source, **SUBSCRIPTION) as consumer, task_scope() as run:
        messages = await receive(consumer, 2)
        remote.part_reads_left = 1
        with cluster.cluster.holding_commits("a"):
            transacting = run.start(transact(client, target, messages))
            broker = cluster.cluster.members["b"].broker
            while not broker.staging.pending_count:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if is_killed:
                cluster.kill("a")
                await cluster.cluster.settled("b")
            else:
                await cluster.drain("a")
        remote.part_reads_left = None
        await transacting
        assert [each.payload for each in await receive(consumer, 2)] == [b"3", b"4"]
        assert await nothing_comes(consumer)
    assert await payloads(client, target) == [b"result 1", b"result 2"]
    assert await cursor(client, source) == 2


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "not made"])
async def test_decision_of_unknown_outcome_counts_once(cluster, flow, is_made):
    client, source, target = flow
    async with client.consumer(source, **SUBSCRIPTION) as consumer:
        end = without_answer(cluster, is_made=is_made)
        while await cursor(client, source) < 4:
            messages = await receive(consumer, 1)
            # Messages that were given back are delivered again.
            with suppress(pydanube.MessageNotHeld):
                await transact(client, target, messages, end)
            end = None
    expected = [b"result %d" % number for number in range(1, 5)]
    assert sorted(await payloads(client, target)) == expected


async def without_answer(cluster, *, is_made):
    cluster.cluster.lose_answer("a", is_made=is_made)


async def test_transaction_ends_with_the_namespace_of_its_topics(cluster):
    results = [f"/shop/r{number}" for number in range(6)]
    async with pydanube.connect("danube://a") as client:
        await client.namespaces.create("shop")
        for name in results:
            await client.topics.create(name)
        await published(client, b"1")
        async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
            message = await consumer.receive(timeout_s=60)

            async def copy_while_the_namespace_is_deleted():
                async with client.transaction("copy") as transaction:
                    for name in results:
                        await transaction.send(name, message.payload)
                    await transaction.ack(message)
                    for name in results:
                        await client.topics.delete(name, force=True)
                    await client.namespaces.delete("shop")

            with pytest.raises(pydanube.TopicNotFound):
                await copy_while_the_namespace_is_deleted()
        assert await cursor(client) == 0
        # Another namespace of this name has nothing of it.
        await client.namespaces.create("shop")
        await client.topics.create(results[0])
        async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
            message = await consumer.receive(timeout_s=60)
            async with client.transaction("copy") as transaction:
                await transaction.send(results[0], b"again")
                await transaction.ack(message)
        assert await payloads(client, results[0]) == [b"again"]
        assert await cursor(client) == 1


# What an administrator changes while a transaction is open.


async def revoke(guarded, near, far):
    await guarded.let("shop", "/shop/*", Permission.CONSUME)


async def use_up(guarded, near, far):
    await guarded.use_up(far)


async def delete_tenant(guarded, near, far):
    for topic in (near, far):
        await guarded.root.topics.delete(topic, force=True)
    await guarded.root.namespaces.delete("shop")
    # One of the same name has nothing of it.
    await guarded.root.namespaces.create("shop")
    for topic in (near, far):
        await guarded.root.topics.create(topic)


async def require_schema(guarded, near, far):
    await guarded.root.schemas.register("orders", pydanube.Schema.json_schema(ORDER))
    schema = TopicSchema(subject="orders", policy=SchemaPolicy.ENFORCE)
    for topic in (near, far):
        await guarded.root.topics.configure(topic, schema=schema)


@pytest.mark.parametrize(
    ("change", "error", "is_written"),
    [
        (revoke, pydanube.PermissionDenied, False),
        (revoke, pydanube.PermissionDenied, True),
        (require_schema, pydanube.SchemaMismatch, False),
        (use_up, pydanube.QuotaExceeded, False),
        (use_up, pydanube.QuotaExceeded, True),
        (delete_tenant, pydanube.TopicNotFound, True),
    ],
)
async def test_change_of_an_administrator_refuses_all_of_an_open_transaction(
    change, error, is_written
):
    source = "/default/source"
    async with running({}) as guarded:
        await guarded.root.namespaces.create("shop")
        near = guarded.name_at("/shop/n", beside=source, is_same=True)
        far = guarded.name_at("/shop/f", beside=source, is_same=False)
        for topic in (source, near, far):
            await guarded.root.topics.create(topic)
        await published(guarded.root, b"1", b"2", topic=source)
        both = (Permission.CONSUME, Permission.PRODUCE)
        await guarded.let("source", "/default/*", *both)
        await guarded.let("shop", "/shop/*", *both)
        async with guarded.alice.consumer(source, **SUBSCRIPTION) as consumer:
            messages = await receive(consumer, 2)

            async def copy_while_it_changes():
                async with guarded.alice.transaction("copy") as transaction:
                    for message in messages:
                        for topic in (near, far):
                            if is_written:
                                await transaction.send_batch(topic, [message.payload])
                            else:
                                # It waits for more messages, or for the commit.
                                await transaction.send(topic, message.payload)
                        await transaction.ack(message)
                    await change(guarded, near, far)

            with pytest.raises(error):
                await copy_while_it_changes()
        assert await cursor(guarded.root, source) == 0
        assert await guarded.read(near) == await guarded.read(far) == []
        assert not guarded.served.cluster.remote.staged()


async def test_messages_of_a_transaction_are_validated_when_they_are_written(client):
    await published(client, b"1", b"2")
    await client.topics.create(RESULTS)
    await client.schemas.register("orders", pydanube.Schema.json_schema(ORDER))
    schema = TopicSchema(subject="orders", policy=SchemaPolicy.ENFORCE)
    async with client.consumer(TOPIC, **SUBSCRIPTION) as consumer:
        first, second = await receive(consumer, 2)
        async with client.transaction("copy") as transaction:
            await transaction.send_batch(RESULTS, [first.payload])
            await transaction.ack(first)
            await client.topics.configure(RESULTS, schema=schema)
        assert await payloads(client) == [b"1"]
        assert await cursor(client) == 1
        with pytest.raises(pydanube.SchemaMismatch):
            await copy(client, [second])
    assert await payloads(client) == [b"1"]
    assert await cursor(client) == 1


@pytest.mark.parametrize("is_written", [False, True])
async def test_full_disk_at_one_broker_refuses_all_of_a_transaction(is_written):
    source = "/default/source"
    async with running({}) as guarded:
        root = guarded.root
        near = guarded.name_at("/default/n", beside=source, is_same=True)
        far = guarded.name_at("/default/f", beside=source, is_same=False)
        for topic in (source, near, far):
            await root.topics.create(topic)
        await published(root, b"1", topic=source)
        owner = guarded.served.cluster.members[guarded.owner_of(far)].broker
        reserve = owner.storage.journal.reserve

        async def copy_to_both(message):
            async with impatient.transaction("copy") as transaction:
                for topic in (near, far):
                    if is_written:
                        await transaction.send_batch(topic, [message.payload])
                    else:
                        await transaction.send(topic, message.payload)
                await transaction.ack(message)

        async with (
            connected_for(1.0) as impatient,
            impatient.consumer(source, **SUBSCRIPTION) as consumer,
        ):
            message = await consumer.receive(timeout_s=60)
            # Only deletions and cursors may use the rest of the disk.
            reserve.is_released = True
            with pytest.raises(pydanube.DiskFull):
                await copy_to_both(message)
            assert await guarded.read(near) == await guarded.read(far) == []
            assert await cursor(root, source) == 0
            reserve.is_released = False
            await copy_to_both(await consumer.receive(timeout_s=60))
        assert await guarded.read(near) == await guarded.read(far) == [b"1"]
        assert await cursor(root, source) == 1


def connected_for(retry_s):
    """Connect as the administrator, and repeat what fails for so long."""
    options = {"token": "root", "allow_plaintext_credentials": True}
    return pydanube.connect("danube://a", retry_s=retry_s, **options)
