"""The service ``danube_admin.BrokerAdmin`` for a single broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.pb import danube_admin_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker
    from pydanube.servers.grpc.services import Context

NO_CLUSTER = "this is a standalone broker, not a cluster"


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

    async def list_brokers(self, _: pb.Empty, __: Context) -> pb.BrokerListResponse:
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

    async def get_leader_broker(self, _: pb.Empty, __: Context) -> pb.BrokerResponse:
        """Return this broker."""
        return pb.BrokerResponse(leader=self._broker_id)

    async def list_namespaces(
        self, _: pb.Empty, __: Context
    ) -> pb.NamespaceListResponse:
        """List all namespaces by name."""
        return pb.NamespaceListResponse(
            namespaces=await self._broker.namespaces.names()
        )

    async def unload_broker(
        self, request: pb.UnloadBrokerRequest, _: Context
    ) -> pb.UnloadBrokerResponse:
        """Refuse, because there is no other broker."""
        self._check(request.broker_id)
        raise StatusError(
            StatusCode.FAILED_PRECONDITION,
            "there is no other broker that could take the topics",
        )

    async def activate_broker(
        self, request: pb.ActivateBrokerRequest, _: Context
    ) -> pb.ActivateBrokerResponse:
        """Confirm that the broker is active, unless it is stopping."""
        self._check(request.broker_id)
        if self._broker.topics.is_draining:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, "the broker is stopping (draining)"
            )
        return pb.ActivateBrokerResponse(success=True)

    async def get_cluster_balance(
        self, _: pb.ClusterBalanceRequest, __: Context
    ) -> NoReturn:
        """Refuse, because there is no cluster."""
        raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)

    async def trigger_rebalance(self, _: pb.RebalanceRequest, __: Context) -> NoReturn:
        """Refuse, because there is no cluster."""
        raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)

    def _check(self, broker_id: str) -> None:
        if not broker_id:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "broker_id is required")
        if broker_id != self._broker_id:
            raise StatusError(
                StatusCode.NOT_FOUND, f"there is no broker {broker_id} here"
            )
