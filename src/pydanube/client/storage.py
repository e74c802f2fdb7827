"""The operations of the client on a broker's storage."""

from __future__ import annotations

from pydanube.client.topics import TopicRequests
from pydanube.model.descriptions import StorageDescription
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb


class StorageRequests(TopicRequests):
    """The operations of ``Client`` on the segments of a broker."""

    async def describe_storage(self) -> StorageDescription:
        """Describe the broker's segments, and their uploads since it started."""
        answer = await self.request(pb.DescribeStorage())
        return from_wire(StorageDescription, answer)

    async def upload_segments(self, topic: str | None = None) -> None:
        """
        Upload the sealed segments of *topic*, its partitions, or all topics, now.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The broker has no remote object store, or the topic is not
                reliable.
            ObjectsUnavailable: An upload has failed; the broker repeats it later.
        """
        for each in await self._topics_of(topic):
            await self.request(pb.UploadSegments(topic=each))

    async def evict_segments(self, topic: str | None = None) -> tuple[int, int]:
        """
        Remove the broker's local copies of the uploaded segments of *topic*, or of all.

        Topics with retention holds keep theirs.  Returns the number of copies and their
        size.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The broker has no remote object store, or the topic is not
                reliable.
            ObjectsUnavailable: The remote object store has not answered yet since the
                broker started, so nothing was removed.
        """
        count = byte_count = 0
        for each in await self._topics_of(topic):
            answer = await self.request(pb.EvictSegments(topic=each))
            count += answer.count
            byte_count += answer.byte_count
        return count, byte_count

    async def _topics_of(self, topic: str | None) -> list[str]:
        return [""] if topic is None else await self.existing_partitions(topic)
