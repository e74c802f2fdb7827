"""
A consumer of a partitioned topic: one consumer for each partition, in round robin.

The consumers that have messages form a queue.  The first one hands out some messages,
and moves to the end of the queue if it has more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import gather, run_all
from pydanube.client.connections.channel import PartitionChannels
from pydanube.client.connections.partitions import find_partitions
from pydanube.client.connections.requester import Requester
from pydanube.client.consumers.consumer import Consumer, TopicConsumer
from pydanube.client.messages.messages import Message, MessageBatch, T_co
from pydanube.client.messages.options import ConsumerOptions, check_max_messages
from pydanube.client.pure.credit import SharedCredit
from pydanube.client.pure.offsets import AckTarget
from pydanube.model.errors import Closed, InvalidRequest, TimedOut
from pydanube.model.names import TopicName
from pydanube.model.policy import Start
from pydanube.model.positions import PositionLike, to_position

ROUND_ROBIN_MESSAGES = 256
"""The messages of one partition that are handed out before the next partition's."""


class PartitionedConsumer(PartitionChannels[TopicConsumer], Consumer[T_co]):
    """
    A consumer of one subscription of a partitioned topic; made by ``Client.consumer``.

    ``message.topic`` is the partition of a message.  A partition that is added later
    is found within seconds, and consumed from its beginning.

    Ordering: As ``Consumer`` in each partition; none between partitions.

    Bounds: As ``Consumer``; the partitions share ``prefetch_messages`` and
        ``prefetch_bytes``, but each may send at least one message ahead.  While
        partitions join, those that are idle keep their larger shares: up to twice as
        much may be sent ahead.
    """

    _PART = "partition"

    def __init__(
        self,
        client: Requester,
        topic: str,
        names: Sequence[str],
        options: ConsumerOptions,
    ) -> None:
        self.subscription = options.subscription
        self._options = options
        self._credit = SharedCredit(options.prefetch_messages, options.prefetch_bytes)
        self._credit.divide(len(names))
        super().__init__(client, topic, options.name, names)
        # Added partitions: include the messages that were published since then.
        self._options = replace(self._options, start=Start.EARLIEST)
        # The consumers that have messages or have failed, in the order of round robin;
        # the current one, and how many messages it may still hand out.
        self._ready: deque[TopicConsumer] = deque()
        # Those that have handed out messages since the last wait.
        self._used: set[TopicConsumer] = set()
        self._current: TopicConsumer | None = None
        self._left = 0
        self._arrived = asyncio.Event()

    # Receiving.

    async def __anext__(self) -> Message[T_co]:
        if self._left <= 0:
            # Let the loop receive messages of other partitions.
            await asyncio.sleep(0)
        try:
            return self._next_nowait() or await self._wait_for_message(None)
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self, *, timeout_s: float | None = None) -> Message[T_co]:
        """
        Return the next message of any partition.

        Raises: As ``Consumer.receive``.
        """
        if self._left <= 0:
            # Let the loop receive messages of other partitions.
            await asyncio.sleep(0)
        return self._next_nowait() or await self._wait_for_message(timeout_s)

    async def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch[T_co]:
        """
        Return messages of one partition, at least one, at most *max_messages*.

        Returns an empty batch if no message arrived in *timeout_s*.

        Raises: As ``receive``, except TimedOut.
        """
        check_max_messages(Consumer.receive_batch, max_messages)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := self._partition_batch_nowait(max_messages)):
                    await self._wait()
                return found
        except TimeoutError:
            return MessageBatch(self.topic, [])

    def _partition_batch_nowait(self, max_messages: int) -> MessageBatch[T_co]:
        """Return messages that have arrived for one partition, if any have."""
        while (consumer := self._next_consumer()) is not None:
            # Continue with the next partition.
            self._left = 0
            found = consumer._batch_nowait(max_messages)
            if found:
                return found
        return MessageBatch(self.topic, [])

    def _ack_nowait(self, messages: AckTarget) -> None:
        # The consumer of a partition acknowledges its messages in the shortest form.
        if type(messages) is Message:
            topic = messages.topic
        elif (
            type(messages) is MessageBatch
            and len(topics := {batch.topic for batch, _, _ in messages.slices}) == 1
        ):
            topic = topics.pop()
        else:
            super()._ack_nowait(messages)
            return
        if (consumer := self._consumer_of(topic)) is not None:
            consumer._ack_nowait(messages)

    async def flush(self) -> None:
        await run_all([self._flush_one(each) for each in self._channels.values()])

    async def _flush_one(self, consumer: TopicConsumer) -> None:
        await consumer.flush()

    async def seek(self, to: PositionLike) -> None:
        """
        Continue in every partition at ``"earliest"``, at ``"latest"``, or at a time.

        Durability: As ``Consumer.seek``.

        Raises:
            InvalidRequest: *to* is an offset, which needs one partition; or as for
                ``Consumer.seek``.
        """
        if isinstance(to_position(to), int):
            raise InvalidRequest(
                f"an offset is in one {self._PART} of {self.topic}: use "
                f"client.subscriptions.seek, or a consumer of the {self._PART}"
            )
        await gather(each.seek(to) for each in self._channels.values())

    @property
    def is_active(self) -> bool:
        """False while other consumers are active in all partitions (failover)."""
        return any(each.is_active for each in self._channels.values())

    @property
    def _consumers(self) -> Sequence[TopicConsumer]:
        return list(self._channels.values())

    # The life of the consumer.

    def _missing(self, found: Iterable[str]) -> list[str]:
        missing = super()._missing(found)
        self._credit.divide(len(self._channels) + len(missing))
        for each in self._channels.values():
            each._return_credit_before_wait()
        return missing

    def _new_channel(self, partition: str) -> TopicConsumer:
        consumer = TopicConsumer(
            self._client,
            partition,
            self._options,
            on_arrival=lambda: self._on_arrival(consumer),
            credit=self._credit.join(),
            may_create=self._may_create(partition),
        )
        return consumer

    def _may_create(self, _partition: str) -> bool:
        return False

    def _remove(self, channel: TopicConsumer) -> None:
        super()._remove(channel)
        self._credit.leave(channel.credit)
        self._used.discard(channel)
        if channel in self._ready:
            self._ready.remove(channel)
        if channel is self._current:
            self._current, self._left = None, 0

    async def aclose(self) -> None:
        """Flush the acknowledgements, and leave the subscription."""
        await run_all([each.aclose() for each in self._channels.values()])

    def _consumer_of(self, topic: str) -> TopicConsumer | None:
        consumer = self._channels.get(topic)
        if consumer is None:
            raise InvalidRequest(
                f"the consumer of topic {self.topic}, subscription {self.subscription} "
                f"cannot acknowledge or reject a message of {topic}, which is not a "
                f"{self._PART} of it: use the consumer that received it"
            )
        return consumer

    # Round robin.

    def _on_arrival(self, consumer: TopicConsumer) -> None:
        if consumer is not self._current and consumer not in self._ready:
            self._ready.append(consumer)
        self._arrived.set()

    def _next_nowait(self) -> Message[T_co] | None:
        consumer: TopicConsumer | None = self._current
        if self._left <= 0 or consumer is None:
            consumer = self._next_consumer()
        while consumer is not None:
            message = consumer._next_nowait()
            if message is not None:
                self._left -= 1
                return message
            consumer = self._next_consumer()
        return None

    def _next_consumer(self) -> TopicConsumer | None:
        """Return the next consumer that has messages, or None."""
        if self._current is not None and self._current._unread.has_messages:
            self._ready.append(self._current)
        self._current = None
        while self._ready:
            consumer = self._ready.popleft()
            if consumer.failure is not None:
                # It stays in front, so that every call raises its failure.
                self._ready.appendleft(consumer)
                raise consumer.failure
            consumer._drop_late()
            if consumer._unread.has_messages:
                self._current, self._left = consumer, ROUND_ROBIN_MESSAGES
                self._used.add(consumer)
                return consumer
        return None

    async def _wait_for_message(self, timeout_s: float | None) -> Message[T_co]:
        try:
            async with asyncio.timeout(timeout_s):
                while not (message := self._next_nowait()):
                    await self._wait()
                return message
        except TimeoutError:
            raise TimedOut(f"no message came in {timeout_s} s") from None

    async def _wait(self) -> None:
        """Wait until a consumer has messages, or has failed."""
        for consumer in self._used:
            consumer._return_credit_before_wait()
        self._used.clear()
        self._arrived.clear()
        await self._arrived.wait()


@async_scope
async def open_consumer(
    client: Requester, topic: str, options: ConsumerOptions
) -> AsyncIterator[Consumer]:
    """Open a consumer of a topic, partitioned or not, while the body runs."""
    found = await find_partitions(client, topic)
    consumer: Consumer
    if not found.is_partitioned:
        may_create = not found.topics and may_be_created(topic)
        consumer = TopicConsumer(client, topic, options, may_create=may_create)
    elif isinstance(options.start, int):
        raise InvalidRequest(
            f"{topic} has partitions, and an offset needs one: start at a time, or "
            "consume one partition"
        )
    else:
        consumer = PartitionedConsumer(client, topic, found.topics, options)
    async with consumer._opened():
        yield consumer


def may_be_created(topic: str) -> bool:
    """
    Return whether a consumer creates the missing *topic*, if the broker allows it.

    The name of a missing partition is a mistake rather than a new topic.
    """
    return TopicName.parse(topic).split_partition() is None
