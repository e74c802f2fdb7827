"""
The permissions of a user for programs that the broker does not know.

A connector belongs to its topic, and a pipeline to the cluster.  The broker decides
about both, as it does about its own resources.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pydanube.client.client import Client
from pydanube.model.errors import InvalidRequest, PermissionDenied
from pydanube.security.permissions import Permission

CACHE_S = 10.0
"""For how long the console shows what a user was permitted to see."""
CLUSTER = "cluster"
"""The name of the cluster as a resource."""


class Access:
    """The permissions of one user."""

    def __init__(
        self, client: Client, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[Permission, str], bool] = {}
        self._known_until = 0.0
        self._is_enforced = True

    async def may(self, permission: Permission, resource: str) -> bool:
        """Return whether the user has *permission*; this may be ``CACHE_S`` old."""
        if self._clock() >= self._known_until:
            self._is_enforced = (await self._client.security.who_am_i()).is_enforced
            self._known = {}
            self._known_until = self._clock() + CACHE_S
        if not self._is_enforced:
            return True
        key = (permission, resource)
        if key not in self._known:
            self._known[key] = await self._decide(permission, resource)
        return self._known[key]

    async def visible(self, topics: Iterable[str]) -> set[str]:
        """Return those of *topics* that the user may describe."""
        return {
            each for each in set(topics) if await self.may(Permission.DESCRIBE, each)
        }

    async def require(self, permission: Permission, resource: str) -> None:
        """
        Raise if the user does not have *permission* now.

        Raises:
            PermissionDenied: It is so.
        """
        # Without security, the broker decides as if its policy were enforced.
        is_enforced = (await self._client.security.who_am_i()).is_enforced
        if is_enforced and not await self._decide(permission, resource):
            raise PermissionDenied(
                f"this needs the permission {permission.value} on {resource}"
            )

    async def _decide(self, permission: Permission, resource: str) -> bool:
        try:
            found = await self._client.security.check_access(permission.value, resource)
        except InvalidRequest:
            # There is no such resource.
            return False
        return found.allowed
