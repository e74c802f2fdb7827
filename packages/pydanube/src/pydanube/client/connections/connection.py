"""One connection to a broker: the native protocol over an asyncio transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from pydanube.aio.write_buffer import WriteBuffer
from pydanube.client.connections.forks import disconnect_in_child
from pydanube.client.connections.tls import explain
from pydanube.model.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    CorruptBatch,
    ProtocolViolation,
    QuotaExceeded,
    TimedOut,
    Unauthenticated,
)
from pydanube.wire.batches import BODY_BYTES_MAX, BatchFrame, known_codecs
from pydanube.wire.native.connection import (
    CHANNEL_MAX,
    REVISION,
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.kinds import KIND_OF, Kind, Side
from pydanube.wire.native.messages import error_from_wire
from pydanube.wire.pb import stream_pb2 as pb

log = logging.getLogger(__name__)

FRAME_BYTES_ACCEPTED_MAX = BODY_BYTES_MAX + 1024 * 1024
"""The longest frame that a client accepts, whatever the broker's own limit is."""
IDLE_TIMEOUT_S = 30.0
"""The longest silence of a broker whose WELCOME names no idle timeout."""
IDLE_TIMEOUT_S_MIN = 1.0
IDLE_TIMEOUT_S_MAX = 3600.0
"""A client ignores an idle timeout outside of these limits."""
CHECKS_PER_TIMEOUT = 6
"""The number of checks of the connection within the idle timeout."""
CLUSTER_CHECK_S = 1.0
"""The longest interval between two checks of a broker of a cluster."""
CHECKS_PER_PING = 2
"""A client sends a PING after this many checks without a frame in a direction."""


class ChannelOwner(Protocol):
    """The producer, consumer or stage of a channel, as its connection uses it."""

    topic: str

    def _on_frame(self, frame: ReceivedFrame) -> None:
        """Handle a frame that the broker sent on the channel."""

    def _on_closed(self, reason: BrokerError) -> None:
        """Handle the end of the channel, by the broker or with its connection."""


class _Request(NamedTuple):
    """A request that the broker has not answered; see ``BrokerConnection.request``."""

    answer: asyncio.Future[Any]
    on_batch: Callable[[BatchFrame], None] | None
    on_answer: Callable[[], None] | None


class BrokerConnection(asyncio.BufferedProtocol):
    """
    One connection to a broker.

    Ordering: Frames of one channel reach its owner in the order in which the
        broker sent them, and before the connection's end.
    """

    def __init__(
        self,
        on_lost: Callable[[BrokerConnection, BrokerError], None] | None = None,
        on_silent: Callable[[BrokerConnection], None] | None = None,
    ) -> None:
        """
        *on_lost* is called when the connection, once open, is lost or closed.

        *on_silent* is called at each check at which the broker has not answered the
        PING of an earlier check.
        """
        self._loop = asyncio.get_running_loop()
        self._on_lost, self._on_silent = on_lost, on_silent
        self._protocol = StreamConnection(Side.CLIENT, FRAME_BYTES_ACCEPTED_MAX)
        self._write_buffer: WriteBuffer
        self._requests: dict[int, _Request] = {}
        self._channels: dict[int, ChannelOwner] = {}
        self._next_channel = 0
        self.url = ""
        """The URL of the broker; set by ``BrokerLink``."""
        self.welcome: pb.Welcome
        """The broker's answer to the handshake."""
        self._next_check: asyncio.TimerHandle | None = None
        self._idle_timeout_s = IDLE_TIMEOUT_S
        # The number of times that something was received, and what it was at the last
        # check; and the number of checks since the last frame in each direction.
        self._reads = self._reads_seen = 0
        self._checks_unheard = 0
        self._checks_unsent = 0
        self._writes_seen = self._writes_heard = 0
        self._check_interval_s = IDLE_TIMEOUT_S / CHECKS_PER_TIMEOUT
        self._checks_max = CHECKS_PER_TIMEOUT
        self._ping: asyncio.Future[Any] | None = None
        self.pings = 0
        """The number of PINGs that were sent."""
        self._lost: BrokerError | None = None
        self._is_closed = asyncio.Event()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write_buffer = WriteBuffer(transport, self._loop)  # type: ignore[arg-type]
        disconnect_in_child(self, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reads += 1
        try:
            self._protocol.reader.add(nbytes)
            for frame in self._protocol.frames():
                if frame is not None:
                    self._handle_frame(frame)
        except BrokerError as error:
            # A protocol violation or a corrupt batch: do not trust what follows.
            self._fail(error)
        except Exception as error:
            # A bug must not end more than this connection.
            log.exception("closing the connection after an unexpected error")
            self._fail(
                ConnectionLost(f"cannot process a frame of the broker: {error!r}")
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed.set()
        reason = explain(exc) if exc is not None else None
        if not isinstance(reason, BrokerError):
            reason = ConnectionLost(
                f"the broker closed the connection ({reason or 'end'})"
            )
        self._fail(reason)

    # Requests.

    async def handshake(self, client: str, token: str, timeout_s: float) -> None:
        """
        Send HELLO and wait for WELCOME.

        Raises:
            Unauthenticated: The broker does not accept the token.
            ProtocolViolation: The peer is not a broker, or speaks no revision of the
                protocol that the client knows.
            TimedOut: The broker does not answer.
        """
        hello = pb.Hello(
            revision_min=REVISION,
            revision_max=REVISION,
            client=client,
            token=token,
            frame_bytes_max=self._protocol.frame_bytes_max,
            codecs=known_codecs(),
        )
        try:
            async with asyncio.timeout(timeout_s):
                self.welcome = await self.request(hello)
        except TimeoutError:
            self.close()
            raise TimedOut("the broker does not answer the handshake") from None
        if self.welcome.revision != REVISION:
            self.close()
            raise ProtocolViolation(
                f"the broker chose revision {self.welcome.revision} of the protocol, "
                f"and this client speaks revision {REVISION}"
            )
        self._set_idle_timeout(self.welcome.idle_timeout_s)
        if self._lost is None:
            self._schedule_check()

    async def authenticate(self, token: str) -> float:
        """
        Replace the credentials of the connection; return for how long they are valid.

        Raises:
            Unauthenticated: The broker does not accept them.
            PermissionDenied: They are those of another principal.
        """
        answer = await self.request(pb.Authenticate(token=token))
        expires_in_s: float = answer.expires_in_s
        return expires_in_s

    def request(
        self,
        message: Message,
        channel: int = 0,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
        on_answer: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """
        Send a request, and return the future of its answer.

        FETCHED batches go to *on_batch*.  *on_answer* is called before any later frame
        is processed, which may have arrived together with the answer; not if the answer
        is an error.

        Cancellation: The broker may carry out the request; its answer is dropped.

        Raises:
            BrokerError: The error that the broker answers, or ConnectionLost.
        """
        if self._lost is not None:
            raise self._lost
        kind = KIND_OF[type(message)]
        answer: asyncio.Future[Any] = self._loop.create_future()
        correlation, data = self._protocol.request(kind, message, channel)
        self._requests[correlation] = _Request(answer, on_batch, on_answer)
        self._write_buffer.write(data)
        return answer

    async def request_unless_silent(
        self,
        message: Message,
        silence_s: float,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        Send a request as ``request`` does, and return the answer.

        The answer may take any time while the broker sends anything else, such as the
        answer to a PING.

        Raises:
            BrokerError: The error that the broker answers.
            ConnectionLost: The connection is lost, or the broker was silent for
                *silence_s*.  The connection stays open then.
        """
        answer = self.request(message, on_batch=on_batch)
        ping: asyncio.Future[Any] | None = None
        try:
            while True:
                reads = self._reads
                await asyncio.wait([answer], timeout=silence_s / 2)
                if answer.done():
                    return answer.result()
                if self._reads != reads:
                    ping = None
                elif ping is None:
                    ping = self._send_ping()
                else:
                    raise ConnectionLost(
                        f"the broker at {self.url} has not answered for {silence_s:g} s"
                    )
        finally:
            answer.cancel()
            # An error refers to this frame, which must not refer to the error.
            del answer, ping

    def send(self, message: Message, channel: int) -> None:
        """Send a message without an answer; do nothing if the connection is lost."""
        if self._lost is None:
            kind = KIND_OF[type(message)]
            self._write_buffer.write(self._protocol.send(kind, message, channel))

    def send_batch(self, kind: Kind, batch: BatchFrame, channel: int) -> None:
        """Send a batch to publish or stage; do nothing if the connection is lost."""
        if self._lost is None:
            self._write_buffer.writelines(
                self._protocol.send_batch(kind, batch, channel)
            )

    def new_channel(self, owner: ChannelOwner) -> int:
        """
        Return the number of a new channel, whose frames go to *owner*.

        Raises:
            QuotaExceeded: The connection has ``CHANNEL_MAX`` channels.
        """
        if len(self._channels) >= CHANNEL_MAX:
            raise QuotaExceeded(
                f"a client has at most {CHANNEL_MAX} producers and consumers"
            )
        while True:
            self._next_channel = self._next_channel % CHANNEL_MAX + 1
            if self._next_channel not in self._channels:
                self._channels[self._next_channel] = owner
                return self._next_channel

    def release_channel(self, channel: int) -> None:
        """Deliver no more frames to the channel's owner."""
        self._channels.pop(channel, None)

    def abandon_channel(self, message: Message, channel: int) -> None:
        """
        Close a channel, by the request *message*, while it is being opened.

        The number is in use until the broker has answered both requests; opening may
        take long, because exclusive access may have to wait.
        """
        if self._lost is not None:
            self.release_channel(channel)
            return

        def end(answer: asyncio.Future[Any]) -> None:
            retrieve(answer)
            self.release_channel(channel)

        self.request(message, channel).add_done_callback(end)

    def close(self) -> None:
        """Close the connection, after what was written is sent."""
        if self._lost is None:
            self._write_buffer.write(self._protocol.send(Kind.GOODBYE, pb.Goodbye()))
            self._fail(Closed("the client was closed"))

    def abort(self, reason: BrokerError) -> None:
        """Close the connection at once; unsent data is lost."""
        self._fail(reason)
        self._write_buffer.abort()

    async def wait_closed(self) -> None:
        """Wait until what was written is sent and the connection is closed."""
        await self._is_closed.wait()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    @property
    def topics(self) -> list[str]:
        """The topics of the open channels."""
        topics = {owner.topic: None for owner in self._channels.values()}
        return [each for each in topics if each]

    @property
    def batch_bytes_max(self) -> int:
        """The longest batch that fits into a frame that the broker accepts."""
        return self._protocol.peer_frame_bytes_max - 64

    # Frames and failures.

    def _handle_frame(self, frame: ReceivedFrame) -> None:
        channel, correlation = frame.channel, frame.correlation
        message: Any = frame.message
        if frame.kind is Kind.FETCHED:
            assert frame.batch is not None
            request = self._requests.get(correlation)
            if request is not None and request.on_batch is not None:
                frame.batch.verify_checksum()
                request.on_batch(frame.batch)
        elif correlation:
            self._complete_request(correlation, frame.kind, message)
        elif frame.kind is Kind.ERROR and channel:
            self._close_channel(channel, error_from_wire(message))
        elif frame.kind is Kind.ERROR:
            reason = error_from_wire(message)
            if isinstance(reason, Unauthenticated):
                # A new connection may have other credentials, or get this error.
                reason = ConnectionLost(f"the broker closed the connection: {reason}")
            self._fail(reason)
        elif frame.kind is Kind.GOODBYE:
            self._fail(ConnectionLost(f"the broker says goodbye: {message.reason}"))
        elif owner := self._channels.get(channel):
            if frame.batch is not None:
                frame.batch.verify_checksum()
            owner._on_frame(frame)

    def _complete_request(self, correlation: int, kind: Kind, message: Any) -> None:
        answer, _, on_answer = self._requests.pop(correlation)
        if on_answer is not None and kind is not Kind.ERROR:
            on_answer()
        if answer.done():
            # The caller was cancelled.
            return
        if kind is Kind.ERROR:
            answer.set_exception(error_from_wire(message))
        else:
            answer.set_result(message)

    def _close_channel(self, channel: int, reason: BrokerError) -> None:
        owner = self._channels.pop(channel, None)
        if owner is not None:
            owner._on_closed(reason)

    def _fail(self, reason: BrokerError) -> None:
        if self._lost is not None:
            return
        if isinstance(reason, CorruptBatch):
            reason = ConnectionLost(f"the broker sent a damaged batch: {reason}")
        self._lost = reason
        # A connection that is open is checked.
        if self._on_lost is not None and self._next_check is not None:
            self._on_lost(self, reason)
        # They refer to the client: break the cycle.
        self._on_lost = self._on_silent = None
        self._protocol.close()
        self._write_buffer.close()
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        requests, self._requests = self._requests, {}
        channels, self._channels = self._channels, {}
        for request in requests.values():
            if not request.answer.done():
                request.answer.set_exception(reason)
                # The caller may have been cancelled: avoid asyncio's warning.
                retrieve(request.answer)
        for owner in channels.values():
            owner._on_closed(reason)

    def _set_idle_timeout(self, idle_timeout_s: float) -> None:
        if IDLE_TIMEOUT_S_MIN <= idle_timeout_s <= IDLE_TIMEOUT_S_MAX:
            self._idle_timeout_s = idle_timeout_s
        interval_s = self._idle_timeout_s / CHECKS_PER_TIMEOUT
        if self.welcome.is_clustered:
            interval_s = min(interval_s, CLUSTER_CHECK_S)
        self._check_interval_s = interval_s
        self._checks_max = round(self._idle_timeout_s / interval_s)

    def _schedule_check(self) -> None:
        self._next_check = self._loop.call_later(
            self._check_interval_s, self._check_alive
        )

    def _check_alive(self) -> None:
        """
        Fail if the broker is silent; send a PING if either side has been silent.

        Memory that no frame took since the last check is freed.

        It counts checks, not seconds: a process that was suspended, or whose event
        loop was blocked, first reads what has arrived.

        The broker also gets a PING if it is silent since something was sent, and
        *on_silent* is called if it does not answer.
        """
        has_heard = self._reads != self._reads_seen
        self._checks_unheard = 0 if has_heard else self._checks_unheard + 1
        self._reads_seen = self._reads
        self._protocol.body_memory.release_unused()
        has_sent = self._write_buffer.writes != self._writes_seen
        self._checks_unsent = 0 if has_sent else self._checks_unsent + 1
        self._writes_seen = self._write_buffer.writes
        if has_heard:
            self._writes_heard = self._writes_seen
        has_ping = self._ping is not None and not self._ping.done()
        if self._checks_unheard >= self._checks_max:
            self._fail(
                ConnectionLost(f"the broker was silent for {self._idle_timeout_s:g} s")
            )
            return
        checks = self._checks_max // CHECKS_PER_TIMEOUT * (CHECKS_PER_PING - 1)
        is_waiting = self._writes_seen != self._writes_heard and not has_heard
        if is_waiting or max(self._checks_unheard, self._checks_unsent) >= checks:
            self._send_ping()
        self._schedule_check()
        if has_ping and not has_heard and self._on_silent is not None:
            self._on_silent(self)

    def _send_ping(self) -> asyncio.Future[Any]:
        """Send a PING, unless one is not answered yet; return its answer's future."""
        if self._ping is None or self._ping.done():
            self._ping = self.request(pb.Ping())
            self.pings += 1
        return self._ping


Dial = Callable[[Callable[[], BrokerConnection]], Awaitable[BrokerConnection]]
"""Opens a transport for a new connection."""


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the exception of *future*, for which nobody waits, as retrieved."""
    if not future.cancelled():
        future.exception()
