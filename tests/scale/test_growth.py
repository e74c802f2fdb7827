"""
What one operation costs does not depend on how many things there are.

Each test counts executed lines for a few operations with *n* things and again with
four times as many.  A scan over all things would make the second count four times as
large.
"""

from __future__ import annotations

import asyncio

import pytest

from pydanube.aio.futures import completion
from pydanube.aio.long_work import LongWork
from pydanube.model import metrics
from pydanube.model.ids import TopicId
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    NamespacePolicy,
    Start,
    SubscriptionType,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.wire.pb import danube_api_pb2 as danube_pb
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.delivery.cursors import CursorSaver
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.servers.grpc.consumers import Consumers
from pydanube_broker.servers.topic_samples import TopicSamples, TopicSeries
from support.drivers.running import TOPIC
from support.fakes.batches import frame_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    Outcome,
    Port,
)
from support.fakes.grpc_contexts import CallContext, Clock
from support.fakes.memory_store import MemoryStore
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.fakes.staging import A_QUERY, PartMaker
from support.fakes.steps import assert_constant, assert_linear, counting_steps
from support.fakes.storages import World, open_topic, publish, until

SMALL, LARGE = 100, 400
PROBES = 10
CREDIT = 1 << 20


async def run(measure, **options):
    """Return the results of *measure* with few and with four times as many things."""
    found = []
    for count in (SMALL, LARGE):
        async with BrokerWorld().broker(**options) as broker:
            found.append(await measure(broker, count))
    return found


async def open_producers(broker, first, count, *, topic=A_TOPIC, policy=RELIABLE):
    return [
        await broker.producers.open(topic, f"p-{number}", policy=policy)
        for number in range(first, first + count)
    ]


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE], ids=["stored", "direct"])
async def test_cost_of_opening_a_producer_does_not_depend_on_connected_ones(policy):
    async def measure(broker, count):
        await open_producers(broker, 0, count, policy=policy)
        with counting_steps() as steps:
            await open_producers(broker, count, PROBES, policy=policy)
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_opening_a_producer_does_not_depend_on_idle_ones():
    async def measure(broker, count):
        for topic, session in await open_producers(broker, 0, count):
            broker.producers.close(topic, session, forget=False)
        with counting_steps() as steps:
            await open_producers(broker, count, PROBES)
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_closing_a_producer_does_not_depend_on_others():
    async def measure(broker, count):
        opened = await open_producers(broker, 0, count)
        with counting_steps() as steps:
            for topic, session in opened[:PROBES]:
                broker.producers.close(topic, session, forget=True)
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_creating_a_topic_does_not_depend_on_others():
    async def create(broker, first, count):
        for number in range(first, first + count):
            name = TopicName.parse(f"/default/t-{number}")
            await broker.topics.create(name, RELIABLE)

    async def measure(broker, count):
        await create(broker, 0, count)
        with counting_steps() as steps:
            await create(broker, count, PROBES)
        return steps.count

    assert_constant(*await run(measure))


async def turns():
    """Let the tasks that follow the store finish what they do."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "limits", [Quota(bytes_in_per_s=1024), Quota(storage_bytes=1024)]
)
async def test_cost_of_setting_a_quota_does_not_depend_on_others(limits):
    async def measure(broker, count):
        targets = [QuotaTarget.parse(f"/default/t-{at}") for at in range(count + 10)]
        for each in targets[:PROBES]:
            await broker.topics.create(TopicName.parse(str(each)), RELIABLE)
        for each in targets[PROBES:]:
            await broker.quotas.set(each, limits)
            await turns()
        with counting_steps() as steps:
            for each in targets[:PROBES]:
                await broker.quotas.set(each, limits)
                await turns()
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_creating_a_subscription_does_not_depend_on_others():
    async def create(broker, first, count):
        for number in range(first, first + count):
            await broker.subscriptions.open(
                *(A_TOPIC, SubscriptionName(f"s-{number}")),
                *(SubscriptionType.SHARED, Start.LATEST),
            )

    async def measure(broker, count):
        await broker.topics.create(A_TOPIC, RELIABLE)
        await create(broker, 0, count)
        with counting_steps() as steps:
            await create(broker, count, PROBES)
            for number in range(PROBES):
                await broker.subscriptions.delete(
                    A_TOPIC, SubscriptionName(f"s-{number}")
                )
        return steps.count

    assert_constant(*await run(measure))


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_", [t for t in SubscriptionType if t is not SubscriptionType.EXCLUSIVE]
)
async def test_cost_of_attaching_a_consumer_does_not_depend_on_others(type_):
    async def attach(broker, first, count):
        _, subscription = await broker.subscriptions.open(
            A_TOPIC, SubscriptionName("s"), type_, Start.EARLIEST
        )
        consumers = []
        for number in range(first, first + count):
            consumer = subscription.attach(f"c-{number}", Port())
            subscription.credit(consumer, 10, CREDIT)
            consumers.append(consumer)
        await asyncio.sleep(0)
        return subscription, consumers

    async def measure(broker, count):
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        topic.set_limits(
            NamespacePolicy(
                max_consumers_per_topic=10**6, max_consumers_per_subscription=10**6
            ),
            are_own=True,
        )
        _, others = await attach(broker, 0, count)
        with counting_steps() as steps:
            subscription, consumers = await attach(broker, count, PROBES)
            # Also the first consumer, after which another one becomes active.
            for consumer in (*consumers, *others[:PROBES]):
                subscription.detach(consumer)
                await asyncio.sleep(0)
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_an_ack_over_grpc_does_not_depend_on_other_consumers():
    async def measure(broker, count):
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await publish_singly(broker, topic, PROBES)
        consumers = Consumers(
            *(broker, Clock()), broker_url="http://broker:6650", window_messages_max=9
        )
        for number in range(count):
            await consumers.subscribe(
                danube_pb.ConsumerRequest(
                    topic_name=str(A_TOPIC),
                    subscription="s",
                    consumer_name=f"c-{number}",
                    subscription_type=danube_pb.ConsumerRequest.Shared,
                ),
                CallContext(),
            )
        with counting_steps() as steps:
            for offset in range(PROBES):
                message = danube_pb.MsgID(topic_name=str(A_TOPIC), topic_offset=offset)
                await consumers.ack(
                    danube_pb.AckRequest(msg_id=message, subscription_name="s")
                )
        consumers.close()
        return steps.count

    assert_constant(*await run(measure))


async def publish_singly(broker, topic, count):
    """Publish *count* messages, and wait until they are stored."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            message = SingleMessage("p", b"x", 1)

            def publish(done, message=message):
                broker.batcher.publish(topic, message, lambda _, error: done(error))

            tasks.create_task(completion(publish))


@pytest.mark.parametrize(
    "type_", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED]
)
def test_demand_is_known_without_asking_every_consumer(type_):
    def measure(count):
        machine = MACHINES[type_](Cursor(0))
        for consumer in range(count):
            machine.on_consumer_joined(consumer, 0.0)
            machine.on_credit(consumer, 7, CREDIT, 0.0)
        assert machine.demand() == 7 * count
        with counting_steps() as steps:
            machine.on_credit(1, 1, CREDIT, 0.0)
            assert machine.demand() == 7 * count + 1
        return steps.count

    assert_constant(measure(SMALL), measure(LARGE))


async def test_memory_store_scans_one_prefix_without_reading_others():
    things = prefix_of("/things/", int)

    async def measure(count):
        store = MemoryStore()
        for number in range(count):
            await store.put(things.within(str(number)).key("one"), number)
        with counting_steps() as steps:
            for number in range(PROBES):
                assert len(await store.scan(things.within(str(number)))) == 1
                await store.put(things.within(str(number)).key("two"), number)
        return steps.count

    assert_constant(*[await measure(count) for count in (SMALL, LARGE)])


class NoStorage:
    """A storage that never writes."""


async def test_cost_of_forgetting_a_cursor_does_not_depend_on_others():
    async def measure(count):
        cursors = CursorSaver(NoStorage(), asyncio.get_running_loop())
        for number in range(count):
            cursors.mark(TopicId(1), SubscriptionName(f"s-{number}"), Cursor(0))
        with counting_steps() as steps:
            cursors.forget(TopicId(1), [SubscriptionName("s-0")])
        return steps.count

    assert_constant(*[await measure(count) for count in (SMALL, LARGE)])


async def test_sealing_visits_only_topics_with_a_tail():
    async def measure(count):
        world = World()
        async with world.storage(seal_interval_s=0.001, seal_age_s=1e9) as storage:
            for topic_id in range(1, count + 1):
                await open_topic(storage, topic_id)
            await until(lambda: not storage.sealer._opened)
            with counting_steps() as steps:
                for _ in range(PROBES):
                    await storage.sealer._seal_next()
            return steps.count

    assert_constant(*[await measure(count) for count in (SMALL, LARGE)])


@pytest.mark.slow
async def test_cost_of_sealing_is_linear_in_the_topics():
    async def measure(count):
        world = World()
        async with world.storage(seal_age_s=10.0, seal_pace=0.0) as storage:
            logs = [await open_topic(storage, number + 1) for number in range(count)]
            for log in logs:
                await publish(log, b"x")
            world.now = 20.0
            with counting_steps() as steps:
                while await storage.sealer._seal_next():
                    pass
            assert all(len(log.segments) == 1 for log in logs)
            return steps.count

    assert_linear(*[await measure(count) for count in (25, 100)])


async def test_cost_of_a_restart_is_linear_in_the_topics():
    async def fill(world, count):
        async with world.broker() as broker:
            for number in range(count):
                name = TopicName.parse(f"/default/t-{number}")
                topic, session = await broker.producers.open(name, "p", policy=RELIABLE)
                outcome = Outcome()
                frame = frame_of(
                    [b"x"],
                    producer="p",
                    producer_id=session.producer_id,
                    producer_epoch=session.epoch,
                )
                topic.publish(session, frame, outcome)
                await outcome.offset()

    async def measure(count):
        world = BrokerWorld()
        await fill(world, count)
        with counting_steps() as steps:
            async with world.broker() as broker:
                assert len(broker.topics.opened) == count
        return steps.count

    assert_linear(*[await measure(count) for count in (25, 100)])


async def stage_parts(broker, first, count):
    """Do what the tasks of a micro-batch do; return the parts."""
    parts = []
    for number in range(first, first + count):
        progress = await broker.staging.describe(A_QUERY, counts_parts=False)
        assert progress.committed_version is None
        maker = PartMaker(broker, 1, f"{number}")
        await maker.write(str(A_TOPIC), [b"x"])
        assert await broker.staging.topics_of_part(maker.key) == [str(A_TOPIC)]
        parts.append(await maker.finish())
    return parts


async def test_cost_of_staging_a_part_does_not_depend_on_others():
    async def measure(broker, count):
        await broker.topics.create(A_TOPIC, RELIABLE)
        await stage_parts(broker, 0, count)
        with counting_steps() as steps:
            await stage_parts(broker, count, PROBES)
        return steps.count

    assert_constant(*await run(measure))


async def test_cost_of_a_commit_is_linear_in_its_parts():
    async def measure(broker, count):
        await broker.topics.create(A_TOPIC, RELIABLE)
        parts = await stage_parts(broker, 0, count)
        with counting_steps() as steps:
            committed = await broker.staging.commit(A_QUERY, 1, parts)
        assert committed.message_count == count
        return steps.count

    assert_linear(*await run(measure))


# Answers about very many things.


async def listing_cost(count, patterns, **request):
    """Return what lists cost a client that sees topics of *patterns*, or nothing."""
    alice = Principal("alice", "token")
    async with guarded_broker() as broker:
        for number in range(count):
            name = TopicName.parse(f"/default/t{number:04}")
            await broker.broker.topics.create(name, RELIABLE)
        if patterns:
            access = broker.broker.access
            await access.set_role(ROOT, Role("r", frozenset({Permission.DESCRIBE})))
            binding = Binding("user:alice", ("r",), patterns, "b")
            await access.add_binding(ROOT, binding)
        async with client_of(broker, alice) as client:
            await client.requester.send_request(pb.ListTopics(**request))
            with counting_steps() as steps:
                for _ in range(PROBES):
                    await client.requester.send_request(pb.ListTopics(**request))
        return steps.count


@pytest.mark.rotated
@pytest.mark.parametrize("patterns", [(), ("/other/*",), ("subject:*",)])
@pytest.mark.parametrize("limit", [0, 1, 1000])
async def test_list_of_a_client_that_sees_nothing_does_not_cost_a_scan(patterns, limit):
    counts = SMALL, LARGE
    costs = [await listing_cost(each, patterns, limit=limit) for each in counts]
    assert_constant(*costs)


async def test_page_of_one_costs_no_more_than_a_page_of_all():
    patterns = ("/default/t0000", "/default/t0399")
    costs = [await listing_cost(LARGE, patterns, limit=each) for each in (1000, 1)]
    assert_constant(*costs, what="a page of one")


async def three_topics(broker):
    for name in ("a", "b", "c"):
        await broker.topics.create(TopicName.parse(f"/default/{name}"), RELIABLE)


async def test_topics_are_listed_in_pages(broker, client):
    await three_topics(broker.broker)
    first = await client.requester.send_request(pb.ListTopics(limit=2))
    after = first.topics[-1]
    last = await client.requester.send_request(pb.ListTopics(limit=2, after=after))
    assert (list(first.topics), first.has_more) == (
        ["/default/a", "/default/b"],
        True,
    )
    assert (list(last.topics), last.has_more) == (["/default/c"], False)
    assert await client.topics.list() == [*first.topics, *last.topics]


async def test_topic_is_described_in_pages(client):
    await client.topics.create(TOPIC)
    for name in ("a", "b", "c"):
        await client.subscriptions.create(TOPIC, name)
    asked = [pb.DescribeTopic(topic=TOPIC, limit=2, first=first) for first in (0, 2)]
    told = [await client.requester.send_request(each) for each in asked]
    names = [[s.subscription for s in each.subscriptions] for each in told]
    assert names == [["a", "b"], ["c"]]
    assert [each.has_more for each in told] == [True, False]


async def test_number_of_topics_with_own_metrics_is_bounded():
    async with BrokerWorld().broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        topic.counts.publish(1, 10)
        count = 3 * metrics.SERIES_MAX
        walk = TopicSamples(TopicSeries(), now_us=0)
        await walk.add([topic] * count, LongWork())
        samples = list(walk.samples())
        assert len(samples) < 7 * metrics.SERIES_MAX
        published = [v for m, _, v in samples if m is metrics.TOPIC_MESSAGES_IN]
        assert sum(published) == count
