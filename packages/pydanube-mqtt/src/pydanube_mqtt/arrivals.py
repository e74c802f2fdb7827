"""
The way of new connections to the processes that have the sessions of their clients.

All processes of a broker share the port, and the kernel gives a connection to any of
them.  The client id, which CONNECT brings, decides which process has the session: its
*home*.  So there is one place for all connections of a client, as with one process, and
a session that outlives its process is read from the metadata by the next one.

The process that accepts a connection reads CONNECT and passes the socket on to the home
of the client, with the bytes received so far.  TLS cannot be passed on: the process
that accepted the connection goes on to encrypt, and the home gets the end of a pair of
sockets with the plain bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.aio.tls_connection import receive_buffer
from pydanube_broker.servers.connections.authentication import certificate_of
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_broker.servers.settings.addresses import address_of, peer_text
from pydanube_mqtt.pure.homes import home_of
from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.encoding import encode
from pydanube_mqtt.wire.packets import Connack, Connect, PacketError, Reason

log = logging.getLogger(__name__)

SOCKET = "mqtt-arrivals"
ARRIVING_MAX = 1024
"""The most connections without CONNECT; the oldest one is closed beyond it."""
CONNECT_TIMEOUT_S = 10.0
"""How long a client may take to send CONNECT."""
PASS_TIMEOUT_S = 5.0
"""How long a process is tried that does not run at the moment."""
RETRY_S = 0.1
LENGTH_BYTES = 4
INTRODUCTION_BYTES_MAX = 1024 * 1024


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that go with a connection to the home of its client."""

    peer: str
    address: str
    certificate: Any = None
    """The verified certificate of the client, as Python describes it."""
    received: bytes
    """The bytes that the client has sent: CONNECT, and perhaps more."""


_INTRODUCTIONS = msgspec.msgpack.Decoder(Introduction)

Adopt = Callable[[Introduction], asyncio.BufferedProtocol]
"""A function that returns the protocol for a connection of a client at home here."""


class Arrivals:
    """
    The connections that have not sent CONNECT, and those that other processes pass on.

    Bounds: ``ARRIVING_MAX`` connections have not sent CONNECT.
    """

    def __init__(
        self,
        group: ProcessGroup,
        tasks: TaskScope,
        adopt: Adopt,
        connect_bytes_max: int,
    ) -> None:
        self.group = group
        self.tasks = tasks
        self.adopt = adopt
        self.connect_bytes_max = connect_bytes_max
        self.arriving: dict[Arrival, None] = {}
        self._loop = asyncio.get_running_loop()

    def add(self, arrival: Arrival) -> None:
        """Add a connection that was made."""
        self.arriving[arrival] = None
        if len(self.arriving) > ARRIVING_MAX:
            oldest = next(iter(self.arriving))
            oldest.abort()

    async def pass_on(
        self, home: int, descriptor: int, introduction: Introduction
    ) -> None:
        """
        Pass a connection on to the process *home*.

        Raises:
            OSError, TimeoutError: That process does not accept it.
        """
        body = msgspec.msgpack.encode(introduction)
        async with asyncio.timeout(PASS_TIMEOUT_S):
            with await self._reach(home) as passing:
                # The descriptor goes with the first bytes, which fit into any buffer.
                socket.send_fds(
                    passing, [len(body).to_bytes(LENGTH_BYTES, "big")], [descriptor]
                )
                await self._loop.sock_sendall(passing, body)
                if not await self._loop.sock_recv(passing, 1):
                    raise ConnectionResetError(f"process {home} refuses the connection")

    async def _reach(self, home: int) -> socket.socket:
        while True:
            try:
                return await self.group.connect(home, SOCKET)
            except OSError:
                # It may be starting again.
                await asyncio.sleep(RETRY_S)

    async def run(self, listening: socket.socket) -> None:
        """Take connections of other processes, for ever."""
        while True:
            passing, _ = await self._loop.sock_accept(listening)
            self.tasks.run(self._take(passing))

    async def _take(self, passing: socket.socket) -> None:
        try:
            with passing:
                async with asyncio.timeout(PASS_TIMEOUT_S):
                    await self._take_one(passing)
        except (OSError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
            log.warning("a connection of another process was not taken: %r", error)

    async def _take_one(self, passing: socket.socket) -> None:
        await self._readable(passing)
        head, descriptors, _, _ = socket.recv_fds(passing, LENGTH_BYTES, 1)
        if not descriptors:
            # The other process has gone.
            return
        with suppress_close(socket.socket(fileno=descriptors[0])) as connection:
            length = int.from_bytes(head, "big")
            if length > INTRODUCTION_BYTES_MAX:
                raise ValueError(f"an introduction of {length} bytes")
            introduction = _INTRODUCTIONS.decode(await self._receive(passing, length))
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(
                partial(self.adopt, introduction), connection
            )
        await self._loop.sock_sendall(passing, b"\1")

    async def _readable(self, passing: socket.socket) -> None:
        readable = asyncio.Event()
        self._loop.add_reader(passing.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(passing.fileno())

    async def _receive(self, passing: socket.socket, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            part = await self._loop.sock_recv(passing, length)
            if not part:
                raise ConnectionResetError("the other process has gone")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class suppress_close:  # noqa: N801  # A context manager, as those of contextlib.
    """Closes a socket if the body fails; otherwise a transport owns it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __enter__(self) -> socket.socket:
        return self._connection

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is not None:
            self._connection.close()


class Arrival(asyncio.BufferedProtocol):
    """
    A connection that has not sent CONNECT.

    Bounds: One incomplete packet, and what is received at a time.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._received = bytearray()
        self._reader = PacketReader(arrivals.connect_bytes_max)
        self._transport: Any = None
        self._timer = asyncio.get_running_loop().call_later(
            CONNECT_TIMEOUT_S, self.abort
        )

    def abort(self) -> None:
        """Close the connection at once."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport
        self._arrivals.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._leave()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        received = receive_buffer()[:nbytes]
        self._received += received
        self._reader.add(received)
        group = self._arrivals.group
        home, version = group.number, 0
        try:
            packet = next(self._reader.packets(), None)
            if packet is None:
                return
            if isinstance(packet, Connect):
                version = packet.version
                if packet.client_id:
                    home = home_of(packet.client_id, group.count)
        except PacketError:
            # Any process can tell the client.
            pass
        self._leave()
        if home == group.number:
            # The protocol receives what has come so far when it is connected.
            protocol = self._arrivals.adopt(self._introduce())
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            return
        self._transport.pause_reading()
        self._arrivals.tasks.run(self._pass_on(home, version))

    def _introduce(self) -> Introduction:
        peername = self._transport.get_extra_info("peername")
        return Introduction(
            peer=peer_text(peername),
            address=address_of(peername),
            certificate=certificate_of(self._transport),
            received=bytes(self._received),
        )

    async def _pass_on(self, home: int, version: int) -> None:
        transport, pass_on = self._transport, self._arrivals.pass_on
        introduction = self._introduce()
        try:
            if transport.get_extra_info("ssl_object") is None:
                # The copy stays open when the transport is closed.
                descriptor = os.dup(transport.get_extra_info("socket").fileno())
                try:
                    await pass_on(home, descriptor, introduction)
                finally:
                    os.close(descriptor)
                transport.abort()
                return
            ours, theirs = socket.socketpair()
            with theirs, suppress_close(ours):
                await pass_on(home, theirs.fileno(), introduction)
                await relay(transport, ours)
        except (OSError, TimeoutError) as error:
            log.warning(
                "refusing the connection of %s: process %d, which has its session, "
                "does not answer: %r",
                introduction.peer,
                home,
                error,
            )
            refusal = Connack(reason=Reason.SERVER_UNAVAILABLE)
            transport.write(encode(refusal, version))
            transport.close()

    def _leave(self) -> None:
        self._timer.cancel()
        self._arrivals.arriving.pop(self, None)


class Relay(asyncio.Protocol):
    """One direction between two transports; closing one closes the other."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._other.write(data)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        with suppress(RuntimeError):
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        with suppress(RuntimeError):
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._other.close()


async def relay(transport: Any, plain: socket.socket) -> None:
    """Connect *transport*, which is paused, with the socket *plain*."""
    plain.setblocking(False)
    other, _ = await asyncio.get_running_loop().connect_accepted_socket(
        partial(Relay, transport), plain
    )
    transport.set_protocol(Relay(other))
    if transport.is_closing():
        other.close()
    else:
        transport.resume_reading()


@asynccontextmanager
async def open_arrivals(
    group: ProcessGroup, adopt: Adopt, connect_bytes_max: int
) -> AsyncIterator[Arrivals]:
    """Take connections of other processes during the body; see ``Arrivals``."""
    async with task_scope() as tasks:
        with group.listen(SOCKET) as listening:
            arrivals = Arrivals(group, tasks, adopt, connect_bytes_max)
            tasks.run(arrivals.run(listening))
            try:
                yield arrivals
            finally:
                for arrival in list(arrivals.arriving):
                    arrival.abort()
                tasks.cancel()
