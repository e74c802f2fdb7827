"""
A producer of a partitioned topic: one producer for each partition, and a router.

``routing`` chooses the partition of a message.  The producer looks for new partitions
at an interval; then messages go to all partitions, and a key may go to another
partition than before.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pydanube.aio.tasks import gather, run_all
from pydanube.client.batching import batches_of, delivery_window, to_bytes
from pydanube.client.messages import MessageIds, PartitionedIds, PartitionSlice
from pydanube.client.pending import wait_for_offsets
from pydanube.client.producer import Producer, close_timeout_error
from pydanube.client.producer import open_producer as open_producer_of_one
from pydanube.client.routing import Router
from pydanube.model.errors import BrokerError, Closed, TimedOut
from pydanube.model.policy import ProducerAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Unpack

    import pyarrow as pa

    from pydanube.client.batching import DeliveryOptions
    from pydanube.client.messages import MessageId
    from pydanube.client.pending import Pending, SentPiece
    from pydanube.client.producer import BatchData
    from pydanube.client.producer_options import ProducerOptions
    from pydanube.client.topics import TopicRequests

PARTITIONS_LOOKUP_INTERVAL_S = 5.0
"""The interval at which a producer or consumer looks for new partitions."""


class PartitionedProducer:
    """
    A producer of a partitioned topic; made by ``Client.producer``.

    A message with a key goes to the partition of the key; the others go to the
    partitions round robin, a batch each.

    Ordering: Messages of one partition get their offsets in the order in which
        they were sent; between partitions there is no order.

    Bounds: As ``Producer``, for each partition.
    """

    def __init__(
        self,
        client: TopicRequests,
        topic: str,
        names: Sequence[str],
        options: ProducerOptions,
    ) -> None:
        self.topic = topic
        self.name = options.name
        self._client = client
        self._options = options
        self._producers = [Producer(client, name, options) for name in names]
        self._router = Router(len(names))
        self._current = self._producers[0]
        self._running: list[asyncio.Task[None]] = []

    # Sending.

    async def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        """
        Publish one message and return its id; ``id.topic`` is the partition.

        Args, Durability, Cancellation, Raises: As ``Producer.send``.
        """
        return await self._producer_for(key).send(
            payload,
            key=key,
            attributes=attributes,
            **delivery,
        )

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        """
        Publish one message soon, together with others; await the result for its id.

        Args, Raises: As ``Producer.send_nowait``.
        """
        return self._producer_for(key).send_nowait(
            payload,
            key=key,
            attributes=attributes,
            **delivery,
        )

    async def send_batch(
        self, messages: BatchData, **delivery: Unpack[DeliveryOptions]
    ) -> MessageIds:
        """
        Publish many messages and return their ids, in their order.

        Messages with keys are split by partition; the others stay together, as
        long as they are not too many for one batch.

        Args, Durability, Cancellation, Raises: As ``Producer.send_batch``.
        """
        now = self._client.wall_clock_ns() // 1000
        batches = batches_of(messages, delivery_window(now, **delivery))
        count = sum(batch.num_rows for batch in batches)
        routed: list[tuple[int, pa.Array, list[SentPiece]]] = []
        base = 0
        for batch in batches:
            for number, indexes, piece in self._router.split(batch):
                shipped = await self._producers[number].send_batches([piece])
                routed.append((number, pc.add(indexes, base), shipped))
            base += batch.num_rows
        runs = [
            PartitionSlice(number, indexes, await wait_for_offsets(shipped))
            for number, indexes, shipped in routed
        ]
        return PartitionedIds(self.topic, self.partitions, runs, count)

    async def flush(self) -> None:
        """
        Wait until all messages are acknowledged.

        Raises:
            BrokerError: A message that nobody awaited has failed.
        """
        await run_all([producer.flush() for producer in self._producers])

    @property
    def partitions(self) -> list[str]:
        """The partitions, by number."""
        return [producer.topic for producer in self._producers]

    @property
    def is_connected(self) -> bool:
        """True if the channels of all partitions are open at the moment."""
        return all(producer.is_connected for producer in self._producers)

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

    async def open(self) -> None:
        """Open the producers of all partitions."""
        try:
            if self._options.access is ProducerAccess.SHARED:
                await gather(producer.open() for producer in self._producers)
            else:
                # All clients use the same order, so that two of them cannot each hold
                # some of the partitions.
                for producer in self._producers:
                    await producer.open()
        except BaseException:
            self.abandon()
            raise
        for producer in self._producers:
            self._run(producer)

    async def run(self) -> None:
        """Find partitions that are added, until the task is cancelled."""
        while True:
            await asyncio.sleep(PARTITIONS_LOOKUP_INTERVAL_S)
            try:
                await self.discover_partitions()
            except Closed:
                return
            except BrokerError:
                # Try again at the next interval.
                continue

    async def discover_partitions(self) -> None:
        """Look up the partitions, and open producers for the new ones."""
        names = (await self._client.find_partitions(self.topic)).topics
        added = []
        for name in names[len(self._producers) :]:
            producer = Producer(self._client, name, self._options)
            await producer.open()
            self._run(producer)
            added.append(producer)
        self._producers += added
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

    def abandon(self) -> None:
        """Close without waiting; unacknowledged messages may or may not be stored."""
        for producer in self._producers:
            producer.abandon()

    def cancel(self) -> None:
        """Cancel the tasks that keep the channels open."""
        for task in self._running:
            task.cancel()

    def _run(self, producer: Producer) -> None:
        name = f"producer {producer.name} of {producer.topic}"
        self._running.append(self._client.tasks.run(producer.run(), name))

    def _producer_for(self, key: str | bytes | None) -> Producer:
        if key is None:
            if not self._current.is_gathering:
                self._current = self._producers[self._router.advance()]
            return self._current
        if type(key) is not bytes:
            key = to_bytes("key", key)
        return self._producers[self._router.partition_for(key)]


@asynccontextmanager
async def open_producer(
    client: TopicRequests,
    topic: str,
    options: ProducerOptions,
    partitions: int | None,
) -> AsyncIterator[Producer | PartitionedProducer]:
    """
    Open a producer for a topic, partitioned or not, while the body runs.

    If the topic does not exist, it is created with this number of *partitions*.
    """
    found = await client.find_partitions(topic)
    if partitions is not None and not found.topics:
        await client.create_topics(topic, options.policy, partitions, exist_ok=True)
        found = await client.find_partitions(topic)
    if not found.is_partitioned:
        async with open_producer_of_one(client, topic, options) as single:
            yield single
        return
    producer = PartitionedProducer(client, topic, found.topics, options)
    await producer.open()
    discovery = client.tasks.run(producer.run(), f"partitions of {topic}")
    try:
        yield producer
    except BaseException:
        # The body has failed: do not wait for acknowledgements.
        producer.abandon()
        raise
    else:
        await producer.aclose()
    finally:
        discovery.cancel()
        producer.cancel()
