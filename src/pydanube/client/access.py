"""The operations of a client on roles, bindings and identities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydanube.client.quotas import QuotaRequests
from pydanube.model.arguments import checks_arguments
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Decision, Role
from pydanube.wire.pb import stream_pb2 as pb

_PERMISSIONS = {each.value: each for each in Permission}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity that a broker knows a client by."""

    name: str
    method: str
    """How it proved that: ``anonymous``, ``certificate``, ``api_key`` or ``token``."""
    groups: tuple[str, ...]
    is_superuser: bool
    is_enforced: bool
    """Whether the broker enforces its access policy."""


@checks_arguments
class AccessRequests(QuotaRequests):
    """The operations of ``Client`` on roles, bindings, identities and quotas."""

    async def who_am_i(self) -> Identity:
        """Return who this client is for the broker."""
        found = await self.send_request(pb.WhoAmI())
        return Identity(
            name=found.name,
            method=found.method,
            groups=tuple(found.groups),
            is_superuser=found.is_superuser,
            is_enforced=found.is_enforced,
        )

    async def check_access(
        self, permission: str, resource: str, *, member: str = ""
    ) -> Decision:
        """
        Return whether the access policy permits something, and the rule that decided.

        Args:
            permission: For example ``produce``.
            resource: ``/namespace/topic``, ``/namespace``, ``subject:NAME`` or
                ``cluster``.
            member: ``user:NAME``, ``group:NAME`` or ``anonymous``; by default this
                client.

        Raises:
            InvalidRequest: There is no such permission, or a name is malformed.
            PermissionDenied: The client asks about another member and may not grant.
        """
        request = pb.CheckAccess(
            member=member, permission=permission, resource=resource
        )
        answer = await self.send_request(request)
        return Decision(answer.allowed, answer.rule)

    async def roles(self) -> list[Role]:
        """Return the roles that the client may know: its own, or all if it grants."""
        answer = await self.send_request(pb.ListRoles())
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
        await self.send_request(pb.SetRole(role=role))

    async def delete_role(self, name: str) -> None:
        """
        Delete a role.

        Raises:
            RoleNotFound: It does not exist.
            RoleInUse: A binding has it.
            PermissionDenied: The client does not hold what the role permits.
        """
        await self.send_request(pb.DeleteRole(name=name))

    async def bindings(self) -> list[Binding]:
        """Return the bindings of the client, and those that it could remove."""
        answer = await self.send_request(pb.ListBindings())
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
        return str((await self.send_request(pb.AddBinding(binding=binding))).id)

    async def release_query(self, query: str) -> None:
        """
        Take its owner from a staged query; the next client that uses it owns it.

        A query of ``Client.staging``, a stream of Spark or ``transaction:NAME`` belongs
        to the principal that used it first.

        Raises:
            QueryNotFound: No principal owns the query.
            PermissionDenied: The client may not administer the cluster.
        """
        await self.send_request(pb.ReleaseQuery(query=query))

    async def remove_binding(self, binding_id: str) -> None:
        """
        Remove a binding.

        Raises:
            BindingNotFound: It does not exist.
            PermissionDenied: The client does not hold what the binding gives.
        """
        await self.send_request(pb.RemoveBinding(id=binding_id))
