"""
The connections of the native protocol.

A connection handles frames of the data path (batches, credit, acknowledgements) at
once when their bytes arrive, without a task.  Requests that may have to wait run as
tasks of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.write_buffer import WriteBuffer
from pydanube.model.connections import (
    CLIENT_CHARACTERS_MAX,
    MEMBERS_MAX,
    ConnectionMember,
)
from pydanube.model.errors import (
    BrokerError,
    Closed,
    Draining,
    PermissionDenied,
    ProtocolViolation,
    QuotaExceeded,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from pydanube.model.names import TopicName
from pydanube.model.version import __version__
from pydanube.wire.native.connection import (
    REVISION,
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.kinds import OPERATIONS, READS, Kind, Side
from pydanube.wire.native.messages import error_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube.wire.turn_budget import BYTES_PER_UNIT, TurnBudget
from pydanube_broker.broker.serving.open_connections import ConnectionFacts
from pydanube_broker.operations.authorization import Need, authorized, is_checked
from pydanube_broker.operations.handlers import Call, handlers
from pydanube_broker.servers.connections.authentication import (
    ClientIdentity,
    certificate_of,
)
from pydanube_broker.servers.connections.connections import enable_keepalive
from pydanube_broker.servers.connections.errors import as_broker_error
from pydanube_broker.servers.connections.listeners import accepting
from pydanube_broker.servers.native.channels import CHANNEL_REQUESTS
from pydanube_broker.servers.native.consumers import ConsumerChannel
from pydanube_broker.servers.native.link import Channel, ClientLink
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.servers.settings.addresses import address_of, peer_text
from pydanube_broker.servers.settings.tls import PLAIN_REFUSED, ServerTls, over_tls

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
PROGRESS_BYTES_MIN = 16 * 1024
"""Within the idle timeout, a frame must be completed or grow by this much."""
REQUESTS_MAX = 256
"""The connection is not read while this number of its requests is running."""
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The connection is not read while its running requests have this size."""
OPENINGS_MAX = 8
"""The maximum number of ``_OPENINGS`` of one connection that run at a time."""
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""The client is sent nothing new while so much waits in the transport."""
CLOSE_TIMEOUT_S = 5.0

_OPENINGS = frozenset(
    {
        Kind.OPEN_PRODUCER,
        Kind.OPEN_CONSUMER,
        Kind.OPEN_STAGE,
        Kind.CREATE_TOPIC,
        Kind.CREATE_SUBSCRIPTION,
        Kind.CREATE_NAMESPACE,
    }
)
"""Requests that write metadata, which all connections share."""

# The cost of a frame in units of the connection's budget for a turn.
_REQUEST_UNITS = 16
_UNITS = {
    Kind.PUBLISH: 4,
    Kind.STAGE: 4,
    Kind.CREDIT: 2,
    Kind.ACK: 2,
    Kind.NACK: 2,
    Kind.EXTEND: 2,
    Kind.RELEASE: 2,
    Kind.PING: 1,
}
_CONTROL_BYTES_PER_UNIT = 512

_HANDLERS = handlers()

assert _HANDLERS.keys() | CHANNEL_REQUESTS.keys() == OPERATIONS


class NativeConnection(ClientLink, asyncio.BufferedProtocol):
    """One connection of the native protocol."""

    def __init__(self, server: NativeServer) -> None:
        super().__init__(server)
        # Openings by channel, and the tasks that end with the connection: of requests
        # that change nothing, and of openings that wait for their turn or for a
        # producer's exclusive access.
        self._opening: dict[int, tuple[asyncio.Task[None], ReceivedFrame]] = {}
        self._waiting: dict[asyncio.Task[Any], None] = {}
        self._openings = asyncio.Semaphore(OPENINGS_MAX)
        self._requests = 0
        self._request_bytes = 0
        # Whether memory for a long frame is reserved, or asked for.
        self._has_reserved_memory = False
        # The budget for this turn, and whether the next turn is scheduled.
        self._budget = TurnBudget()
        self._is_turn_due = False
        # Since the last sweep: whether a frame was completed, and the bytes received
        # of an incomplete frame.
        self._has_received_frame = False
        self._partial_bytes = 0
        self._silent_sweeps = 0
        self._unsent_bytes = 0
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._address = ""
        # The name and version that the client gives, and the number of the connection.
        self._client = ""
        self._number = 0

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._write_buffer = WriteBuffer(self._transport, self.loop)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peername = transport.get_extra_info("peername")
        self.peer, self._address = peer_text(peername), address_of(peername)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            enable_keepalive(connection, self.server.limits.idle_timeout_s)
        self._handshake_timer = self.loop.call_later(
            HANDSHAKE_TIMEOUT_S, self._on_handshake_timeout
        )
        self.server.on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.reader.add(nbytes)
        self._partial_bytes += nbytes
        self._handle_frames()

    def pause_writing(self) -> None:
        self._can_write.clear()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        # Answers would pile up for a client that sends requests and does not read.
        self.pause("writing")

    def resume_writing(self) -> None:
        self._can_write.set()
        self.unpause("writing")
        for channel in list(self.channels.values()):
            if isinstance(channel, ConsumerChannel):
                channel.grant()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.on_lost(self)
        self.broker.connections.remove(self._number)
        log.debug("the connection of %s is closed: %s", self.peer, exc or "regularly")
        self._protocol.close()
        self._gone.set()
        self._can_write.set()
        self._leave_quota()
        self._stop_handshake_timer()
        for task in list(self._waiting):
            task.cancel()
        channels = list(self.channels.values())
        self.channels.clear()
        for channel in channels:
            channel.leave()

    # What administrators see and do.

    def facts(self, may_see: Callable[[TopicName], bool]) -> ConnectionFacts:
        members: list[ConnectionMember] = []
        count = 0
        for channel in list(self.channels.values()):
            found = channel.member
            if found is not None and may_see(found[0]):
                count += 1
                if count <= MEMBERS_MAX:
                    members.append(found[1])
        return ConnectionFacts(
            listener="stream",
            address=self.peer,
            client=self._client,
            principal=self.principal.name,
            members=tuple(members),
            member_count=count,
            received_messages=self.received_messages,
            received_bytes=self.received_bytes,
            sent_messages=self.sent_messages,
            sent_bytes=self.sent_bytes,
        )

    def end(self, reason: str) -> None:
        log.info("closing the connection of %s: %s", self.peer, reason)
        self.server.run(self.say_goodbye(reason))

    async def say_goodbye(self, reason: str) -> None:
        """Send GOODBYE and everything written before it, and close the connection."""
        if self.is_lost:
            return
        for channel in list(self.channels):
            self.close_channel(channel, Draining(reason))
        self._write(self._protocol.send(Kind.GOODBYE, pb.Goodbye(reason=reason)))
        self._write_buffer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    # The share of the event loop that the connection gets.

    def _handle_frames(self) -> None:
        """Handle received frames within the budget for this turn."""
        self._start_turn_soon()
        budget = self._budget
        try:
            for frame in self._protocol.frames():
                self._has_received_frame = True
                self._partial_bytes = 0
                if budget.spend(1 if frame is None else _units_of(frame)):
                    self._pauses.add("turn")
                if frame is not None:
                    self._on_frame(frame)
                if self._pauses:
                    break
        except ProtocolViolation as error:
            self._refuse(error)
            return
        except Exception:
            # A bug fails this connection, not the server.
            log.exception("closing the connection of %s after a failure", self.peer)
            self._transport.abort()
            return
        if self._protocol.reader.long_frame_bytes or self._has_reserved_memory:
            self._reserve_memory()
        if self._pauses or not self._is_reading:
            self._pause_or_resume_reading()

    def _start_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._start_turn)

    def _start_turn(self) -> None:
        self._budget.refill()
        if self._budget.is_spent:
            self.loop.call_soon(self._start_turn)
            return
        self._is_turn_due = False
        self._pauses.discard("turn")
        if self._pauses or self._is_reading or self._transport.is_closing():
            return
        self._handle_frames()

    def _reserve_memory(self) -> None:
        """Reserve memory for a long frame that has begun, and release it at its end."""
        memory = self.server.receive_memory
        byte_count = self._protocol.reader.long_frame_bytes
        if byte_count and not memory.holds(self) and "memory" not in self._pauses:
            self._has_reserved_memory = True
            if not memory.reserve(self, byte_count):
                self._pauses.add("memory")
        elif not byte_count and memory.holds(self):
            self._has_reserved_memory = False
            memory.release(self)

    def on_receive_room(self) -> None:
        self.unpause("memory")

    # The detection of silent clients.

    def sweep(self, sweeps_max: int) -> None:
        """
        Close the connection if the client was silent for more than *sweeps_max* sweeps.

        A client does not count as silent while the broker does not read from it, or
        while the client still reads what it was sent.

        The connection is also closed if the client's credentials have expired or were
        revoked.
        """
        authenticator = self.server.authenticator
        if self._protocol.is_open and not authenticator.is_valid(self.identity):
            self._refuse(authenticator.why_invalid(self.identity))
            return
        if self._has_received_frame or self._partial_bytes >= PROGRESS_BYTES_MIN:
            self._has_received_frame = False
            self._partial_bytes = 0
            self._silent_sweeps = 0
            return
        if self._pauses - {"turn", "writing"}:
            self._silent_sweeps = 0
            if self._can_write.is_set():
                # The client may have sent a PING that the broker has not read.
                self._write(self._protocol.send(Kind.PONG, pb.Pong()))
            return
        if not self._can_write.is_set():
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._silent_sweeps = 0
            self._unsent_bytes = unsent_bytes
        self._silent_sweeps += 1
        has_partial_frame = self._protocol.reader.has_partial_frame
        if has_partial_frame and self.server.receive_memory.is_exhausted:
            # Other connections wait for the memory of this stalled frame.
            self._close_silent("no more of a frame came, and others wait for memory")
        elif self._silent_sweeps > sweeps_max:
            timeout_s = self.server.limits.idle_timeout_s
            self._close_silent(f"no complete frame came for {timeout_s:g} s")

    def _close_silent(self, reason: str) -> None:
        log.info("closing the connection of %s: %s", self.peer, reason)
        self.server.timed_out_total += 1
        if self._protocol.is_open:
            self._write(
                self._protocol.send(Kind.ERROR, self.server.error(TimedOut(reason)))
            )
        # A client that does not read would keep the connection open.
        self._write_buffer.flush()
        self._transport.abort()

    # The data path.

    def _on_frame(self, frame: ReceivedFrame) -> None:
        message: Any = frame.message
        match frame.kind:
            case (
                Kind.PUBLISH
                | Kind.STAGE
                | Kind.CREDIT
                | Kind.ACK
                | Kind.NACK
                | Kind.EXTEND
                | Kind.RELEASE
            ):
                if channel := self.channels.get(frame.channel):
                    channel.on_frame(frame)
                elif frame.correlation:
                    # An ACK, which has no effect: the topic may have moved.
                    closed = Unavailable(f"channel {frame.channel} is closed")
                    self.answer(frame, self.server.error(closed))
            case Kind.HELLO:
                self._on_hello(frame, message)
            case Kind.PING:
                self.answer(frame, pb.Pong())
            case Kind.AUTHENTICATE:
                self._on_authenticate(frame, message)
            case Kind.GOODBYE:
                self._write_buffer.close()
            case _:
                self._start_request(frame)

    # Requests.

    def _on_hello(self, frame: ReceivedFrame, hello: Any) -> None:
        if not hello.revision_min <= REVISION <= hello.revision_max:
            self._refuse(
                ProtocolViolation(
                    f"this broker speaks revision {REVISION} of the protocol, and the "
                    f"client {hello.revision_min} to {hello.revision_max}: use a "
                    "client and a broker of the same version"
                )
            )
            return
        try:
            self.identity = self._identity_of(hello.token)
            self.server.on_handshake(self)
            meter = self.broker.quotas.of_principal(self.principal)
            meter.connect()
            self.meter = meter
        except (Unauthenticated, QuotaExceeded, Unavailable) as error:
            self._refuse(error, frame)
            return
        self._stop_handshake_timer()
        self._client = hello.client[:CLIENT_CHARACTERS_MAX]
        self._number = self.broker.connections.add(self)
        self._protocol.welcome(hello.frame_bytes_max)
        self._codecs = frozenset(hello.codecs)
        log.debug("%s has connected: %r", self.peer, hello.client)
        welcome = pb.Welcome(
            revision=REVISION,
            broker=f"pydanube {__version__}",
            broker_id=self.broker.broker_id,
            frame_bytes_max=self._protocol.frame_bytes_max,
            idle_timeout_s=self.server.limits.idle_timeout_s,
            is_clustered=self.broker.shards is not None,
            http_port=self.server.http_port,
        )
        if self.server.authenticator.is_enabled:
            welcome.identity.CopyFrom(self._authenticated())
        self.answer(frame, welcome)

    def _on_authenticate(self, frame: ReceivedFrame, message: Any) -> None:
        """Take over new credentials of the same principal."""
        try:
            identity = self._identity_of(message.token)
            if identity.principal.name != self.principal.name:
                raise PermissionDenied(
                    f"the credentials are those of {identity.principal.name!r}, and "
                    f"the connection is that of {self.principal.name!r}: connect again"
                )
        except BrokerError as error:
            # The connection stays open until its credentials expire.
            self.answer(frame, self.server.error(error))
            return
        self.identity = identity
        self.answer(frame, self._authenticated())

    def _identity_of(self, credential: str) -> ClientIdentity:
        """
        Return the identity that a client proves.

        Raises:
            Unauthenticated: The credentials are missing or not valid.
            QuotaExceeded: Too many attempts from its address have failed.
            Unavailable: The credentials cannot be verified at the moment.
        """
        certificate = None if credential else certificate_of(self._transport)
        authenticator = self.server.authenticator
        return authenticator.authenticate(
            credential, self._address, certificate, listener="stream"
        )

    def _authenticated(self) -> pb.Authenticated:
        return pb.Authenticated(
            principal=self.principal.name,
            method=self.principal.method,
            groups=self.principal.groups,
            expires_in_s=self.server.authenticator.expires_in_s(self.identity),
        )

    def _start_request(self, frame: ReceivedFrame) -> None:
        self.charge_request()
        message: Any = frame.message
        is_opening = frame.kind in _OPENINGS
        if (
            frame.kind is Kind.OPEN_PRODUCER
            and message.access == pb.ACCESS_EXCLUSIVE_WAIT
        ):
            # It does not count as a request: the frame that ends its wait may arrive
            # on the same connection.
            task = self.server.run(self._respond(frame))
        else:
            self._requests += 1
            self._request_bytes += frame.byte_count
            if not self._has_room_for_requests:
                self.pause("requests")
            task = self.server.run(self._respond_counted(frame))
        if is_opening or frame.kind in READS:
            self._waiting[task] = None
            task.add_done_callback(lambda task: self._waiting.pop(task, None))
        if is_opening and frame.channel:
            self._opening[frame.channel] = task, frame
            task.add_done_callback(partial(self._forget_opening, frame.channel))

    @property
    def _has_room_for_requests(self) -> bool:
        return self._requests < REQUESTS_MAX and self._request_bytes < REQUEST_BYTES_MAX

    def _forget_opening(self, channel: int, task: asyncio.Task[None]) -> None:
        # The client may have opened the channel again in the meantime.
        if channel in self._opening and self._opening[channel][0] is task:
            del self._opening[channel]

    async def _respond_counted(self, frame: ReceivedFrame) -> None:
        try:
            if frame.kind in _OPENINGS:
                async with self._openings:
                    # From here on it is not cancelled.
                    if (task := asyncio.current_task()) is not None:
                        self._waiting.pop(task, None)
                    await self._respond(frame)
            else:
                await self._respond(frame)
        finally:
            self._requests -= 1
            self._request_bytes -= frame.byte_count
            if self._has_room_for_requests:
                self.unpause("requests")

    async def await_opening(self, channel: int) -> None:
        if channel not in self._opening:
            return
        task, frame = self._opening[channel]
        if task in self._waiting:
            task.cancel()
            reason = Closed("the client did not wait for the opening")
            self.answer(frame, self.server.error(reason))
        await asyncio.wait([task])

    async def _respond(self, frame: ReceivedFrame) -> None:
        begun_at = self.loop.time()
        try:
            message = await self._handle(frame)
        except Exception as error:  # noqa: BLE001  # The client gets it.
            doing = f"{frame.kind.name} of {self.peer}"
            message = self.server.error(as_broker_error(error, doing))
        self.server.request_seconds[frame.kind].observe(self.loop.time() - begun_at)
        if not self.is_lost:
            self.answer(frame, message)

    async def _handle(self, frame: ReceivedFrame) -> Message:
        if not is_checked(self.broker):
            return await self._carry_out(frame)
        async with authorized(self.caller, frame.kind, frame.message) as needs:
            answer = await self._carry_out(frame)
            channel = self.channels.get(frame.channel)
            if needs and channel is not None and frame.kind in _OPENINGS:
                self._admit(frame, channel, needs)
        return answer

    def _admit(
        self, frame: ReceivedFrame, channel: Channel, needs: tuple[Need, ...]
    ) -> None:
        channel.needs = needs
        try:
            # The policy may have changed while it was opened.
            self.caller.check(needs, frame.kind.name.lower())
        except BrokerError:
            del self.channels[frame.channel]
            channel.leave()
            raise

    async def _carry_out(self, frame: ReceivedFrame) -> Message:
        if frame.kind in CHANNEL_REQUESTS:
            answer = await CHANNEL_REQUESTS[frame.kind](self, frame, frame.message)
        else:
            call = Call(self.broker, self.principal, self.server.authenticator)
            answer = await _HANDLERS[frame.kind](call, frame.message)
        return pb.Ok() if answer is None else answer

    # Closing, and the handshake.

    def _refuse(self, error: BrokerError, request: ReceivedFrame | None = None) -> None:
        """Send *error*, as the answer to *request* if any, and close the connection."""
        log.info("closing the connection of %s: %s", self.peer, error)
        reason = self.server.error(error)
        if request is None:
            self._write(self._protocol.send(Kind.ERROR, reason))
        else:
            self.answer(request, reason)
        self._protocol.close()
        self._write_buffer.close()

    def _stop_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _on_handshake_timeout(self) -> None:
        self._handshake_timer = None
        if not self._protocol.is_open and not self.is_lost:
            self._refuse(ProtocolViolation("no HELLO came"))


def _units_of(frame: ReceivedFrame) -> int:
    """Return the cost of a frame in units of the connection's budget."""
    bytes_per_unit = BYTES_PER_UNIT if frame.batch else _CONTROL_BYTES_PER_UNIT
    units = _UNITS.get(frame.kind, _REQUEST_UNITS)
    return units + frame.byte_count // bytes_per_unit


@asynccontextmanager
async def listen(
    server: NativeServer,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    own_port: int | None = None,
) -> AsyncIterator[int]:
    """
    Accept connections on *host* and *port* (0: any free port); yields the port.

    With *own_port*, the port is shared with other processes, and that one is not.

    Raises:
        InvalidConfig: The address is not available.
    """
    refusal = error_to_wire(ProtocolViolation(PLAIN_REFUSED))
    factory = over_tls(
        partial(NativeConnection, server),
        tls,
        plain_answer=StreamConnection(Side.BROKER).send(Kind.ERROR, refusal),
    )
    name, flag = "the native protocol", "--stream-port"
    async with accepting(
        factory, host, port, name=name, flag=flag, own_port=own_port
    ) as bound:
        yield bound
