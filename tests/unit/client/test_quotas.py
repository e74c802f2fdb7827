"""Quotas by the client: setting, listing, and who may see them."""

from __future__ import annotations

import pytest

from pydanube import Quota
from pydanube.model.errors import InvalidName, NotFound, PermissionDenied
from pydanube.security.principals import Principal
from support.principals import ROOT, client_of, guarded_broker

ALICE = Principal("alice", "token")


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        yield broker


@pytest.fixture
async def root(guarded):
    async with client_of(guarded, ROOT) as client:
        yield client


async def test_quota_is_listed_until_it_is_removed(root):
    limits = Quota(topics=3, storage_bytes=10**6)
    await root.create_namespace("shop")
    await root.set_quota("/shop", limits)
    await root.set_quota("user:alice", Quota(connections=5))
    await root.create_topic("/shop/orders")
    shop, alice = await root.quotas()
    assert (shop.target, shop.quota) == ("/shop", limits)
    assert shop.used == {"topics": 0, "subscriptions": 0, "storage_bytes": 0}
    assert (alice.target, alice.quota) == ("user:alice", Quota(connections=5))
    await root.remove_quota("/shop")
    assert [each.target for each in await root.quotas()] == ["user:alice"]
    with pytest.raises(NotFound):
        await root.remove_quota("/shop")


async def test_client_sees_its_own_quota_and_no_other(guarded, root):
    await root.set_quota("user:alice", Quota(connections=5))
    await root.set_quota("user:bob", Quota(connections=5))
    async with client_of(guarded, ALICE) as client:
        assert [each.target for each in await client.quotas()] == ["user:alice"]
        found = await client.describe_quota("user:alice")
        assert found is not None
        assert found.quota == Quota(connections=5)
        assert await client.describe_quota("user:bob") is None
        assert await client.describe_quota("/default") is None


async def test_only_administrators_of_the_cluster_change_quotas(guarded, root):
    await root.add_binding("user:alice", ["developer"], ["*"])
    async with client_of(guarded, ALICE) as client:
        with pytest.raises(PermissionDenied):
            await client.set_quota("/default", Quota(topics=1))
        with pytest.raises(PermissionDenied):
            await client.remove_quota("/default")


async def test_target_without_a_quota_has_no_limit(client):
    found = await client.describe_quota("/default")
    assert found is not None
    assert not found.quota
    assert not found.is_default
    default = await client.describe_quota("user:somebody")
    assert default is not None
    assert default.is_default


async def test_malformed_target_is_refused(client):
    with pytest.raises(InvalidName):
        await client.describe_quota("group:ops")
