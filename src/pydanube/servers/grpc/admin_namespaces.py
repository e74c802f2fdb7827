"""The service ``danube_admin.NamespaceAdmin``: namespaces and their limits."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydanube.model.errors import AlreadyExists, NamespaceInUse
from pydanube.model.names import parse_namespace
from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.grpc.danube_admin_api import (
    bare_name,
    parse_policy_document,
    policy_document,
)
from pydanube.wire.pb import danube_admin_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.broker.broker import Broker
    from pydanube.servers.grpc.services import Context


class NamespaceAdmin:
    """The service for a broker's namespaces."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def get_namespace_topics(
        self, request: pb.NamespaceRequest, _: Context
    ) -> pb.TopicListResponse:
        """List the topics and partitions of a namespace."""
        name = parse_namespace(request.name)
        await self._broker.namespaces.policy(name)
        topics = await self._broker.topics.names(name)
        return pb.TopicListResponse(topics=map(bare_name, topics))

    async def get_namespace_policies(
        self, request: pb.NamespaceRequest, _: Context
    ) -> pb.PolicyResponse:
        """Return the policy of a namespace as a JSON document."""
        policy = await self._broker.namespaces.policy(parse_namespace(request.name))
        return pb.PolicyResponse(policies=policy_document(policy))

    async def set_namespace_policies(
        self, request: pb.SetNamespacePoliciesRequest, _: Context
    ) -> pb.NamespaceResponse:
        """Set the policy of a namespace, which applies at once."""
        await self._broker.namespaces.set_policy(
            parse_namespace(request.name), parse_policy_document(request.policies)
        )
        return pb.NamespaceResponse(success=True)

    async def create_namespace(
        self, request: pb.NamespaceRequest, _: Context
    ) -> pb.NamespaceResponse:
        """Create a namespace without limits."""
        with _conflicts_as_not_found():
            await self._broker.namespaces.create(parse_namespace(request.name))
        return pb.NamespaceResponse(success=True)

    async def delete_namespace(
        self, request: pb.NamespaceRequest, _: Context
    ) -> pb.NamespaceResponse:
        """Delete a namespace, which must have no topics."""
        with _conflicts_as_not_found():
            await self._broker.namespaces.delete(parse_namespace(request.name))
        return pb.NamespaceResponse(success=True)


@contextmanager
def _conflicts_as_not_found() -> Iterator[None]:
    """Raise conflicts with the status NOT_FOUND, as the original does."""
    try:
        yield
    except (AlreadyExists, NamespaceInUse) as error:
        raise StatusError(StatusCode.NOT_FOUND, str(error)) from error
