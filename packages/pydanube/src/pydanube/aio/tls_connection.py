"""
TLS between an asyncio transport and a protocol.

asyncio has TLS of its own.  It keeps a buffer of 256 KiB for each connection, cannot
answer peers that do not speak TLS, and has one context for all connections of a
listener, so that certificates cannot change.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pydanube.aio.write_buffer import Buffer

RECEIVE_BUFFER_BYTES = 128 * 1024
"""The most encrypted bytes that are received at a time."""
ENCRYPTED_BYTES_AT_ONCE = 64 * 1024
"""The most bytes that are encrypted at a time, which bounds the memory of OpenSSL."""
DECRYPTED_BYTES_AT_ONCE = 32 * 1024
"""The most bytes that are decrypted at a time, unless the protocol pauses reading."""
RECORD_BYTES = 16 * 1024
"""The most bytes of a record of TLS."""

_CONTENT_TYPES = range(20, 24)
_VERSION_MAJOR = 3


class NotTlsError(ConnectionError):
    """The peer does not speak TLS."""


class HandshakeTimeoutError(ConnectionError):
    """The peer did not complete the TLS handshake in time."""


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """
    One TLS connection: the protocol of a transport, and the transport of a protocol.

    *protocol* is connected after the handshake, and never if the handshake fails.

    Ordering: As of a transport.  ``on_handshake`` is called once, before any data
        reaches *protocol*, with None or with the reason of the failure.

    Bounds: It holds ``RECEIVE_BUFFER_BYTES`` that were received and are not decrypted,
        and buffers of OpenSSL, which grow to ``ENCRYPTED_BYTES_AT_ONCE``.

    Errors: A protocol that is connected gets the failures of TLS, such as
        ``ssl.SSLError``, in ``connection_lost``.
    """

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        timeout_s: float,
        plain_answer: bytes = b"",
        on_handshake: Callable[[TlsConnection, Exception | None], None],
    ) -> None:
        """
        The peer has *timeout_s* for the handshake.

        *plain_answer* is sent to peers that do not speak TLS.
        """
        super().__init__()
        self._protocol: Any = protocol
        self._takes_buffers = isinstance(protocol, asyncio.BufferedProtocol)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._timeout_s = timeout_s
        self._plain_answer = plain_answer
        self._on_handshake = on_handshake
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        # Shared by all connections of the thread, as ``receive_buffer``.
        self._view = _buffer_of_thread("encrypted")
        # What was received and OpenSSL does not have yet; within ``buffer_updated``.
        self._received = _NOTHING
        self._has_received = False
        # The handshake was completed, and the protocol knows its transport.
        self._is_open = False
        self._is_finished = False
        self._is_paused = False
        self._is_scheduled = False
        self._is_closing = False
        self._failure: Exception | None = None

    # The protocol of the encrypted transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport
        if self._is_closing:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._timeout_s, self._on_timeout)
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self._is_closing:
            return
        received = self._view[:nbytes]
        if not self._has_received:
            self._has_received = True
            if not _may_be_tls(received):
                if self._plain_answer:
                    self._transport.write(self._plain_answer)
                self._fail(NotTlsError("the peer does not speak TLS"))
                return
        if not self._is_open:
            self._incoming.write(received)
            self._shake_hands()
            return
        self._received = received
        self._decrypt()
        if self._received:
            # The protocol has paused reading.
            self._incoming.write(self._received)
            self._received = _NOTHING

    def eof_received(self) -> None:
        """See asyncio.BufferedProtocol; the transport closes itself."""
        self._incoming.write_eof()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        if self._is_open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        if self._is_open:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_closing = True
        self._finish(exc or ConnectionResetError("the peer closed the connection"))
        if self._is_open:
            self._is_open = False
            self._protocol.connection_lost(self._failure or exc)
        # The two refer to each other.
        self._protocol = None

    # The transport of the protocol.

    def write(self, data: Buffer) -> None:
        """See asyncio.WriteTransport."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """See asyncio.WriteTransport."""
        if self._is_closing:
            return
        encrypted: list[bytes] = []
        # Each call of OpenSSL makes a record of its own, so small parts are joined.
        small: list[Buffer] = []
        try:
            for part in list_of_data:
                if len(part) < RECORD_BYTES:
                    small.append(part)
                    continue
                self._encrypt(b"".join(small), encrypted)
                small.clear()
                self._encrypt(part, encrypted)
            self._encrypt(b"".join(small), encrypted)
        except ssl.SSLError as error:
            self._fail(error)
            return
        if len(encrypted) == 1:
            self._transport.write(encrypted[0])
        elif encrypted:
            self._transport.writelines(encrypted)

    def close(self) -> None:
        """See asyncio.BaseTransport."""
        if self._is_closing:
            return
        self._is_closing = True
        # The end of TLS of the peer is not awaited.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send_outgoing()
        self._transport.close()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._is_paused = False
        # The transport continues when everything that it received is decrypted.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._decrypt_rest)

    def is_reading(self) -> bool:
        """See asyncio.ReadTransport."""
        return not self._is_paused and not self.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """See asyncio.WriteTransport."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        size: int = self._transport.get_write_buffer_size()
        return size

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio.BaseTransport."""
        self._protocol = protocol
        self._takes_buffers = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See asyncio.BaseTransport."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def _encrypt(self, data: Buffer, encrypted: list[bytes]) -> None:
        """Append the records of *data*, if it is not empty, to *encrypted*."""
        rest = memoryview(data)
        while rest:
            self._tls.write(rest[:ENCRYPTED_BYTES_AT_ONCE])
            rest = rest[ENCRYPTED_BYTES_AT_ONCE:]
            encrypted.append(self._outgoing.read())

    # The handshake.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._send_outgoing()
        self._is_open = True
        self._finish(None)
        self._protocol.connection_made(self)
        self._decrypt()

    def _on_timeout(self) -> None:
        self._timer = None
        self._fail(
            HandshakeTimeoutError(
                f"the peer did not complete the TLS handshake in {self._timeout_s:g} s"
            )
        )

    def _finish(self, failure: Exception | None) -> None:
        """Report the outcome of the handshake, once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_finished:
            self._is_finished = True
            self._on_handshake(self, failure)

    def _fail(self, failure: Exception) -> None:
        """Close the connection after sending the alert that OpenSSL has made."""
        if self._failure is not None:
            return
        self._failure = failure
        self._is_closing = True
        self._send_outgoing()
        if self._transport.get_write_buffer_size():
            # The peer may not read.
            self._transport.abort()
        else:
            self._transport.close()
        self._finish(failure)

    # Received data.

    def _decrypt_rest(self) -> None:
        self._is_scheduled = False
        if self._is_open:
            self._decrypt()
            if not self._is_paused and not self.is_closing():
                self._transport.resume_reading()

    def _decrypt(self) -> None:
        """Pass what was received on, until the protocol pauses reading."""
        try:
            is_more = True
            while is_more and not self._is_paused and not self._is_closing:
                is_more = (
                    self._decrypt_into_buffer()
                    if self._takes_buffers
                    else self._decrypt_data()
                )
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending and not self._is_closing:
            self._send_outgoing()

    def _decrypt_into_buffer(self) -> bool:
        """Fill the protocol's buffer once; return whether there may be more."""
        buffer = self._protocol.get_buffer(-1)
        count = self._read(buffer)
        is_full = count == len(buffer)
        if count:
            self._protocol.buffer_updated(count)
        return is_full

    def _decrypt_data(self) -> bool:
        """Pass bytes to the protocol once; return whether there may be more."""
        buffer = receive_buffer()
        count = self._read(buffer)
        if count:
            self._protocol.data_received(bytes(buffer[:count]))
        return count == RECEIVE_BUFFER_BYTES

    def _read(self, buffer: memoryview) -> int:
        """Decrypt into *buffer*, and return the number of bytes."""
        filled = 0
        while filled < len(buffer):
            if (
                not self._incoming.pending
                and not self._tls.pending()
                and not self._feed()
            ):
                break
            try:
                count = self._tls.read(len(buffer) - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if self._feed():
                    continue
                break
            if not count:
                # The peer has ended TLS in good order.
                self._loop.call_soon(self.close)
                break
            assert isinstance(count, int)
            filled += count
        return filled

    def _feed(self) -> bool:
        """
        Give OpenSSL a part of what was received; return whether there was any.

        It is a part, because OpenSSL keeps as much memory as it had to hold at a time.
        """
        part = self._received[:DECRYPTED_BYTES_AT_ONCE]
        self._received = self._received[DECRYPTED_BYTES_AT_ONCE:]
        self._incoming.write(part)
        return bool(part)

    def _send_outgoing(self) -> None:
        data = self._outgoing.read()
        if data:
            self._transport.write(data)


_NOTHING = memoryview(b"")

_of_thread = threading.local()


def receive_buffer() -> memoryview:
    """
    Return the buffer that all connections of the thread's event loop share.

    A loop calls ``buffer_updated`` before any other connection gets the buffer, and
    that copies the bytes or passes them on.
    """
    return _buffer_of_thread("plain")


def _buffer_of_thread(name: str) -> memoryview:
    if not hasattr(_of_thread, name):
        setattr(_of_thread, name, memoryview(bytearray(RECEIVE_BUFFER_BYTES)))
    buffer: memoryview = getattr(_of_thread, name)
    return buffer


def _may_be_tls(beginning: memoryview) -> bool:
    """Return whether *beginning*, which may be short, is that of a record of TLS."""
    # The minor version is at most 4, which no frame of other protocols has here.
    return beginning[0] in _CONTENT_TYPES and (
        len(beginning) < 3 or (beginning[1] == _VERSION_MAJOR and beginning[2] <= 4)
    )
