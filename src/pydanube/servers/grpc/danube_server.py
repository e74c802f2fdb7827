"""The gRPC server for clients of the original Danube."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydanube.servers.addresses import addresses_of
from pydanube.servers.grpc.auth import AuthService
from pydanube.servers.grpc.consumers import REFUSAL_PAUSE_S, Consumers
from pydanube.servers.grpc.discovery import Discovery
from pydanube.servers.grpc.health import HealthCheck
from pydanube.servers.grpc.producers import Producers
from pydanube.servers.grpc.schemas import SchemaRegistryService
from pydanube.servers.grpc.segments import StorageService
from pydanube.servers.grpc.server import open_listener
from pydanube.servers.grpc.services import Service
from pydanube.wire.pb import danube_api_pb2, schema_registry_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from pydanube.broker.broker import Broker
    from pydanube.servers.addresses import Addresses

SWEEP_S = 1.0
"""The interval at which silent producers and consumers are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DanubeServer:
    """The server for clients of Danube."""

    port: int
    addresses: Addresses
    services: Sequence[Service]
    producers: Producers
    consumers: Consumers


@asynccontextmanager
async def open_danube_server(
    broker: Broker,
    host: str,
    port: int,
    *,
    wall_clock_us: Callable[[], int],
    window_messages_max: int,
    advertised_url: str = "",
    connect_url: str = "",
    refusal_pause_s: float = REFUSAL_PAUSE_S,
    **limits: Any,
) -> AsyncIterator[DanubeServer]:
    """
    Serve clients of Danube during the body; see ``GrpcServer`` for *limits*.

    At the end, their streams end with UNAVAILABLE, so that they connect again.

    Raises:
        InvalidConfig: The address is not available.
    """
    async with open_listener(
        host, port, name="clients of Danube", flag="--grpc-port", **limits
    ) as listener:
        addresses = addresses_of(
            host, listener.port, advertised_url=advertised_url, connect_url=connect_url
        )
        clock = asyncio.get_running_loop().time
        producers = Producers(broker, clock, wall_clock_us)
        consumers = Consumers(
            broker,
            clock,
            broker_url=addresses.broker_url,
            window_messages_max=window_messages_max,
            refusal_pause_s=refusal_pause_s,
        )
        await consumers.load()
        implementations = {
            "ProducerService": producers,
            "ConsumerService": consumers,
            "Discovery": Discovery(broker, addresses),
            "HealthCheck": HealthCheck(producers, consumers),
            "StorageService": StorageService(broker),
            "AuthService": AuthService(),
        }
        descriptors = danube_api_pb2.DESCRIPTOR.services_by_name
        services = [
            *(Service(descriptors[name], it) for name, it in implementations.items()),
            schema_registry(broker),
        ]
        async with listener.serving(services):
            with (
                _every(SWEEP_S, producers.sweep),
                _every(SWEEP_S, consumers.sweep),
                closing(producers),
                closing(consumers),
            ):
                yield DanubeServer(
                    port=listener.port,
                    addresses=addresses,
                    services=services,
                    producers=producers,
                    consumers=consumers,
                )


def schema_registry(broker: Broker) -> Service:
    """Return the service of the schema registry, which both gRPC servers offer."""
    descriptor = schema_registry_pb2.DESCRIPTOR.services_by_name["SchemaRegistry"]
    return Service(descriptor, SchemaRegistryService(broker))


@contextmanager
def _every(interval_s: float, work: Callable[[], None]) -> Iterator[None]:
    """Call *work* every *interval_s* during the body."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def do() -> None:
        nonlocal timer
        timer = loop.call_later(interval_s, do)
        work()

    timer = loop.call_later(interval_s, do)
    try:
        yield
    finally:
        timer.cancel()
