"""One call of a gRPC method: its context, its requests and its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Protocol

from google.protobuf.message import Message as Protobuf

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.dispatch.quota_meter import QuotaMeter
from pydanube_broker.servers.connections.authentication import NOBODY, ClientIdentity
from pydanube_broker.servers.grpc.services import Method
from pydanube_broker.wire.grpc.connection import CallStarted
from pydanube_broker.wire.grpc.http2_frames import FRAME_BYTES_MAX

WRITES_AT_ONCE = 64
"""A stream lets other tasks run after this number of messages."""
WRITE_BYTES = FRAME_BYTES_MAX
"""The size from which messages of a stream are not written together any more."""


class CallConnection(Protocol):
    """The connection of a call."""

    def begin(self, number: int) -> None:
        """Tell the client that the call was accepted."""

    async def write(self, number: int, messages: Sequence[bytes]) -> None:
        """Send messages when the client's window allows it."""

    def consumed(self, number: int, message: bytes) -> None:
        """Give the client the room of a request back."""


class CallContext:
    """The call of a method, besides its request."""

    __slots__ = ("_connection", "_number", "_peer", "_writes", "address", "principal")

    def __init__(
        self,
        connection: CallConnection,
        number: int,
        peer: str,
        *,
        address: str = "?",
        identity: ClientIdentity = NOBODY,
    ) -> None:
        self.address = address
        """The caller's address, without a port."""
        self.principal = identity.principal
        """The principal of the caller."""
        self._connection = connection
        self._number = number
        self._peer = peer
        self._writes = 0

    def peer(self) -> str:
        """Return the connection's name, which changes when a client reconnects."""
        return self._peer

    async def send_initial_metadata(self) -> None:
        """Tell the client that its call was accepted, before any message."""
        self._connection.begin(self._number)

    async def write(self, message: Protobuf) -> None:
        """Send one message of a streamed answer when the client's window allows it."""
        await self.write_bytes(message.SerializeToString())

    async def write_bytes(self, *messages: bytes) -> None:
        """Send messages, which are encoded already; see ``write``."""
        await self._connection.write(self._number, messages)
        self._writes += len(messages)
        if self._writes >= WRITES_AT_ONCE:
            self._writes = 0
            await asyncio.sleep(0)


def written_together(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """
    Divide *messages* into lists for ``CallContext.write_bytes``.

    A list is not longer than needed for ``WRITES_AT_ONCE`` messages or ``WRITE_BYTES``.
    """
    together: list[bytes] = []
    byte_count = 0
    for message in messages:
        together.append(message)
        byte_count += len(message)
        if byte_count >= WRITE_BYTES or len(together) >= WRITES_AT_ONCE:
            yield together
            together, byte_count = [], 0
    if together:
        yield together


@dataclass(slots=True)
class PendingCall:
    """A call whose request has not arrived yet."""

    method: Method
    started: CallStarted
    identity: ClientIdentity
    meter: QuotaMeter | None
    """The quota of the caller; None: the call needs none."""
    message: bytes = b""
    message_count: int = 0


class RequestStream:
    """The stream of requests of one call."""

    def __init__(self, connection: CallConnection, number: int, method: Method) -> None:
        self._connection = connection
        self._number = number
        self._method = method
        # The flow-control window bounds the queue.
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def add(self, message: bytes) -> None:
        """Add a request."""
        self._waiting.put_nowait(message)

    def end(self) -> None:
        """End the stream."""
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Protobuf]:
        while (message := await self._waiting.get()) is not None:
            yield self._method.request_of(message)
            self._connection.consumed(self._number, message)
