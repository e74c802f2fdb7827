"""The handlers of operations on roles, bindings and identities."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from pydanube.security.permissions import parse_permission
from pydanube.security.policy import Binding, Role
from pydanube.security.resources import Resource
from pydanube.servers.native.link import ClientLink
from pydanube.servers.native.requests import Handlers
from pydanube.wire.pb import stream_pb2 as pb

ACCESS_REQUESTS: Handlers[Callable[[ClientLink, Any], Awaitable[Message | None]]] = (
    Handlers()
)


@ACCESS_REQUESTS.handler(pb.ListRoles)
async def _list_roles(link: ClientLink, _: pb.ListRoles) -> pb.Roles:
    roles = link.broker.access.visible_roles(link.principal)
    return pb.Roles(
        roles=[
            pb.Role(
                name=role.name,
                permissions=sorted(each.value for each in role.permissions),
                patterns=role.patterns,
                is_built_in=role.is_built_in,
            )
            for role in roles
        ]
    )


@ACCESS_REQUESTS.handler(pb.SetRole)
async def _set_role(link: ClientLink, m: pb.SetRole) -> None:
    role = Role(
        m.role.name,
        frozenset(map(parse_permission, m.role.permissions)),
        tuple(m.role.patterns),
    )
    await link.broker.access.set_role(link.principal, role)


@ACCESS_REQUESTS.handler(pb.DeleteRole)
async def _delete_role(link: ClientLink, m: pb.DeleteRole) -> None:
    await link.broker.access.delete_role(link.principal, m.name)


@ACCESS_REQUESTS.handler(pb.ListBindings)
async def _list_bindings(link: ClientLink, _: pb.ListBindings) -> pb.Bindings:
    bindings = link.broker.access.visible_bindings(link.principal)
    return pb.Bindings(
        bindings=[
            pb.Binding(
                id=each.id, member=each.member, roles=each.roles, patterns=each.patterns
            )
            for each in bindings
        ]
    )


@ACCESS_REQUESTS.handler(pb.AddBinding)
async def _add_binding(link: ClientLink, m: pb.AddBinding) -> pb.BindingAdded:
    given = m.binding
    binding = Binding(given.member, tuple(given.roles), tuple(given.patterns), given.id)
    await link.broker.access.add_binding(link.principal, binding)
    return pb.BindingAdded(id=binding.id)


@ACCESS_REQUESTS.handler(pb.RemoveBinding)
async def _remove_binding(link: ClientLink, m: pb.RemoveBinding) -> None:
    await link.broker.access.remove_binding(link.principal, m.id)


@ACCESS_REQUESTS.handler(pb.WhoAmI)
async def _who_am_i(link: ClientLink, _: pb.WhoAmI) -> pb.Identity:
    access, principal = link.broker.access, link.principal
    return pb.Identity(
        name=principal.name,
        method=principal.method,
        groups=principal.groups,
        is_superuser=access.policy.is_superuser(principal),
        is_enforced=access.is_enforced,
    )


@ACCESS_REQUESTS.handler(pb.CheckAccess)
async def _check_access(link: ClientLink, m: pb.CheckAccess) -> pb.AccessDecision:
    decision = link.broker.access.check_access(
        link.principal,
        m.member,
        parse_permission(m.permission),
        Resource.parse(m.resource),
    )
    return pb.AccessDecision(allowed=decision.allowed, rule=decision.rule)
