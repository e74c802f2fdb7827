"""
The roles and bindings in the metadata store, and the access policy that they make.

All brokers of a cluster follow the store, so a change decides on all of them within
seconds.  While the store does not answer, brokers decide by the policy that they know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    BindingNotFound,
    BrokerError,
    InvalidRequest,
    PermissionDenied,
    QuotaExceeded,
    RoleInUse,
    RoleNotFound,
)
from pydanube.model.names import parse_client_name
from pydanube.security.permissions import Permission
from pydanube.security.policy import (
    BUILT_IN_ROLES,
    AccessPolicy,
    Binding,
    Decision,
    Role,
    members_of,
    principal_of,
)
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube_broker.cluster.mirror import follow
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import BindingRecord, RoleRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Comparison,
    MetadataStore,
    Put,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)

ROLES_MAX = 1000
BINDINGS_MAX = 10_000
RETRY_S = 1.0

_PERMISSIONS = {each.value: each for each in Permission}

R = TypeVar("R", Role, Binding)

IsSuperuser = Callable[[Principal], bool]


class AccessControl:
    """The access policy of a broker; opened by ``open_access_control``."""

    def __init__(
        self,
        store: MetadataStore,
        wall_clock_us: Callable[[], int],
        is_superuser: IsSuperuser | None = None,
        *,
        roles_max: int = ROLES_MAX,
        bindings_max: int = BINDINGS_MAX,
    ) -> None:
        """Without *is_superuser*, the policy is kept but not enforced."""
        self._roles_max = roles_max
        self._bindings_max = bindings_max
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._is_superuser = is_superuser or (lambda _: False)
        self.is_enforced = is_superuser is not None
        """Whether clients may do only what the policy permits them."""
        self.policy = AccessPolicy(is_superuser=self._is_superuser)
        self.on_change: list[Callable[[], None]] = []
        """Called in the event loop after the policy has changed."""
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()

    # Roles.

    async def set_role(self, principal: Principal, role: Role) -> None:
        """
        Define a role, or change what it permits.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: The role is malformed, or built in.
            PermissionDenied: *principal* does not hold what the role permits.
            QuotaExceeded: There are *roles_max* roles.
        """
        await self._check_may_grant(principal)
        role.check()
        _check_not_built_in(role.name)
        await retry_on_conflict(partial(self._try_set_role, principal, role))

    async def _try_set_role(self, principal: Principal, role: Role) -> None:
        # The policy is read after what the change compares, so it is not older.
        key = keys.ROLES.key(role.name)
        stored = await self._store.get(key)
        await self.load()
        if stored is None and len(self.policy.roles) >= self._roles_max:
            raise QuotaExceeded(f"there are {self._roles_max} roles, the most allowed")
        if self.is_enforced:
            self.policy.check_may_define(principal, role)
            if stored is not None:
                # A change may also take permissions away.
                before = _role_of(role.name, stored.value)
                if not self.policy.sees_role(principal, before):
                    raise PermissionDenied(
                        f"{members_of(principal)[0]} may not define the role "
                        f"{role.name!r}; choose another name"
                    )
                self.policy.check_may_define(principal, before)
        record = RoleRecord(
            permissions=tuple(sorted(each.value for each in role.permissions)),
            patterns=role.patterns,
            created_at=self._wall_clock_us(),
        )
        expected = ABSENT if stored is None else stored.revision
        await self._store.put(key, record, expected=expected)
        await self.load()

    async def delete_role(self, principal: Principal, name: str) -> None:
        """
        Delete a role.

        Raises:
            InvalidRequest: The role is built in.
            RoleNotFound: It does not exist, or *principal* may not know it.
            RoleInUse: A binding has it.
            PermissionDenied: *principal* does not hold what the role permits.
        """
        await self._check_may_grant(principal)
        _check_not_built_in(name)
        await retry_on_conflict(partial(self._try_delete_role, principal, name))

    async def _try_delete_role(self, principal: Principal, name: str) -> None:
        key = keys.ROLES.key(parse_client_name("role", name))
        stored = await self._store.get(key)
        await self.load()
        if stored is None or not self._sees_role(
            principal, role := _role_of(name, stored.value)
        ):
            raise RoleNotFound(f"there is no role {name!r}")
        if self.is_enforced:
            self.policy.check_may_define(principal, role)
        for binding in self.policy.bindings.values():
            if name in binding.roles:
                seen = self._sees_binding(principal, binding)
                by = f"{binding.member} by the binding {binding.id!r}"
                raise RoleInUse(
                    f"the role {name!r} is bound{f' to {by}' if seen else ''}; remove "
                    "the binding first"
                )
        await self._store.delete(key, expected=stored.revision)
        await self.load()

    # Bindings.

    async def add_binding(self, principal: Principal, binding: Binding) -> None:
        """
        Bind roles to a member; replace an earlier binding of the same id.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: The binding is malformed.
            RoleNotFound: One of the roles does not exist, or *principal* may not know
                it.
            PermissionDenied: *principal* does not hold what the binding gives.
            QuotaExceeded: There are *bindings_max* bindings.
        """
        await self._check_may_grant(principal)
        binding.check()
        await retry_on_conflict(partial(self._try_add, principal, binding))

    async def _try_add(self, principal: Principal, binding: Binding) -> None:
        key = keys.BINDINGS.key(binding.id)
        stored = await self._store.get(key)
        comparisons: list[Comparison] = [unchanged(key, stored)]
        roles = {}
        for name in binding.roles:
            if name not in BUILT_IN_ROLES:
                role_key = keys.ROLES.key(parse_client_name("role", name))
                roles[name] = role = await self._store.get(role_key)
                comparisons.append(unchanged(role_key, role))
        await self.load()
        for name, role in roles.items():
            if role is None or not self._sees_role(
                principal, _role_of(name, role.value)
            ):
                raise RoleNotFound(f"there is no role {name!r}; define it first")
        if stored is None and len(self.policy.bindings) >= self._bindings_max:
            raise QuotaExceeded(
                f"there are {self._bindings_max} bindings, the most allowed"
            )
        if self.is_enforced:
            self.policy.check_may_bind(principal, binding)
            before = None if stored is None else _binding_of(binding.id, stored.value)
            is_hidden = before is not None and not self.policy.sees_binding(
                principal, before
            )
            # Ids that are derived can be guessed, so that their refusal says nothing.
            is_odd = before is None and binding.has_id_of_another
            if is_hidden or (is_odd and not self.policy.sees_all_bindings(principal)):
                raise PermissionDenied(
                    f"{members_of(principal)[0]} may not use the id {binding.id!r} for "
                    "a binding; choose another one, or leave it out"
                )
            if before is not None:
                self.policy.check_may_bind(principal, before)
        record = BindingRecord(
            member=binding.member,
            roles=binding.roles,
            patterns=binding.patterns,
            created_at=self._wall_clock_us(),
            is_service_account=binding.is_service_account,
        )
        await self._store.transaction(comparisons, [Put(key, record)])
        await self.load()

    async def remove_binding(self, principal: Principal, binding_id: str) -> None:
        """
        Remove a binding.

        Raises:
            BindingNotFound: It does not exist, or *principal* may not know it.
            PermissionDenied: *principal* does not hold what the binding gives.
        """
        await self._check_may_grant(principal)
        key = keys.BINDINGS.key(parse_client_name("binding", binding_id))
        stored = await self._store.get(key)
        await self.load()
        if stored is None or not self._sees_binding(
            principal, binding := _binding_of(binding_id, stored.value)
        ):
            raise BindingNotFound(f"there is no binding {binding_id!r}")
        if self.is_enforced:
            self.policy.check_may_bind(principal, binding)
        await self._store.delete(key, expected=stored.revision)
        await self.load()

    async def _check_may_grant(self, principal: Principal) -> None:
        """Raise if *principal* may change nothing, so that it learns nothing."""
        if not self.is_enforced:
            return
        await self.load()
        if not self.policy.holds_anywhere(principal, Permission.GRANT):
            raise PermissionDenied(
                f"{members_of(principal)[0]} may not change roles and bindings: that "
                f"needs the permission {Permission.GRANT.value}"
            )

    def _sees_role(self, principal: Principal, role: Role) -> bool:
        return not self.is_enforced or self.policy.sees_role(principal, role)

    def _sees_binding(self, principal: Principal, binding: Binding) -> bool:
        return not self.is_enforced or self.policy.sees_binding(principal, binding)

    # Questions.

    def visible_roles(self, principal: Principal) -> list[Role]:
        """Return the roles that *principal* may know."""
        if self.is_enforced:
            return self.policy.visible_roles(principal)
        return self.policy.all_roles()

    def visible_bindings(self, principal: Principal) -> list[Binding]:
        """Return the bindings that *principal* may know, by id."""
        if self.is_enforced:
            return self.policy.visible_bindings(principal)
        return [binding for _, binding in sorted(self.policy.bindings.items())]

    def check_access(
        self,
        principal: Principal,
        member: str,
        permission: Permission,
        resource: Resource,
    ) -> Decision:
        """
        Decide whether *member* has *permission*; an empty member is *principal*.

        A policy that is not enforced decides as if it were.

        Raises:
            InvalidName: *member* is malformed.
            PermissionDenied: *principal* asks about another member, and may not grant
                on *resource*.
        """
        asked = principal_of(member) if member else principal
        if self.is_enforced and not (
            set(members_of(asked)) <= set(members_of(principal))
            or self.policy.decide(principal, Permission.GRANT, resource).allowed
        ):
            raise PermissionDenied(
                f"{members_of(principal)[0]} may not ask what {member} may do on "
                f"{resource}: that needs the permission {Permission.GRANT.value} on it"
            )
        return self.policy.decide(asked, permission, resource)

    # Following the store.

    async def run(self) -> None:
        """Follow the store until cancelled."""

        def wake(_: object) -> None:
            self._wake.set()

        async with task_scope() as tasks:
            roles = follow(self._store, keys.ROLES, wake)
            tasks.run(roles, "follow the roles")
            bindings = follow(self._store, keys.BINDINGS, wake)
            tasks.run(bindings, "follow the bindings")
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self.load()
                except BrokerError as error:
                    log.warning("the access policy cannot be read now: %s", error)
                    await asyncio.sleep(RETRY_S)
                    self._wake.set()

    async def load(self) -> None:
        """
        Read the policy from the store, as its changes also do.

        A damaged role or binding gives nothing.
        """
        async with self._lock:
            roles, bindings = {}, {}
            for path, role in await self._store.scan_valid(keys.ROLES):
                name = keys.ROLES.name_of(path)
                if (found := _checked(_role_of(name, role.value))) is not None:
                    roles[name] = found
            for path, record in await self._store.scan_valid(keys.BINDINGS):
                name = keys.BINDINGS.name_of(path)
                if (binding := _checked(_binding_of(name, record.value))) is not None:
                    bindings[name] = binding
            policy = AccessPolicy(roles, bindings, self._is_superuser)
            if policy == self.policy:
                return
            self.policy = policy
        for listener in self.on_change:
            listener()


@asynccontextmanager
async def open_access_control(
    store: MetadataStore,
    wall_clock_us: Callable[[], int],
    is_superuser: IsSuperuser | None = None,
    *,
    roles_max: int = ROLES_MAX,
    bindings_max: int = BINDINGS_MAX,
) -> AsyncIterator[AccessControl]:
    """Read the access policy, and follow it during the body; see ``AccessControl``."""
    access = AccessControl(
        store,
        wall_clock_us,
        is_superuser,
        roles_max=roles_max,
        bindings_max=bindings_max,
    )
    await access.load()
    async with task_scope() as tasks:
        tasks.run(access.run(), "follow the access policy")
        yield access


def _role_of(name: str, record: RoleRecord) -> Role:
    # A permission that only newer brokers know permits nothing here.
    known = (_PERMISSIONS[each] for each in record.permissions if each in _PERMISSIONS)
    return Role(name, frozenset(known), record.patterns)


def _binding_of(binding_id: str, record: BindingRecord) -> Binding:
    return Binding(
        record.member,
        record.roles,
        record.patterns,
        binding_id,
        is_service_account=record.is_service_account,
    )


def _checked(rule: R) -> R | None:
    """Return *rule*, or None if this broker does not understand it."""
    try:
        rule.check()
    except InvalidRequest as error:
        log.warning("leaving out %s: %s", rule, error)
        return None
    return rule


def _check_not_built_in(name: str) -> None:
    if name in BUILT_IN_ROLES:
        raise InvalidRequest(
            f"the role {name!r} is built in and cannot be changed; choose another name"
        )
