"""The operations of a client on the retention of topics."""

from __future__ import annotations

from contextlib import suppress

from pydanube.client.topics import TopicRequests
from pydanube.model.arguments import checks_arguments
from pydanube.model.descriptions import RetentionDrops
from pydanube.model.errors import TopicNotFound
from pydanube.model.names import parse_namespace
from pydanube.model.policy import Retention
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class RetentionRequests(TopicRequests):
    """
    The operations of ``Client`` on retention.

    Brokers apply retention every ``storage.retention_interval_s`` to all open topics.
    """

    async def apply_retention(self, topic: str) -> list[RetentionDrops]:
        """
        Drop what the retention of *topic* does not keep, now; return what was dropped.

        For a partitioned topic there is one result for each partition, by number.

        Durability: On return the segments are dropped for good; their objects are
            deleted soon.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable.
            BackupRunning: A backup is being made, which needs all segments.
        """
        return [
            await self._drops(name, pb.ApplyRetention())
            for name in await self.existing_partitions(topic)
        ]

    async def plan_retention(
        self,
        topic: str,
        retention: Retention | None = None,
        *,
        inherits: bool = False,
        of_namespace: Retention | None = None,
    ) -> list[RetentionDrops]:
        """
        Return what ``apply_retention`` would drop from *topic* now; drop nothing.

        Args:
            topic: A topic, or a partitioned topic, as for ``apply_retention``.
            retention: The retention to assume for the topic; None: its own.
            inherits: Assume that the topic has no retention of its own.
            of_namespace: The retention to assume for its namespace; None: its own.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or a limit is out of range.
        """
        for each in (retention, of_namespace):
            if each is not None:
                each.check()
        message = pb.ApplyRetention(
            is_dry_run=True,
            retention=to_wire(pb.Retention, retention),
            namespace_retention=to_wire(pb.Retention, of_namespace),
            inherits=inherits,
        )
        return [
            await self._drops(name, message)
            for name in await self.existing_partitions(topic)
        ]

    async def apply_namespace_retention(self, namespace: str) -> list[RetentionDrops]:
        """
        Call ``apply_retention`` for each reliable topic and partition of *namespace*.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        return await self._drops_of_all(namespace, pb.ApplyRetention())

    async def plan_namespace_retention(
        self, namespace: str, retention: Retention | None = None
    ) -> list[RetentionDrops]:
        """
        Return what ``apply_namespace_retention`` would drop now; drop nothing.

        *retention* is assumed for the topics that have none of their own.

        Raises:
            NamespaceNotFound: There is no such namespace.
        """
        if retention is not None:
            retention.check()
        message = pb.ApplyRetention(
            is_dry_run=True, namespace_retention=to_wire(pb.Retention, retention)
        )
        return await self._drops_of_all(namespace, message)

    async def _drops_of_all(
        self, namespace: str, message: pb.ApplyRetention
    ) -> list[RetentionDrops]:
        await self.send_request(
            pb.DescribeNamespace(namespace=parse_namespace(namespace))
        )
        drops = []
        for name in await self.topics.list(namespace):
            # A topic may be deleted after it was listed.
            with suppress(TopicNotFound):
                if (await self.describe_topic(name)).policy.is_reliable:
                    drops.append(await self._drops(name, message))
        return drops

    async def _drops(self, topic: str, message: pb.ApplyRetention) -> RetentionDrops:
        return from_wire(RetentionDrops, await self.request_topic(topic, message))
