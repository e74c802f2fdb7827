"""The service ``danube.HealthCheck`` for producers and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.grpc.services import Context


class Clients(Protocol):
    """Producers or consumers by number."""

    def is_healthy(self, number: int) -> bool:
        """Return whether a client is still valid, and record that it is alive."""


class HealthCheck:
    """The service ``danube.HealthCheck``."""

    def __init__(self, producers: Clients, consumers: Clients) -> None:
        self._clients: dict[int, Clients] = {
            pb.HealthCheckRequest.Producer: producers,
            pb.HealthCheckRequest.Consumer: consumers,
        }

    async def health_check(
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        """Return OK, or CLOSE if the client must be created or subscribe again."""
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
