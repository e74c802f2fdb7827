"""The service ``danube_admin.BrokerAdmin``: which brokers there are; here, one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.pb import danube_admin_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker
    from pydanube.servers.grpc.services import Context

NO_CLUSTER = "this broker runs alone: there is no cluster to ask or change"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddresses:
    """Where a broker is reached, as its administrators are told."""

    broker_url: str
    """Of the clients: scheme, host and port."""
    admin_url: str
    metrics_address: str
    """Host and port."""


class BrokerAdmin:
    """Answers for the one broker of this process."""

    def __init__(
        self, broker: Broker, broker_id: str, addresses: BrokerAddresses
    ) -> None:
        self._broker = broker
        self._broker_id = broker_id
        self._addresses = addresses

    async def list_brokers(self, _: pb.Empty, __: Context) -> pb.BrokerListResponse:
        """This broker; who is alone leads."""
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
        """This broker."""
        return pb.BrokerResponse(leader=self._broker_id)

    async def list_namespaces(
        self, _: pb.Empty, __: Context
    ) -> pb.NamespaceListResponse:
        """Each namespace once, by name."""
        return pb.NamespaceListResponse(
            namespaces=await self._broker.namespaces.names()
        )

    async def unload_broker(
        self, request: pb.UnloadBrokerRequest, _: Context
    ) -> pb.UnloadBrokerResponse:
        """Refused: nobody else could take the topics."""
        self._check(request.broker_id)
        raise StatusError(
            StatusCode.FAILED_PRECONDITION,
            "there is no other broker that could take the topics",
        )

    async def activate_broker(
        self, request: pb.ActivateBrokerRequest, _: Context
    ) -> pb.ActivateBrokerResponse:
        """It is active already, unless it is on its way out."""
        self._check(request.broker_id)
        if self._broker.topics.is_draining:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, "the broker is stopping (draining)"
            )
        return pb.ActivateBrokerResponse(success=True)

    async def get_cluster_balance(
        self, _: pb.ClusterBalanceRequest, __: Context
    ) -> NoReturn:
        """There is nothing to balance."""
        raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)

    async def trigger_rebalance(self, _: pb.RebalanceRequest, __: Context) -> NoReturn:
        """There is nothing to balance."""
        raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)

    def _check(self, broker_id: str) -> None:
        if not broker_id:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "broker_id is required")
        if broker_id != self._broker_id:
            raise StatusError(
                StatusCode.NOT_FOUND, f"there is no broker {broker_id} here"
            )
