"""The operations of a client on namespaces."""

from __future__ import annotations

from typing import TypeAlias, Unpack

from pydanube.client.changes import NamespaceChanges, settings_of
from pydanube.client.requester import Requester
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import NamespaceDescription
from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy, NamespaceSettings
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

NO_LIMITS = NamespacePolicy()


Names: TypeAlias = "list[str]"


@checks_arguments
class Namespaces:
    """The namespaces of a broker or of its cluster; ``Client.namespaces``."""

    def __init__(self, client: Requester) -> None:
        self._client = client

    async def list(self) -> Names:
        """Return the names of all namespaces."""
        answer = await self._client.send_request(pb.ListNamespaces())
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
        await self._client.send_request(
            pb.ConfigureNamespace(
                namespace=parse_namespace(namespace),
                settings=to_wire(pb.NamespaceSettings, settings),
                changes=[*changes],
            )
        )


@checks_arguments
class NamespaceRequests(Requester):
    """The operations of ``Client`` on namespaces."""

    @property
    def namespaces(self) -> Namespaces:
        """The namespaces of the broker or of its cluster."""
        return Namespaces(self)

    async def create_namespace(
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
        await self.send_request(
            pb.CreateNamespace(
                namespace=parse_namespace(namespace),
                policy=to_wire(pb.NamespacePolicy, policy),
                exist_ok=exist_ok,
            )
        )

    async def delete_namespace(self, namespace: str) -> None:
        """
        Delete *namespace*, which must have no topics.

        Raises:
            NamespaceNotFound: There is no such namespace.
            NamespaceInUse: The namespace has topics.
            InvalidRequest: It is a namespace that every broker has.
        """
        await self.send_request(
            pb.DeleteNamespace(namespace=parse_namespace(namespace)),
        )

    async def describe_namespace(self, namespace: str) -> NamespaceDescription:
        """
        Return the limits of *namespace*, and its number of topics.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        message = pb.DescribeNamespace(namespace=parse_namespace(namespace))
        return from_wire(NamespaceDescription, await self.send_request(message))
