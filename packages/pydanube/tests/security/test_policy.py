"""The access policy: what it permits, and who may change it."""

from __future__ import annotations

import pytest

from pydanube.model.errors import InvalidName, InvalidRequest, PermissionDenied
from pydanube.security.permissions import Permission
from pydanube.security.policy import (
    BUILT_IN_ROLES,
    AccessPolicy,
    Binding,
    Role,
    members_of,
    principal_of,
)
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.resources import CLUSTER, Resource

ALICE = Principal("alice", "certificate", ("ops", "shop"))
BOB = Principal("bob", "token")
ORDERS = Resource.parse("/shop/orders")


def policy_of(*bindings, roles=(), superusers=()):
    return AccessPolicy(
        {role.name: role for role in roles},
        {binding.id: binding for binding in bindings},
        lambda principal: not set(superusers).isdisjoint(members_of(principal)),
    )


def bind(member, role, *patterns):
    return Binding(member, (role,), patterns)


@pytest.mark.parametrize("permission", Permission)
@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE])
@pytest.mark.parametrize("resource", [CLUSTER, ORDERS])
def test_nothing_is_permitted_without_a_binding(permission, principal, resource):
    decision = policy_of().decide(principal, permission, resource)
    assert not decision.allowed
    assert members_of(principal)[0] in decision.rule


@pytest.mark.parametrize("permission", Permission)
def test_superuser_may_do_everything(permission):
    policy = policy_of(superusers=["user:alice"])
    assert policy.decide(ALICE, permission, CLUSTER).allowed
    assert not policy.decide(BOB, permission, CLUSTER).allowed


def test_permission_anywhere_is_known():
    policy = policy_of(
        bind("user:bob", "producer", "/shop/*"), superusers=["user:alice"]
    )
    assert policy.holds_anywhere(BOB, Permission.PRODUCE)
    assert not policy.holds_anywhere(BOB, Permission.CONSUME)
    assert policy.holds_anywhere(ALICE, Permission.GRANT)
    assert not policy.holds_anywhere(ANONYMOUS, Permission.DESCRIBE)


def test_own_bindings_and_roles_are_visible_and_others_to_those_who_grant():
    role = Role("secret", frozenset({Permission.CONSUME}), ("/bank/*",))
    mine = bind("user:bob", "producer", "/shop/*")
    other = bind("user:eve", "secret", "*")
    policy = policy_of(mine, other, roles=[role], superusers=["user:alice"])
    assert policy.visible_bindings(BOB) == [mine]
    assert role not in policy.visible_roles(BOB)
    assert role in policy.visible_roles(Principal("eve", "token"))
    assert set(policy.visible_bindings(ALICE)) == {mine, other}
    assert role in policy.visible_roles(ALICE)


def test_superusers_may_be_a_group():
    policy = policy_of(superusers=["group:ops"])
    assert policy.decide(ALICE, Permission.GRANT, CLUSTER).allowed
    assert not policy.decide(
        Principal("ops", "token"), Permission.GRANT, CLUSTER
    ).allowed


@pytest.mark.parametrize("member", ["user:alice", "group:shop"])
def test_binding_of_the_name_or_a_group_permits(member):
    binding = bind(member, "consumer", "/shop/*")
    decision = policy_of(binding).decide(ALICE, Permission.CONSUME, ORDERS)
    assert decision.allowed
    assert binding.id in decision.rule
    assert "'consumer'" in decision.rule
    assert member in decision.rule


@pytest.mark.parametrize(
    "principal",
    [
        BOB,
        ANONYMOUS,
        Principal("group:shop", "token"),
        Principal("Alice", "token"),
        Principal("alice ", "token"),
        Principal("shop", "token"),
        Principal("user:alice", "token"),
        Principal("alice", "anonymous"),
    ],
)
def test_binding_does_not_permit_to_others(principal):
    policy = policy_of(
        bind("user:alice", "consumer", "/shop/*"),
        bind("group:shop", "consumer", "/shop/*"),
    )
    assert not policy.decide(principal, Permission.CONSUME, ORDERS).allowed


def test_user_with_the_name_anonymous_is_not_anonymous():
    policy = policy_of(bind("anonymous", "consumer", "/shop/*"))
    assert policy.decide(ANONYMOUS, Permission.CONSUME, ORDERS).allowed
    named = Principal("anonymous", "api_key")
    assert not policy.decide(named, Permission.CONSUME, ORDERS).allowed


def test_role_applies_where_its_own_patterns_and_those_of_the_binding_match():
    role = Role("r", frozenset({Permission.PRODUCE}), ("/shop/*",))
    policy = policy_of(bind("user:bob", "r", "/*/orders"), roles=[role])

    def may(text):
        return policy.decide(BOB, Permission.PRODUCE, Resource.parse(text)).allowed

    assert may("/shop/orders")
    assert not may("/shop/returns")
    assert not may("/bank/orders")


def test_binding_to_a_role_that_does_not_exist_gives_nothing():
    policy = policy_of(bind("user:bob", "gone", "*"))
    assert not policy.decide(BOB, Permission.DESCRIBE, ORDERS).allowed


def test_permission_on_a_topic_shows_its_namespace_and_no_other():
    policy = policy_of(bind("user:bob", "consumer", "/shop/orders"))

    def sees(text):
        return policy.decide(BOB, Permission.DESCRIBE, Resource.parse(text)).allowed

    assert sees("/shop/orders")
    assert sees("/shop")
    assert not sees("/bank")
    assert not sees("/shop/returns")
    assert not policy.decide(BOB, Permission.MANAGE, Resource.parse("/shop")).allowed


def test_stored_role_cannot_replace_a_built_in_one():
    everything = Role("viewer", frozenset(Permission))
    policy = policy_of(bind("user:bob", "viewer", "*"), roles=[everything])
    assert not policy.decide(BOB, Permission.PRODUCE, ORDERS).allowed


def test_role_admin_has_every_permission():
    assert BUILT_IN_ROLES["admin"].permissions == frozenset(Permission)


# Changes.


def test_nobody_binds_a_role_with_more_than_they_hold():
    granter = Role("granter", frozenset({Permission.GRANT, Permission.PRODUCE}))
    policy = policy_of(bind("user:bob", "granter", "/shop/*"), roles=[granter])
    policy.check_may_bind(BOB, bind("user:eve", "granter", "/shop/*"))
    policy.check_may_bind(BOB, bind("user:eve", "granter", "/shop/orders"))
    for binding in (
        bind("user:bob", "granter", "*"),
        bind("user:bob", "granter", "/*/*"),
        bind("user:bob", "granter", "/shop/orders", "/bank/orders"),
        bind("user:bob", "consumer", "/shop/orders"),
        bind("user:bob", "admin", "/shop/orders"),
        bind("group:any", "admin", "*"),
        bind("user:eve", "granter", "/shop"),
        bind("user:eve", "granter", "/system/audit"),
    ):
        with pytest.raises(PermissionDenied):
            policy.check_may_bind(BOB, binding)


def test_grants_of_several_bindings_are_not_mixed():
    # He holds GRANT on one topic and PRODUCE on another.
    roles = [
        Role("g", frozenset({Permission.GRANT})),
        Role("p", frozenset({Permission.PRODUCE})),
    ]
    policy = policy_of(
        bind("user:bob", "g", "/shop/a"), bind("user:bob", "p", "/shop/b"), roles=roles
    )
    for topic in ("/shop/a", "/shop/b"):
        with pytest.raises(PermissionDenied):
            policy.check_may_bind(BOB, bind("user:eve", "p", topic))


def test_permission_without_grant_does_not_suffice_to_bind():
    policy = policy_of(bind("user:bob", "producer", "*"))
    with pytest.raises(PermissionDenied, match="grant"):
        policy.check_may_bind(BOB, bind("user:eve", "producer", "/shop/orders"))


def test_nobody_defines_a_role_with_more_than_they_hold():
    granter = Role("granter", frozenset({Permission.GRANT, Permission.PRODUCE}))
    policy = policy_of(bind("user:bob", "granter", "/shop/*"), roles=[granter])
    produce = frozenset({Permission.PRODUCE})
    policy.check_may_define(BOB, Role("mine", produce, ("/shop/a*",)))
    with pytest.raises(PermissionDenied):
        policy.check_may_define(BOB, Role("mine", produce, ("/shop/a", "/bank/a")))
    with pytest.raises(PermissionDenied):
        policy.check_may_define(BOB, Role("mine", produce))
    with pytest.raises(PermissionDenied):
        policy.check_may_define(
            BOB, Role("mine", frozenset({Permission.CONSUME}), ("/shop/a",))
        )


def test_administrator_and_superuser_may_grant_everything():
    policy = policy_of(bind("group:ops", "admin", "*"), superusers=["user:bob"])
    for principal in (ALICE, BOB):
        policy.check_may_bind(principal, bind("user:eve", "admin", "*"))
        policy.check_may_define(principal, BUILT_IN_ROLES["admin"])


# Form.


@pytest.mark.parametrize(
    "member",
    ["alice", "user:", "", "User:alice", "user:a\nb", "role:x", "user:" + "x" * 1000],
)
def test_malformed_member_is_refused(member):
    with pytest.raises(InvalidName):
        bind(member, "viewer", "*").check()
    with pytest.raises(InvalidName):
        principal_of(member)


@pytest.mark.parametrize(
    "member", ["user:alice", "group:ops", "anonymous", "user:CN=a, O=b"]
)
def test_member_stands_for_a_principal(member):
    assert members_of(principal_of(member)) == (member,)


def test_binding_of_the_same_content_has_the_same_id():
    first, second = (bind("user:a", "viewer", "/x/*") for _ in range(2))
    assert first.id == second.id
    assert first.id != bind("user:a", "viewer", "/x/y").id
    assert Binding("user:a", ("viewer",), ("*",), "mine").id == "mine"


def test_role_and_binding_need_permissions_roles_and_patterns():
    some = frozenset({Permission.PRODUCE})
    for malformed in (
        Role("r", frozenset()),
        Role("r", some, ()),
        Role("r", some, tuple(f"/a/{n}" for n in range(101))),
        Binding("user:a", (), ("*",)),
        Binding("user:a", ("viewer",), ()),
    ):
        with pytest.raises(InvalidRequest):
            malformed.check()
    for malformed in (Role("a/b", some), Role("r", some, ("/a/../b",))):
        with pytest.raises(InvalidName):
            malformed.check()
