"""The service ``danube.HealthCheck``: whether a producer or consumer may go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.grpc.services import Context


class Clients(Protocol):
    """Producers or consumers, by number."""

    def is_healthy(self, number: int) -> bool:
        """Whether it may go on as it is; asking is a sign of its life."""


class HealthCheck:
    """The service."""

    def __init__(self, producers: Clients, consumers: Clients) -> None:
        self._clients: dict[int, Clients] = {
            pb.HealthCheckRequest.Producer: producers,
            pb.HealthCheckRequest.Consumer: consumers,
        }

    async def health_check(
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        """OK, or CLOSE if the client has to be created, or to subscribe, again."""
        clients = self._clients.get(request.client)
        if clients is None:
            raise InvalidRequest("Invalid client type")
        return pb.HealthCheckResponse(
            status=(
                pb.HealthCheckResponse.OK
                if clients.is_healthy(request.id)
                else pb.HealthCheckResponse.CLOSE
            )
        )
