"""Operations on roles, bindings and identities."""

from __future__ import annotations

from pydanube.security.permissions import parse_permission
from pydanube.security.policy import Binding, Role
from pydanube.security.resources import Resource
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import Call, operation


@operation
async def list_roles(call: Call, _: pb.ListRoles) -> pb.Roles:
    """Return the roles that the client may know."""
    roles = call.broker.access.visible_roles(call.principal)
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


@operation
async def set_role(call: Call, m: pb.SetRole) -> None:
    """Define a role, or change what it permits."""
    role = Role(
        m.role.name,
        frozenset(map(parse_permission, m.role.permissions)),
        tuple(m.role.patterns),
    )
    await call.broker.access.set_role(call.principal, role)


@operation
async def delete_role(call: Call, m: pb.DeleteRole) -> None:
    """Delete a role, which no binding may have."""
    await call.broker.access.delete_role(call.principal, m.name)


@operation
async def list_bindings(call: Call, _: pb.ListBindings) -> pb.Bindings:
    """Return the bindings of the client, and those that it could remove."""
    bindings = call.broker.access.visible_bindings(call.principal)
    return pb.Bindings(
        bindings=[
            pb.Binding(
                id=each.id, member=each.member, roles=each.roles, patterns=each.patterns
            )
            for each in bindings
        ]
    )


@operation
async def add_binding(call: Call, m: pb.AddBinding) -> pb.BindingAdded:
    """Give roles to a member; this replaces a binding of the same id."""
    given = m.binding
    binding = Binding(given.member, tuple(given.roles), tuple(given.patterns), given.id)
    await call.broker.access.add_binding(call.principal, binding)
    return pb.BindingAdded(id=binding.id)


@operation
async def remove_binding(call: Call, m: pb.RemoveBinding) -> None:
    """Remove a binding."""
    await call.broker.access.remove_binding(call.principal, m.id)


@operation
async def who_am_i(call: Call, _: pb.WhoAmI) -> pb.Identity:
    """Return the principal that the client is to the broker."""
    access, principal = call.broker.access, call.principal
    return pb.Identity(
        name=principal.name,
        method=principal.method,
        groups=principal.groups,
        is_superuser=access.policy.is_superuser(principal),
        is_enforced=access.is_enforced,
    )


@operation
async def check_access(call: Call, m: pb.CheckAccess) -> pb.AccessDecision:
    """
    Return whether a member has a permission, and the deciding rule.

    With a connector: whether the client and the author of the stored connector have it.
    """
    permission, resource = parse_permission(m.permission), Resource.parse(m.resource)
    if m.connector:
        decision = call.broker.connectors.decide(
            call.principal, m.connector, permission, resource
        )
    else:
        decision = call.broker.access.check_access(
            call.principal, m.member, permission, resource
        )
    return pb.AccessDecision(allowed=decision.allowed, rule=decision.rule)
