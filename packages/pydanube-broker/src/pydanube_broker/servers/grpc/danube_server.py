"""The gRPC server for clients of the original Danube, and its smaller services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

from pydanube.model.errors import InvalidRequest, NotOwner, TopicNotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2
from pydanube_broker.broker.broker import Broker
from pydanube_broker.cluster.overview import GRPC, GRPC_CONNECT
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.grpc.calls import CallContext
from pydanube_broker.servers.grpc.consumers import REFUSAL_PAUSE_S, Consumers
from pydanube_broker.servers.grpc.producers import Producers
from pydanube_broker.servers.grpc.schemas import SchemaRegistryService
from pydanube_broker.servers.grpc.server import Listener
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.settings.addresses import Addresses

SWEEP_S = 1.0
"""The interval at which silent producers and consumers are removed."""
ANONYMOUS_TOKEN = "anonymous"  # noqa: S105  # It grants nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class DanubeServer:
    """The server for clients of Danube."""

    port: int
    services: Sequence[Service]
    consumers: Consumers


@asynccontextmanager
async def serving_danube(
    listener: Listener,
    broker: Broker,
    addresses: Addresses,
    *,
    wall_clock_us: Callable[[], int],
    window_messages_max: int,
    refusal_pause_s: float = REFUSAL_PAUSE_S,
    peer_services: Sequence[Service] = (),
    **limits: Any,
) -> AsyncIterator[DanubeServer]:
    """
    Serve clients of Danube on a bound port during the body.

    The broker tells them its *addresses*.  See ``GrpcServer`` for *limits*.  Other
    brokers of the cluster call *peer_services*.

    At the end, their streams end with UNAVAILABLE, so that they connect again.
    """
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
    others = SmallerServices(
        *(broker, addresses, producers, consumers),
        limits.get("authenticator"),
    )
    larger = {"ProducerService": producers, "ConsumerService": consumers}
    services = [
        *(
            Service(
                *(descriptor, larger.get(name, others)),
                is_public=name == "AuthService",
            )
            for name, descriptor in pb.DESCRIPTOR.services_by_name.items()
        ),
        schema_registry(broker),
        *peer_services,
    ]
    async with listener.serving(services, broker, **limits):
        with (
            _every(SWEEP_S, producers.sweep),
            _every(SWEEP_S, consumers.sweep),
            closing(producers),
            closing(consumers),
        ):
            yield DanubeServer(
                port=listener.port, services=services, consumers=consumers
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


class SmallerServices:
    """The services for lookups, health checks, sealed segments and tokens."""

    def __init__(
        self,
        broker: Broker,
        addresses: Addresses,
        producers: Producers,
        consumers: Consumers,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._broker = broker
        self._addresses = addresses
        self._clients: dict[int, Producers | Consumers] = {
            pb.HealthCheckRequest.Producer: producers,
            pb.HealthCheckRequest.Consumer: consumers,
        }

    # Discovery.

    async def topic_lookup(
        self, request: pb.TopicLookupRequest
    ) -> pb.TopicLookupResponse:
        """Return the addresses of the broker that serves the topic."""
        name = TopicName.parse(request.topic)
        try:
            owner = await self._broker.topics.find_addresses(name)
        except TopicNotFound as error:
            raise TopicNotFound(
                f"Unable to find the requested topic: {name}"
            ) from error
        answer = pb.TopicLookupResponse
        if GRPC in owner:
            response_type, broker_url = answer.Redirect, owner[GRPC]
            connect_url = owner.get(GRPC_CONNECT, broker_url)
        elif owner:
            raise NotOwner(
                f"another broker of the cluster serves {name}, and it has no address "
                "for clients of Danube: set its listen.advertised_url"
            )
        else:
            response_type, broker_url = answer.Connect, self._addresses.broker_url
            connect_url = self._addresses.connect_url
        return answer(
            request_id=request.request_id,
            response_type=response_type,
            connect_url=connect_url,
            broker_url=broker_url,
            proxy=connect_url != broker_url,
        )

    async def topic_partitions(
        self, request: pb.TopicLookupRequest
    ) -> pb.TopicPartitionsResponse:
        """Return the topic or its partitions; nothing if it does not exist."""
        partitions = await self._broker.catalog.partitions_of(
            TopicName.parse(request.topic)
        )
        return pb.TopicPartitionsResponse(
            request_id=request.request_id, partitions=map(str, partitions)
        )

    # HealthCheck.

    async def health_check(
        self, request: pb.HealthCheckRequest
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

    # StorageService.

    async def list_segment_descriptors(
        self, request: pb.ListSegmentDescriptorsRequest
    ) -> pb.ListSegmentDescriptorsResponse:
        """
        Return the segments that end after ``after_offset``, or all if that is 0.

        The original compares with their first offsets.  A client that names the last
        offset that it has read would miss the messages after it, if the segment that
        it knows was merged with later ones.
        """
        async with self._broker.views.viewing(TopicName.parse(request.topic)) as topic:
            segments = topic.segments
        end = request.after_offset + 1 if request.after_offset else 0
        return pb.ListSegmentDescriptorsResponse(
            segments=[
                pb.SegmentDescriptorProto(
                    segment_id=segment.object_name,
                    start_offset=segment.base,
                    end_offset=segment.end - 1,
                    size=segment.byte_count,
                    created_at=segment.sealed_at // 1_000_000,
                )
                for segment in segments
                if segment.end > end
            ]
        )

    # AuthService, which only the Java client calls.

    async def authenticate(
        self, request: pb.AuthRequest, context: CallContext
    ) -> pb.AuthResponse:
        """
        Return a token for an API key: the key itself, if it is valid.

        A client with an API key needs a token before it can connect.  It may send the
        key itself as its token, so the broker signs none.  A broker that needs no
        credentials returns a token that has no effect.
        """
        authenticator = self._authenticator
        if authenticator is None or not authenticator.is_enabled:
            return pb.AuthResponse(token=ANONYMOUS_TOKEN)
        authenticator.authenticate(request.api_key, context.address, listener="grpc")
        return pb.AuthResponse(token=request.api_key)
