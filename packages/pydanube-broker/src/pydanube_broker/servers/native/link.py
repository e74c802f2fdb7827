"""
A connection of the native protocol as its channels use it.

The channels of a connection are its producers, consumers and stages.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from google.protobuf.message import Message

from pydanube.aio.write_buffer import WriteBuffer
from pydanube.model.connections import ConnectionMember
from pydanube.model.errors import BrokerError, MessageTooLarge
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.connection import (
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.frames import batch_bytes_max
from pydanube.wire.native.kinds import KIND_OF, Kind, Side
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.dispatch.quota_meter import UNLIMITED, QuotaMeter
from pydanube_broker.operations.authorization import Caller, Need
from pydanube_broker.operations.quota_holds import QuotaHold
from pydanube_broker.servers.connections.authentication import NOBODY, ClientIdentity
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.storage.journal.staging import StagedFiles


class Channel(ABC):
    """A producer, consumer or stage of a connection."""

    __slots__ = ("_link", "_number", "needs")

    def __init__(self, link: ClientLink, number: int) -> None:
        self.needs: tuple[Need, ...] = ()
        """The permissions without which the broker closes it."""
        self._link = link
        self._number = number

    @property
    def member(self) -> tuple[TopicName, ConnectionMember] | None:
        """Its topic, and its description for administrators; None: it has none."""
        return None

    @abstractmethod
    def on_frame(self, frame: ReceivedFrame) -> None:
        """Handle a frame of the channel that is not a request."""

    @abstractmethod
    def leave(self) -> None:
        """End it, because it failed or the connection was lost."""

    def finish(self) -> None:
        """End it, because the client closed it."""
        self.leave()


class ClientLink(ABC):
    """The part of a connection that channels use: to send, to pause, to run tasks."""

    def __init__(self, server: NativeServer) -> None:
        self.server = server
        self.broker = server.broker
        self.loop = asyncio.get_running_loop()
        self.channels: dict[int, Channel] = {}
        frame_bytes_max = server.limits.frame_bytes_max
        self.batch_bytes_max = batch_bytes_max(frame_bytes_max)
        self.held_bytes = 0
        """The bytes of all batches that the producers hold."""
        self.received_messages = self.received_bytes = 0
        self.sent_messages = self.sent_bytes = 0
        self.peer = "?"
        self._identity = NOBODY
        self.meter = UNLIMITED
        """The meter of the client's quota."""
        self._hold = QuotaHold(self.loop, self._owed_s, partial(self.unpause, "quota"))
        self._protocol = StreamConnection(Side.BROKER, frame_bytes_max)
        self._codecs: frozenset[int] = frozenset()
        """The codecs of bodies that the client decompresses."""
        self._transport: asyncio.Transport
        self._write_buffer: WriteBuffer
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._gone = asyncio.Event()
        self._pauses: set[str] = set()
        self._is_reading = True

    @property
    def identity(self) -> ClientIdentity:
        """The identity of the client; setting it decides open channels again."""
        return self._identity

    @identity.setter
    def identity(self, identity: ClientIdentity) -> None:
        self._identity = identity
        self.check_channels()

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.identity.principal

    @property
    def caller(self) -> Caller:
        """The client as the one that makes requests."""
        return Caller(self.broker, self.principal, self.peer, "stream")

    def check_now(
        self, permission: Permission, name: TopicName, operation: str
    ) -> None:
        """
        Raise if the client, as it is now, has not *permission* on a topic.

        Raises:
            PermissionDenied, Unauthenticated: It has no such permission.
        """
        if self.broker.access.is_enforced:
            self.caller.check([Need(permission, Resource.topic(name))], operation)

    def check_channels(self) -> None:
        """Close the channels that the client may have no longer."""
        caller = self.caller
        for number, channel in list(self.channels.items()):
            try:
                caller.check(channel.needs, "the open channel")
            except BrokerError as error:
                self.close_channel(number, error)

    @property
    def is_lost(self) -> bool:
        """True if the connection was lost."""
        return self._gone.is_set()

    @property
    def can_write(self) -> bool:
        """True if the client reads fast enough for more to be sent."""
        return self._can_write.is_set()

    async def until_writable(self) -> None:
        """Wait until ``can_write``, or until the connection is lost."""
        await self._can_write.wait()

    # Sending.

    def deliver(self, channel: int, frame: BatchFrame, attempt: int) -> int:
        """Send messages to a consumer, and return the number of bytes."""
        frame = self._readable(frame)
        self._count_sent(frame)
        self._write_buffer.writelines(
            self._protocol.send_batch(Kind.DELIVERY, frame, channel, attempt=attempt)
        )
        return frame.byte_count

    def send_fetched(self, request: ReceivedFrame, batch: BatchFrame) -> int:
        """Send messages that a FETCH asks for, and return the number of bytes."""
        batch = self._readable(batch)
        self._count_sent(batch)
        self._write_buffer.writelines(
            self._protocol.send_batch(Kind.FETCHED, batch, 0, request.correlation)
        )
        return batch.byte_count

    def _readable(self, frame: BatchFrame) -> BatchFrame:
        """
        Return *frame*, without compression if the client does not know its codec.

        Other clients that receive it need not wait for that again.
        """
        if frame.header.codec in self._codecs:
            return frame
        return self.server.plain_batches.of(frame)

    def _count_sent(self, batch: BatchFrame) -> None:
        self.sent_messages += batch.count
        self.sent_bytes += batch.byte_count

    def send_on(self, channel: int, kind: Kind, message: Message) -> None:
        """Send a control frame on a channel."""
        self._write(self._protocol.send(kind, message, channel))

    def close_channel(self, channel: int, reason: BrokerError) -> None:
        """Close a producer, a consumer or a stage, and send the reason."""
        closed = self.channels.pop(channel, None)
        if closed is not None:
            closed.leave()
        self._write(self._protocol.close_channel(channel, self.server.error(reason)))

    def answer(self, frame: ReceivedFrame, message: Message) -> None:
        """Send the answer to the request *frame*."""
        self._write(self._protocol.answer(frame, KIND_OF[type(message)], message))

    def _write(self, data: bytes) -> None:
        if data and not self.is_lost:
            self._write_buffer.write(data)

    @abstractmethod
    async def await_opening(self, channel: int) -> None:
        """Wait for the opening of *channel*, or cancel it if it waits for access."""

    def abort(self) -> None:
        """Close the connection at once, without GOODBYE."""
        self._transport.abort()

    def too_long(self, batch: BatchFrame) -> MessageTooLarge:
        """Return the error for a batch that may not fit into a frame later."""
        return MessageTooLarge(
            f"a batch of {batch.plain_bytes} bytes before compression; the broker "
            f"takes batches of at most {self.batch_bytes_max}"
        )

    # Quotas.

    def charge_received(self, batch: BatchFrame) -> None:
        """Charge a published batch to the client, and read no more until it is due."""
        byte_count = batch.byte_count
        self.received_messages += batch.count
        self.received_bytes += byte_count
        if self.meter.bytes_in is not None:
            self._hold_reading(self.meter.take_in(byte_count, self.loop.time()))

    def charge_request(self) -> None:
        """Charge a request to the client, and read no more until it is due."""
        if self.meter.requests is not None:
            self._hold_reading(self.meter.take_request(self.loop.time()))

    def meters_out(self, topic: Topic) -> Sequence[QuotaMeter]:
        """Return the meters that limit what is sent of *topic*; usually none."""
        meters = topic.pacing.meters
        if not meters and self.meter.bytes_out is None:
            return ()
        return [each for each in (self.meter, *meters) if each.bytes_out is not None]

    def _hold_reading(self, delay_s: float) -> None:
        if delay_s > 0:
            self.pause("quota")
            self._hold.extend(delay_s)

    def _owed_s(self, now: float) -> float:
        return self.meter.delay_received_s(now)

    def _leave_quota(self) -> None:
        """Release what the connection has of the client's quota."""
        self._hold.end()
        if self.meter is not UNLIMITED:
            self.meter.disconnect()
            self.meter = UNLIMITED

    # Pausing.

    def pause(self, reason: str) -> None:
        """Stop reading until ``unpause`` is called with *reason*."""
        self._pauses.add(reason)
        self._pause_or_resume_reading()

    def unpause(self, reason: str) -> None:
        """Remove a reason to pause; read again if no other reason is left."""
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses:
                self._start_turn_soon()

    def pause_without_room(self, reason: str, queue: Topics | StagedFiles) -> None:
        """Stop reading while batches in *queue* wait for memory."""
        if not queue.has_room and reason not in self._pauses:
            self.pause(reason)
            self.server.run(self._unpause_when_there_is_room(reason, queue))

    async def _unpause_when_there_is_room(
        self, reason: str, queue: Topics | StagedFiles
    ) -> None:
        await queue.wait_for_room()
        self.unpause(reason)

    def _pause_or_resume_reading(self) -> None:
        if self._is_reading == (not self._pauses) or self._transport.is_closing():
            return
        self._is_reading = not self._pauses
        if self._is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    @abstractmethod
    def _start_turn_soon(self) -> None:
        """Handle the frames that were received already, in a turn of their own."""
