"""
The service ``danube_admin.SecurityAdmin``: roles and bindings.

Danube's roles are permissions without resources, and its bindings have one resource.
Its permissions stand for some of ours; our names are accepted, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.errors import BindingNotFound, InvalidRequest, RoleNotFound
from pydanube.model.names import TopicName, parse_client_name, parse_namespace
from pydanube.security.permissions import Permission
from pydanube.security.policy import (
    ANONYMOUS_MEMBER,
    BUILT_IN_ROLES,
    GROUP_MARK,
    USER_MARK,
    Binding,
    Role,
)
from pydanube.security.resources import ALL
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.governance.access_control import AccessControl
from pydanube_broker.servers.grpc.calls import CallContext
from pydanube_broker.servers.grpc.services import StatusError
from pydanube_broker.wire.grpc.status import StatusCode

PERMISSIONS: dict[str, frozenset[Permission]] = {
    "Lookup": frozenset({Permission.DESCRIBE}),
    "Produce": frozenset({Permission.PRODUCE}),
    "Consume": frozenset({Permission.CONSUME}),
    "ManageNamespace": frozenset({Permission.CREATE, Permission.MANAGE}),
    "ManageTopic": frozenset({Permission.CREATE, Permission.MANAGE}),
    "ManageSchema": frozenset({Permission.SCHEMA_WRITE, Permission.MANAGE}),
    "ManageBroker": frozenset({Permission.CLUSTER_ADMIN}),
    "ManageCluster": frozenset({Permission.CLUSTER_ADMIN, Permission.GRANT}),
}
"""Our permissions for each permission of Danube."""

CLUSTER, NAMESPACE, TOPIC = "cluster", "namespace", "topic"
OTHER = "patterns"
"""The scope of bindings that Danube's tools cannot make."""

SERVICE_ACCOUNT = "service_account"
"""The type of principals that are programs; they are users here."""

_MARKS = {"user": USER_MARK, SERVICE_ACCOUNT: USER_MARK, "group": GROUP_MARK}


class SecurityAdmin:
    """The service for the access policy of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def _access(self) -> AccessControl:
        return self._broker.access

    # Roles.

    async def create_role(
        self, request: pb.CreateRoleRequest, context: CallContext
    ) -> None:
        """Define a role on everything, or change what it permits."""
        named = request.role
        role = Role(named.name, _permissions_of(named.permissions))
        await self._access.set_role(context.principal, role)

    async def get_role(
        self, request: pb.GetRoleRequest, context: CallContext
    ) -> pb.GetRoleResponse:
        """Return one role."""
        for role in self._access.visible_roles(context.principal):
            if role.name == request.name:
                return pb.GetRoleResponse(role=_role_to_wire(role))
        raise RoleNotFound(f"there is no role {request.name!r}")

    async def list_roles(
        self, _: pb.Empty, context: CallContext
    ) -> pb.ListRolesResponse:
        """Return all roles."""
        roles = self._access.visible_roles(context.principal)
        return pb.ListRolesResponse(roles=map(_role_to_wire, roles))

    async def delete_role(
        self, request: pb.DeleteRoleRequest, context: CallContext
    ) -> None:
        """Delete a role, which no binding may have."""
        if request.name in BUILT_IN_ROLES:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"the role {request.name} is built in and cannot be deleted",
            )
        await self._access.delete_role(context.principal, request.name)

    # Bindings.

    async def create_binding(
        self, request: pb.CreateBindingRequest, context: CallContext
    ) -> None:
        """Bind roles to a user, a service account or a group."""
        given = request.binding
        mark = _MARKS.get(given.principal_type)
        if mark is None:
            raise InvalidRequest(
                f"the principal_type is {given.principal_type!r}; there are "
                + ", ".join(_MARKS)
            )
        binding = Binding(
            f"{mark}{given.principal_name}",
            tuple(given.role_names),
            _patterns_of(given.scope, given.resource_name),
            _id_of(given.scope, given.resource_name, given.id),
            is_service_account=given.principal_type == SERVICE_ACCOUNT,
        )
        await self._access.add_binding(context.principal, binding)

    async def get_binding(
        self, request: pb.GetBindingRequest, context: CallContext
    ) -> pb.GetBindingResponse:
        """Return one binding."""
        wanted = _id_of(request.scope, request.resource_name, request.binding_id)
        for binding in self._access.visible_bindings(context.principal):
            if binding.id == wanted:
                return pb.GetBindingResponse(binding=_binding_to_wire(binding))
        raise BindingNotFound(f"there is no binding {request.binding_id!r}")

    async def list_bindings(
        self, request: pb.ListBindingsRequest, context: CallContext
    ) -> pb.ListBindingsResponse:
        """Return the bindings of one scope and resource."""
        patterns = _patterns_of(request.scope, request.resource_name)
        found = self._access.visible_bindings(context.principal)
        return _bindings_to_wire(each for each in found if each.patterns == patterns)

    async def list_all_bindings(
        self, _: pb.Empty, context: CallContext
    ) -> pb.ListBindingsResponse:
        """Return all bindings."""
        return _bindings_to_wire(self._access.visible_bindings(context.principal))

    async def delete_binding(
        self, request: pb.DeleteBindingRequest, context: CallContext
    ) -> None:
        """Remove a binding."""
        binding_id = _id_of(request.scope, request.resource_name, request.binding_id)
        await self._access.remove_binding(context.principal, binding_id)


def _permissions_of(names: Iterable[str]) -> frozenset[Permission]:
    """
    Return the permissions that names of Danube, or of ours, stand for.

    Raises:
        InvalidRequest: There is no such permission.
    """
    own = {each.value: frozenset({each}) for each in Permission}
    known = {**own, **PERMISSIONS}
    found: frozenset[Permission] = frozenset()
    for name in names:
        if name not in known:
            raise InvalidRequest(
                f"there is no permission {name!r}; there are {', '.join(known)}"
            )
        found |= known[name]
    return found


def _role_to_wire(role: Role) -> pb.RoleDefinition:
    names = [name for name, each in PERMISSIONS.items() if each <= role.permissions]
    covered = frozenset[Permission]().union(*(PERMISSIONS[name] for name in names))
    names += sorted(each.value for each in role.permissions - covered)
    return pb.RoleDefinition(name=role.name, permissions=names, system=role.is_built_in)


def _patterns_of(scope: str, resource: str) -> tuple[str, ...]:
    """
    Return the patterns of a scope and resource of Danube.

    Raises:
        InvalidRequest: There is no such scope.
        InvalidName: *resource* is malformed.
    """
    match scope:
        case "cluster":
            return (ALL,)
        case "namespace":
            name = parse_namespace(resource.removeprefix("/"))
            return f"/{name}", f"/{name}/*"
        case "topic":
            return (str(TopicName.parse(resource)),)
    raise InvalidRequest(
        f"the scope is {scope!r}; there are {CLUSTER}, {NAMESPACE} and {TOPIC}"
    )


def _id_of(scope: str, resource: str, binding_id: str) -> str:
    """Return our id of a binding; Danube's ids are those of one resource."""
    if scope == OTHER:
        return parse_client_name("binding", binding_id)
    _patterns_of(scope, resource)
    parse_client_name("binding", binding_id)
    place = resource.strip("/").replace("/", ":")
    return ":".join(filter(None, (scope, place, binding_id)))


def _bindings_to_wire(bindings: Iterable[Binding]) -> pb.ListBindingsResponse:
    return pb.ListBindingsResponse(bindings=map(_binding_to_wire, bindings))


def _binding_to_wire(binding: Binding) -> pb.BindingDefinition:
    scope, resource, binding_id = OTHER, " ".join(binding.patterns), binding.id
    named, _, rest = binding.id.partition(":")
    if named in {CLUSTER, NAMESPACE, TOPIC}:
        count = {CLUSTER: 0, NAMESPACE: 1, TOPIC: 2}[named]
        *place, last = rest.split(":", count)
        at = f"/{'/'.join(place)}" if named == TOPIC else "".join(place)
        if _has_patterns(named, at, binding.patterns):
            scope, resource, binding_id = named, at, last
    kind, _, name = binding.member.partition(":")
    if binding.member == ANONYMOUS_MEMBER:
        name = binding.member
    if binding.is_service_account:
        kind = SERVICE_ACCOUNT
    return pb.BindingDefinition(
        id=binding_id,
        principal_type=kind,
        principal_name=name,
        role_names=binding.roles,
        scope=scope,
        resource_name=resource,
    )


def _has_patterns(scope: str, resource: str, patterns: tuple[str, ...]) -> bool:
    try:
        return _patterns_of(scope, resource) == patterns
    except InvalidRequest:
        return False
