"""
The shell around ``wire.grpc.connection``: a connection on an event loop, and its calls.

A call is a task, unless its method can be answered without one (``CallNowait``).

Everything happens on the broker's loop.  What comes in one read is taken at once, and
what is answered in one turn leaves in one write; so many calls at a time cost little
more than one.

A connection has a share of each turn of the loop, ``WORK_PER_TURN``.  When it has used
its share, the shell stops reading from it and goes on in the next turn, so that every
other connection has had its own in between.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.servers.connections import ConnectionCounts
from pydanube.wire.grpc.connection import (
    CallCancelled,
    CallStarted,
    GrpcConnection,
    HalfClosed,
    MessageReceived,
    StatusCode,
    WriteCompleted,
)
from pydanube.wire.grpc.http2_frames import ErrorCode, Http2Error
from pydanube.wire.turn_budget import TurnBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from google.protobuf.message import Message as Protobuf

    from pydanube.servers.grpc.services import CallNowait, Method, Service

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The longest request; far more than any message may have, so that whoever sends one
that is too large is told what is allowed for its topic."""
CONNECTIONS_MAX = 10_000
RECEIVE_BYTES_MAX = 256 * 1024 * 1024
WRITE_BUFFER_BYTES = 1024 * 1024
"""When so much waits for a slow client, nothing is read from it."""
WORK_PER_TURN = 128
"""Units of work, as ``Http2Connection`` counts them, that one connection may cause in
one turn of the loop: about 60 calls."""
KEEPALIVE_S = 10.0
"""A client that says nothing for so long is asked for a sign of life, and is gone if
none has come after as long again.  Its messages then go to others.  The greeting must
come in this time, and the acknowledgement of our settings in twice this time."""
CLOSE_S = 1.0
"""How long a peer that broke the protocol may take to read why it is disconnected."""
WRITES_AT_ONCE = 64
"""After so many messages a stream lets others run."""
PING_ANSWER_DELAY_S = 0.01
"""An answer to a PING waits so long for something else that is sent along with it."""
TIMEOUT_S_MAX = 24 * 3600.0
"""A caller with more patience is one that waits for ever."""


class GrpcServer:
    """All connections of one gRPC server."""

    def __init__(
        self,
        services: Sequence[Service],
        tasks: asyncio.TaskGroup,
        *,
        counts: ConnectionCounts | None = None,
        receive_bytes_max: int = RECEIVE_BYTES_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self.counts = counts or ConnectionCounts(
            listener="grpc", connections_max=CONNECTIONS_MAX
        )
        self.held_bytes = 0
        """Received bytes of all requests that are not answered."""
        self._receive_bytes_max = receive_bytes_max
        self.methods: dict[str, Method] = {
            path: method
            for service in services
            for path, method in service.methods.items()
        }
        self.message_bytes_max = message_bytes_max
        self.keepalive_s = keepalive_s
        self.connections: dict[GrpcProtocol, None] = {}
        self._tasks = tasks

    def new_connection(self) -> GrpcProtocol:
        """The protocol of a new connection."""
        return GrpcProtocol(self)

    def count_held(self, change: int) -> None:
        """
        Count *change* more bytes of requests that are not answered.

        If they are more than the maximum, the connection that holds most is closed.
        """
        self.held_bytes += change
        if change > 0 and self.held_bytes > self._receive_bytes_max:
            largest = max(self.connections, key=lambda each: each.held_bytes)
            largest.refuse(f"requests take more than {self._receive_bytes_max} bytes")

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* until it ends or the server does."""
        return self._tasks.create_task(work)

    async def close(self, grace_s: float) -> None:
        """
        Take no more calls, and close every connection.

        Calls that are being answered have *grace_s* left.
        """
        connections = list(self.connections)
        for connection in connections:
            connection.go_away()
        calls = [task for each in connections for task in each.calls.values()]
        calls += [
            self.run(each.all_answered()) for each in connections if each.is_answering
        ]
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        for connection in connections:
            connection.close()


class GrpcProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._grpc = GrpcConnection(server.message_bytes_max)
        self._transport: asyncio.Transport
        self._peer = "?"
        self.calls: dict[int, asyncio.Task[None]] = {}
        """What is being answered by tasks."""
        # What is being answered without.
        self._answering: set[int] = set()
        self._answered = asyncio.Event()
        # Calls whose request has not come yet.
        self._beginning: dict[int, _Beginning] = {}
        self._requests: dict[int, _Requests] = {}
        self._writers: dict[int, asyncio.Event] = {}
        self._is_flushing = False
        self._turn = TurnBudget(WORK_PER_TURN)
        self._is_reading = True
        self._is_broken = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._keepalive: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        """Received bytes of requests that are not answered, as the server counts."""
        # Set while the answer to a PING may have to leave alone.
        self._ping_timer: asyncio.TimerHandle | None = None
        self._was_silent = False
        self._has_come = True
        # Whether the keepalive timer has looked before.
        self._is_old = False
        # All bytes written to the transport, and those that it had sent when the
        # keepalive timer last looked.
        self._written_bytes = 0
        self._sent_bytes = 0

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host, port = transport.get_extra_info("peername", ("in process", 0))[:2]
        self._peer = f"{host}:{port}"
        if not self._server.counts.admit():
            self._is_broken = True
            self._transport.abort()
            return
        self._server.connections[self] = None
        self._wait_for_life()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._has_come = True
        self._process(data)

    def _process(self, data: bytes) -> None:
        """Act on what has come, as far as this turn's share allows."""
        if self._is_broken:
            return
        before = self._grpc.http2.work
        try:
            events = self._grpc.receive(data, work_max=self._turn.left)
        except Http2Error as error:
            self._break(str(error))
            return
        self._turn.spend(self._grpc.http2.work - before)
        for event in events:
            # Not by match, which takes several times as long.
            if type(event) is MessageReceived:
                self._take(event.call, event.data)
            elif type(event) is CallStarted:
                self._begin(event)
            elif type(event) is HalfClosed:
                self._finish(event.call)
            elif type(event) is CallCancelled:
                self._cancel(event.call)
            elif type(event) is WriteCompleted and (
                writer := self._writers.get(event.call)
            ):
                writer.set()
        self._update_reading()
        if self._grpc.http2.has_only_ping_ack:
            # Usually an answer to a call follows at once, and takes it along.
            if self._ping_timer is None:
                self._ping_timer = self._loop.call_later(
                    PING_ANSWER_DELAY_S, self._send_ping_answer
                )
        else:
            self.flush_soon()

    def _send_ping_answer(self) -> None:
        self._ping_timer = None
        self.flush_soon()

    def _process_rest(self) -> None:
        """Go on, in a later turn, with what has come."""
        if self._grpc.http2.has_backlog and self._can_write.is_set():
            self._process(b"")

    def _update_reading(self) -> None:
        """Read from the client only if it can be served at once."""
        is_reading = self._can_write.is_set() and not self._grpc.http2.has_backlog
        if is_reading != self._is_reading and not self._transport.is_closing():
            self._is_reading = is_reading
            if is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.clear()
        # A client that does not read its answers may not send more requests.
        self._update_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.set()
        self._update_reading()
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._server.connections.pop(self, None)
        self._server.counts.lose()
        self._is_broken = True
        self._cancel_keepalive()
        self._can_write.set()
        for task in self.calls.values():
            task.cancel()
        self._answering.clear()
        self._answered.set()
        self._beginning.clear()
        self._server.count_held(-self.held_bytes)
        self.held_bytes = 0
        if self._ping_timer is not None:
            self._ping_timer.cancel()

    @property
    def is_answering(self) -> bool:
        """Whether calls are being answered without tasks."""
        return bool(self._answering)

    async def all_answered(self) -> None:
        """Wait until none is any more."""
        while self._answering:
            self._answered.clear()
            await self._answered.wait()

    @property
    def has_settled(self) -> bool:
        """Whether the greeting is complete on both sides."""
        http2 = self._grpc.http2
        return http2.has_preface and http2.has_settings_ack

    # The end.

    def go_away(self) -> None:
        """Take no more calls."""
        self._grpc.http2.go_away()
        self.flush_soon()

    def refuse(self, why: str) -> None:
        """Close the connection because of what the peer does, and say why."""
        self._grpc.http2.go_away(ErrorCode.ENHANCE_YOUR_CALM, why)
        for task in self.calls.values():
            task.cancel()
        self._answering.clear()
        self._answered.set()
        self._beginning.clear()
        self._grpc.forget_calls()
        self._break(why)

    def _break(self, why: str) -> None:
        log.info("closing the connection of %s: %s", self._peer, why)
        self._server.counts.abusive_total += 1
        self._is_broken = True
        self._server.count_held(-self.held_bytes)
        self.held_bytes = 0
        self._flush()
        self._transport.close()
        # The peer may not read the reason.
        self._cancel_keepalive()
        self._keepalive = self._loop.call_later(CLOSE_S, self._transport.abort)

    def close(self) -> None:
        """Close the connection, whatever is going on."""
        for task in self.calls.values():
            task.cancel()
        self._flush()
        self._transport.close()

    # Calls.

    def _begin(self, event: CallStarted) -> None:
        number = event.call
        method = self._server.methods.get(event.method)
        if method is None:
            self._grpc.finish(
                number,
                StatusCode.UNIMPLEMENTED,
                f"there is no method {event.method} here",
            )
        elif method.streams_requests:
            requests = self._requests[number] = _Requests(self, number, method)
            self._run(number, method, event, requests)
        else:
            self._beginning[number] = _Beginning(method, event)

    def _take(self, number: int, message: bytes) -> None:
        if (beginning := self._beginning.get(number)) is not None:
            beginning.message = message
            beginning.message_count += 1
        elif (requests := self._requests.get(number)) is not None:
            requests.add(message)

    def _finish(self, number: int) -> None:
        if (requests := self._requests.get(number)) is not None:
            requests.end()
            return
        beginning = self._beginning.pop(number, None)
        if beginning is None:
            return
        if beginning.message_count != 1:
            self._grpc.finish(
                *(number, StatusCode.INVALID_ARGUMENT),
                f"{beginning.message_count} requests where there must be one",
            )
            return
        self._run(number, beginning.method, beginning.started, beginning.message)

    def _cancel(self, number: int) -> None:
        self._beginning.pop(number, None)
        self._end_answering(number)
        if task := self.calls.get(number):
            task.cancel()
            # A task that has not begun does not come to its own end of the call.
            self._forget(number)

    def _answer_nowait(
        self, number: int, method: Method, call: CallNowait, data: bytes
    ) -> bool:
        """Begin to answer a call without a task, if that is possible."""
        self._answering.add(number)
        on_answer = partial(self._on_answer, number, method)
        try:
            if call(method.request_of(data), on_answer):
                return True
        except Exception as error:  # noqa: BLE001  # The caller is told.
            on_answer(error)
            return True
        self._end_answering(number)
        return False

    def _on_answer(self, number: int, method: Method, answer: Any) -> None:
        if number not in self._answering:
            # The client or the connection is gone.
            return
        if isinstance(answer, Exception):
            self._grpc.finish(number, *method.service.refusal(answer))
        else:
            self._grpc.answer(number, answer.SerializeToString())
        self._end_answering(number)
        self.flush_soon()

    def _end_answering(self, number: int) -> None:
        self._answering.discard(number)
        if not self._answering:
            self._answered.set()

    def _run(
        self, number: int, method: Method, started: CallStarted, data: bytes | _Requests
    ) -> None:
        timeout_s = started.timeout_s
        has_deadline = timeout_s is not None and timeout_s < TIMEOUT_S_MAX
        if (
            method.call_nowait is not None
            and not has_deadline
            and isinstance(data, bytes)
            and self._answer_nowait(number, method, method.call_nowait, data)
        ):
            return
        context = CallContext(self, number, started.metadata, self._peer)
        work = self._answer(number, method, data, context)
        if timeout_s is not None and has_deadline:
            work = self._answer_in_time(number, method, timeout_s, work)
        self.calls[number] = self._server.run(work)

    async def _answer(
        self, number: int, method: Method, data: bytes | _Requests, context: CallContext
    ) -> None:
        try:
            request = data if isinstance(data, _Requests) else method.request_of(data)
            answer = await method.call(request, context)
            if method.streams_answers:
                self._grpc.finish(number, StatusCode.OK)
            else:
                self._grpc.answer(number, answer.SerializeToString())
        except Exception as error:  # noqa: BLE001  # The caller is told.
            self._grpc.finish(number, *method.service.refusal(error))
        finally:
            self._forget(number)
            self.flush_soon()

    async def _answer_in_time(
        self,
        number: int,
        method: Method,
        timeout_s: float,
        work: Coroutine[Any, Any, None],
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await work
        except TimeoutError:
            self._grpc.finish(
                number,
                StatusCode.DEADLINE_EXCEEDED,
                f"not answered within {timeout_s:g} s",
            )
            method.service.errors["deadline_exceeded"] += 1
            self.flush_soon()

    def _forget(self, number: int) -> None:
        self.calls.pop(number, None)
        self._requests.pop(number, None)
        self._writers.pop(number, None)

    # Writing.

    def begin(self, number: int) -> None:
        """See ``Context.send_initial_metadata``."""
        self._grpc.begin(number)
        self.flush_soon()

    async def write(self, number: int, message: bytes) -> None:
        """Send one message of a streamed answer."""
        if not self._grpc.write(number, message):
            self.flush_soon()
            writer = self._writers.setdefault(number, asyncio.Event())
            writer.clear()
            await writer.wait()
        self.flush_soon()
        if not self._can_write.is_set():
            await self._can_write.wait()

    def consumed(self, number: int, message: bytes) -> None:
        """One of several requests was dealt with."""
        self._grpc.consumed(number, message)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send what is there at the end of this turn of the loop, which ends it."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        http2 = self._grpc.http2
        output = http2.take_output()
        if output and not self._transport.is_closing():
            joined = b"".join(output)
            self._written_bytes += len(joined)
            self._transport.write(joined)
        if not self._is_broken:
            change = self._grpc.held_bytes - self.held_bytes
            self.held_bytes += change
            self._server.count_held(change)
        self._turn.refill()
        if http2.has_backlog:
            self._loop.call_soon(self._process_rest)

    # Signs of life.

    def _wait_for_life(self) -> None:
        self._keepalive = self._loop.call_later(
            self._server.keepalive_s, self._look_for_life
        )

    def _cancel_keepalive(self) -> None:
        if self._keepalive is not None:
            self._keepalive.cancel()
            self._keepalive = None

    def _look_for_life(self) -> None:
        http2 = self._grpc.http2
        http2.refill_allowance()
        sent_bytes = self._written_bytes - self._transport.get_write_buffer_size()
        if not http2.has_preface or (self._is_old and not http2.has_settings_ack):
            log.info("the client %s did not complete the greeting", self._peer)
            self._server.counts.silent_total += 1
            self._transport.abort()
            return
        self._is_old = True
        # While the client is not read from, that it reads is its sign of life.
        is_blocked = not self._can_write.is_set()
        if self._has_come or (is_blocked and sent_bytes > self._sent_bytes):
            self._was_silent = False
        elif self._was_silent:
            log.info("the client %s does not answer any more", self._peer)
            self._server.counts.silent_total += 1
            self._transport.abort()
            return
        else:
            self._was_silent = True
            http2.ping()
            self.flush_soon()
        self._has_come = False
        self._sent_bytes = sent_bytes
        self._wait_for_life()


class CallContext:
    """See ``services.Context``."""

    __slots__ = ("_connection", "_number", "_peer", "_writes", "metadata")

    def __init__(
        self,
        connection: GrpcProtocol,
        number: int,
        metadata: Mapping[str, str],
        peer: str,
    ) -> None:
        self._connection = connection
        self._number = number
        self._peer = peer
        self._writes = 0
        self.metadata = metadata

    def peer(self) -> str:
        """See ``services.Context``."""
        return self._peer

    async def send_initial_metadata(self) -> None:
        """See ``services.Context``."""
        self._connection.begin(self._number)

    async def write(self, message: Protobuf) -> None:
        """See ``services.Context``."""
        await self._connection.write(self._number, message.SerializeToString())
        self._writes += 1
        if self._writes % WRITES_AT_ONCE == 0:
            await asyncio.sleep(0)


class _Beginning:
    """A call whose request has not come yet."""

    __slots__ = ("message", "message_count", "method", "started")

    def __init__(self, method: Method, started: CallStarted) -> None:
        self.method = method
        self.started = started
        self.message = b""
        self.message_count = 0


class _Requests:
    """The requests of one call, as they come."""

    def __init__(self, connection: GrpcProtocol, number: int, method: Method) -> None:
        self._connection = connection
        self._number = number
        self._method = method
        # The client's window bounds what waits here.
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def add(self, message: bytes) -> None:
        """One more."""
        self._waiting.put_nowait(message)

    def end(self) -> None:
        """There will be no more."""
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Protobuf]:
        while (message := await self._waiting.get()) is not None:
            yield self._method.request_of(message)
            self._connection.consumed(self._number, message)
