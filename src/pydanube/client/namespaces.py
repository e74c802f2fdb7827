"""The operations of a client on namespaces."""

from __future__ import annotations

from pydanube.client.requester import Requester
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import NamespaceDescription
from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

NO_LIMITS = NamespacePolicy()


@checks_arguments
class NamespaceRequests(Requester):
    """The operations of ``Client`` on namespaces."""

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

    async def namespaces(self) -> list[str]:
        """Return the names of all namespaces."""
        answer = await self.send_request(pb.ListNamespaces())
        return list(answer.namespaces)

    async def describe_namespace(self, namespace: str) -> NamespaceDescription:
        """
        Return the limits of *namespace*, and its number of topics.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        message = pb.DescribeNamespace(namespace=parse_namespace(namespace))
        return from_wire(NamespaceDescription, await self.send_request(message))

    async def set_namespace_policy(
        self, namespace: str, policy: NamespacePolicy
    ) -> None:
        """
        Set the limits of all topics of *namespace*.

        Producers and consumers that are connected stay, even beyond a new limit.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        await self.send_request(
            pb.SetNamespacePolicy(
                namespace=parse_namespace(namespace),
                policy=to_wire(pb.NamespacePolicy, policy),
            )
        )
