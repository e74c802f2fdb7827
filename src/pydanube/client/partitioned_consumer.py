"""
A consumer of a partitioned topic: one consumer for each partition, taken in turns.

Whoever has messages waits in a queue.  The first hands out some, and if it has
more goes to the end of the queue, so that no partition waits for all of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pydanube.aio.tasks import gather, run_all
from pydanube.client.consumer import Consumer
from pydanube.client.consumer import open_consumer as open_consumer_of_one
from pydanube.client.messages import Message, MessageBatch
from pydanube.client.offsets import as_collection, origins_of, ranges_by_topic
from pydanube.client.partitioned_producer import PARTITIONS_LOOKUP_INTERVAL_S
from pydanube.model.errors import BrokerError, Closed, InvalidRequest, TimedOut
from pydanube.model.policy import Start
from pydanube.model.positions import to_position

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube.client.consumer_options import ConsumerOptions
    from pydanube.client.messages import MessageId
    from pydanube.client.offsets import AckTarget
    from pydanube.client.topics import TopicRequests
    from pydanube.model.positions import PositionLike

ROUND_ROBIN_MESSAGES = 256
"""So many messages of one partition, then it is another one's turn."""


class PartitionedConsumer:
    """
    A consumer of one subscription of a partitioned topic; made by ``Client.consumer``.

    ``message.topic`` says which partition a message is of.  A partition that is
    added later is found within seconds, and consumed from its beginning.

    Ordering: As of ``Consumer``, in each partition; none between partitions, of
        which each gets its turn.

    Bounds: As of ``Consumer``; what may be sent ahead is shared by the
        partitions, but is at least a message of each.
    """

    def __init__(
        self,
        client: TopicRequests,
        topic: str,
        names: Sequence[str],
        options: ConsumerOptions,
    ) -> None:
        self.topic = topic
        self.subscription = options.subscription
        self.name = options.name
        self._client = client
        self._options = replace(
            options,
            prefetch_messages=max(1, options.prefetch_messages // len(names)),
            prefetch_bytes=max(1, options.prefetch_bytes // len(names)),
        )
        self._consumers: dict[str, Consumer] = {}
        # Those with messages, or that have failed, in the order of their turns; and
        # the one whose turn it is.
        self._ready: deque[Consumer] = deque()
        self._current: Consumer | None = None
        self._left = 0
        self._arrived = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        for name in names:
            self._add(name, self._options)

    # Receiving.

    def __aiter__(self) -> PartitionedConsumer:
        return self

    async def __anext__(self) -> Message:
        if self._left <= 0:
            await self._yield_to_loop()
        try:
            return self._next_nowait() or await self._wait_for_message(None)
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self, *, timeout_s: float | None = None) -> Message:
        """
        The next message, of any partition.

        Raises: As ``Consumer.receive``.
        """
        if self._left <= 0:
            await self._yield_to_loop()
        return self._next_nowait() or await self._wait_for_message(timeout_s)

    async def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch:
        """
        Messages of one partition, at least one and at most *max_messages*.

        An empty batch comes if there was none in *timeout_s*.

        Raises: As ``receive``, but for TimedOut.
        """
        if max_messages < 1:
            raise InvalidRequest("max_messages must be at least 1")
        await self._yield_to_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while not (consumer := self._next_consumer()):
                    await self._wait()
        except TimeoutError:
            return MessageBatch(self.topic, [])
        # Another one's turn is next.
        self._left = 0
        return consumer.batch_nowait(max_messages)

    # Answering.

    async def ack(self, messages: AckTarget) -> None:
        """
        These messages are done.

        Durability: As ``Consumer.ack``.

        Raises: As ``Consumer.ack``.
        """
        self.ack_nowait(messages)

    def ack_nowait(self, messages: AckTarget) -> None:
        """These messages are done; the same as ``ack``, which does not wait either."""
        if type(messages) is Message:
            offset = messages.offset
            consumer = self._consumer_of(messages.topic)
            consumer.check_acknowledgeable(messages)
            consumer.ack_range(offset, offset + 1)
            return
        for topic, ranges in ranges_by_topic(
            self.check_acknowledgeable(messages)
        ).items():
            self._consumer_of(topic).ack_ranges(ranges)

    async def ack_cumulative(self, message: Message | MessageId) -> None:
        """This message and all before it in its partition are done; see ``ack``."""
        await self._consumer_of(message.topic).ack_cumulative(message)

    async def nack(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """
        These messages were not processed: they are delivered again.

        Args: As for ``Consumer.nack``.

        Raises: As ``Consumer.ack``.
        """
        self.nack_nowait(messages, delay_s=delay_s, reason=reason)

    def nack_nowait(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """They have failed; the same as ``nack``, which does not wait either."""
        for topic, ranges in ranges_by_topic(
            self.check_acknowledgeable(messages)
        ).items():
            self._consumer_of(topic).nack_ranges(ranges, delay_s, reason)

    def check_acknowledgeable(self, messages: AckTarget) -> AckTarget:
        """
        Return *messages* if this consumer may acknowledge or reject them.

        An iterator is returned as a list.

        Raises: As ``Consumer.ack``.
        """
        if type(messages) is Message:
            self._consumer_of(messages.topic).check_acknowledgeable(messages)
            return messages
        messages = as_collection(messages)
        for topic, part in origins_of(messages):
            self._consumer_of(topic).check_origin(topic, part)
        return messages

    async def flush(self) -> None:
        """
        Wait until the broker has all acknowledgements on disk.

        Raises: As ``Consumer.flush``.
        """
        await run_all([each.flush() for each in self._consumers.values()])

    async def seek(self, to: PositionLike) -> None:
        """
        Go on in every partition at ``"earliest"``, at ``"latest"``, or at a time.

        Durability: As ``Consumer.seek``.

        Raises:
            InvalidRequest: *to* is an offset, which is only in one partition; or as
                for ``Consumer.seek``.
        """
        if isinstance(to_position(to), int):
            raise InvalidRequest(
                f"an offset is in one partition of {self.topic}: use "
                "Client.seek_subscription, or a consumer of the partition"
            )
        await gather(each.seek(to) for each in self._consumers.values())

    @property
    def partitions(self) -> list[str]:
        """The topics that messages come from, by number."""
        return list(self._consumers)

    @property
    def is_active(self) -> bool:
        """False while others are active in all partitions (failover)."""
        return any(each.is_active for each in self._consumers.values())

    @property
    def is_connected(self) -> bool:
        """Whether the broker has all consumers open at the moment."""
        return all(each.is_connected for each in self._consumers.values())

    # The life of the consumer.

    async def open(self) -> None:
        """Open for the first time; errors are the caller's."""
        consumers = list(self._consumers.values())
        try:
            await gather(each.open() for each in consumers)
        except BaseException:
            self.abandon()
            raise
        for each in consumers:
            self._run(each)

    async def run(self) -> None:
        """Find partitions that are added, until the task is cancelled."""
        while True:
            await asyncio.sleep(PARTITIONS_LOOKUP_INTERVAL_S)
            try:
                await self.discover_partitions()
            except Closed:
                return
            except BrokerError:
                # The next time will do, too.
                continue

    async def discover_partitions(self) -> None:
        """Ask for partitions, and consume from those that are new."""
        names = (await self._client.find_partitions(self.topic)).topics
        # Whatever was published there since it was added is for us.
        options = replace(self._options, start=Start.EARLIEST)
        for name in names:
            if name not in self._consumers:
                consumer = self._add(name, options)
                try:
                    await consumer.open()
                except BaseException:
                    del self._consumers[name]
                    consumer.abandon()
                    raise
                self._run(consumer)

    async def aclose(self) -> None:
        """Have all acknowledgements written, and leave the subscription."""
        await run_all([each.aclose() for each in self._consumers.values()])

    def abandon(self) -> None:
        """Close without waiting, if it is not closed yet."""
        for each in self._consumers.values():
            each.abandon()

    def cancel(self) -> None:
        """End what keeps the consumer open."""
        for task in self._running:
            task.cancel()

    def _add(self, name: str, options: ConsumerOptions) -> Consumer:
        consumer = Consumer(
            self._client, name, options, on_arrival=lambda: self._on_arrival(consumer)
        )
        self._consumers[name] = consumer
        return consumer

    def _run(self, consumer: Consumer) -> None:
        name = f"consumer {consumer.name} of {consumer.topic}"
        self._running.append(self._client.tasks.run(consumer.run(), name))

    def _consumer_of(self, topic: str) -> Consumer:
        consumer = self._consumers.get(topic)
        if consumer is None:
            raise InvalidRequest(
                f"the consumer of topic {self.topic}, subscription {self.subscription} "
                f"cannot acknowledge or reject a message of {topic}, which is not a "
                "partition of it: use the consumer that received it"
            )
        return consumer

    # Turns.

    def _on_arrival(self, consumer: Consumer) -> None:
        if consumer is not self._current and consumer not in self._ready:
            self._ready.append(consumer)
        self._arrived.set()

    def _next_nowait(self) -> Message | None:
        consumer: Consumer | None = self._current
        if self._left <= 0 or consumer is None:
            consumer = self._next_consumer()
        while consumer is not None:
            message = consumer.next_nowait()
            if message is not None:
                self._left -= 1
                return message
            consumer = self._next_consumer()
        return None

    def _next_consumer(self) -> Consumer | None:
        """Whose turn it is now; None if nobody has messages."""
        if self._current is not None and self._current.has_messages:
            self._ready.append(self._current)
        self._current = None
        while self._ready:
            consumer = self._ready.popleft()
            if consumer.failure is not None:
                # It stays in front: whoever asks hears of it.
                self._ready.appendleft(consumer)
                raise consumer.failure
            if consumer.has_messages:
                self._current, self._left = consumer, ROUND_ROBIN_MESSAGES
                return consumer
        return None

    @staticmethod
    async def _yield_to_loop() -> None:
        """At the end of a turn, take in what has come of other partitions."""
        await asyncio.sleep(0)

    async def _wait_for_message(self, timeout_s: float | None) -> Message:
        try:
            async with asyncio.timeout(timeout_s):
                while not (message := self._next_nowait()):
                    await self._wait()
                return message
        except TimeoutError:
            raise TimedOut(f"no message came in {timeout_s} s") from None

    async def _wait(self) -> None:
        """Wait until there are messages, or an end."""
        for consumer in self._consumers.values():
            consumer.return_credit_before_wait()
        self._arrived.clear()
        await self._arrived.wait()


@asynccontextmanager
async def open_consumer(
    client: TopicRequests, topic: str, options: ConsumerOptions
) -> AsyncIterator[Consumer | PartitionedConsumer]:
    """A consumer of whatever *topic* is, open while the body runs."""
    found = await client.find_partitions(topic)
    if not found.is_partitioned:
        async with open_consumer_of_one(client, topic, options) as single:
            yield single
        return
    if isinstance(options.start, int):
        raise InvalidRequest(
            f"an offset is in one partition of {topic}: start at a time, or consume "
            "the partition"
        )
    consumer = PartitionedConsumer(client, topic, found.topics, options)
    await consumer.open()
    discovery = client.tasks.run(consumer.run(), f"partitions of {topic}")
    try:
        yield consumer
    except BaseException:
        # The body's error is what matters; nobody waits for a lost broker now.
        with suppress(BrokerError):
            if consumer.is_connected:
                await consumer.aclose()
        raise
    else:
        await consumer.aclose()
    finally:
        discovery.cancel()
        consumer.abandon()
        consumer.cancel()
