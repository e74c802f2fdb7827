import asyncio
from itertools import chain

import pytest

import pydanube
from pydanube.model.policy import FailurePolicy, TopicPolicy
from support.drivers.running import (
    TOPIC,
    nothing_comes,
    published,
    received,
    using,
)
from support.fakes.corrupt_objects import seal_and_damage
from support.fakes.readers import a_while

AT_ONCE = FailurePolicy(redelivery_delay_s=0.0)
"""A failure policy without delays."""


def numbers(count, base=0):
    return [str(n).encode() for n in range(base, base + count)]


async def test_messages_are_iterated_in_order_and_acknowledged_one_by_one(client):
    await published(client, *numbers(100))
    got = []
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        async for message in c:
            got.append((message.offset, message.payload))
            await c.ack(message)
            if len(got) == 100:
                break
    assert got == list(enumerate(numbers(100)))
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.backlog, facts.done) == (100, 0, ())


async def test_ways_to_receive_may_be_mixed(client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        found = []
        async for message in consumer:
            found.append(message.payload)
            found.append((await consumer.receive()).payload)
            found += (await consumer.receive_batch(max_messages=2)).payloads
            if len(found) == 8:
                break
        found += await received(consumer, 2)
    assert found == numbers(10)


async def test_new_subscription_begins_at_latest_by_default(client):
    await published(client, b"before")
    async with client.consumer(TOPIC, subscription="s") as consumer:
        await published(client, b"after")
        assert await received(consumer, 1) == [b"after"]


async def test_batch_is_acknowledged_as_a_whole(client):
    await published(client, *numbers(50))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(max_messages=30, timeout_s=60)
        assert (len(batch), batch.offsets) == (30, range(30))
        assert batch.to_arrow().column("offset").to_pylist() == list(range(30))
        await c.ack(batch)
    assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 30


async def test_unacknowledged_messages_are_redelivered_to_the_next_consumer(client):
    await published(client, *numbers(5))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        messages = [await c.receive(timeout_s=60) for _ in range(5)]
        await c.ack(messages[1])
        await c.ack(messages[3])
    async with client.consumer(TOPIC, subscription="s") as c:
        again = [await c.receive(timeout_s=60) for _ in range(3)]
        assert [m.payload for m in again] == [b"0", b"2", b"4"]
        assert [m.attempt for m in again] == [2, 2, 2]


async def test_cumulative_ack_covers_all_before_it(client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        messages = [await c.receive(timeout_s=60) for _ in range(7)]
        await c.ack_cumulative(messages[-1])
    assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 7


async def test_nacked_message_is_redelivered(client):
    await published(client, b"a", b"b")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        first = await c.receive(timeout_s=60)
        await c.nack(first)
        rest = [await c.receive(timeout_s=60) for _ in range(2)]
        assert sorted((m.payload, m.attempt) for m in rest) == [
            (b"a", 2),
            (b"b", 1),
        ]


async def test_message_is_redelivered_after_the_ack_timeout(client):
    await published(client, b"a")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(
        TOPIC, subscription="s", start="earliest", ack_timeout_s=0.05
    ) as consumer:
        assert (await consumer.receive(timeout_s=60)).attempt == 1
        assert (await consumer.receive(timeout_s=60)).attempt == 2


async def test_exclusive_subscription_refuses_a_second_consumer(client):
    await published(client, b"a")
    async with client.consumer(TOPIC, subscription="s", name="one"):
        with pytest.raises(pydanube.ConsumerBusy):
            async with client.consumer(TOPIC, subscription="s", name="two"):
                pass


async def test_newer_consumer_of_the_same_name_replaces_the_older(broker, client):
    async with broker.connect() as two:
        await published(client, b"a")
        options = {"subscription": "s", "start": "earliest", "name": "me"}
        async with client.consumer(TOPIC, **options) as older:
            assert await received(older, 1) == [b"a"]
            async with two.consumer(TOPIC, **options) as newer:
                assert await received(newer, 1) == [b"a"]
                with pytest.raises(pydanube.ConsumerReplaced):
                    await older.receive(timeout_s=60)


async def test_standby_is_promoted_when_the_active_consumer_leaves(client):
    await published(client, b"a", b"b")
    options = {"subscription": "s", "type": "failover", "start": "earliest"}
    async with (
        client.consumer(TOPIC, **options, name="active") as active,
        client.consumer(TOPIC, **options, name="standby") as standby,
    ):
        assert await received(active, 2) == [b"a", b"b"]
        assert await nothing_comes(standby)
        assert not standby.is_active
        await active.aclose()
        assert await received(standby, 2) == [b"a", b"b"]
        assert standby.is_active


async def test_replaced_active_consumer_stays_active(broker, client):
    options = {"subscription": "s", "type": "failover", "start": "earliest"}
    async with broker.connect() as two:
        await published(client, b"a")
        async with (
            client.consumer(TOPIC, **options, name="first"),
            client.consumer(TOPIC, **options, name="second") as second,
            two.consumer(TOPIC, **options, name="first") as again,
        ):
            assert await received(again, 1) == [b"a"]
            assert await nothing_comes(second)


async def test_shared_subscription_divides_messages_about_equally(client):
    await published(client, b"made")
    options = {"subscription": "s", "type": "shared"}
    async with (
        client.consumer(TOPIC, **options) as one,
        client.consumer(TOPIC, **options) as two,
        client.consumer(TOPIC, **options) as three,
    ):
        await published(client, *numbers(36))
        got = [await received(each, 12) for each in (one, two, three)]
    assert sorted(chain.from_iterable(got)) == sorted(numbers(36))


async def test_messages_of_a_lost_shared_consumer_go_to_the_others(broker, client):
    async with broker.connect() as two:
        await published(client, *numbers(10))
        options = {"subscription": "s", "type": "shared", "start": "earliest"}
        async with two.consumer(TOPIC, **options) as stays:
            async with client.consumer(TOPIC, **options) as leaves:
                await leaves.receive_batch(timeout_s=0.05)
            assert sorted(await received(stays, 10)) == sorted(numbers(10))


async def test_consumer_continues_after_a_broken_connection(broker, client):
    await published(client, *numbers(50))
    got = []
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        # Acknowledgements in flight may be lost; then the broker delivers
        # their messages again.
        while (await client.subscriptions.describe(TOPIC, "s")).backlog:
            message = await consumer.receive(timeout_s=60)
            got.append(message.payload)
            await consumer.ack(message)
            if len(got) in (10, 20, 30):
                broker.disconnect_all()
            elif message.offset == 49:
                await consumer.flush()
    assert sorted(set(got)) == sorted(numbers(50))


async def test_seek_moves_the_subscription(client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        assert await received(c, 10) == numbers(10)
        await c.seek(7)
        assert await received(c, 3) == numbers(3, 7)
        await c.seek("earliest")
        assert await received(c, 10) == numbers(10)
        await c.seek("latest")
        assert await nothing_comes(c)
        with pytest.raises(pydanube.InvalidRequest, match="beyond"):
            await c.seek(11)


async def test_subscription_keeps_its_type(client):
    await published(client, b"a")
    async with client.consumer(TOPIC, subscription="s", type="shared"):
        with pytest.raises(pydanube.InvalidRequest, match="is shared"):
            async with client.consumer(TOPIC, subscription="s", type="failover"):
                pass


async def test_prefetch_limits_deliveries(client):
    await published(client, *numbers(20))
    async with client.consumer(
        TOPIC, subscription="s", start="earliest", prefetch_messages=3
    ) as consumer:
        await consumer.receive(timeout_s=60)
        facts = await client.subscriptions.describe(TOPIC, "s")
        assert facts.in_flight <= 6
        assert await received(consumer, 19) == numbers(19, 1)


async def test_first_consumer_creates_its_topic(client):
    async with client.consumer(TOPIC, subscription="s") as consumer:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"m")
        assert (await consumer.receive(timeout_s=60)).payload == b"m"
    assert (await client.topics.describe(TOPIC)).policy == TopicPolicy()


@using(broker_options={"auto_create_topics": False})
async def test_topic_must_exist_if_the_broker_creates_none(client):
    with pytest.raises(pydanube.TopicNotFound):
        async with client.consumer(TOPIC, subscription="s"):
            pass
    assert await client.topics.list() == []


async def test_missing_partition_is_not_created_by_a_consumer(client):
    await client.topics.create(TOPIC, partitions=2)
    for name in (f"{TOPIC}-part-7", "/default/none-part-0"):
        with pytest.raises(pydanube.TopicNotFound):
            async with client.consumer(name, subscription="s"):
                pass
    assert len(await client.topics.list()) == 2


async def test_deleted_topic_is_not_created_again_by_its_consumer(client):
    await client.topics.create(TOPIC)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        await client.topics.delete(TOPIC, force=True)
        with pytest.raises(pydanube.TopicNotFound):
            await consumer.receive(timeout_s=60)
    assert await client.topics.list() == []


async def test_non_reliable_topic_delivers_to_connected_consumers(client):
    await client.topics.create(TOPIC, reliable=False)
    async with client.producer(TOPIC) as producer:
        await producer.send(b"nobody is here")
        async with (
            client.consumer(TOPIC, subscription="a") as one,
            client.consumer(TOPIC, subscription="b") as two,
        ):
            await producer.send(b"x")
            assert await received(one, 1) == [b"x"]
            assert await received(two, 1) == [b"x"]


async def test_only_slow_consumers_of_a_non_reliable_topic_lose_messages(client):
    await client.topics.create(TOPIC, reliable=False)
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="slow", prefetch_messages=5) as slow,
        client.consumer(TOPIC, subscription="fast") as fast,
    ):
        for n in range(20):
            await producer.send(str(n))
        assert await received(fast, 20) == numbers(20)
        assert await received(slow, 5) == numbers(5)
        assert await nothing_comes(slow)
    assert (await client.topics.describe(TOPIC)).dropped == 15


async def test_closing_ends_the_iteration(client):
    await published(client, b"a")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        received = 0
        async for _ in c:
            received += 1
            await c.aclose()
        assert received == 1


async def test_closing_flushes_acknowledgements(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        await c.ack(await c.receive_batch(timeout_s=60))
        await c.flush()
        assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 3


async def test_acknowledgements_lost_with_a_connection_are_sent_again(broker, client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        batch = await consumer.receive_batch(timeout_s=60)
        await consumer.ack(batch)
        broker.disconnect_all()
        await consumer.flush()
        facts = await client.subscriptions.describe(TOPIC, "s")
        assert facts.cursor == 10


@pytest.mark.slow
async def test_nack_may_delay_redelivery(client):
    await published(client, b"m")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        message = await consumer.receive(timeout_s=60)
        await consumer.nack(message, delay_s=0.3, reason="not now")
        assert await nothing_comes(consumer)
        again = await consumer.receive(timeout_s=60)
        assert (again.attempt, again.redeliveries) == (2, 1)


@pytest.mark.parametrize("delay_s", [-1, float("nan"), float("inf")])
async def test_nack_with_an_invalid_delay_is_refused(client, delay_s):
    await published(client, b"m")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        message = await c.receive(timeout_s=60)
        with pytest.raises(pydanube.InvalidRequest):
            await c.nack(message, delay_s=delay_s)


KEY_SHARED = {"subscription": "s", "type": "key_shared", "start": "earliest"}


async def keyed(client, count, keys):
    """Publish numbers; number n has key n modulo *keys*."""
    async with client.producer(TOPIC) as producer:
        for n in range(count):
            producer.send_nowait(str(n), key=f"key-{n % keys}")
        await producer.flush()


async def test_all_messages_of_a_key_go_to_one_consumer_in_their_order(client):
    await client.topics.create(TOPIC)
    found = {}
    async with (
        client.consumer(TOPIC, **KEY_SHARED, name="one") as one,
        client.consumer(TOPIC, **KEY_SHARED, name="two") as two,
    ):
        await keyed(client, 1000, keys=50)
        left = 1000
        while left:
            for consumer in (one, two):
                batch = await consumer.receive_batch(timeout_s=0.05)
                left -= len(batch)
                for message in batch:
                    owner, numbers = found.setdefault(message.key, (consumer.name, []))
                    assert owner == consumer.name
                    numbers.append(int(message.payload))
                await consumer.ack(batch)
    assert {owner for owner, _ in found.values()} == {"one", "two"}
    for _, numbers in found.values():
        assert numbers == sorted(numbers)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.backlog) == (1000, 0)


async def test_messages_with_gaps_are_acknowledged_individually(client):
    await client.topics.create(TOPIC)
    async with (
        client.consumer(TOPIC, **KEY_SHARED, name="one") as one,
        client.consumer(TOPIC, **KEY_SHARED, name="two") as two,
    ):
        await keyed(client, 100, keys=10)
        batch = await one.receive_batch(timeout_s=60)
        assert list(batch.offsets) == [int(payload) for payload in batch.payloads]
        assert batch.to_arrow().column("offset").to_pylist() == list(batch.offsets)
        await one.ack(batch[0])
        await one.ack(batch[1:])
        await one.flush()
        facts = await client.subscriptions.describe(TOPIC, "s")
        assert facts.backlog == 100 - len(batch)
        await two.receive_batch(timeout_s=60)


async def test_parts_of_messages_with_gaps_are_acknowledged_and_no_others(client):
    await client.topics.create(TOPIC)
    async with (
        client.consumer(TOPIC, **KEY_SHARED, name="one") as one,
        client.consumer(TOPIC, **KEY_SHARED, name="two") as two,
    ):
        await keyed(client, 1000, keys=50)
        acknowledged, seen, parts = set(), set(), 0
        while len(seen) < 1000:
            for consumer in (one, two):
                batch = await consumer.receive_batch(max_messages=40, timeout_s=0.05)
                seen |= {*batch.offsets}
                parts += 1
                if parts % 3:
                    await consumer.ack(batch)
                    acknowledged |= {*batch.offsets}
        await one.flush()
        await two.flush()
        facts = await client.subscriptions.describe(TOPIC, "s")
    done = {*range(facts.cursor)}
    for base, end in facts.done:
        done |= {*range(base, end)}
    assert done == acknowledged


async def test_parts_with_gaps_of_partitions_are_acknowledged_and_no_others(client):
    await client.topics.create(TOPIC, partitions=2)
    async with (
        client.consumer(TOPIC, **KEY_SHARED, name="one") as one,
        client.consumer(TOPIC, **KEY_SHARED, name="two") as two,
    ):
        await keyed(client, 1000, keys=50)
        acknowledged, seen, parts, received = {}, 0, 0, set()
        while seen < 1000:
            for consumer in (one, two):
                batch = await consumer.receive_batch(max_messages=40, timeout_s=0.05)
                seen += len(batch)
                parts += 1
                received |= {part.bits_of(*span) for part, *span in batch.slices}
                if parts % 3:
                    await consumer.ack(batch)
                    for message in batch:
                        done = acknowledged.setdefault(message.topic, set())
                        done.add(message.offset)
        assert received > {None}, "some parts have gaps"
        await one.flush()
        await two.flush()
        assert len(acknowledged) == 2
        for topic, offsets in acknowledged.items():
            facts = await client.subscriptions.describe(topic, "s")
            done = {*range(facts.cursor)}
            for base, end in facts.done:
                done |= {*range(base, end)}
            assert done == offsets


async def test_key_shared_consumers_with_the_smallest_prefetch_get_all_messages(client):
    await keyed(client, 40, keys=7)
    async with (
        client.consumer(TOPIC, **KEY_SHARED, prefetch_messages=1) as one,
        client.consumer(TOPIC, **KEY_SHARED, prefetch_messages=1) as two,
    ):
        seen = set()
        while len(seen) < 40:
            for consumer in (one, two):
                batch = await consumer.receive_batch(timeout_s=0.005)
                assert len(batch) <= 1
                seen |= set(batch.payloads)
                await consumer.ack(batch)


async def test_consumer_names_determine_their_keys(client):
    keys = ["alpha", "beta", "gamma", "delta", "epsilon"]

    async def division(client, number):
        topic, owners = f"{TOPIC}-{number}", {}
        await client.topics.create(topic)
        sharing = {"subscription": "s", "type": "key_shared"}

        async def take(consumer):
            async for message in consumer:
                owners[message.key] = consumer.name[:3]
                if len(owners) == len(keys):
                    return

        async with (
            client.consumer(topic, **sharing, name=f"one-{number}") as one,
            client.consumer(topic, **sharing, name=f"two-{number}") as two,
            client.producer(topic) as producer,
            asyncio.TaskGroup() as group,
        ):
            taking = [group.create_task(take(each)) for each in (one, two)]
            for key in keys:
                await producer.send(b"m", key=key)
            await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)
            for task in taking:
                task.cancel()
        return tuple(map(owners.get, keys))

    # Consumer numbers are the same in all partitions, so they must not matter.
    assert len({await division(client, number) for number in range(6)}) > 3


async def test_consumer_gets_only_keys_that_match_its_filters(client):
    await keyed(client, 100, keys=20)
    async with client.consumer(
        TOPIC, **KEY_SHARED, key_filters=["key-1?", "nothing"]
    ) as consumer:
        payloads = await received(consumer, 50)
        assert {int(payload) % 20 for payload in payloads} == set(range(10, 20))
        assert await nothing_comes(consumer)
    for filters in ("key-*", ["a"]):
        with pytest.raises(pydanube.InvalidRequest, match="key"):
            client.consumer(TOPIC, subscription="t", key_filters=filters)


async def test_consumers_with_a_lower_priority_number_are_served_first(client):
    options = {"subscription": "s", "type": "shared", "start": "earliest"}
    await published(client, b"0")
    async with (
        client.consumer(TOPIC, **options, priority=1, prefetch_messages=5) as second,
        client.consumer(TOPIC, **options, priority=-1, prefetch_messages=5) as first,
    ):
        await second.ack(await second.receive(timeout_s=60))
        await published(client, *numbers(7))
        assert await received(first, 5) == numbers(7)[:5]
        assert len(await received(second, 1)) == 1


async def test_new_subscription_may_begin_at_an_offset(client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start=8) as consumer:
        assert await received(consumer, 2) == [b"8", b"9"]


async def test_seek_that_fails_changes_nothing(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        await c.ack(await c.receive(timeout_s=60))
        with pytest.raises(pydanube.InvalidRequest):
            await c.seek(7)
        assert await received(c, 2) == [b"1", b"2"]
    assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 1


async def test_messages_acknowledged_before_a_seek_are_delivered_again_after_it(
    broker, client
):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        await c.ack(await c.receive_batch(timeout_s=60))
        await c.seek("earliest")
        # The new connection must not send the acknowledgements again.
        for connection in list(broker.server.connections):
            connection.abort()
        assert await received(c, 3) == numbers(3)


async def test_a_seek_waits_until_the_consumer_is_connected_again(broker, client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        await c.ack(await c.receive_batch(timeout_s=60))
        await c.flush()
        for connection in list(broker.server.connections):
            connection.abort()
        while c.is_connected:
            await a_while()
        await c.seek(1)
        assert await received(c, 2) == numbers(3)[1:]


# Acknowledging messages of other sources.


async def answers_of(consumer, messages, message):
    """Return the results of all ways to ack and nack *messages*."""
    for answer in (
        lambda: consumer.ack(messages),
        lambda: consumer.nack(messages),
        lambda: consumer.ack_cumulative(message),
    ):
        with pytest.raises(pydanube.InvalidRequest) as refused:
            await answer()
        yield str(refused.value)


async def cursor_of(client, topic=TOPIC, subscription="s"):
    return (await client.subscriptions.describe(topic, subscription)).cursor


async def test_ack_or_nack_of_a_message_of_another_topic_is_refused(client):
    other = "/default/other"
    await published(client, *numbers(2))
    await published(client, *numbers(2), topic=other)
    async with (
        client.consumer(TOPIC, subscription="s", start="earliest") as mine,
        client.consumer(other, subscription="t", start="earliest") as theirs,
    ):
        own = await mine.receive(timeout_s=60)
        batch = await theirs.receive_batch(max_messages=2, timeout_s=60)
        for foreign in (batch, batch[0], [own, batch[0]], iter([own, batch[0]])):
            if foreign is not batch:
                with pytest.raises(pydanube.InvalidRequest):
                    await mine.ack(foreign)
                continue
            async for said in answers_of(mine, foreign, batch[0]):
                assert f"topic {TOPIC}, subscription s" in said
                assert f"topic {other}, subscription t" in said
        with pytest.raises(pydanube.InvalidRequest, match=other):
            await mine.ack(batch[0].id)
    assert await cursor_of(client) == 0


async def test_ack_or_nack_of_a_message_of_another_subscription_is_refused(client):
    await published(client, *numbers(2))
    async with (
        client.consumer(TOPIC, subscription="s", start="earliest") as mine,
        client.consumer(TOPIC, subscription="t", start="earliest") as theirs,
    ):
        message = await theirs.receive(timeout_s=60)
        async for said in answers_of(mine, [message], message):
            assert "subscription s" in said
            assert "subscription t" in said
    assert await cursor_of(client) == 0


async def test_consumers_of_a_subscription_may_ack_for_each_other(client):
    await published(client, *numbers(2))
    sharing = {"subscription": "s", "type": "shared", "start": "earliest"}
    async with (
        client.consumer(TOPIC, **sharing, prefetch_messages=1) as one,
        client.consumer(TOPIC, **sharing, prefetch_messages=1) as two,
    ):
        await two.ack(await one.receive(timeout_s=60))
        await one.ack(await two.receive(timeout_s=60))
    assert await cursor_of(client) == 2


async def test_message_from_a_reader_is_acknowledged_by_its_id_only(client):
    await published(client, *numbers(2))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        [batch] = [each async for each in client.read(TOPIC)]
        async for said in answers_of(c, batch, batch[0]):
            assert "without a subscription" in said
        await c.ack(message.id for message in batch)
    assert await cursor_of(client) == 2


async def test_ack_of_a_message_from_before_a_seek_is_refused(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)
        await c.seek("earliest")
        async for said in answers_of(c, batch, batch[2]):
            assert "before a seek" in said
        await c.ack(await c.receive(timeout_s=60))
    assert await cursor_of(client) == 1


async def test_ack_during_a_seek_has_no_effect_after_it(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)
        async with asyncio.TaskGroup() as group:
            seeking = group.create_task(c.seek("earliest"))
            await asyncio.sleep(0)
            assert not seeking.done()
            await c.ack(batch)
        await c.flush()
        assert await cursor_of(client) == 0
        assert await received(c, 3) == numbers(3)


async def test_ack_during_a_failed_seek_counts(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)

        async def seek_too_far():
            with pytest.raises(pydanube.InvalidRequest, match="beyond"):
                await c.seek(7)

        async with asyncio.TaskGroup() as group:
            group.create_task(seek_too_far())
            await asyncio.sleep(0)
            await c.ack(batch)
    assert await cursor_of(client) == 3


async def test_message_from_before_the_connection_broke_can_be_acknowledged(
    broker, client
):
    await published(client, *numbers(2))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)
        for connection in list(broker.server.connections):
            connection.abort()
        await c.receive(timeout_s=60)
        await c.ack(batch)
    assert await cursor_of(client) == 2


async def test_ack_on_a_closed_consumer_raises(client):
    await published(client, *numbers(2))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        message = await c.receive(timeout_s=60)
    for answer in (c.ack, c.nack, c.ack_cumulative):
        with pytest.raises(pydanube.Closed, match="the consumer is closed"):
            await answer(message)
    assert await cursor_of(client) == 0


async def test_second_ack_has_no_effect(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)
        await c.ack(batch[1])
        await c.ack([batch[1], batch[1]])
        await c.flush()
        await c.ack(batch[1])
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.done) == (0, ((1, 2),))


async def test_nack_after_an_ack_changes_nothing(client):
    await published(client, *numbers(2))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        batch = await c.receive_batch(timeout_s=60)
        await c.ack(batch)
        await c.nack(batch)
        assert await nothing_comes(c)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.counts.nacked) == (2, 0)


async def test_corrupt_segment_ends_a_consumer_with_an_error_that_names_it(
    broker, client
):
    await published(client, b"a", b"b")
    name = await seal_and_damage(broker, TOPIC)
    await published(client, b"c")
    for _ in range(3):
        async with client.consumer(
            TOPIC, subscription="s", start="earliest"
        ) as consumer:
            with pytest.raises(pydanube.CorruptSegment, match=name) as told:
                await consumer.receive(timeout_s=60)
            assert "offsets 0 to 2" in str(told.value)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert facts.stopped_by == str(told.value)
    await client.subscriptions.seek(TOPIC, "s", 2)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        assert await received(consumer, 1) == [b"c"]


async def test_consumer_gets_messages_after_a_skipped_corrupt_segment(broker, client):
    await client.topics.create(TOPIC, on_corruption="skip")
    await published(client, b"a", b"b")
    await seal_and_damage(broker, TOPIC)
    await published(client, b"c")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        assert await received(consumer, 1) == [b"c"]
        facts = await client.subscriptions.describe(TOPIC, "s")
        assert facts.skipped == ((0, 2),)
        assert facts.counts.skipped == 2
