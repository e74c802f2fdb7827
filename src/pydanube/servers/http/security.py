"""Roles, bindings and API keys in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass

from pydanube.model.api_keys import ApiKeyDescription, NewApiKey
from pydanube.model.errors import InvalidRequest
from pydanube.security.permissions import parse_permission
from pydanube.security.policy import Binding, Decision, Role
from pydanube.security.principals import Method
from pydanube.security.resources import ALL, Resource
from pydanube.servers.http.endpoints import Call, Endpoints
from pydanube.wire.native.kinds import Kind

ROLE = "/security/roles/{name}"
BINDING = "/security/bindings/{id}"
KEY = "/security/keys/{name}"

SECURITY = Endpoints()


# Identities.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """The principal that a client is to the broker."""

    name: str
    method: Method
    groups: tuple[str, ...]
    is_superuser: bool
    is_enforced: bool
    """Whether the broker enforces its access policy."""


@SECURITY.add("GET", "/security/whoami", Kind.WHO_AM_I)
async def who_am_i(call: Call[None]) -> ClientIdentity:
    """Return the principal that the client is."""
    access, principal = call.broker.access, call.principal
    return ClientIdentity(
        name=principal.name,
        method=principal.method,
        groups=principal.groups,
        is_superuser=access.policy.is_superuser(principal),
        is_enforced=access.is_enforced,
    )


@SECURITY.add(
    "GET",
    "/security/can",
    Kind.CHECK_ACCESS,
    query=("permission", "resource", "member"),
)
async def check_access(call: Call[None]) -> Decision:
    """
    Return whether a member has a permission on a resource, and the deciding rule.

    Without ``member``, it is the client itself.
    """
    for name in ("permission", "resource"):
        if name not in call.query:
            raise InvalidRequest(f"the query must have {name}, as in ?{name}=...")
    return call.broker.access.check_access(
        call.principal,
        call.query.get("member", ""),
        parse_permission(call.query["permission"]),
        Resource.parse(call.query["resource"]),
    )


# Roles.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """The body of ``PUT /security/roles/{name}``."""

    permissions: tuple[str, ...]
    patterns: tuple[str, ...] = (ALL,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDescription:
    """A role."""

    name: str
    permissions: tuple[str, ...]
    patterns: tuple[str, ...]
    is_built_in: bool


def _describe(role: Role) -> RoleDescription:
    return RoleDescription(
        name=role.name,
        permissions=tuple(sorted(each.value for each in role.permissions)),
        patterns=role.patterns,
        is_built_in=role.is_built_in,
    )


@SECURITY.add("GET", "/security/roles", Kind.LIST_ROLES)
async def list_roles(call: Call[None]) -> dict[str, list[RoleDescription]]:
    """Return the roles that the client may know."""
    roles = call.broker.access.visible_roles(call.principal)
    return {"roles": [_describe(each) for each in roles]}


@SECURITY.add("PUT", ROLE, Kind.SET_ROLE, body=RoleChange)
async def set_role(call: Call[RoleChange]) -> RoleDescription:
    """Define a role, or change what it permits."""
    permissions = frozenset(map(parse_permission, call.body.permissions))
    role = Role(call.path["name"], permissions, call.body.patterns)
    await call.broker.access.set_role(call.principal, role)
    return _describe(role)


@SECURITY.add("DELETE", ROLE, Kind.DELETE_ROLE, status=204)
async def delete_role(call: Call[None]) -> None:
    """Delete a role, which no binding may have."""
    await call.broker.access.delete_role(call.principal, call.path["name"])


# Bindings.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBinding:
    """The body of ``POST /security/bindings``."""

    member: str
    roles: tuple[str, ...]
    patterns: tuple[str, ...]
    id: str = ""
    """By default derived from the other fields."""
    is_service_account: bool = False
    """Whether Danube's tools call the user a service account; decides nothing."""


@SECURITY.add("GET", "/security/bindings", Kind.LIST_BINDINGS)
async def list_bindings(call: Call[None]) -> dict[str, list[Binding]]:
    """Return the bindings of the client, and those that it could remove."""
    return {"bindings": call.broker.access.visible_bindings(call.principal)}


@SECURITY.add(
    "POST", "/security/bindings", Kind.ADD_BINDING, body=NewBinding, status=201
)
async def add_binding(call: Call[NewBinding]) -> Binding:
    """Give roles to a member; this replaces a binding of the same id."""
    given = call.body
    binding = Binding(
        given.member,
        given.roles,
        given.patterns,
        given.id,
        is_service_account=given.is_service_account,
    )
    await call.broker.access.add_binding(call.principal, binding)
    return binding


@SECURITY.add("DELETE", BINDING, Kind.REMOVE_BINDING, status=204)
async def remove_binding(call: Call[None]) -> None:
    """Remove a binding."""
    await call.broker.access.remove_binding(call.principal, call.path["id"])


# API keys, which only superusers manage.


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRequest:
    """The body of ``POST /security/keys``."""

    name: str
    principal: str = ""
    """By default the name of the key."""
    groups: tuple[str, ...] = ()
    expires_at: int | None = None
    """Microseconds since 1970, UTC; null: the key does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The body of ``POST /security/keys/{name}/rotate``."""

    grace_s: float = 3600.0
    """How long earlier keys of this name stay valid."""
    expires_at: int | None = None
    """Microseconds since 1970, UTC; null: the new key does not expire."""


@SECURITY.add("GET", "/security/keys", Kind.LIST_API_KEYS)
async def list_api_keys(call: Call[None]) -> dict[str, list[ApiKeyDescription]]:
    """Return the API keys that are valid, without the keys themselves."""
    api_keys = call.authenticator.managed_api_keys(call.principal)
    return {"keys": await api_keys.list()}


@SECURITY.add(
    "POST", "/security/keys", Kind.CREATE_API_KEY, body=ApiKeyRequest, status=201
)
async def create_api_key(call: Call[ApiKeyRequest]) -> NewApiKey:
    """Create an API key; only this response has the key itself."""
    return await call.authenticator.managed_api_keys(call.principal).create(
        call.body.name,
        principal=call.body.principal or call.body.name,
        groups=call.body.groups,
        expires_at=call.body.expires_at,
    )


@SECURITY.add("DELETE", KEY, Kind.REVOKE_API_KEY, status=204)
async def revoke_api_key(call: Call[None]) -> None:
    """Revoke all API keys of a name."""
    await call.authenticator.managed_api_keys(call.principal).revoke(call.path["name"])


@SECURITY.add("POST", f"{KEY}/rotate", Kind.ROTATE_API_KEY, body=Rotation, status=201)
async def rotate_api_key(call: Call[Rotation]) -> NewApiKey:
    """Create another API key of a name; only this response has the key itself."""
    return await call.authenticator.managed_api_keys(call.principal).rotate(
        call.path["name"], grace_s=call.body.grace_s, expires_at=call.body.expires_at
    )
