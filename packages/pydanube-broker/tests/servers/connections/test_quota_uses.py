"""Quotas on the gRPC port: calls wait, and connections beyond the limit are refused."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.operations import quota_holds
from support.drivers.danube_calls import danube_world
from support.fakes.storages import until

ANONYMOUS = QuotaTarget.parse("anonymous")
NAMESPACE = QuotaTarget.parse("/default")
REQUEST = pb.TopicLookupRequest(request_id=1, topic="/default/orders")


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(quota_holds, "RECHECK_S", 0.001)
    async with danube_world() as world:
        yield world


@pytest.fixture
async def client(world):
    async with world.client() as client:
        yield client


async def look_up(client):
    await client.call("danube.Discovery/TopicLookup", REQUEST)


async def test_published_messages_wait_until_they_are_due(world, client):
    quotas = world.broker.quotas
    await client.create_producer()
    await quotas.set(ANONYMOUS, Quota(bytes_in_per_s=1024))
    # Each call waits for its own bytes.
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(client.send("x" * 100_000))
        await until(lambda: quotas.describe(ANONYMOUS).throttled_s > 90)
        assert not sending.done()
        await quotas.remove(ANONYMOUS)


async def test_requests_wait_until_they_are_due(world, client):
    quotas = world.broker.quotas
    await client.create_producer()
    await quotas.set(ANONYMOUS, Quota(requests_per_s=1))
    await look_up(client)
    async with asyncio.TaskGroup() as tasks:
        requests = [tasks.create_task(look_up(client)) for _ in range(9)]
        await until(lambda: quotas.describe(ANONYMOUS).throttled_s > 8)
        assert not requests[-1].done()
        await quotas.remove(ANONYMOUS)


@pytest.mark.parametrize("target", [ANONYMOUS, NAMESPACE])
async def test_deliveries_wait_until_they_are_due(world, client, target):
    quotas = world.broker.quotas
    await client.create_producer()
    stream = await client.consume("one")
    await quotas.set(target, Quota(bytes_out_per_s=1024))
    await client.send("x" * 100_000, "y")
    (first,) = await stream.read(1)
    await until(lambda: quotas.describe(target).throttled_s > 90)
    await client.ack(first)
    await quotas.remove(target)
    await stream.read(1)


async def test_connection_beyond_the_quota_is_refused(world, client):
    await client.create_producer()
    await world.broker.quotas.set(ANONYMOUS, Quota(connections=1))
    async with world.client() as other:
        status, text = await other.call.refusal("danube.Discovery/TopicLookup", REQUEST)
        assert status == "RESOURCE_EXHAUSTED"
        assert "the quota connections of anonymous is 1" in text
    await look_up(client)
