"""
Requests to the other processes of a broker, which serve a part of the topics.

There is one connection to each process, on which all requests are sent.  When it is
lost, all that wait for an answer get ``ConnectionLost``: their requests may have been
carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec

from pydanube.aio.futures import Done
from pydanube.aio.locks import NamedLocks
from pydanube.model.errors import BrokerError, ConnectionLost, error_of
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import Range
from pydanube.wire.batches import BatchFrame, decode
from pydanube_broker.broker.delivery.subscription import ConsumerPort
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_mqtt.peers.peer_messages import (
    SOCKET,
    Answer,
    Consume,
    Delete,
    Delivered,
    Failed,
    Frames,
    Leave,
    PeerProtocol,
    Publish,
    Published,
    Read,
    Ready,
    Settled,
    Stored,
    published,
)

PUBLISHING_BYTES_MAX = 8 * 1024 * 1024
"""Clients wait while so much is sent to a process and not stored."""

_ANSWERS = msgspec.msgpack.Decoder(Answer)


class Dropped(Exception):
    """The messages at an offset are dropped; *kept* is the first one that is not."""

    def __init__(self, error: BrokerError, kept: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.kept = kept


class PeerLink(PeerProtocol):
    """The connection to another process."""

    def __init__(self, number: int) -> None:
        super().__init__(_ANSWERS)
        self.number = number
        """The number of the process."""
        self.publishing_bytes = 0
        """The size of the messages that are sent and not stored."""
        self._numbers = count(1)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._publishing: dict[int, tuple[Done, int]] = {}
        self._consumers: dict[int, ConsumerPort] = {}
        self._outgoing: dict[TopicName, list[Published]] = {}
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._loop = asyncio.get_running_loop()

    @property
    def has_room(self) -> bool:
        """Whether more messages may be published."""
        return self.publishing_bytes < PUBLISHING_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Return when more messages may be published, or the connection is lost."""
        while not self.has_room and not self.is_lost:
            self._has_room.clear()
            await self._has_room.wait()

    # Publishing.

    def publish(self, topic: TopicName, message: SingleMessage, done: Done) -> None:
        """
        Publish a message; *done* is called when it is stored.

        Ordering: Messages of one topic are stored in the order of the calls.
        """
        if self.is_lost:
            done(self._lost())
            return
        number = next(self._numbers)
        size = len(message.payload)
        self._publishing[number] = done, size
        self.publishing_bytes += size
        if not self._outgoing:
            self._loop.call_soon(self._send_outgoing)
        self._outgoing.setdefault(topic, []).append(published(number, message))

    def _send_outgoing(self) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        for topic, messages in outgoing.items():
            self.send(Publish(str(topic), messages))

    def _on_published(self, number: int, error: BrokerError | None) -> None:
        done, size = self._publishing.pop(number)
        self.publishing_bytes -= size
        if self.has_room:
            self._has_room.set()
        done(error)

    # Reading.

    async def read(
        self, topic: TopicName, offset: int, *, bytes_max: int, waits: bool = False
    ) -> tuple[int, list[BatchFrame]]:
        """
        Return the end of a topic, and frames from *offset* on.

        If it *waits*, this takes a while if there are none.

        Raises:
            Dropped: Retention has dropped *offset*.
            BrokerError: The topic cannot be read there.
        """
        number = next(self._numbers)
        request = Read(number, str(topic), offset, bytes_max, waits)
        answer = await self._ask(number, request)
        # Buffers that can be changed, as those of the log.
        return answer.end, [decode(bytearray(each)) for each in answer.frames]

    async def find_end(self, topic: TopicName) -> int:
        """
        Return the offset of the next message of a topic.

        Raises:
            BrokerError: The topic is not served there.
        """
        end, _ = await self.read(topic, -1, bytes_max=0)
        return end

    # Consuming.

    async def consume(
        self,
        topic: TopicName,
        subscription: SubscriptionName,
        type_: SubscriptionType,
        name: str,
        port: ConsumerPort,
    ) -> RemoteConsumer:
        """
        Become a consumer of a subscription, which is created if need be.

        Raises:
            BrokerError: That is not possible.
        """
        number = next(self._numbers)
        self._consumers[number] = port
        request = Consume(number, str(topic), str(subscription), type_.value, name)
        try:
            await self._ask(number, request)
        except asyncio.CancelledError:
            self.leave(number)
            raise
        except BrokerError:
            self._consumers.pop(number, None)
            raise
        return RemoteConsumer(self, number)

    def leave(self, number: int) -> None:
        """End a consumer."""
        if self._consumers.pop(number, None) is not None:
            self.send(Leave(number))

    async def delete(self, topic: TopicName, subscription: SubscriptionName) -> None:
        """
        Delete a subscription that has no consumers.

        Raises:
            SubscriptionInUse, SubscriptionNotFound, BrokerError: It is not deleted.
        """
        number = next(self._numbers)
        await self._ask(number, Delete(number, str(topic), str(subscription)))

    # Answers.

    async def _ask(self, number: int, request: Any) -> Any:
        if self.is_lost:
            raise self._lost()
        future = self._requests[number] = self._loop.create_future()
        self.send(request)
        try:
            return await future
        finally:
            self._requests.pop(number, None)

    def on_message(self, message: Any) -> None:
        """See ``PeerProtocol``."""
        match message:
            case Stored(numbers):
                for number in numbers:
                    self._on_published(number, None)
            case Delivered(number, frame):
                port = self._consumers.get(number)
                if port is not None:
                    port.deliver(decode(bytearray(frame)), 1)
            case Failed():
                self._on_failed(message)
            case Frames(number) | Ready(number):
                future = self._requests.get(number)
                if future is not None and not future.done():
                    future.set_result(message)

    def _on_failed(self, failure: Failed) -> None:
        number = failure.number
        error = error_of(failure.code, failure.message)
        if number in self._publishing:
            self._on_published(number, error)
        elif (future := self._requests.get(number)) is not None:
            if not future.done():
                future.set_exception(
                    Dropped(error, failure.kept) if failure.kept else error
                )
        elif (port := self._consumers.pop(number, None)) is not None:
            port.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        super().connection_lost(exc)
        self._has_room.set()
        for future in self._requests.values():
            if not future.done():
                future.set_exception(self._lost())
        for number in list(self._publishing):
            self._on_published(number, self._lost())
        consumers, self._consumers = self._consumers, {}
        for port in consumers.values():
            port.close(self._lost())

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to process {self.number} was lost")


class RemoteConsumer:
    """A consumer of a topic that another process serves."""

    def __init__(self, link: PeerLink, number: int) -> None:
        self._link = link
        self._number = number

    def settle(self, ranges: Sequence[Range], messages: int, byte_count: int) -> None:
        """Acknowledge *ranges*, and add to the credit."""
        self._link.send(Settled(self._number, list(ranges), messages, byte_count))

    def leave(self) -> None:
        """End it; others get the messages that are not acknowledged."""
        self._link.leave(self._number)


class PeerLinks:
    """The connections to all processes, which are made when they are needed."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._links: dict[int, PeerLink] = {}
        self._locks: NamedLocks[int] = NamedLocks()

    async def to(self, number: int) -> PeerLink:
        """
        Return the connection to the process *number*.

        Raises:
            ConnectionLost: It does not run.
        """
        async with self._locks.of(number):
            link = self._links.get(number)
            if link is not None and not link.is_lost:
                return link
            loop = asyncio.get_running_loop()
            try:
                connection = await self._group.connect(number, SOCKET)
                _, link = await loop.connect_accepted_socket(
                    partial(PeerLink, number), connection
                )
            except OSError as error:
                raise ConnectionLost(
                    f"process {number} does not answer: {error}"
                ) from None
            self._links[number] = link
            return link

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
