"""The operations of a client on the storage of brokers: segments and backups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import gather
from pydanube.client.connections.owner_requests import ask_owners
from pydanube.client.connections.partitions import existing_partitions
from pydanube.client.connections.requester import Requester, retry
from pydanube.client.operations.cluster import Cluster
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import (
    BackupProgress,
    Segments,
    SegmentsVerified,
    StorageDescription,
)
from pydanube.model.errors import TopicNotFound
from pydanube.model.names import TopicName
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class Storage:
    """The segments of topics, and backups of brokers; ``Client.storage``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._cluster = Cluster(requester)

    async def describe(self) -> StorageDescription:
        """
        Describe a broker's segments, and their uploads since it started.

        In a cluster, any broker answers; ``describe_all`` asks all of them.
        """
        answer = await self._requester.send_request(pb.DescribeStorage())
        return from_wire(StorageDescription, answer)

    async def describe_all(self) -> dict[str, StorageDescription]:
        """
        Describe the segments of all brokers of the cluster, by the name of the broker.

        The name of a broker outside of a cluster is empty.

        Raises:
            ConnectionLost: A broker does not answer.
        """
        brokers = await self._cluster.running_brokers()
        if not brokers:
            return {"": await self.describe()}
        request = pb.DescribeStorage()
        answers = await gather(
            self._requester.request_of(each.url, request) for each in brokers
        )
        return {
            each.broker_id: from_wire(StorageDescription, answer)
            for each, answer in zip(brokers, answers, strict=True)
        }

    async def upload(self, topic: str | None = None, *, seal: bool = True) -> None:
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
        for each in await existing_partitions(self._requester, topic):
            await self._requester.send_request(
                pb.UploadSegments(topic=each, is_sealing=seal)
            )

    async def evict(self, topic: str | None = None) -> tuple[int, int]:
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
                await self._requester.send_request(pb.EvictSegments(topic=each))
                for each in await existing_partitions(self._requester, topic)
            ]
        return (
            sum(each.count for each in answers),
            sum(each.byte_count for each in answers),
        )

    async def verify(
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
        brokers = await self._cluster.running_brokers()
        if not brokers:
            answer = await self._requester.send_request(request)
            return from_wire(SegmentsVerified, answer)
        name, separator, request.after = after.rpartition("@")
        left = [each for each in brokers if not separator or each.broker_id >= name]
        if not left:
            return SegmentsVerified()
        if left[0].broker_id != name:
            # This is the first page, or the broker of the last page has stopped.
            request.after = ""
        page = from_wire(
            SegmentsVerified, await self._requester.request_of(left[0].url, request)
        )
        if page.after:
            return replace(page, after=f"{left[0].broker_id}@{page.after}")
        if len(left) > 1:
            return replace(page, after=f"{left[1].broker_id}@")
        return page

    async def copy(
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
        it.  Go on with the answer's ``after`` as for ``verify``.

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
        answer = await self._requester.send_request(
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
        brokers = await self._cluster.running_brokers()
        if not brokers:
            return [await self._requester.send_request(message)]
        return await gather(
            self._requester.request_of(each.url, message) for each in brokers
        )

    # Segments of topics.

    async def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """
        Return the segments with the messages ``base … end`` (0: all) of *topic*.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.ListSegments(base_offset=base, end_offset=end)
        answer = await self._requester.request_topic(topic, message)
        return _segments_of(answer, dict(answer.store_options))

    async def list_segments(
        self, ranges: Mapping[str, tuple[int, int]]
    ) -> dict[str, Segments]:
        """
        Return the segments with messages of a range of offsets, for several topics.

        They lack what maintenance needs: ``epoch`` and ``objects_url``.  Topics that do
        not exist are left out.
        """
        names = {str(TopicName.parse(topic)): topic for topic in ranges}
        return await retry(
            partial(self._list_segments, names, ranges), self._requester.retry_s
        )

    async def _list_segments(
        self, names: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]
    ) -> dict[str, Segments]:
        def request_of(some: list[str]) -> pb.FindSegments:
            message = pb.FindSegments()
            for name in some:
                base, end = ranges[names[name]]
                message.ranges.add(topic=name, base_offset=base, end_offset=end)
            return message

        found = {
            each.topic: _segments_of(each, dict(answer.store_options))
            for _, answer in await ask_owners(self._requester, list(names), request_of)
            for each in answer.topics
        }
        for name, topic in names.items():
            if name not in found:
                # It does not exist, is not permitted, or has no owner at the moment.
                with suppress(TopicNotFound):
                    found[name] = await self.segments(name, *ranges[topic])
        return {topic: found[name] for name, topic in names.items() if name in found}

    async def replace_segments(
        self,
        topic: str,
        topic_id: int,
        old: Sequence[str],
        new: Sequence[tuple[str, int, int]],
    ) -> int:
        """
        Replace segments of *topic* with new objects, for maintenance.

        Args:
            topic: A topic, or one partition.
            topic_id: The id of the topic when the objects were made.
            old: The object names of adjacent segments.
            new: The name, length and CRC-32C of each new object.

        Returns: The number of messages that this removed.

        Durability: On return the broker has compared the objects with the segments,
            and the replacement is on disk.  On an error nothing has changed.

        Raises:
            TopicNotFound: There is no such topic any more.
            TopicHeld: The topic has a retention hold.
            SegmentsChanged: The topic no longer has the old segments.
            InvalidRequest: The objects cannot replace them.
        """
        message = pb.ReplaceSegments(topic_id=topic_id, old=old)
        for name, byte_count, checksum in new:
            message.new.add(object_name=name, byte_count=byte_count, checksum=checksum)
        return int((await self._requester.request_topic(topic, message)).removed)

    # Backups.

    async def create_backup(self, store: str) -> BackupProgress:
        """
        Begin a backup of the broker to an object store that its settings name.

        The broker makes it while it goes on serving; ``describe_backup`` tells how far
        it is.  The backup has the state of a moment after this call: everything that
        was acknowledged before the call is in it.  Until it is finished, the broker
        removes no segments and deletes no topics.

        Args:
            store: The name of the store in the setting ``stores`` of the broker.

        Raises:
            BackupRunning: A backup is being made.
            InvalidRequest: The settings have no such store.
            InvalidConfig: The broker cannot open the store.
        """
        request = pb.CreateBackup(store=store)
        return from_wire(BackupProgress, await self._requester.send_request(request))

    async def describe_backup(self) -> BackupProgress:
        """Return the progress of the last backup since the broker's start."""
        return from_wire(
            BackupProgress, await self._requester.send_request(pb.DescribeBackup())
        )


def _segments_of(answer: pb.Segments, options: Mapping[str, str]) -> Segments:
    found = from_wire(Segments, answer)
    if not options:
        return found
    segments = [replace(each, store_options=options) for each in found.segments]
    return replace(found, segments=tuple(segments))
