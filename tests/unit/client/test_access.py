"""Roles, bindings and identities by the client."""

from __future__ import annotations

import pytest

from pydanube.model.errors import (
    BindingNotFound,
    InvalidRequest,
    PermissionDenied,
    RoleInUse,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import BUILT_IN_ROLES, Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from support.principals import ROOT, client_of, guarded_broker

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
    found = await root.who_am_i()
    assert (found.name, found.method) == ("root", "certificate")
    assert found.is_superuser
    assert found.is_enforced
    async with client_of(guarded, ALICE) as client:
        found = await client.who_am_i()
        assert found.groups == ("ops", "dev")
        assert not found.is_superuser


async def test_broker_without_security_says_that_it_enforces_nothing(client):
    found = await client.who_am_i()
    assert (found.name, found.is_enforced) == (ANONYMOUS.name, False)


async def test_role_is_listed_as_it_was_set(root):
    await root.set_role("r", ["produce", "describe"], ["/shop/*", "subject:a"])
    *built_in, role = await root.roles()
    assert {each.name: each for each in built_in} == dict(BUILT_IN_ROLES)
    permissions = frozenset({Permission.PRODUCE, Permission.DESCRIBE})
    assert role == Role("r", permissions, ("/shop/*", "subject:a"))
    await root.delete_role("r")
    assert len(await root.roles()) == len(built_in)


async def test_binding_is_listed_until_it_is_removed(root):
    given = await root.add_binding("user:alice", ["viewer"], ["/shop/*"])
    assert given == await root.add_binding("user:alice", ["viewer"], ["/shop/*"])
    named = await root.add_binding("group:ops", ["admin"], ["*"], binding_id="ops")
    assert await root.bindings() == sorted(
        [
            Binding("user:alice", ("viewer",), ("/shop/*",), given),
            Binding("group:ops", ("admin",), ("*",), named),
        ],
        key=lambda binding: binding.id,
    )
    await root.remove_binding(given)
    with pytest.raises(BindingNotFound):
        await root.remove_binding(given)


async def test_rule_that_decides_is_named(root):
    await root.add_binding("group:ops", ["producer"], ["/shop/*"], binding_id="b")
    allowed = await root.check_access("produce", "/shop/orders", member="group:ops")
    assert allowed.allowed
    assert allowed.rule == "the role 'producer' by the binding 'b' of group:ops"
    denied = await root.check_access("consume", "/shop/orders", member="group:ops")
    assert not denied.allowed
    assert denied.rule == "no binding grants consume on /shop/orders to group:ops"
    own = await root.check_access("grant", "cluster")
    assert own.rule == "user:root is a superuser"


async def test_mistakes_are_explained(root):
    await root.set_role("r", ["produce"])
    await root.add_binding("user:alice", ["r"], ["*"], binding_id="b")
    with pytest.raises(RoleInUse, match="remove the binding"):
        await root.delete_role("r")
    with pytest.raises(InvalidRequest, match="there is no permission 'fly'"):
        await root.set_role("r", ["fly"])
    with pytest.raises(InvalidRequest, match="must be a list"):
        await root.set_role("r", "produce")
    with pytest.raises(InvalidRequest, match="must be cluster"):
        await root.check_access("produce", "shop/orders")


async def test_delegated_administrator_grants_what_it_holds(guarded, root):
    await root.set_role("delegate", ["grant", "produce"])
    await root.add_binding("user:alice", ["delegate"], ["/shop/*"])
    async with client_of(guarded, ALICE) as client:
        given = await client.add_binding("user:bob", ["delegate"], ["/shop/orders"])
        assert given in {each.id for each in await client.bindings()}
        with pytest.raises(PermissionDenied, match="than they hold"):
            await client.add_binding("user:alice", ["admin"], ["/shop/*"])
