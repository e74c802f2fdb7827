"""
A producer of a partitioned topic: one producer for each partition, and a router.

``routing`` chooses the partition of a message.  The producer looks for new partitions
at an interval; then messages go to all partitions, and a key may go to another
partition than before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Unpack

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import run_all
from pydanube.client.connections.channel import PartitionChannels
from pydanube.client.connections.partitions import create_topic, find_partitions
from pydanube.client.connections.requester import Requester
from pydanube.client.messages.messages import (
    MessageId,
    MessageIds,
)
from pydanube.client.messages.options import ProducerOptions
from pydanube.client.messages.partitioned_ids import PartitionedIds, PartitionSlice
from pydanube.client.producers.producer import (
    BatchData,
    Pending,
    Producer,
    SentPiece,
    close_timeout_error,
    wait_for_offsets,
)
from pydanube.client.producers.traced_producer import new_producer
from pydanube.client.pure.batching import (
    DeliveryOptions,
    Keys,
    ManyAttributes,
    SendOptions,
    batches_of,
    parse_delivery,
    to_bytes,
)
from pydanube.client.pure.deduplication import with_ids
from pydanube.client.pure.routing import Router
from pydanube.model.errors import TimedOut
from pydanube.model.policy import ProducerAccess, TopicPolicy


class PartitionedProducer(PartitionChannels[Producer]):
    """
    A producer of a partitioned topic; made by ``Client.producer``.

    A message with a key goes to the partition of the key, one that has only an id to
    the partition of the id; the others go to the partitions round robin, a batch each.
    Each partition deduplicates its own messages.

    Ordering: Messages of one partition get their offsets in the order in which
        they were sent; between partitions there is no order.

    Bounds: As ``Producer``, for each partition.
    """

    def __init__(
        self,
        client: Requester,
        topic: str,
        names: Sequence[str],
        options: ProducerOptions,
    ) -> None:
        self._options = options
        super().__init__(client, topic, options.name, names)
        self._producers = list(self._channels.values())
        self._router = Router(len(names))
        self._current = self._producers[0]

    # Sending.

    async def send(
        self, payload: bytes | str, **options: Unpack[SendOptions]
    ) -> MessageId:
        """
        Publish one message and return its id; ``id.topic`` is the partition.

        Args, Durability, Cancellation, Raises: As ``Producer.send``.
        """
        producer = self._producer_for(options)
        return await producer.send(payload, **options)

    def send_nowait(
        self, payload: bytes | str, **options: Unpack[SendOptions]
    ) -> Pending:
        """
        Publish one message soon, together with others; await the result for its id.

        Args, Raises: As ``Producer.send_nowait``.
        """
        producer = self._producer_for(options)
        return producer.send_nowait(payload, **options)

    async def send_batch(
        self,
        messages: BatchData,
        *,
        keys: Keys = None,
        attributes: ManyAttributes = None,
        ids: Sequence[str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageIds:
        """
        Publish many messages and return their ids, in their order.

        Messages with keys are split by partition; the others stay together, as
        long as they are not too many for one batch.

        Args, Durability, Cancellation, Raises: As ``Producer.send_batch``.
        """
        now = self._client.wall_clock_ns() // 1000
        batches = batches_of(
            messages, parse_delivery(now, delivery), keys=keys, attributes=attributes
        )
        if ids is not None:
            self._producers[0]._check_ids(ids)
            batches = with_ids(batches, ids)
        routed: list[tuple[int, Any, list[SentPiece]]] = []
        base = 0
        for batch in batches:
            given = None if ids is None else ids[base : base + batch.count]
            for number, indexes, piece in batch.split(self._router, given, base):
                producer = self._producers[number]
                shipped = await producer._send_batches(
                    [piece], uses_ids=ids is not None
                )
                routed.append((number, indexes, shipped))
            base += batch.count
        runs = [
            PartitionSlice(number, indexes, await wait_for_offsets(shipped))
            for number, indexes, shipped in routed
        ]
        return PartitionedIds(self.topic, self.partitions, runs)

    async def flush(self) -> None:
        """
        Wait until all messages are acknowledged.

        Raises:
            BrokerError: A message that nobody awaited has failed.
        """
        await run_all([producer.flush() for producer in self._producers])

    @property
    def has_capacity(self) -> bool:
        """True if ``send_nowait`` accepts a message of any key at the moment."""
        return all(producer.has_capacity for producer in self._producers)

    async def wait_for_capacity(self) -> None:
        """Wait until ``send_nowait`` accepts a message of any key."""
        while not self.has_capacity:
            for producer in self._producers:
                await producer.wait_for_capacity()

    @property
    def pending_count(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return sum(producer.pending_count for producer in self._producers)

    # The life of the producer.

    def _new_channel(self, partition: str) -> Producer:
        return new_producer(self._client, partition, self._options)

    async def _open_channels(self) -> None:
        if self._options.access is ProducerAccess.SHARED:
            await super()._open_channels()
        else:
            # All clients use the same order, so that two of them cannot each hold
            # some of the partitions.
            for producer in self._producers:
                await producer._open()

    async def _discover_partitions(self) -> None:
        await super()._discover_partitions()
        self._producers = list(self._channels.values())
        self._router.partitions = len(self._producers)

    async def aclose(self) -> None:
        """
        Wait until all messages are acknowledged, and close.

        Raises: As ``Producer.aclose``.
        """
        try:
            await run_all([producer.aclose() for producer in self._producers])
        except TimedOut as error:
            count = sum(producer.unacknowledged for producer in self._producers)
            raise close_timeout_error(count, self.topic, self._client) from error

    def _producer_for(self, options: SendOptions) -> Producer:
        key = options.get("key")
        if key is None:
            # Messages with the same id must meet in one partition.
            key = options.get("id")
        if key is None:
            if not self._current._is_gathering:
                self._current = self._producers[self._router.advance()]
            return self._current
        if type(key) is not bytes:
            key = to_bytes("key", key)
        return self._producers[self._router.partition_for(key)]


@async_scope
async def open_producer(
    client: Requester,
    topic: str,
    options: ProducerOptions,
    partitions: int | None,
) -> AsyncIterator[Producer | PartitionedProducer]:
    """
    Open a producer for a topic, partitioned or not, while the body runs.

    If the topic does not exist, it is created with this number of *partitions*.
    """
    found = await find_partitions(client, topic)
    if partitions is not None and not found.topics:
        policy = options.policy or TopicPolicy()
        await create_topic(client, topic, policy, partitions, exist_ok=True)
        found = await find_partitions(client, topic)
    producer: Producer | PartitionedProducer
    if found.is_partitioned:
        producer = PartitionedProducer(client, topic, found.topics, options)
    else:
        producer = new_producer(client, topic, options)
    async with producer._opened():
        yield producer
