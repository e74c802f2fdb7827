"""The operations of a client on namespaces."""

from __future__ import annotations

from contextlib import suppress
from typing import Unpack

from pydanube.client.connections.requester import Requester
from pydanube.client.operations.changes import NamespaceChanges, settings_of
from pydanube.client.operations.topics import Drops, Names, Topics, drops_of
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import NamespaceDescription
from pydanube.model.errors import TopicNotFound
from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy, NamespaceSettings, Retention
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

NO_LIMITS = NamespacePolicy()


@checks_arguments
class Namespaces:
    """The namespaces of a broker or of its cluster; ``Client.namespaces``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._topics = Topics(requester)

    async def list(self) -> Names:
        """Return the names of all namespaces."""
        answer = await self._requester.send_request(pb.ListNamespaces())
        return [*answer.namespaces]

    async def configure(
        self, namespace: str, **changes: Unpack[NamespaceChanges]
    ) -> None:
        """
        Change several settings of *namespace*, all or none; the others stay.

        They apply to all topics of the namespace that have none of their own.
        Producers and consumers that are connected stay, even beyond a new limit.  Of
        concurrent changes of a setting, the last one wins.

        Args:
            namespace: The name of the namespace.
            changes: The settings, as in ``configure(namespace,
                retention=Retention(age_s=86_400))``: ``policy``, the limits, and
                ``retention``.

        Durability: On return the changes are on disk and in effect; the next retention
            pass applies a changed retention.

        Raises:
            NamespaceNotFound: There is no such namespace.
            InvalidRequest: A value is out of range, or no setting is given.
        """
        settings = settings_of(NamespaceSettings, changes)
        settings.retention.check()
        await self._requester.send_request(
            pb.ConfigureNamespace(
                namespace=parse_namespace(namespace),
                settings=to_wire(pb.NamespaceSettings, settings),
                changes=[*changes],
            )
        )

    async def create(
        self,
        namespace: str,
        *,
        policy: NamespacePolicy = NO_LIMITS,
        exist_ok: bool = False,
    ) -> None:
        """
        Create *namespace*, whose topics have the limits of *policy*.

        Raises:
            AlreadyExists: The namespace exists, and *exist_ok* is false.
        """
        await self._requester.send_request(
            pb.CreateNamespace(
                namespace=parse_namespace(namespace),
                policy=to_wire(pb.NamespacePolicy, policy),
                exist_ok=exist_ok,
            )
        )

    async def delete(self, namespace: str) -> None:
        """
        Delete *namespace*, which must have no topics.

        Raises:
            NamespaceNotFound: There is no such namespace.
            NamespaceInUse: The namespace has topics.
            InvalidRequest: It is a namespace that every broker has.
        """
        await self._requester.send_request(
            pb.DeleteNamespace(namespace=parse_namespace(namespace)),
        )

    async def describe(self, namespace: str) -> NamespaceDescription:
        """
        Return the limits of *namespace*, and its number of topics.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        message = pb.DescribeNamespace(namespace=parse_namespace(namespace))
        return from_wire(
            NamespaceDescription, await self._requester.send_request(message)
        )

    # Retention.

    async def apply_retention(self, namespace: str) -> Drops:
        """
        Apply retention to each reliable topic and partition of *namespace*.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        return await self._drops_of_all(namespace, pb.ApplyRetention())

    async def plan_retention(
        self, namespace: str, retention: Retention | None = None
    ) -> Drops:
        """
        Return what ``apply_retention`` would drop now; drop nothing.

        *retention* is assumed for the topics that have none of their own.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        if retention is not None:
            retention.check()
        message = pb.ApplyRetention(
            is_dry_run=True, namespace_retention=to_wire(pb.Retention, retention)
        )
        return await self._drops_of_all(namespace, message)

    async def _drops_of_all(self, namespace: str, message: pb.ApplyRetention) -> Drops:
        await self._requester.send_request(
            pb.DescribeNamespace(namespace=parse_namespace(namespace))
        )
        drops: Drops = []
        for name in await self._topics.list(namespace):
            # A topic may be deleted after it was listed.
            with suppress(TopicNotFound):
                if (await self._topics.describe(name)).policy.is_reliable:
                    drops.append(await drops_of(self._requester, name, message))
        return drops
