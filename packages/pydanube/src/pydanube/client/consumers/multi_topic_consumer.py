"""
A consumer of several topics, by name or by pattern.

It consumes each topic, or each of its partitions, as a ``PartitionedConsumer`` does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import gather, run_all
from pydanube.client.connections.partitions import find_partitions
from pydanube.client.connections.requester import Requester
from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.consumers.partitioned_consumer import (
    PartitionedConsumer,
    may_be_created,
)
from pydanube.client.messages.messages import T_co
from pydanube.client.messages.options import ConsumerOptions
from pydanube.client.pure.topic_selection import TopicSelection
from pydanube.model.errors import BrokerError, InvalidRequest, TopicNotFound
from pydanube.wire.pb import stream_pb2 as pb

log = logging.getLogger(__name__)


class MultiTopicConsumer(PartitionedConsumer[T_co]):
    """
    A consumer with a subscription on each of several topics; see ``Client.consumer``.

    ``message.topic`` is the topic of a message, or its partition.  Every 5 seconds the
    consumer looks for new topics that match a pattern, and consumes them from their
    beginning.  A topic that matches a pattern and is deleted leaves the consumer; the
    deletion of a topic that the consumer names raises ``TopicNotFound``.

    Ordering: As ``Consumer`` in each topic or partition; none between them.

    Bounds: As ``PartitionedConsumer``.
    """

    _PART = "topic"

    def __init__(
        self,
        client: Requester,
        selection: TopicSelection,
        names: Sequence[str],
        options: ConsumerOptions,
        missing: Collection[str] = (),
    ) -> None:
        """*missing* are those of *names* that the broker creates, if it may."""
        self._selection = selection
        self._missing_names = missing
        super().__init__(client, str(selection), names, options)

    def _may_create(self, partition: str) -> bool:
        return partition in self._missing_names

    async def _discover_partitions(self) -> None:
        """Look for topics that match, and open consumers of the new ones."""
        missing = self._missing(await _find(self._client, self._selection))
        # A topic that cannot be consumed does not keep others waiting.
        await run_all([self._try_join(each) for each in missing])

    async def _try_join(self, name: str) -> None:
        try:
            await self._join(name)
        except BrokerError as error:
            log.warning("cannot consume %s, trying again: %s", name, error)
            raise

    async def _open_channels(self) -> None:
        await gather(self._open_first(each) for each in [*self._channels.values()])

    async def _open_first(self, consumer: TopicConsumer) -> None:
        try:
            await consumer._open()
        except TopicNotFound:
            if not self._may_leave(consumer.topic):
                raise
            self._remove(consumer)

    async def _flush_one(self, consumer: TopicConsumer) -> None:
        try:
            await consumer.flush()
        except TopicNotFound:
            if not consumer._has_left:
                raise

    # Topics that leave.

    def _on_arrival(self, consumer: TopicConsumer) -> None:
        if isinstance(consumer.failure, TopicNotFound) and self._may_leave(
            consumer.topic
        ):
            consumer._has_left = True
            self._remove(consumer)
        else:
            super()._on_arrival(consumer)

    def _may_leave(self, topic: str) -> bool:
        return not self._selection.includes_by_name(topic)

    def _consumer_of(self, topic: str) -> TopicConsumer | None:
        if topic not in self._channels and self._selection.includes(topic):
            # It has left.
            return None
        return super()._consumer_of(topic)


async def _find(client: Requester, selection: TopicSelection) -> list[str]:
    """Return the selected topics that exist, and their partitions."""
    found: list[str] = []
    for name in selection.names:
        found += (await find_partitions(client, name)).topics
    for namespace in selection.namespaces():
        from pydanube.client.operations.topics import Topics  # noqa: PLC0415

        found += selection.matching(await Topics(client).list(namespace))
    return list(dict.fromkeys(found))


@async_scope
async def open_multi_topic_consumer(
    client: Requester, selection: TopicSelection, options: ConsumerOptions
) -> AsyncIterator[MultiTopicConsumer]:
    """
    Open a consumer of the topics of *selection* while the body runs.

    Raises:
        TopicNotFound: A topic that is named does not exist, and the broker does not
            create it.
        NamespaceNotFound: The namespace of a pattern does not exist.
    """
    if isinstance(options.start, int):
        raise InvalidRequest(
            f"an offset needs one topic, not {selection}: start at a time, or consume "
            "one topic"
        )
    missing: list[str] = []
    for name in selection.names:
        if not (await find_partitions(client, name)).topics:
            if not may_be_created(name):
                raise TopicNotFound(f"Unable to find the topic: {name}")
            missing.append(name)
    for namespace in selection.namespaces():
        if namespace is not None:
            await client.send_request(pb.DescribeNamespace(namespace=namespace))
    names = list(dict.fromkeys([*missing, *await _find(client, selection)]))
    async with MultiTopicConsumer(
        client, selection, names, options, missing
    )._opened() as opened:
        yield opened
