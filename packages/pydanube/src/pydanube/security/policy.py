"""
The access policy: roles, bindings of them to principals, and decisions.

A *role* permits actions on the resources that match its patterns.  A *binding* gives
roles to a member, on the resources that match the patterns of the binding as well.
What no binding permits is denied.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import product
from types import MappingProxyType
from typing import Final

from pydanube.model.errors import InvalidName, InvalidRequest, PermissionDenied
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import parse_client_name
from pydanube.security.permissions import Permission, is_included
from pydanube.security.principals import Principal
from pydanube.security.resources import (
    ALL,
    Resource,
    ResourcePattern,
    Scope,
    pattern_of,
)

PATTERNS_MAX = 100
"""The maximum number of patterns of a role or a binding."""
MEMBER_CHARACTERS_MAX = 1000
ANONYMOUS_MEMBER: Final = "anonymous"
"""The member that stands for clients without credentials."""
USER_MARK: Final = "user:"
GROUP_MARK: Final = "group:"


_DERIVED_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Role:
    """A named set of permissions, on the resources that match its patterns."""

    name: str
    permissions: frozenset[Permission]
    patterns: tuple[str, ...] = (ALL,)
    is_built_in: bool = False

    def check(self) -> None:
        """
        Raise if the role is not well-formed.

        Raises:
            InvalidName: The name or a pattern is malformed.
            InvalidRequest: It has no permissions, no patterns, or too many patterns.
        """
        parse_client_name("role", self.name)
        if not self.permissions:
            raise InvalidRequest(
                f"the role {self.name!r} has no permissions; name at least one of "
                + ", ".join(each.value for each in Permission)
            )
        _check_patterns(f"role {self.name!r}", self.patterns)


@dataclass(frozen=True, slots=True)
class Binding:
    """Roles of one member, on the resources that match the patterns."""

    member: str
    """``user:NAME``, ``group:NAME`` or ``anonymous``."""
    roles: tuple[str, ...]
    patterns: tuple[str, ...]
    id: str = ""
    """Its name; by default derived from the other fields."""
    is_service_account: bool = False
    """Whether Danube's tools call the user a service account; decides nothing."""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", self.derived_id)

    @property
    def derived_id(self) -> str:
        """The id by default."""
        text = repr((self.member, self.roles, self.patterns))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]

    @property
    def has_id_of_another(self) -> bool:
        """Whether its id is like that of another binding, derived from its fields."""
        is_like = bool(_DERIVED_ID.fullmatch(self.id))
        return is_like and self.id != self.derived_id

    def check(self) -> None:
        """
        Raise if the binding is not well-formed.

        Raises:
            InvalidName: The id, the member or a pattern is malformed.
            InvalidRequest: It has no roles, no patterns, or too many of them.
        """
        parse_client_name("binding", self.id)
        check_member(self.member)
        if not self.roles or len(self.roles) > PATTERNS_MAX:
            raise InvalidRequest(
                f"a binding has 1 to {PATTERNS_MAX} roles, not {len(self.roles)}"
            )
        _check_patterns("binding", self.patterns)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is permitted, and the rule that decided."""

    allowed: bool
    rule: str


def _built_in(name: str, *permissions: Permission) -> Role:
    return Role(name, frozenset(permissions), is_built_in=True)


BUILT_IN_ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            _built_in("viewer", Permission.DESCRIBE, Permission.SCHEMA_READ),
            _built_in("producer", Permission.PRODUCE, Permission.SCHEMA_READ),
            _built_in("consumer", Permission.CONSUME, Permission.SCHEMA_READ),
            _built_in(
                "developer",
                Permission.PRODUCE,
                Permission.CONSUME,
                Permission.CREATE,
                Permission.MANAGE,
                Permission.SCHEMA_WRITE,
            ),
            _built_in("admin", *Permission),
        )
    }
)
"""The roles that always exist.  A binding says on what they apply."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions that one role of one binding gives to its member."""

    permissions: frozenset[Permission]
    role_patterns: tuple[ResourcePattern, ...]
    binding_patterns: tuple[ResourcePattern, ...]
    rule: str

    @property
    def _pattern_sets(self) -> tuple[tuple[ResourcePattern, ...], ...]:
        return self.role_patterns, self.binding_patterns

    def permits(self, permission: Permission, resource: Resource) -> bool:
        """Return whether it permits *permission* on *resource*."""
        if not is_included(permission, self.permissions):
            return False
        return all(
            any(pattern.matches(resource) for pattern in patterns)
            for patterns in self._pattern_sets
        ) or (
            # Clients that may use a topic may see that its namespace exists.
            permission is Permission.DESCRIBE
            and resource.scope is Scope.NAMESPACE
            and self._reaches_into(resource.name)
        )

    def _reaches_into(self, namespace: str) -> bool:
        return all(
            any(pattern.has_matches_in(namespace) for pattern in patterns)
            for patterns in self._pattern_sets
        )

    def parts(self) -> Iterator[tuple[Permission, tuple[ResourcePattern, ...]]]:
        """Return the permissions, each with two patterns that must both match."""
        yield from product(self.permissions, product(*self._pattern_sets))

    def covers(self, permission: Permission, both: tuple[ResourcePattern, ...]) -> bool:
        """Return whether it permits *permission* on all that matches *both*."""
        return is_included(permission, self.permissions) and all(
            any(mine.covers(each) for mine in patterns for each in both)
            for patterns in self._pattern_sets
        )


@dataclass(frozen=True)
class AccessPolicy:
    """
    All roles and bindings at one moment.  Immutable.

    Superusers may do everything, whatever the bindings are.
    """

    roles: Mapping[str, Role] = field(default_factory=dict)
    """The roles that are not built in, by name."""
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    """The bindings by id."""
    is_superuser: Callable[[Principal], bool] = lambda _: False
    """Returns whether a principal may do everything."""
    _grants: dict[str, tuple[Grant, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        found: dict[str, list[Grant]] = {}
        for binding in self.bindings.values():
            # A role that was deleted meanwhile gives nothing.
            known = filter(None, map(self.role, binding.roles))
            found.setdefault(binding.member, []).extend(
                _grant_of(binding, role) for role in known
            )
        self._grants.update({each: tuple(grants) for each, grants in found.items()})

    def role(self, name: str) -> Role | None:
        """Return a role, or None if it does not exist."""
        return BUILT_IN_ROLES.get(name) or self.roles.get(name)

    def decide(
        self, principal: Principal, permission: Permission, resource: Resource
    ) -> Decision:
        """Decide whether *principal* has *permission* on *resource*."""
        members = members_of(principal)
        if self.is_superuser(principal):
            return Decision(True, f"{members[0]} is a superuser")
        for grant in self._grants_of(principal):
            if grant.permits(permission, resource):
                return Decision(True, grant.rule)
        return Decision(
            False,
            f"no binding grants {permission.value} on {resource} to {members[0]}",
        )

    def holds_anywhere(self, principal: Principal, permission: Permission) -> bool:
        """Return whether *principal* has *permission* on anything at all."""
        return self.is_superuser(principal) or any(
            is_included(permission, grant.permissions)
            for grant in self._grants_of(principal)
        )

    def visible_bindings(self, principal: Principal) -> list[Binding]:
        """Return the bindings of *principal*, and those that it could remove, by id."""
        return [
            binding
            for _, binding in sorted(self.bindings.items())
            if self.sees_binding(principal, binding)
        ]

    def sees_binding(self, principal: Principal, binding: Binding) -> bool:
        """Return whether *principal* may know *binding*."""
        return binding.member in members_of(principal) or self._may_bind(
            principal, binding
        )

    def sees_all_bindings(self, principal: Principal) -> bool:
        """Return whether no binding is hidden from *principal*."""
        return self._may_bind(principal, Binding(ANONYMOUS_MEMBER, ("admin",), (ALL,)))

    def all_roles(self) -> list[Role]:
        """Return the built-in roles, and the others by name."""
        return [
            *BUILT_IN_ROLES.values(),
            *(role for _, role in sorted(self.roles.items())),
        ]

    def visible_roles(self, principal: Principal) -> list[Role]:
        """Return the roles that exist always, and those that *principal* may know."""
        own = self._roles_of(principal)
        return [
            role
            for role in self.all_roles()
            if role.name in own or self._may_know(principal, role)
        ]

    def sees_role(self, principal: Principal, role: Role) -> bool:
        """
        Return whether *principal* may know *role*.

        Those who may grant anything need the roles that name no resources; roles that
        name some are known to those who have or may define them.
        """
        return role.name in self._roles_of(principal) or self._may_know(principal, role)

    def _roles_of(self, principal: Principal) -> set[str]:
        members = members_of(principal)
        return {
            role
            for binding in self.bindings.values()
            if binding.member in members
            for role in binding.roles
        }

    def _may_know(self, principal: Principal, role: Role) -> bool:
        if role.is_built_in or (
            role.patterns == (ALL,) and self.holds_anywhere(principal, Permission.GRANT)
        ):
            return True
        try:
            self.check_may_define(principal, role)
        except PermissionDenied:
            return False
        return True

    def _may_bind(self, principal: Principal, binding: Binding) -> bool:
        try:
            self.check_may_bind(principal, binding)
        except PermissionDenied:
            return False
        return True

    def _grants_of(self, principal: Principal) -> Iterator[Grant]:
        for member in members_of(principal):
            yield from self._grants.get(member, ())

    def check_may_define(self, principal: Principal, role: Role) -> None:
        """
        Raise if *principal* may not define, change or delete *role*.

        Raises:
            PermissionDenied: The role permits more than *principal* may.
        """
        everything = (pattern_of(ALL),)
        patterns = tuple(map(pattern_of, role.patterns))
        grant = Grant(role.permissions, patterns, everything, "")
        self._check_held(principal, grant, f"the role {role.name!r}")

    def check_may_bind(self, principal: Principal, binding: Binding) -> None:
        """
        Raise if *principal* may not add or remove *binding*.

        Raises:
            PermissionDenied: The binding grants more than *principal* may.
        """
        what = f"the binding {binding.id!r}"
        for role in filter(None, map(self.role, binding.roles)):
            self._check_held(principal, _grant_of(binding, role), what)

    def _check_held(self, principal: Principal, wanted: Grant, what: str) -> None:
        if self.is_superuser(principal):
            return
        held = list(self._grants_of(principal))
        needed = Grant(
            wanted.permissions | {Permission.GRANT},
            wanted.role_patterns,
            wanted.binding_patterns,
            "",
        )
        for permission, both in needed.parts():
            if not any(grant.covers(permission, both) for grant in held):
                text = " and ".join(dict.fromkeys(map(str, both)))
                raise PermissionDenied(
                    f"{members_of(principal)[0]} may not change {what}: that needs the "
                    f"permission {permission.value} on all of {text}, and nobody can "
                    "grant more than they hold"
                )


def members_of(principal: Principal) -> tuple[str, ...]:
    """Return the members that *principal* is: its name, and then its groups."""
    if principal.method == "anonymous":
        return (ANONYMOUS_MEMBER,)
    names = (f"{USER_MARK}{principal.name}",) if principal.name else ()
    return *names, *(f"{GROUP_MARK}{group}" for group in principal.groups)


def principal_of(member: str) -> Principal:
    """
    Return the principal that *member* stands for, to ask what it may do.

    Raises:
        InvalidName: *member* is malformed.
    """
    check_member(member)
    if member == ANONYMOUS_MEMBER:
        return Principal(member, "anonymous")
    if member.startswith(GROUP_MARK):
        group = member.removeprefix(GROUP_MARK)
        return Principal("", "token", (group,))
    return Principal(member.removeprefix(USER_MARK), "token")


def check_member(member: str) -> None:
    """
    Raise if *member* is malformed.

    Raises:
        InvalidName: It is not ``user:NAME``, ``group:NAME`` or ``anonymous``.
    """
    if member == ANONYMOUS_MEMBER:
        return
    for mark in (USER_MARK, GROUP_MARK):
        name = member.removeprefix(mark)
        is_long = len(member) > MEMBER_CHARACTERS_MAX
        if member.startswith(mark) and name and name.isprintable() and not is_long:
            return
    raise InvalidName(
        f"the member {member[:80]!r} must be user:NAME, group:NAME or anonymous, with "
        f"at most {MEMBER_CHARACTERS_MAX} printable characters"
    )


def _grant_of(binding: Binding, role: Role) -> Grant:
    return Grant(
        role.permissions,
        tuple(map(pattern_of, role.patterns)),
        tuple(map(pattern_of, binding.patterns)),
        f"the role {role.name!r} by the binding {binding.id!r} of {binding.member}",
    )


def _check_patterns(what: str, patterns: Iterable[str]) -> None:
    """Raise if *patterns* are malformed, too many, or none."""
    listed = tuple(patterns)
    if not listed or len(listed) > PATTERNS_MAX:
        raise InvalidRequest(
            f"the {what} has {len(listed)} patterns; 1 to {PATTERNS_MAX} are allowed"
        )
    for each in listed:
        pattern_of(each)
