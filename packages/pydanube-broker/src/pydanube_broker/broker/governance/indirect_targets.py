"""
The rule for topics to which the broker publishes because a setting names them.

A setting such as a dead-letter topic lets the broker write what its author may not be
allowed to write.  So the broker acts for the principal that wrote the setting.  It asks
the policy when the setting is written, and again whenever it publishes: a principal
that has lost a permission meanwhile does not keep it through a setting.
"""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest, PermissionDenied, Unauthenticated
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName
from pydanube.security.permissions import Permission
from pydanube.security.policy import members_of
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube_broker.broker.governance.access_control import AccessControl
from pydanube_broker.broker.governance.catalog import Catalog


class IndirectTargets:
    """Decides whether the broker may publish to a topic that a setting names."""

    def __init__(self, access: AccessControl, catalog: Catalog) -> None:
        self._access = access
        self._catalog = catalog

    async def check(self, author: Principal | None, target: TopicName) -> None:
        """
        Raise if the broker may not publish to *target* for the *author* of a setting.

        Publishing needs ``produce``, and ``create`` if the topic does not exist.

        Raises:
            InvalidRequest: It is a system topic, to which only the broker publishes.
            PermissionDenied, Unauthenticated: The author may not, or is not known.
        """
        if target.namespace == SYSTEM_NAMESPACE:
            raise InvalidRequest(
                f"{target} is a system topic, to which only the broker itself "
                "publishes; choose a topic of another namespace"
            )
        access = self._access
        if not access.is_enforced:
            return
        if author is None:
            raise PermissionDenied(
                f"the setting that names {target} has no author whose permissions the "
                "broker could check; write the setting again"
            )
        needed = [Permission.PRODUCE]
        if not await self._catalog.partitions_of(target):
            needed.append(Permission.CREATE)
        for permission in needed:
            decision = access.policy.decide(author, permission, Resource.topic(target))
            if not decision.allowed:
                text = (
                    f"the broker may not publish to {target} for "
                    f"{members_of(author)[0]}: {decision.rule}"
                )
                if author.method == "anonymous":
                    raise Unauthenticated(f"{text}; connect with credentials")
                raise PermissionDenied(text)
