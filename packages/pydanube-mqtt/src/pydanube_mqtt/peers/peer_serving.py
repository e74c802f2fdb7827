"""The topics that this process serves, for the other processes of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import BrokerError, NotOwner, OffsetDropped
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import Start, SubscriptionType
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.subscription import Consumer, Subscription
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_mqtt.peers.peer_messages import (
    SOCKET,
    Consume,
    Delete,
    Delivered,
    Failed,
    Frames,
    Leave,
    PeerProtocol,
    Publish,
    Read,
    Ready,
    Request,
    Settled,
    Stored,
    message_of,
)

log = logging.getLogger(__name__)

WAIT_S = 30.0
"""How long a read waits for messages; then it is answered without any."""
LOOK_S = 1.0
"""How often a read that waits looks whether the topic has moved."""

_REQUESTS = msgspec.msgpack.Decoder(Request)


async def wait_to_publish(broker: Broker, topic: Topic) -> None:
    """Return when the pace of *topic* and the memory of the broker allow to publish."""
    clock = asyncio.get_running_loop().time
    delay_s = topic.publish_delay_s(clock())
    while delay_s > 0:
        await asyncio.sleep(delay_s)
        delay_s = topic.publish_delay_s(clock())
    if not broker.topics.has_room:
        await broker.topics.wait_for_room()


class _Consumer:
    """A consumer of another process; implements ``ConsumerPort``."""

    def __init__(
        self, connection: PeerConnection, number: int, subscription: Subscription
    ) -> None:
        self.subscription = subscription
        self._connection = connection
        self._number = number
        self._consumer: Consumer | None = None

    def attach(self, name: str) -> None:
        """Become a consumer without credit."""
        self._consumer = self.subscription.attach(name, self)

    def settle(self, request: Settled) -> None:
        """Acknowledge messages, and add to the credit."""
        if self._consumer is None:
            return
        if request.ranges:
            self.subscription.ack(sorted(request.ranges), 0)
        self.subscription.credit(self._consumer, request.messages, request.byte_count)

    def detach(self) -> None:
        """End it."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self.subscription.detach(consumer)

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """See ``ConsumerPort``."""
        self._connection.send(Delivered(self._number, bytes(frame.buffer)))

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """See ``ConsumerPort``."""

    def close(self, reason: BrokerError) -> None:
        """See ``ConsumerPort``."""
        self._consumer = None
        self._connection.on_closed(self._number, reason)


class PeerConnection(PeerProtocol):
    """The connection of another process, whose requests are carried out."""

    def __init__(self, broker: Broker, tasks: TaskScope) -> None:
        super().__init__(_REQUESTS)
        self._broker = broker
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._consumers: dict[int, _Consumer] = {}
        # Messages that wait for their topic, in order.
        self._held: dict[TopicName, deque[Publish]] = {}
        self._stored: list[int] = []
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        super().connection_lost(exc)
        for task in self._running:
            task.cancel()
        consumers, self._consumers = self._consumers, {}
        for each in consumers.values():
            each.detach()

    def on_message(self, message: Any) -> None:
        """See ``PeerProtocol``."""
        match message:
            case Publish():
                self._publish(message)
            case Settled(number):
                if (consumer := self._consumers.get(number)) is not None:
                    consumer.settle(message)
            case Leave(number):
                if (consumer := self._consumers.pop(number, None)) is not None:
                    consumer.detach()
            case Read():
                self._do(message.number, partial(self._read, message))
            case Consume():
                self._do(message.number, partial(self._consume, message))
            case Delete():
                self._do(message.number, partial(self._delete, message))

    def on_closed(self, number: int, reason: BrokerError) -> None:
        """Tell the other process that a consumer has ended."""
        self._consumers.pop(number, None)
        self.send(Failed(number, reason.code, str(reason)))

    def _do(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        self._start(self._attempt(number, work))

    def _start(self, work: Any) -> None:
        task = self._tasks.run(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _attempt(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except BrokerError as error:
            self.send(Failed(number, error.code, str(error)))
        except Exception:
            log.exception("a request of another process failed")
            self.close()

    # Publishing.

    def _publish(self, request: Publish) -> None:
        name = TopicName.parse(request.topic)
        if (held := self._held.get(name)) is not None:
            held.append(request)
            return
        topic = self._broker.topics.opened.get(name)
        if (
            topic is None
            or topic.publish_delay_s(self._loop.time()) > 0
            or not self._broker.topics.has_room
        ):
            self._held[name] = deque([request])
            self._start(self._publish_held(name))
            return
        self._store(topic, request)

    async def _publish_held(self, name: TopicName) -> None:
        held = self._held[name]
        try:
            while held:
                try:
                    topic = await self._broker.topics.get(name)
                    await wait_to_publish(self._broker, topic)
                except BrokerError as error:
                    for number, *_ in held.popleft().messages:
                        self.send(Failed(number, error.code, str(error)))
                else:
                    self._store(topic, held.popleft())
        except Exception:
            log.exception("messages of another process for %s are not stored", name)
            self.close()
        finally:
            del self._held[name]

    def _store(self, topic: Topic, request: Publish) -> None:
        publish = self._broker.batcher.publish
        for each in request.messages:
            publish(topic, message_of(each), partial(self._on_stored, each[0]))

    def _on_stored(self, number: int, _: object, error: BrokerError | None) -> None:
        if error is not None:
            self.send(Failed(number, error.code, str(error)))
            return
        if not self._stored:
            self._loop.call_soon(self._answer_stored)
        self._stored.append(number)

    def _answer_stored(self) -> None:
        stored, self._stored = self._stored, []
        self.send(Stored(stored))

    # Reading.

    async def _read(self, request: Read) -> None:
        topic = await self._broker.topics.get_reliable(TopicName.parse(request.topic))
        offset, frames = request.offset, []
        if request.waits:
            await self._wait_for_messages(topic, offset)
        if offset >= 0:
            try:
                frames = await topic.log.read(offset, bytes_max=request.bytes_max)
            except OffsetDropped as error:
                kept = int(topic.log.next_kept(offset))
                self.send(Failed(request.number, error.code, str(error), kept))
                return
        end = int(topic.log.end_offset)
        buffers = [bytes(each.buffer) for each in frames]
        self.send(Frames(request.number, end, buffers))

    async def _wait_for_messages(self, topic: ReliableTopic, offset: int) -> None:
        """
        Return when *topic* has a message at *offset*, or after ``WAIT_S``.

        Raises:
            NotOwner, TopicNotFound: The topic has moved, or was deleted.
        """
        arrived = asyncio.Event()
        unwatch = topic.log.watch(arrived.set)
        give_up_at = self._loop.time() + WAIT_S
        try:
            while topic.log.end_offset <= offset and self._loop.time() < give_up_at:
                topic.check_stays()
                if self._broker.topics.opened.get(topic.name) is not topic:
                    raise NotOwner(f"{topic.name} has moved")
                try:
                    async with asyncio.timeout(LOOK_S):
                        await arrived.wait()
                        arrived.clear()
                except TimeoutError:
                    continue
        finally:
            unwatch()

    # Consuming.

    async def _consume(self, request: Consume) -> None:
        _, subscription = await self._broker.subscriptions.open(
            TopicName.parse(request.topic),
            SubscriptionName(request.subscription),
            SubscriptionType(request.kind),
            Start.LATEST,
        )
        consumer = _Consumer(self, request.number, subscription)
        consumer.attach(request.name)
        if self.is_lost:
            consumer.detach()
            return
        self._consumers[request.number] = consumer
        self.send(Ready(request.number))

    async def _delete(self, request: Delete) -> None:
        await self._broker.subscriptions.delete(
            TopicName.parse(request.topic), SubscriptionName(request.subscription)
        )
        self.send(Ready(request.number))


@asynccontextmanager
async def serving_peers(broker: Broker, group: ProcessGroup) -> AsyncIterator[None]:
    """Carry out the requests of the other processes during the body."""
    connections: WeakSet[PeerConnection] = WeakSet()
    async with task_scope() as tasks:

        def accept() -> PeerConnection:
            connection = PeerConnection(broker, tasks)
            connections.add(connection)
            return connection

        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(accept, sock=group.listen(SOCKET))
        try:
            yield
        finally:
            server.close()
            for connection in list(connections):
                connection.close()
            tasks.cancel()
