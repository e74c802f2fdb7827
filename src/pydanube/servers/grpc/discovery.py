"""The service ``danube.Discovery``: the broker and the partitions of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.errors import TopicNotFound
from pydanube.model.names import TopicName
from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker
    from pydanube.servers.addresses import Addresses
    from pydanube.servers.grpc.services import Context


class Discovery:
    """The service ``danube.Discovery``."""

    def __init__(self, broker: Broker, addresses: Addresses) -> None:
        self._broker = broker
        self._addresses = addresses

    async def topic_lookup(
        self, request: pb.TopicLookupRequest, context: Context
    ) -> pb.TopicLookupResponse:
        """Return the address of this broker if the topic exists."""
        name = TopicName.parse(request.topic)
        try:
            await self._broker.topics.get(name)
        except TopicNotFound as error:
            raise TopicNotFound(
                f"Unable to find the requested topic: {name}"
            ) from error
        addresses = self._addresses
        return pb.TopicLookupResponse(
            request_id=request.request_id,
            response_type=pb.TopicLookupResponse.Connect,
            connect_url=addresses.connect_url,
            broker_url=addresses.broker_url,
            proxy=addresses.is_behind_proxy,
        )

    async def topic_partitions(
        self, request: pb.TopicLookupRequest, context: Context
    ) -> pb.TopicPartitionsResponse:
        """Return the topic or its partitions; nothing if it does not exist."""
        partitions = await self._broker.topics.partitions_of(
            TopicName.parse(request.topic)
        )
        return pb.TopicPartitionsResponse(
            request_id=request.request_id, partitions=map(str, partitions)
        )
