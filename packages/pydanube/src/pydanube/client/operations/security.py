"""The operations of a client on identities, access, API keys and quotas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pydanube.client.connections.requester import Requester
from pydanube.model.api_keys import ApiKeyDescription, NewApiKey
from pydanube.model.arguments import checks_arguments
from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Decision, Role
from pydanube.security.quotas import Quota, QuotaDescription
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

_PERMISSIONS = {each.value: each for each in Permission}


HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """The identity that a broker knows a client by."""

    name: str
    method: str
    """How it proved that: ``anonymous``, ``certificate``, ``api_key`` or ``token``."""
    groups: tuple[str, ...]
    is_superuser: bool
    is_enforced: bool
    """Whether the broker enforces its access policy."""


@checks_arguments
class Security:
    """Identities, roles, bindings, API keys and quotas; ``Client.security``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    # Identity and access.

    async def who_am_i(self) -> ClientIdentity:
        """Return who this client is for the broker."""
        found = await self._requester.send_request(pb.WhoAmI())
        return ClientIdentity(
            name=found.name,
            method=found.method,
            groups=tuple(found.groups),
            is_superuser=found.is_superuser,
            is_enforced=found.is_enforced,
        )

    async def check_access(
        self,
        permission: str,
        resource: str,
        *,
        member: str = "",
        connector: str = "",
    ) -> Decision:
        """
        Return whether the access policy permits something, and the rule that decided.

        Args:
            permission: For example ``produce``.
            resource: ``/namespace/topic``, ``/namespace``, ``subject:NAME`` or
                ``cluster``.
            member: ``user:NAME``, ``group:NAME`` or ``anonymous``; by default this
                client.
            connector: A stored connector: this client and the author of its definition
                must both have the permission.  Instead of *member*.

        Raises:
            NotFound: There is no such connector.
            InvalidRequest: There is no such permission, or a name is malformed.
            PermissionDenied: The client asks about another member and may not grant.
        """
        request = pb.CheckAccess(
            member=member,
            permission=permission,
            resource=resource,
            connector=connector,
        )
        answer = await self._requester.send_request(request)
        return Decision(answer.allowed, answer.rule)

    async def roles(self) -> list[Role]:
        """Return the roles that the client may know: its own, or all if it grants."""
        answer = await self._requester.send_request(pb.ListRoles())
        return [
            Role(
                each.name,
                # A newer broker may know more.
                frozenset(
                    _PERMISSIONS[name]
                    for name in each.permissions
                    if name in _PERMISSIONS
                ),
                tuple(each.patterns),
                each.is_built_in,
            )
            for each in answer.roles
        ]

    async def set_role(
        self, name: str, permissions: Iterable[str], patterns: Iterable[str] = ("*",)
    ) -> None:
        """
        Define a role, or change what it permits.

        Args:
            name: The name of the role.
            permissions: For example ``produce`` and ``consume``.
            patterns: The resources on which it permits that, such as ``/shop/*``;
                bindings narrow them further.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: The role is malformed, or built in.
            PermissionDenied: The client does not hold what the role permits.
        """
        role = pb.Role(
            name=name,
            permissions=list(permissions),
            patterns=list(patterns),
        )
        await self._requester.send_request(pb.SetRole(role=role))

    async def delete_role(self, name: str) -> None:
        """
        Delete a role.

        Raises:
            RoleNotFound: It does not exist.
            RoleInUse: A binding has it.
            PermissionDenied: The client does not hold what the role permits.
        """
        await self._requester.send_request(pb.DeleteRole(name=name))

    async def bindings(self) -> list[Binding]:
        """Return the bindings of the client, and those that it could remove."""
        answer = await self._requester.send_request(pb.ListBindings())
        return [
            Binding(each.member, tuple(each.roles), tuple(each.patterns), each.id)
            for each in answer.bindings
        ]

    async def add_binding(
        self,
        member: str,
        roles: Iterable[str],
        patterns: Iterable[str],
        *,
        binding_id: str = "",
    ) -> str:
        """
        Give roles to a member; return the id of the binding.

        Args:
            member: ``user:NAME``, ``group:NAME`` or ``anonymous``.
            roles: The names of the roles.
            patterns: The resources on which the roles apply, such as ``/shop/*``.
            binding_id: Its id; a binding that has it is replaced.  By default it
                follows from the other arguments.

        Durability: On return it is on disk.

        Raises:
            RoleNotFound: One of the roles does not exist.
            PermissionDenied: The client does not hold what the binding gives.
        """
        binding = pb.Binding(
            id=binding_id,
            member=member,
            roles=list(roles),
            patterns=list(patterns),
        )
        return str(
            (await self._requester.send_request(pb.AddBinding(binding=binding))).id
        )

    async def release_query(self, query: str) -> None:
        """
        Take its owner from a staged query; the next client that uses it owns it.

        A query of ``Client.staging``, a stream of Spark or ``transaction:NAME`` belongs
        to the principal that used it first.

        Raises:
            QueryNotFound: No principal owns the query.
            PermissionDenied: The client may not administer the cluster.
        """
        await self._requester.send_request(pb.ReleaseQuery(query=query))

    async def remove_binding(self, binding_id: str) -> None:
        """
        Remove a binding.

        Raises:
            BindingNotFound: It does not exist.
            PermissionDenied: The client does not hold what the binding gives.
        """
        await self._requester.send_request(pb.RemoveBinding(id=binding_id))

    # API keys, for superusers.

    async def create_api_key(
        self,
        name: str,
        *,
        principal: str | None = None,
        groups: Sequence[str] = (),
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """
        Create an API key, which only this call returns.

        Args:
            name: A name for administrators, to rotate and revoke the key.
            principal: The principal that clients with the key are; None: *name*.
            groups: The groups of the principal.
            expires_at: When the key expires, with a time zone; None: never.

        Raises:
            AlreadyExists: There is an API key of this name.
            PermissionDenied: This client is no superuser.
            InvalidRequest: A name is not allowed, or the broker uses no API keys.
        """
        answer = await self._requester.send_request(
            pb.CreateApiKey(
                name=name,
                principal=name if principal is None else principal,
                groups=groups,
                expires_at=_microseconds(expires_at),
            )
        )
        return from_wire(NewApiKey, answer)

    async def api_keys(self) -> list[ApiKeyDescription]:
        """
        Return the valid API keys, without the keys themselves.

        Raises:
            PermissionDenied: This client is no superuser.
        """
        found: list[ApiKeyDescription] = []
        has_more = True
        while has_more:
            after = found[-1].name if found else ""
            answer = await self._requester.send_request(pb.ListApiKeys(after=after))
            found += [from_wire(ApiKeyDescription, each) for each in answer.keys]
            has_more = answer.has_more
        return found

    async def revoke_api_key(self, name: str) -> None:
        """
        Revoke all keys of *name*; within seconds, their connections are closed.

        Raises:
            NotFound: There is no such API key.
            PermissionDenied: This client is no superuser.
        """
        await self._requester.send_request(pb.RevokeApiKey(name=name))

    async def rotate_api_key(
        self,
        name: str,
        *,
        grace: timedelta = HOUR,
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """
        Create another key of *name*, which only this call returns.

        Args:
            name: The name of the API key.
            grace: For how long earlier keys of the name stay valid.
            expires_at: When the new key expires, with a time zone; None: never.

        Raises:
            NotFound: There is no such API key.
            PermissionDenied: This client is no superuser.
        """
        answer = await self._requester.send_request(
            pb.RotateApiKey(
                name=name,
                grace_s=grace.total_seconds(),
                expires_at=_microseconds(expires_at),
            )
        )
        return from_wire(NewApiKey, answer)

    # Quotas.

    async def set_quota(self, target: str, quota: Quota) -> None:
        """
        Set what a principal, a namespace or a topic may use.

        Args:
            target: ``user:NAME``, ``anonymous``, ``/namespace`` or
                ``/namespace/topic``.
            quota: The limits, which replace an earlier quota as a whole.

        Durability: On return it is on disk.  All brokers apply it within seconds, also
            to open connections.

        Raises:
            InvalidRequest: A limit is out of range, or *target* cannot have it.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        await self._requester.send_request(
            pb.SetQuota(target=target, quota=to_wire(pb.Quota, quota))
        )

    async def remove_quota(self, target: str) -> None:
        """
        Remove the quota of *target*; a principal then has the default of the broker.

        Raises:
            NotFound: It has none.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        await self._requester.send_request(pb.RemoveQuota(target=target))

    async def quotas(self) -> list[QuotaDescription]:
        """
        Return the quotas that the client may see, by target.

        What is used is that of the broker that the client is connected to.
        """
        found: list[QuotaDescription] = []
        has_more = True
        while has_more:
            after = found[-1].target if found else ""
            answer = await self._requester.send_request(pb.ListQuotas(after=after))
            found += map(_from_wire, answer.quotas)
            has_more = answer.has_more
        return found

    async def describe_quota(self, target: str) -> QuotaDescription | None:
        """
        Return the quota that applies to *target*; None if the client may not see it.

        A principal without a quota of its own has the default of the broker.

        Raises:
            InvalidName: *target* is malformed.
        """
        answer = await self._requester.send_request(pb.ListQuotas(target=target))
        return _from_wire(answer.quotas[0]) if answer.quotas else None


def _microseconds(time: datetime | None) -> int | None:
    """
    Return microseconds since 1970.

    Raises:
        InvalidRequest: *time* has no time zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise InvalidRequest(
            f"expires_at is {time}, without a time zone: give one, such as "
            "datetime.now(UTC) + timedelta(days=90)"
        )
    return round(time.timestamp() * 1_000_000)


def _from_wire(message: pb.QuotaDescription) -> QuotaDescription:
    return QuotaDescription(
        target=message.target,
        quota=from_wire(Quota, message.quota),
        used=dict(message.used),
        throttled_s=message.throttled_s,
        refused_count=message.refused_count,
        is_default=message.is_default,
    )
