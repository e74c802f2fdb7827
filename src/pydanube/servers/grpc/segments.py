"""The service ``danube.StorageService``: the sealed segments of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.names import TopicName
from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker
    from pydanube.servers.grpc.services import Context


class StorageService:
    """The service ``danube.StorageService``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def list_segment_descriptors(
        self, request: pb.ListSegmentDescriptorsRequest, context: Context
    ) -> pb.ListSegmentDescriptorsResponse:
        """
        Return the segments that begin after ``after_offset``, or all if that is 0.

        The original never lists a segment that begins at 0.
        """
        topic = await self._broker.topics.get(TopicName.parse(request.topic))
        after = request.after_offset or -1
        return pb.ListSegmentDescriptorsResponse(
            segments=[
                pb.SegmentDescriptorProto(
                    segment_id=segment.object_name,
                    start_offset=segment.base,
                    end_offset=segment.end - 1,
                    size=segment.byte_count,
                    created_at=segment.sealed_at // 1_000_000,
                )
                for segment in topic.segments
                if segment.base > after
            ]
        )
