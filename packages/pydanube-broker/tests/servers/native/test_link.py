"""Quotas hold connections of the native protocol back, and never break them."""

from __future__ import annotations

import asyncio

import pytest

import pydanube
from pydanube.model.errors import QuotaExceeded
from pydanube.model.names import TopicName
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations import quota_holds
from support.drivers.running import TOPIC
from support.fakes.storages import until
from support.fakes.stream_peer import connected

ANONYMOUS = QuotaTarget.parse("anonymous")
NAMESPACE = QuotaTarget.parse("/default")
KIB = 1024


@pytest.fixture
async def quotas(broker, monkeypatch):
    """Return the quotas of the broker, whose holds notice a change soon."""
    monkeypatch.setattr(quota_holds, "RECHECK_S", 0.001)
    return broker.broker.quotas


async def test_connection_beyond_the_quota_is_refused_until_one_is_closed(
    broker, quotas
):
    await quotas.set(ANONYMOUS, Quota(connections=1))
    async with broker.connect() as first:
        await first.requester.connection()
        with pytest.raises(QuotaExceeded, match="the quota connections of anonymous"):
            async with broker.connect() as second:
                await second.requester.connection()
        await first.topics.list()
    async with broker.connect() as third:
        await third.requester.connection()
    assert quotas.describe(ANONYMOUS).refused_count == 1


async def test_lost_connections_do_not_count(broker, quotas):
    for _ in range(3):
        async with broker.connect() as client:
            await client.requester.connection()
    await until(lambda: quotas.describe(ANONYMOUS).used["connections"] == 0)


async def is_read_again(broker, peer):
    """Return the next answer to a request that the connection had not read."""
    peer.transport.write(peer.machine.request(Kind.LIST_TOPICS, pb.ListTopics())[1])
    for _ in range(100):
        await until(lambda: True)
    assert peer.received.empty()
    await broker.broker.quotas.remove(ANONYMOUS)
    return await peer.received.get()


async def test_client_that_publishes_too_much_is_not_read_until_it_is_due(
    broker, quotas
):
    await quotas.set(ANONYMOUS, Quota(bytes_in_per_s=KIB))
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        # The batch that exceeds the quota is published; the next one waits.
        await producer.send(bytes(1000 * KIB))
        assert quotas.describe(ANONYMOUS).throttled_s > 900
        waiting = producer.send_nowait(b"next")
        for _ in range(100):
            await until(lambda: True)
        topic = broker.broker.topics.opened[TopicName.parse(TOPIC)]
        assert topic.end_offset == 1
        await quotas.remove(ANONYMOUS)
        await waiting


async def test_client_with_too_many_requests_is_not_read_until_they_are_due(
    broker, quotas
):
    await quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    peer = await connected(broker)
    for _ in range(2):
        answer = await peer.ask(Kind.LIST_TOPICS, pb.ListTopics())
        assert answer.kind is Kind.TOPICS
    assert (await is_read_again(broker, peer)).kind is Kind.TOPICS


async def test_other_clients_are_not_held(broker, quotas):
    await quotas.set(QuotaTarget.parse("user:greedy"), Quota(bytes_in_per_s=KIB))
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        await producer.send(bytes(1000 * KIB))
        await producer.send(b"next")
    assert quotas.describe(ANONYMOUS).throttled_s == 0


@pytest.mark.parametrize("target", [ANONYMOUS, NAMESPACE])
async def test_deliveries_wait_until_they_are_due(broker, quotas, target):
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        for _ in range(4):
            await producer.send(bytes(100 * KIB))
        await quotas.set(target, Quota(bytes_out_per_s=KIB))
        async with client.consumer(
            TOPIC, subscription="s", start="earliest"
        ) as consumer:
            await consumer.receive()
            await until(lambda: quotas.describe(target).throttled_s > 90)
            await quotas.remove(target)
            for _ in range(3):
                await consumer.receive()


@pytest.mark.parametrize("target", [ANONYMOUS, NAMESPACE])
async def test_fetched_messages_wait_until_they_are_due(broker, quotas, target):
    async with broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            for _ in range(20):
                await producer.send(bytes(300 * KIB))
        await quotas.set(target, Quota(bytes_out_per_s=KIB))
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(count_of(client))
            await until(lambda: quotas.describe(target).throttled_s > 200)
            assert not reading.done()
            await quotas.remove(target)
        assert reading.result() == 20


async def count_of(client):
    return sum([len(batch) async for batch in client.read(TOPIC)])


async def test_full_storage_refuses_messages_with_the_reason(broker, quotas):
    async with broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(bytes(4 * KIB))
        await quotas.set(NAMESPACE, Quota(storage_bytes=KIB))
        with pytest.raises(QuotaExceeded, match=r"storage_bytes of /default is 1024"):
            async with client.producer(TOPIC) as producer:
                await producer.send(b"x")
        await quotas.remove(NAMESPACE)
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")


async def test_namespace_at_its_limit_gets_no_topic_by_publishing(broker, quotas):
    await quotas.set(NAMESPACE, Quota(topics=1))
    async with broker.connect() as client:
        await client.topics.create("/default/one")
        with pytest.raises(pydanube.QuotaExceeded, match="delete topics"):
            async with client.producer("/default/two"):
                pass
