"""
One connection of the HTTP server: uvicorn's, with limits for time, size and work.

uvicorn limits the idle time between requests.  This class also limits the time for a
request, from the first byte to the end of the response, and the number of bytes that
are parsed in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pydanube.aio.tls_connection import receive_buffer
from pydanube.model.connections import CLIENT_CHARACTERS_MAX
from pydanube.model.errors import InvalidRequest
from pydanube.model.shown_text import printable
from pydanube.security.addresses import host_in_url
from pydanube_broker.broker.serving.open_connections import (
    ConnectionFacts,
    OpenConnections,
)
from pydanube_broker.servers.connections.authentication import certificate_of
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.quota_uses import QuotaUses
from pydanube_broker.servers.http.authentication import CERTIFICATE
from pydanube_broker.servers.http.disconnects import READING_REQUEST, ReadingRequest
from pydanube_broker.servers.http.quotas import QUOTA_USES
from pydanube_broker.servers.http.responses import error_body

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
"""A connection that completes no request in this time is closed."""
METHOD_BYTES_MIN = 4
"""A request begins with at least this many bytes of text: a method and a space."""
END_S = 5.0
"""The time that a running request has when an administrator closes its connection."""
KEEP_ALIVE_S = 5
"""A connection is closed when it is idle for this time after an answer."""
HEAD_BYTES_MAX = 32 * 1024
"""The longest request line with headers."""
READ_BYTES_MAX = 32 * 1024
"""The most bytes that are received at a time, and that wait to be parsed."""
PARSED_BYTES_PER_TURN = 4 * 1024
"""The number of bytes of one connection that are parsed in one turn of the loop.  A
request in chunks of one byte takes about 3 µs for each byte."""


class HttpConnection(H11Protocol, asyncio.BufferedProtocol):
    """
    One connection of the HTTP server.

    Bounds: ``READ_BYTES_MAX`` received bytes wait to be parsed.
    """

    def __init__(
        self,
        counts: ConnectionCounts,
        find_connections: Callable[[], OpenConnections | None],
        **options: Any,
    ) -> None:
        """*find_connections* returns where it is listed; None: the broker starts."""
        super().__init__(**options)
        self._counts = counts
        self._connections = find_connections()
        # Its number in there.
        self._number = 0
        self._is_lost = False
        self._quota_uses = QuotaUses()
        self._reading = ReadingRequest()
        # Received bytes that are not parsed yet.
        self._received = bytearray()
        self._is_scheduled = False
        self._answers = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.BaseProtocol."""
        super().connection_made(transport)
        # Each request gets a copy of the dictionary.
        self.app_state = {
            **self.app_state,
            QUOTA_USES: self._quota_uses,
            READING_REQUEST: self._reading,
        }
        certificate = certificate_of(transport)
        if certificate:
            self.app_state[CERTIFICATE] = certificate
        if not self._counts.admit():
            transport.abort()
            return
        self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self.expect_answer)
        if self._connections is not None:
            self._number = self._connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol; a loop without it would read 256 KiB."""
        return receive_buffer()[:READ_BYTES_MAX]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.data_received(bytes(receive_buffer()[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.conn.their_state is h11.IDLE and b"\0" in data[:METHOD_BYTES_MIN]:
            # A frame of the native protocol: its client shall not wait in vain for an
            # answer, because h11 gives none before the first line ends.
            self.send_400_response("")
            return
        if not self._received and len(data) <= PARSED_BYTES_PER_TURN:
            super().data_received(data)
            return
        self._received += data
        self.transport.pause_reading()
        self._schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_lost = True
        self._counts.lose()
        if self._connections is not None:
            self._connections.remove(self._number)
        self._quota_uses.leave()
        self._reading.lose()
        self._received.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    # What administrators see and do.

    def facts(self, may_see: object) -> ConnectionFacts:
        """Return facts; each request has a principal of its own."""
        host, port = self.client or ("?", 0)
        return ConnectionFacts(
            listener=self._counts.listener,
            address=f"{host_in_url(host)}:{port}",
            client=self._user_agent(),
            principal="",
        )

    def end(self, reason: str) -> None:
        """Close it after the answer to a running request, which gets a little time."""
        log.info("closing the connection of %s: %s", self.client, reason)
        self.shutdown()
        self.loop.call_later(END_S, self.transport.close)

    def _user_agent(self) -> str:
        # uvicorn's type does not say that there is none before the first request.
        scope: Any = self.scope
        headers = () if scope is None else scope["headers"]
        found = (value for name, value in headers if name == b"user-agent")
        text = next(found, b"")[:CLIENT_CHARACTERS_MAX]
        return printable(text.decode("latin-1"))

    def on_response_complete(self) -> None:
        """See H11Protocol."""
        self._answers += 1
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with an error in JSON, and close the connection."""
        self._counts.abusive_total += 1
        body = error_body(InvalidRequest("the request is not valid HTTP/1.1"))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        # If a response has already begun, the connection just ends.
        with suppress(h11.LocalProtocolError):
            events = (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def expect_answer(self) -> None:
        """Close the connection if no request was answered since the last time."""
        if self._answers:
            self._answers = 0
            self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self.expect_answer)
            return
        self._counts.silent_total += 1
        self.transport.abort()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._parse_more)

    def _parse_more(self) -> None:
        self._is_scheduled = False
        if self._is_lost or self.transport.is_closing():
            return
        part = bytes(self._received[:PARSED_BYTES_PER_TURN])
        del self._received[:PARSED_BYTES_PER_TURN]
        super().data_received(part)
        if self._received:
            self._schedule()
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()
