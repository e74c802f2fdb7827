"""The services of ``danube_admin`` over one broker that is not part of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from pydanube.broker.broker import Broker
from pydanube.model.errors import AlreadyExists, NamespaceInUse
from pydanube.model.ids import stable_id
from pydanube.model.names import parse_namespace
from pydanube.servers.grpc.admin_topics import TopicAdmin
from pydanube.servers.grpc.services import Service, StatusError, refusing
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.grpc.danube_admin_api import (
    bare_name,
    parse_policy_document,
    policy_document,
)
from pydanube.wire.pb import danube_admin_pb2 as pb

NO_CLUSTER = "this is a standalone broker, not a cluster"
NO_SECURITY = "this broker has no roles: every client may do everything"
CONFLICTS = (AlreadyExists, NamespaceInUse)
"""Errors that have the status NOT_FOUND, as in the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddresses:
    """The addresses of a broker that administrators see."""

    broker_url: str
    """The scheme, host and port for clients."""
    admin_url: str
    metrics_address: str
    """The host and port."""


class BrokerAdmin:
    """The service for the broker of this process."""

    def __init__(
        self, broker: Broker, broker_id: str, addresses: BrokerAddresses
    ) -> None:
        self._broker = broker
        self._broker_id = broker_id
        self._addresses = addresses

    async def list_brokers(self, _: pb.Empty) -> pb.BrokerListResponse:
        """Return this broker.  A standalone broker is always the leader."""
        return pb.BrokerListResponse(
            brokers=[
                pb.BrokerInfo(
                    broker_id=self._broker_id,
                    broker_addr=self._addresses.broker_url,
                    broker_role="Cluster_Leader",
                    admin_addr=self._addresses.admin_url,
                    metrics_addr=self._addresses.metrics_address,
                    broker_status="draining"
                    if self._broker.topics.is_draining
                    else "active",
                )
            ]
        )

    async def get_leader_broker(self, _: pb.Empty) -> pb.BrokerResponse:
        """Return this broker."""
        return pb.BrokerResponse(leader=self._broker_id)

    async def list_namespaces(self, _: pb.Empty) -> pb.NamespaceListResponse:
        """List all namespaces by name."""
        return pb.NamespaceListResponse(
            namespaces=await self._broker.namespaces.names()
        )

    async def unload_broker(
        self, request: pb.UnloadBrokerRequest
    ) -> pb.UnloadBrokerResponse:
        """Refuse, because there is no other broker."""
        self._check(request.broker_id)
        raise StatusError(
            StatusCode.FAILED_PRECONDITION,
            "there is no other broker that could take the topics",
        )

    async def activate_broker(self, request: pb.ActivateBrokerRequest) -> None:
        """Confirm that the broker is active, unless it is stopping."""
        self._check(request.broker_id)
        if self._broker.topics.is_draining:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, "the broker is stopping (draining)"
            )

    def _check(self, broker_id: str) -> None:
        if not broker_id:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "broker_id is required")
        if broker_id != self._broker_id:
            raise StatusError(
                StatusCode.NOT_FOUND, f"there is no broker {broker_id} here"
            )


class NamespaceAdmin:
    """The service for a broker's namespaces."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def get_namespace_topics(
        self, request: pb.NamespaceRequest
    ) -> pb.TopicListResponse:
        """List the topics and partitions of a namespace."""
        name = parse_namespace(request.name)
        await self._broker.namespaces.policy(name)
        topics = await self._broker.catalog.names(name)
        return pb.TopicListResponse(topics=map(bare_name, topics))

    async def get_namespace_policies(
        self, request: pb.NamespaceRequest
    ) -> pb.PolicyResponse:
        """Return the policy of a namespace as a JSON document."""
        policy = await self._broker.namespaces.policy(parse_namespace(request.name))
        return pb.PolicyResponse(policies=policy_document(policy))

    async def set_namespace_policies(
        self, request: pb.SetNamespacePoliciesRequest
    ) -> None:
        """Set the policy of a namespace, which applies at once."""
        await self._broker.namespaces.set_policy(
            parse_namespace(request.name), parse_policy_document(request.policies)
        )

    async def create_namespace(self, request: pb.NamespaceRequest) -> None:
        """Create a namespace without limits."""
        with refusing(*CONFLICTS, status=StatusCode.NOT_FOUND):
            await self._broker.namespaces.create(parse_namespace(request.name))

    async def delete_namespace(self, request: pb.NamespaceRequest) -> None:
        """Delete a namespace, which must have no topics."""
        with refusing(*CONFLICTS, status=StatusCode.NOT_FOUND):
            await self._broker.namespaces.delete(parse_namespace(request.name))


def admin_services(broker: Broker, addresses: BrokerAddresses) -> list[Service]:
    """Return the services for the administrators of *broker*."""
    # The original's tools expect that a broker id is a number.
    broker_id = str(stable_id(("broker", broker.broker_id)))
    services = pb.DESCRIPTOR.services_by_name
    brokers = BrokerAdmin(broker, broker_id, addresses)
    return [
        Service(services["BrokerAdmin"], brokers, unimplemented=NO_CLUSTER),
        Service(services["NamespaceAdmin"], NamespaceAdmin(broker)),
        Service(
            services["TopicAdmin"],
            TopicAdmin(broker, broker_id),
            unimplemented="there is no other broker that could take the topic",
        ),
        Service(services["ClusterAdmin"], None, unimplemented=NO_CLUSTER),
        Service(services["SecurityAdmin"], None, unimplemented=NO_SECURITY),
    ]
