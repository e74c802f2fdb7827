"""What a client asks about namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.client.requester import Requester
from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.native.messages import limits_to_wire, namespace_from_wire
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.model.descriptions import NamespaceDescription

NO_LIMITS = NamespacePolicy()


class NamespaceRequests(Requester):
    """Namespaces; a part of ``Client``."""

    async def create_namespace(
        self,
        namespace: str,
        *,
        policy: NamespacePolicy = NO_LIMITS,
        exist_ok: bool = False,
    ) -> None:
        """
        Create *namespace*, whose topics are within the limits of *policy*.

        Raises:
            AlreadyExists: It exists, and *exist_ok* is false.
        """
        await self.request(
            pb.CreateNamespace(
                namespace=parse_namespace(namespace),
                policy=limits_to_wire(policy),
                exist_ok=exist_ok,
            )
        )

    async def delete_namespace(self, namespace: str) -> None:
        """
        Remove *namespace*, which has no topics any more.

        Raises:
            NamespaceNotFound: There is none of this name.
            NamespaceInUse: It has topics.
            InvalidRequest: It is one that every broker has.
        """
        await self.request(
            pb.DeleteNamespace(namespace=parse_namespace(namespace)),
        )

    async def namespaces(self) -> list[str]:
        """The names of all namespaces."""
        answer = await self.request(pb.ListNamespaces())
        return list(answer.namespaces)

    async def describe_namespace(self, namespace: str) -> NamespaceDescription:
        """
        The limits of *namespace*, and how many topics it has.

        Raises:
            NamespaceNotFound: There is none of this name.
        """
        return namespace_from_wire(
            await self.request(
                pb.DescribeNamespace(namespace=parse_namespace(namespace))
            )
        )

    async def set_namespace_policy(
        self, namespace: str, policy: NamespacePolicy
    ) -> None:
        """
        Have *policy* hold for all topics of *namespace* from now on.

        Who is connected already stays, even beyond a new limit.

        Raises:
            NamespaceNotFound: There is none of this name.
        """
        await self.request(
            pb.SetNamespacePolicy(
                namespace=parse_namespace(namespace), policy=limits_to_wire(policy)
            )
        )
