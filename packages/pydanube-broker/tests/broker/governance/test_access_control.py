"""Roles and bindings in the metadata store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pydanube.model.errors import (
    BindingNotFound,
    InvalidName,
    InvalidRequest,
    PermissionDenied,
    QuotaExceeded,
    RoleInUse,
    RoleNotFound,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import BUILT_IN_ROLES, Binding, Role
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube_broker.broker.governance.access_control import open_access_control
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import key_of
from pydanube_broker.metadata.records import BindingRecord, RoleRecord
from pydanube_broker.metadata.sqlite import open_sqlite

ROOT = Principal("root", "certificate")
BOB = Principal("bob", "token")
ORDERS = Resource.parse("/shop/orders")
ROLE = Role("r", frozenset({Permission.PRODUCE, Permission.GRANT}), ("/shop/*",))


@pytest.fixture
async def store():
    async with open_sqlite(None) as opened:
        yield opened


@asynccontextmanager
async def opened(store, *, is_enforced=True, **limits):
    is_root = ROOT.__eq__
    async with open_access_control(
        store, lambda: 1, is_root if is_enforced else None, **limits
    ) as access:
        yield access


async def changed(access, check):
    """Wait until *check* holds for the policy."""
    wake = asyncio.Event()
    access.on_change.append(wake.set)
    while not check(access.policy):
        await wake.wait()
        wake.clear()


async def test_policy_is_there_after_a_restart(store):
    binding = Binding("user:bob", ("r", "viewer"), ("/shop/*",), "b")
    async with opened(store) as access:
        await access.set_role(ROOT, ROLE)
        await access.add_binding(ROOT, binding)
    async with opened(store) as access:
        assert access.policy.roles == {"r": ROLE}
        assert access.policy.bindings == {"b": binding}
        assert access.policy.decide(BOB, Permission.PRODUCE, ORDERS).allowed


async def test_another_broker_of_the_cluster_follows_changes(store):
    async with opened(store) as one, opened(store) as other:
        await one.set_role(ROOT, ROLE)
        await one.add_binding(ROOT, Binding("user:bob", ("r",), ("*",), "b"))
        await changed(other, lambda policy: "b" in policy.bindings)
        assert other.policy.decide(BOB, Permission.PRODUCE, ORDERS).allowed
        await one.remove_binding(ROOT, "b")
        await changed(other, lambda policy: not policy.bindings)
        assert not other.policy.decide(BOB, Permission.PRODUCE, ORDERS).allowed


async def test_nobody_gives_themselves_more(store):
    async with opened(store) as access:
        await access.set_role(ROOT, ROLE)
        await access.add_binding(ROOT, Binding("user:bob", ("r",), ("/shop/*",), "b"))
        before = access.policy
        everything = frozenset(Permission)
        for attempt in (
            access.add_binding(BOB, Binding("user:bob", ("admin",), ("*",))),
            access.add_binding(BOB, Binding("user:bob", ("viewer",), ("/*/*",))),
            access.set_role(BOB, Role("r", everything, ("/shop/*",))),
            access.set_role(BOB, Role("r", ROLE.permissions, ("*",))),
            access.set_role(BOB, Role("mine", everything)),
        ):
            with pytest.raises(PermissionDenied):
                await attempt
        assert access.policy == before
        # He may give away what he has, and take it back.
        given = Binding("user:eve", ("r",), ("/shop/orders",), "given")
        await access.add_binding(BOB, given)
        await access.remove_binding(BOB, "given")


async def test_change_needs_what_was_there_before_too(store):
    strong = Binding("user:eve", ("admin",), ("*",), "b2")
    async with opened(store) as access:
        await access.set_role(ROOT, ROLE)
        await access.add_binding(ROOT, Binding("user:bob", ("r",), ("/shop/*",), "b"))
        await access.add_binding(ROOT, strong)
        await access.set_role(ROOT, Role("strong", frozenset(Permission)))
        weak = Binding("user:eve", ("r",), ("/shop/orders",), "b2")
        for attempt in (
            access.add_binding(BOB, weak),
            access.remove_binding(BOB, "b2"),
            access.set_role(
                BOB, Role("strong", frozenset({Permission.PRODUCE}), ("/shop/*",))
            ),
            access.delete_role(BOB, "strong"),
        ):
            # The binding of somebody else is not there for Bob.
            with pytest.raises((PermissionDenied, BindingNotFound)):
                await attempt
        assert access.policy.bindings["b2"] == strong


async def test_role_is_deleted_only_without_bindings(store):
    async with opened(store) as access:
        await access.set_role(ROOT, ROLE)
        await access.add_binding(ROOT, Binding("user:bob", ("r",), ("*",), "b"))
        with pytest.raises(RoleInUse, match="user:bob"):
            await access.delete_role(ROOT, "r")
        await access.remove_binding(ROOT, "b")
        await access.delete_role(ROOT, "r")
        assert not access.policy.roles


async def test_what_does_not_exist_is_reported(store):
    async with opened(store) as access:
        with pytest.raises(RoleNotFound):
            await access.add_binding(ROOT, Binding("user:bob", ("r",), ("*",)))
        with pytest.raises(RoleNotFound):
            await access.delete_role(ROOT, "r")
        with pytest.raises(BindingNotFound):
            await access.remove_binding(ROOT, "b")
        for name in ("../b", "", "a\nb"):
            with pytest.raises(InvalidName):
                await access.remove_binding(ROOT, name)


@pytest.mark.parametrize("name", BUILT_IN_ROLES)
async def test_built_in_role_cannot_be_changed(store, name):
    async with opened(store) as access:
        with pytest.raises(InvalidRequest, match="built in"):
            await access.set_role(ROOT, Role(name, ROLE.permissions))
        with pytest.raises(InvalidRequest, match="built in"):
            await access.delete_role(ROOT, name)


async def test_number_of_roles_and_bindings_is_bounded(store):
    async with opened(store, roles_max=1, bindings_max=1) as access:
        await access.set_role(ROOT, ROLE)
        await access.set_role(ROOT, ROLE)
        with pytest.raises(QuotaExceeded):
            await access.set_role(ROOT, Role("r2", ROLE.permissions))
        await access.add_binding(ROOT, Binding("user:bob", ("r",), ("*",)))
        with pytest.raises(QuotaExceeded):
            await access.add_binding(ROOT, Binding("user:eve", ("r",), ("*",)))


async def test_records_of_newer_brokers_permit_nothing(store):
    record = RoleRecord(permissions=("produce", "fly"), patterns=("*",), created_at=1)
    odd = RoleRecord(permissions=("produce",), patterns=("??strange",), created_at=1)
    bad = BindingRecord(member="who?", roles=("r",), patterns=("*",), created_at=1)
    await store.put(keys.ROLES.key("r"), record)
    await store.put(keys.ROLES.key("odd"), odd)
    await store.put(keys.BINDINGS.key("bad"), bad)
    async with opened(store) as access:
        assert access.policy.roles == {"r": Role("r", frozenset({Permission.PRODUCE}))}
        assert not access.policy.bindings


async def test_policy_that_is_not_enforced_may_be_prepared_by_everybody(store):
    async with opened(store, is_enforced=False) as access:
        await access.add_binding(BOB, Binding("user:bob", ("admin",), ("*",)))
        assert access.check_access(BOB, "", Permission.MANAGE, ORDERS).allowed
        asked = access.check_access(BOB, "user:eve", Permission.MANAGE, ORDERS)
        assert not asked.allowed


async def test_only_those_who_may_grant_ask_about_others(store):
    async with opened(store) as access:
        produce = Permission.PRODUCE
        assert not access.check_access(BOB, "user:bob", produce, ORDERS).allowed
        with pytest.raises(PermissionDenied):
            access.check_access(BOB, "user:eve", produce, ORDERS)
        with pytest.raises(PermissionDenied):
            access.check_access(BOB, "group:any", produce, ORDERS)
        assert not access.check_access(ROOT, "user:eve", produce, ORDERS).allowed


async def test_damaged_role_gives_nothing_and_others_still_change(store):
    async with opened(store) as access:
        await access.set_role(ROOT, ROLE)
        await access.add_binding(ROOT, Binding("user:bob", ("r",), ("/shop/*",)))
        key = keys.ROLES.key("r")
        await store.put(key_of(key.path, str), "damaged")
        await changed(access, lambda policy: "r" not in policy.roles)
        assert not access.policy.decide(BOB, Permission.PRODUCE, ORDERS).allowed
        await access.set_role(ROOT, replace(ROLE, name="s"))
        await changed(access, lambda policy: "s" in policy.roles)
        assert key.path in store.damaged
