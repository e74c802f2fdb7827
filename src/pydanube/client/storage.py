"""The operations of the client on a broker's storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import gather
from pydanube.client.clusters import ClusterRequests
from pydanube.client.topics import TopicRequests
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import SegmentsVerified, StorageDescription
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class StorageRequests(TopicRequests, ClusterRequests):
    """The operations of ``Client`` on the segments of brokers."""

    async def describe_storage(self) -> StorageDescription:
        """
        Describe a broker's segments, and their uploads since it started.

        In a cluster, any broker answers; ``describe_storages`` asks all of them.
        """
        answer = await self.send_request(pb.DescribeStorage())
        return from_wire(StorageDescription, answer)

    async def describe_storages(self) -> dict[str, StorageDescription]:
        """
        Describe the segments of all brokers of the cluster, by the name of the broker.

        The name of a broker outside of a cluster is empty.

        Raises:
            ConnectionLost: A broker does not answer.
        """
        brokers = await self.running_brokers()
        if not brokers:
            return {"": await self.describe_storage()}
        request = pb.DescribeStorage()
        answers = await gather(self.request_of(each.url, request) for each in brokers)
        return {
            each.broker_id: from_wire(StorageDescription, answer)
            for each, answer in zip(brokers, answers, strict=True)
        }

    async def upload_segments(
        self, topic: str | None = None, *, seal: bool = True
    ) -> None:
        """
        Upload everything that *topic*, its partitions, or all topics have now.

        Without *seal*, messages that are not sealed yet are not uploaded.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The broker has no remote object store, or the topic is not
                reliable.
            ObjectsUnavailable: An upload has failed; the broker repeats it later.
            DiskFull: The broker's disk is full, so it does not seal on request.
        """
        if topic is None:
            await self._send_to_all(pb.UploadSegments(is_sealing=seal))
            return
        for each in await self.existing_partitions(topic):
            await self.send_request(pb.UploadSegments(topic=each, is_sealing=seal))

    async def evict_segments(self, topic: str | None = None) -> tuple[int, int]:
        """
        Remove the local copies of the uploaded segments of *topic*, or of all topics.

        Topics with retention holds keep theirs.  Returns the number of copies and their
        size.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The broker has no remote object store, or the topic is not
                reliable.
            ObjectsUnavailable: The remote object store has not answered yet since the
                broker started, so nothing was removed.
        """
        if topic is None:
            answers = await self._send_to_all(pb.EvictSegments())
        else:
            answers = [
                await self.send_request(pb.EvictSegments(topic=each))
                for each in await self.existing_partitions(topic)
            ]
        return (
            sum(each.count for each in answers),
            sum(each.byte_count for each in answers),
        )

    async def verify_segments(
        self,
        topic: str | None = None,
        *,
        after: str = "",
        bytes_per_s: int = 0,
        repair: bool = False,
        source: str = "",
        count: bool = False,
    ) -> SegmentsVerified:
        """
        Verify one page of the segments of *topic*, its partitions, or all topics.

        The broker reads every copy, local and remote, and compares its length and its
        checksums.  The answer's ``after`` is the argument for the next page; the broker
        keeps no state in between.  In a cluster, one broker after the other verifies
        the topics that it serves; topics that move meanwhile may be left out.

        Args:
            topic: A topic, or a partitioned topic; None stands for all topics.
            after: Where to continue; the first page has none.
            bytes_per_s: How fast copies are read; 0 means as fast as possible.
            repair: Whether damaged and missing copies are replaced by the other copy of
                their segment, if that is intact.
            source: The name of a further store with intact copies under the same names;
                the settings of the broker have its URL, such as ``BACKUPS/segments``.
            count: Whether to count the segments that are left.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, *after* is not a position, or the
                settings have no such store.
            ObjectsUnavailable: The remote object store does not answer.
            InconsistentDirectory: The remote object store is that of another cluster.
        """
        request = pb.VerifySegments(
            topic=topic or "",
            after=after,
            bytes_per_s=bytes_per_s,
            is_repairing=repair,
            source=source,
            is_counting=count,
        )
        brokers = await self.running_brokers()
        if not brokers:
            answer = await self.send_request(request)
            return from_wire(SegmentsVerified, answer)
        name, separator, request.after = after.rpartition("@")
        left = [each for each in brokers if not separator or each.broker_id >= name]
        if not left:
            return SegmentsVerified()
        if left[0].broker_id != name:
            # This is the first page, or the broker of the last page has stopped.
            request.after = ""
        page = from_wire(SegmentsVerified, await self.request_of(left[0].url, request))
        if page.after:
            return replace(page, after=f"{left[0].broker_id}@{page.after}")
        if len(left) > 1:
            return replace(page, after=f"{left[1].broker_id}@")
        return page

    async def copy_segments(
        self,
        store: str,
        *,
        after: str = "",
        bytes_per_s: int = 0,
        count: bool = False,
        finish: bool = False,
    ) -> SegmentsVerified:
        """
        Copy one page of the segments in the remote store to the named *store*.

        The broker opens that store, copies what it does not have, and verifies all of
        it.  Go on with the answer's ``after`` as for ``verify_segments``.

        Args:
            store: The name of the store in the setting ``stores`` of the broker.
            after: Where to continue; the first page has none.
            bytes_per_s: How fast objects are read; 0 means as fast as possible.
            count: Whether to count the segments that are left.
            finish: Instead of a page, copy what was uploaded in the meantime, and then
                write the cluster id to the store, so that brokers accept it.

        Raises:
            InvalidRequest: The broker has no remote object store, *after* is not a
                position, the settings have no such store, or it is that of another
                cluster.
            InvalidConfig: The broker cannot open the store.
            ObjectsUnavailable: A store does not answer.
        """
        answer = await self.send_request(
            pb.CopySegments(
                store=store,
                after=after,
                bytes_per_s=bytes_per_s,
                is_counting=count,
                is_finishing=finish,
            )
        )
        return from_wire(SegmentsVerified, answer)

    async def _send_to_all(self, message: Message) -> list[Any]:
        """Send a request to all brokers of the cluster; return their answers."""
        brokers = await self.running_brokers()
        if not brokers:
            return [await self.send_request(message)]
        return await gather(self.request_of(each.url, message) for each in brokers)
