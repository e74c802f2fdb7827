"""Identities, roles, bindings and quotas, through the client."""

from __future__ import annotations

import pytest

from pydanube import Quota
from pydanube.model.errors import (
    BindingNotFound,
    InvalidName,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RoleInUse,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import BUILT_IN_ROLES, Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from support.fakes.principals import ROOT, client_of, guarded_broker

ALICE = Principal("alice", "token", ("ops", "dev"))


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        yield broker


@pytest.fixture
async def root(guarded):
    async with client_of(guarded, ROOT) as client:
        yield client


async def test_client_learns_who_it_is(guarded, root):
    found = await root.security.who_am_i()
    assert (found.name, found.method) == ("root", "certificate")
    assert found.is_superuser
    assert found.is_enforced
    async with client_of(guarded, ALICE) as client:
        found = await client.security.who_am_i()
        assert found.groups == ("ops", "dev")
        assert not found.is_superuser


async def test_broker_without_security_says_that_it_enforces_nothing(client):
    found = await client.security.who_am_i()
    assert (found.name, found.is_enforced) == (ANONYMOUS.name, False)


async def test_role_is_listed_as_it_was_set(root):
    await root.security.set_role("r", ["produce", "describe"], ["/shop/*", "subject:a"])
    *built_in, role = await root.security.roles()
    assert {each.name: each for each in built_in} == dict(BUILT_IN_ROLES)
    permissions = frozenset({Permission.PRODUCE, Permission.DESCRIBE})
    assert role == Role("r", permissions, ("/shop/*", "subject:a"))
    await root.security.delete_role("r")
    assert len(await root.security.roles()) == len(built_in)


async def test_binding_is_listed_until_it_is_removed(root):
    given = await root.security.add_binding("user:alice", ["viewer"], ["/shop/*"])
    assert given == await root.security.add_binding(
        "user:alice", ["viewer"], ["/shop/*"]
    )
    named = await root.security.add_binding(
        "group:ops", ["admin"], ["*"], binding_id="ops"
    )
    assert await root.security.bindings() == sorted(
        [
            Binding("user:alice", ("viewer",), ("/shop/*",), given),
            Binding("group:ops", ("admin",), ("*",), named),
        ],
        key=lambda binding: binding.id,
    )
    await root.security.remove_binding(given)
    with pytest.raises(BindingNotFound):
        await root.security.remove_binding(given)


async def test_rule_that_decides_is_named(root):
    await root.security.add_binding(
        "group:ops", ["producer"], ["/shop/*"], binding_id="b"
    )
    allowed = await root.security.check_access(
        "produce", "/shop/orders", member="group:ops"
    )
    assert allowed.allowed
    assert allowed.rule == "the role 'producer' by the binding 'b' of group:ops"
    denied = await root.security.check_access(
        "consume", "/shop/orders", member="group:ops"
    )
    assert not denied.allowed
    assert denied.rule == "no binding grants consume on /shop/orders to group:ops"
    own = await root.security.check_access("grant", "cluster")
    assert own.rule == "user:root is a superuser"


async def test_mistakes_are_explained(root):
    await root.security.set_role("r", ["produce"])
    await root.security.add_binding("user:alice", ["r"], ["*"], binding_id="b")
    with pytest.raises(RoleInUse, match="remove the binding"):
        await root.security.delete_role("r")
    with pytest.raises(InvalidRequest, match="there is no permission 'fly'"):
        await root.security.set_role("r", ["fly"])
    with pytest.raises(InvalidRequest, match="must be a list"):
        await root.security.set_role("r", "produce")
    with pytest.raises(InvalidRequest, match="must be cluster"):
        await root.security.check_access("produce", "shop/orders")


async def test_delegated_administrator_grants_what_it_holds(guarded, root):
    await root.security.set_role("delegate", ["grant", "produce"])
    await root.security.add_binding("user:alice", ["delegate"], ["/shop/*"])
    async with client_of(guarded, ALICE) as client:
        given = await client.security.add_binding(
            "user:bob", ["delegate"], ["/shop/orders"]
        )
        assert given in {each.id for each in await client.security.bindings()}
        with pytest.raises(PermissionDenied, match="than they hold"):
            await client.security.add_binding("user:alice", ["admin"], ["/shop/*"])


async def test_quota_is_listed_until_it_is_removed(root):
    limits = Quota(topics=3, storage_bytes=10**6)
    await root.namespaces.create("shop")
    await root.security.set_quota("/shop", limits)
    await root.security.set_quota("user:alice", Quota(connections=5))
    await root.topics.create("/shop/orders")
    shop, alice = await root.security.quotas()
    assert (shop.target, shop.quota) == ("/shop", limits)
    assert shop.used == {"topics": 0, "subscriptions": 0, "storage_bytes": 0}
    assert (alice.target, alice.quota) == ("user:alice", Quota(connections=5))
    await root.security.remove_quota("/shop")
    assert [each.target for each in await root.security.quotas()] == ["user:alice"]
    with pytest.raises(NotFound):
        await root.security.remove_quota("/shop")


async def test_client_sees_its_own_quota_and_no_other(guarded, root):
    await root.security.set_quota("user:alice", Quota(connections=5))
    await root.security.set_quota("user:bob", Quota(connections=5))
    async with client_of(guarded, ALICE) as client:
        assert [each.target for each in await client.security.quotas()] == [
            "user:alice"
        ]
        found = await client.security.describe_quota("user:alice")
        assert found is not None
        assert found.quota == Quota(connections=5)
        assert await client.security.describe_quota("user:bob") is None
        assert await client.security.describe_quota("/default") is None


async def test_only_administrators_of_the_cluster_change_quotas(guarded, root):
    await root.security.add_binding("user:alice", ["developer"], ["*"])
    async with client_of(guarded, ALICE) as client:
        with pytest.raises(PermissionDenied):
            await client.security.set_quota("/default", Quota(topics=1))
        with pytest.raises(PermissionDenied):
            await client.security.remove_quota("/default")


async def test_target_without_a_quota_has_no_limit(client):
    found = await client.security.describe_quota("/default")
    assert found is not None
    assert not found.quota
    assert not found.is_default
    default = await client.security.describe_quota("user:somebody")
    assert default is not None
    assert default.is_default


async def test_malformed_target_is_refused(client):
    with pytest.raises(InvalidName):
        await client.security.describe_quota("group:ops")
