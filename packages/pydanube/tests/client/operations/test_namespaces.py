"""Namespaces and the limits of their topics."""

import pytest

import pydanube
from pydanube.model.policy import NamespacePolicy
from support.drivers.running import published

STRICT = NamespacePolicy(max_producers_per_topic=1, max_message_size=10)


async def test_namespace_is_created_described_and_deleted(client):
    assert await client.namespaces.list() == ["default", "system"]
    await client.namespaces.create("shop", policy=STRICT)
    assert await client.namespaces.list() == ["default", "shop", "system"]
    await published(client, b"m", topic="/shop/orders")
    facts = await client.namespaces.describe("shop")
    assert (facts.namespace, facts.policy, facts.topic_count) == ("shop", STRICT, 1)
    with pytest.raises(pydanube.NamespaceInUse):
        await client.namespaces.delete("shop")
    await client.topics.delete("/shop/orders")
    await client.namespaces.delete("shop")
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.namespaces.describe("shop")


async def test_namespace_is_created_once(client):
    await client.namespaces.create("shop")
    with pytest.raises(pydanube.AlreadyExists):
        await client.namespaces.create("shop")
    await client.namespaces.create("shop", exist_ok=True)


async def test_built_in_namespaces_cannot_be_deleted(client):
    for name in ("default", "system"):
        with pytest.raises(pydanube.InvalidRequest):
            await client.namespaces.delete(name)
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.namespaces.delete("none")
    with pytest.raises(pydanube.InvalidName):
        await client.namespaces.create("no/slash")


async def test_namespace_limit_takes_effect_at_once_and_a_topic_may_override_it(client):
    topic = "/default/orders"
    await published(client, b"x" * 20)
    await client.namespaces.configure("default", policy=STRICT)
    assert (await client.namespaces.describe("default")).policy == STRICT
    with pytest.raises(pydanube.MessageTooLarge):
        await published(client, b"x" * 20)
    facts = await client.topics.describe(topic)
    assert (facts.limits, facts.own_limits) == (STRICT, None)

    own = NamespacePolicy(max_message_size=30)
    await client.topics.configure(topic, limits=own)
    facts = await client.topics.describe(topic)
    assert (facts.limits, facts.own_limits) == (own, own)
    await published(client, b"x" * 20)

    await client.topics.configure(topic, limits=None)
    assert (await client.topics.describe(topic)).limits == STRICT


async def test_exceeded_producer_limit_is_reported(client):
    await client.namespaces.configure("default", policy=STRICT)
    async with client.producer("/default/orders"):
        with pytest.raises(pydanube.QuotaExceeded):
            async with client.producer("/default/orders"):
                pass
