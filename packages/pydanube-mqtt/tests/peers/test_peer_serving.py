"""A process uses topics that another process serves."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from pydanube.aio.futures import completion
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    ConnectionLost,
    SubscriptionInUse,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import Retention, SubscriptionType, TopicPolicy
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_mqtt.peers.peer_links import Dropped, PeerLinks
from pydanube_mqtt.peers.peer_serving import serving_peers
from pydanube_mqtt.pure.messages import rows_of
from support.fakes.brokers import BrokerWorld
from support.fakes.guarded_clusters import eventually
from support.fakes.storages import seal

TOPIC = TopicName.parse("/default/t")
NONE = TopicName.parse("/default/none")
SHARED = SubscriptionName("shared")


class Port:
    """A consumer that keeps what it gets."""

    def __init__(self) -> None:
        self.payloads = []
        self.offsets = []
        self.reason = None
        self._changed = asyncio.Event()

    def deliver(self, frame, attempt):
        rows = list(rows_of(frame))
        self.payloads += [each.payload for each in rows]
        self.offsets += [each.offset for each in rows]
        self._changed.set()

    def set_state(self, *, is_active, ack_timeout_s):
        pass

    def close(self, reason):
        self.reason = reason
        self._changed.set()

    async def wait(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def linked(tmp_path):
    """Yield a broker with a topic, and a link to it from another process."""
    groups = [
        ProcessGroup(directory=tmp_path, number=number, count=2) for number in (1, 2)
    ]
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
    links = PeerLinks(groups[1])
    async with BrokerWorld().broker() as broker:
        await broker.topics.create(TOPIC, TopicPolicy())
        async with serving_peers(broker, groups[0]):
            yield broker, await links.to(1)
            links.close()


def message(payload, **more):
    return SingleMessage("device", payload, 1_000_000, **more)


async def publish(link, *payloads, topic=TOPIC):
    for payload in payloads:
        await completion(lambda done: link.publish(topic, message(payload), done))  # noqa: B023


async def test_messages_are_stored_with_all_that_they_have(tmp_path):
    async with linked(tmp_path) as (_, link):
        given = message(
            b"1", key=b"k", attributes={"a": "b"}, expires_at_us=2_000_000_000_000_000
        )
        await completion(lambda done: link.publish(TOPIC, given, done))
        end, frames = await link.read(TOPIC, 0, bytes_max=1)
        assert end == await link.find_end(TOPIC) == 1
        (row,) = rows_of(frames[0])
        assert (row.payload, row.key, row.attributes) == (b"1", b"k", {"a": "b"})
        assert (row.producer, row.expires_at_us) == ("device", given.expires_at_us)
        assert link.publishing_bytes == 0


async def test_messages_of_one_turn_keep_their_order(tmp_path):
    async with linked(tmp_path) as (_, link):
        payloads = [b"%d" % number for number in range(100)]
        outcomes = asyncio.Queue()
        for payload in payloads:
            link.publish(TOPIC, message(payload), outcomes.put_nowait)
        assert [await outcomes.get() for _ in payloads] == [None] * 100
        _, frames = await link.read(TOPIC, 0, bytes_max=1 << 20)
        found = [row.payload for frame in frames for row in rows_of(frame)]
        assert found == payloads


async def test_read_waits_for_messages(tmp_path):
    async with linked(tmp_path) as (_, link), task_scope() as tasks:
        waiting = tasks.start(link.read(TOPIC, 0, bytes_max=1, waits=True))
        await publish(link, b"1")
        _, frames = await waiting
        assert [row.payload for row in rows_of(frames[0])] == [b"1"]


async def test_errors_of_the_other_process_are_raised(tmp_path):
    async with linked(tmp_path) as (broker, link):
        with pytest.raises(TopicNotFound):
            await publish(link, b"1", topic=NONE)
        with pytest.raises(TopicNotFound):
            await link.find_end(NONE)
        with pytest.raises(SubscriptionNotFound):
            await link.delete(TOPIC, SHARED)
        await publish(link, b"1")
        await seal(broker.storage, broker.topics.opened[TOPIC].topic_id)
        await broker.topics.configure(TOPIC, retention=Retention(bytes_max=1))
        await publish(link, b"2")
        await seal(broker.storage, broker.topics.opened[TOPIC].topic_id)
        await broker.topics.apply_retention(TOPIC)
        with pytest.raises(Dropped) as dropped:
            await link.read(TOPIC, 0, bytes_max=1)
        assert dropped.value.kept == 1


async def test_waiting_read_ends_when_the_topic_is_deleted(tmp_path):
    async with linked(tmp_path) as (broker, link), task_scope() as tasks:
        waiting = tasks.start(link.read(TOPIC, 0, bytes_max=1, waits=True))
        await link.find_end(TOPIC)
        await broker.topics.delete(TOPIC)
        with pytest.raises(TopicNotFound):
            await waiting


async def test_consumer_gets_messages_within_its_credit(tmp_path):
    async with linked(tmp_path) as (broker, link):
        port = Port()
        consumer = await link.consume(
            TOPIC, SHARED, SubscriptionType.SHARED, "device", port
        )
        with pytest.raises(SubscriptionInUse):
            await link.delete(TOPIC, SHARED)
        await publish(link, b"1", b"2", b"3")
        consumer.settle([], 2, 1000)
        await port.wait(lambda: len(port.payloads) == 2)
        consumer.settle([(0, 1), (1, 2)], 2, 1000)
        await port.wait(lambda: len(port.payloads) == 3)
        consumer.leave()
        # What was not acknowledged goes to the next one.
        other = Port()
        consumer = await link.consume(
            TOPIC, SHARED, SubscriptionType.SHARED, "other", other
        )
        consumer.settle([], 10, 1000)
        await other.wait(lambda: other.payloads)
        assert (other.payloads, other.offsets) == ([b"3"], [2])
        consumer.leave()
        await link.delete(TOPIC, SHARED)
        assert SHARED not in broker.topics.opened[TOPIC].subscriptions


async def test_consumer_learns_that_its_subscription_has_ended(tmp_path):
    async with linked(tmp_path) as (broker, link):
        port = Port()
        await link.consume(TOPIC, SHARED, SubscriptionType.SHARED, "device", port)
        await broker.topics.delete(TOPIC, force=True)
        await port.wait(lambda: port.reason is not None)
        assert isinstance(port.reason, TopicNotFound)


async def test_lost_connection_fails_what_waits(tmp_path):
    async with linked(tmp_path) as (broker, link), task_scope() as tasks:
        port = Port()
        await link.consume(TOPIC, SHARED, SubscriptionType.SHARED, "device", port)
        waiting = tasks.start(link.read(TOPIC, 0, bytes_max=1, waits=True))
        outcome = asyncio.Queue()
        await link.find_end(TOPIC)
        link.publish(TOPIC, message(b"1"), outcome.put_nowait)
        link.close()
        with pytest.raises(ConnectionLost):
            await waiting
        assert isinstance(await outcome.get(), ConnectionLost)
        assert isinstance(port.reason, ConnectionLost)
        assert link.publishing_bytes == 0
        with pytest.raises(ConnectionLost):
            await link.find_end(TOPIC)
        subscription = broker.topics.opened[TOPIC].subscriptions[SHARED]
        await eventually(lambda: not subscription.consumer_count)


async def test_process_that_does_not_run_is_named(tmp_path):
    (tmp_path / "2").mkdir()
    links = PeerLinks(ProcessGroup(directory=tmp_path, number=1, count=2))
    with pytest.raises(ConnectionLost, match="process 2 does not answer"):
        await links.to(2)
