"""
The shell around ``wire.grpc``: a connection on an event loop, and its calls as tasks.

Everything happens on the broker's loop.  What comes in one read is taken at once, and
what is answered in one turn leaves in one write; so many calls at a time cost little
more than one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from pydanube.wire.grpc import (
    Cancelled,
    Finished,
    GrpcConnection,
    Message,
    Started,
    StatusCode,
    Written,
)
from pydanube.wire.http2 import Broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from google.protobuf.message import Message as Protobuf

    from pydanube.servers.grpc.services import Method, Service

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The longest request; far more than any message may have, so that whoever sends one
that is too large is told what is allowed for its topic."""
WRITE_BUFFER_BYTES = 1024 * 1024
"""When so much waits for a slow client, nothing is read from it."""
KEEPALIVE_S = 10.0
"""A client that says nothing for so long is asked for a sign of life, and is gone if
none has come after as long again.  Its messages then go to others."""
WRITES_AT_ONCE = 64
"""After so many messages a stream lets others run."""
TIMEOUT_S_MAX = 24 * 3600.0
"""A caller with more patience is one that waits for ever."""


class GrpcServer:
    """All connections of one door."""

    def __init__(
        self,
        services: Sequence[Service],
        tasks: asyncio.TaskGroup,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
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
        """What is being answered."""
        # Calls whose request has not come yet.
        self._beginning: dict[int, _Beginning] = {}
        self._requests: dict[int, _Requests] = {}
        self._writers: dict[int, asyncio.Event] = {}
        self._is_flushing = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._keepalive: asyncio.TimerHandle | None = None
        self._was_silent = False
        self._has_come = True

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host, port = transport.get_extra_info("peername", ("in process", 0))[:2]
        self._peer = f"{host}:{port}"
        self._server.connections[self] = None
        self._wait_for_life()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._has_come = True
        try:
            events = self._grpc.receive(data)
        except Broken as error:
            log.info("closing the connection of %s: %s", self._peer, error)
            self._flush()
            self._transport.close()
            return
        for event in events:
            match event:
                case Message(number, message):
                    self._take(number, message)
                case Started():
                    self._begin(event)
                case Finished(number):
                    self._finish(number)
                case Cancelled(number):
                    self._cancel(number)
                case Written(number):
                    if writer := self._writers.get(number):
                        writer.set()
        self.flush_soon()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.clear()
        # Whoever does not read its answers is not asked for more requests.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.set()
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._server.connections.pop(self, None)
        if self._keepalive is not None:
            self._keepalive.cancel()
        self._can_write.set()
        for task in self.calls.values():
            task.cancel()

    # The end.

    def go_away(self) -> None:
        """Take no more calls."""
        self._grpc.http2.go_away()
        self.flush_soon()

    def close(self) -> None:
        """Close the connection, whatever is going on."""
        for task in self.calls.values():
            task.cancel()
        self._flush()
        self._transport.close()

    # Calls.

    def _begin(self, event: Started) -> None:
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
            beginning.messages.append(message)
        elif (requests := self._requests.get(number)) is not None:
            requests.add(message)

    def _finish(self, number: int) -> None:
        if (requests := self._requests.get(number)) is not None:
            requests.end()
            return
        beginning = self._beginning.pop(number, None)
        if beginning is None:
            return
        if len(beginning.messages) != 1:
            self._grpc.finish(
                *(number, StatusCode.INVALID_ARGUMENT),
                f"{len(beginning.messages)} requests where there must be one",
            )
            return
        self._run(number, beginning.method, beginning.started, beginning.messages[0])

    def _cancel(self, number: int) -> None:
        self._beginning.pop(number, None)
        if task := self.calls.get(number):
            task.cancel()

    def _run(
        self, number: int, method: Method, started: Started, data: bytes | _Requests
    ) -> None:
        context = CallContext(self, number, started.metadata, self._peer)
        work = self._answer(number, method, data, context)
        timeout_s = started.timeout_s
        if timeout_s is not None and timeout_s < TIMEOUT_S_MAX:
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
        """Send what is there at the end of this turn of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        output = self._grpc.http2.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(b"".join(output))

    # Signs of life.

    def _wait_for_life(self) -> None:
        self._keepalive = self._loop.call_later(
            self._server.keepalive_s, self._look_for_life
        )

    def _look_for_life(self) -> None:
        self._grpc.http2.relax()
        if self._has_come:
            self._was_silent = False
        elif not self._can_write.is_set():
            # It has been told not to be read from.
            pass
        elif self._was_silent:
            log.info("the client %s does not answer any more", self._peer)
            self._transport.abort()
            return
        else:
            self._was_silent = True
            self._grpc.http2.ping()
            self.flush_soon()
        self._has_come = False
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

    __slots__ = ("messages", "method", "started")

    def __init__(self, method: Method, started: Started) -> None:
        self.method = method
        self.started = started
        self.messages: list[bytes] = []


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
