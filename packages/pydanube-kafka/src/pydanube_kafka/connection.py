"""One connection of a Kafka client: its requests and their answers, in order."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from pydanube.aio.tls_connection import receive_buffer
from pydanube.model.errors import BrokerError
from pydanube.security.scram import ScramChallenge
from pydanube_broker.broker.serving.open_connections import ConnectionFacts
from pydanube_broker.dispatch.quota_meter import UNLIMITED
from pydanube_broker.operations.authorization import AllowedTopics, Caller
from pydanube_broker.operations.quota_holds import wait_for_quota
from pydanube_broker.servers.connections.authentication import (
    NOBODY,
    ClientIdentity,
    certificate_of,
)
from pydanube_broker.servers.connections.connections import enable_keepalive
from pydanube_broker.servers.connections.listeners import accepting
from pydanube_broker.servers.settings.addresses import address_of, peer_text
from pydanube_broker.servers.settings.tls import ServerTls, over_tls
from pydanube_kafka.calls import NO_ANSWER, Call
from pydanube_kafka.pure.fetch_sessions import FetchSession
from pydanube_kafka.pure.unstored_batches import UnstoredBatches
from pydanube_kafka.server import KafkaServer
from pydanube_kafka.session_topics import SessionTopics
from pydanube_kafka.wire.apis import (
    Api,
    BadRequest,
    Request,
    is_long,
    parse_request,
)

log = logging.getLogger(__name__)

ANSWERS_MAX = 32
"""The most requests of a connection that wait for their answers."""
UNAUTHENTICATED_BYTES_MAX = 64 * 1024
"""The longest request of a client that has not proved who it is."""
HANDSHAKE_TIMEOUT_S = 30.0
WRITE_BUFFER_BYTES = 256 * 1024
_LENGTH = struct.Struct(">i")
_LISTENER = "kafka"

SMALL_REQUEST_BYTES_MAX = 1024 * 1024
"""The longest request without records: it bounds the work that it can name."""
_LONG = frozenset({Api.PRODUCE, Api.SYNC_GROUP})

BEFORE_AUTHENTICATION = frozenset(
    {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
)


class KafkaConnection(asyncio.BufferedProtocol):
    """
    One connection.

    Ordering: Requests begin in their order, and are answered in it.

    Bounds: One request that is received, and ``ANSWERS_MAX`` that are not answered.
    """

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.identity: ClientIdentity = NOBODY
        self.is_authenticated = not server.parts.authenticator.is_enabled
        self.mechanism = ""
        """The mechanism of SASL that the client has chosen."""
        self.scram: ScramChallenge | None = None
        """The challenge of SCRAM that the client has to answer."""
        self.fetch_session: FetchSession | None = None
        """The session in which the client fetches, if it has one."""
        self.session_topics: SessionTopics | None = None
        """The topics of its partitions."""
        self.unstored = UnstoredBatches()
        """Batches of its idempotent producers that were refused, or are not stored."""
        self.allowed = AllowedTopics()
        self.meter = UNLIMITED
        self.peer, self.address = "?", ""
        self.local_host = ""
        """The address to which the client has connected."""
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._has_frames = asyncio.Event()
        self._answers: asyncio.Queue[tuple[Request, Awaitable[Any]]] = asyncio.Queue(
            ANSWERS_MAX
        )
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_lost = False
        # Its number among the connections of the broker, and the client's own name.
        self._number = 0
        self._client_id = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    @property
    def caller(self) -> Caller:
        """The client as the one that makes requests."""
        return Caller(self.server.broker, self.identity.principal, self.peer, _LISTENER)

    def begin_fetch_session(self, session: FetchSession) -> None:
        """Let the client fetch in *session*."""
        self.fetch_session = session
        self.session_topics = SessionTopics(self.server.broker)

    def end_fetch_session(self) -> None:
        """End the session in which the client fetches, if it has one."""
        if self.session_topics is not None:
            self.session_topics.close()
        self.fetch_session = self.session_topics = None

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peername = transport.get_extra_info("peername")
        self.peer, self.address = peer_text(peername), address_of(peername)
        self.local_host = address_of(transport.get_extra_info("sockname"))
        connection = transport.get_extra_info("socket")
        if connection is not None:
            enable_keepalive(connection, self.server.parts.idle_timeout_s)
        if not self.server.on_connected(self):
            self._transport.abort()
            return
        if not self.is_authenticated:
            self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.abort)
        run = self.server.tasks.run
        self._tasks = [run(self._handle_requests()), run(self._send_answers())]

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        received = self._received
        received += receive_buffer()[:nbytes]
        at = 0
        while len(received) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, at)
            if not 0 <= length <= self._request_bytes_max:
                self.server.parts.counts.abusive_total += 1
                log.warning("%s sent a request of %d bytes", self.peer, length)
                self.abort()
                return
            end = at + _LENGTH.size + length
            if len(received) < end:
                break
            self._frames.append(bytes(received[at + _LENGTH.size : end]))
            at = end
        if at:
            del received[:at]
            self._has_frames.set()
            # One at a time: what follows waits in the socket.
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_lost = True
        self._stop_timer()
        self._leave_quota()
        for task in self._tasks:
            task.cancel()
        self.end_fetch_session()
        self.server.broker.connections.remove(self._number)
        self.server.on_lost(self)

    # What the server and the handlers ask for.

    def authenticate(self, credential: str) -> None:
        """
        Take the identity that *credential* proves.

        Raises:
            Unauthenticated, QuotaExceeded, Unavailable: It proves none.
        """
        self._accept(
            self.server.parts.authenticator.authenticate(
                credential,
                self.address,
                certificate_of(self._transport),
                listener=_LISTENER,
            )
        )

    def authenticate_scram(self, challenge: ScramChallenge, message: bytes) -> bytes:
        """
        Take the identity that the last *message* of SCRAM proves; return the answer.

        Raises: As ``authenticate``.
        """
        identity, answer = self.server.parts.authenticator.authenticate_scram(
            challenge, message, self.address, listener=_LISTENER
        )
        self._accept(identity)
        return answer

    def _accept(self, identity: ClientIdentity) -> None:
        self._meet_quota(identity)
        self.identity = identity
        self.is_authenticated = True
        self._stop_timer()

    def check_identity(self) -> None:
        """Close the connection if the client's credentials are void by now."""
        if self.is_authenticated and not self.server.parts.authenticator.is_valid(
            self.identity
        ):
            self.abort()

    def facts(self, may_see: object) -> ConnectionFacts:
        """Describe it for administrators."""
        return ConnectionFacts(
            listener=_LISTENER,
            address=self.peer,
            client=self._client_id,
            principal=self.identity.principal.name,
        )

    def end(self, reason: str) -> None:
        """Close it for an administrator; the protocol has no word for the reason."""
        log.info("closing the connection of %s: %s", self.peer, reason)
        self.abort()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    # Requests.

    async def _handle_requests(self) -> None:
        try:
            if self.is_authenticated:
                self._meet_quota(self.identity)
            while True:
                await self._has_frames.wait()
                while self._frames:
                    await self._begin(self._frames.popleft())
                self._has_frames.clear()
                if not self._transport.is_closing():
                    self._transport.resume_reading()
        except (BadRequest, BrokerError) as error:
            self.server.parts.counts.abusive_total += 1
            log.warning("closing the connection of %s: %s", self.peer, error)
            self.abort()
        except Exception:
            log.exception("closing the connection of %s after a failure", self.peer)
            self.abort()

    async def _begin(self, frame: bytes) -> None:
        request = parse_request(frame)
        if len(frame) > SMALL_REQUEST_BYTES_MAX and request.api not in _LONG:
            raise BadRequest(
                f"a request of {request.api.name} has {len(frame)} bytes; "
                f"{SMALL_REQUEST_BYTES_MAX} are allowed"
            )
        if not self.is_authenticated and request.api not in BEFORE_AUTHENTICATION:
            # A certificate may be all that the client has.
            self.authenticate("")
        if not self._number and self.is_authenticated and not self._is_lost:
            self._client_id = request.client_id
            self._number = self.server.broker.connections.add(self)
        throttle_s = await self._pay_in(len(frame))
        handler = self.server.handlers[request.api]
        answer = await handler(Call(self.server, self, request, throttle_s))
        try:
            await self._answers.put((request, answer))
        except asyncio.CancelledError:
            _drop(answer)
            raise

    async def _send_answers(self) -> None:
        try:
            while True:
                request, waiting = await self._answers.get()
                answer = await waiting
                if self._is_lost or answer is NO_ANSWER:
                    continue
                encode, number = request.answers.encode, request.correlation_id
                # A thread gives way to the event loop every few milliseconds.
                data = (
                    await asyncio.to_thread(encode, answer, number)
                    if is_long(answer)
                    else encode(answer, number)
                )
                self._pay_out(len(data))
                self._transport.write(data)
                await self._can_write.wait()
        except Exception:
            log.exception("closing the connection of %s after a failure", self.peer)
            self.abort()
        finally:
            while not self._answers.empty():
                _drop(self._answers.get_nowait()[1])

    @property
    def _request_bytes_max(self) -> int:
        allowed = self.server.config.request_bytes_max
        if self.is_authenticated:
            return allowed
        return min(allowed, UNAUTHENTICATED_BYTES_MAX)

    # Quotas.

    def _meet_quota(self, identity: ClientIdentity) -> None:
        """Count the connection for *identity*, and for no other one any more."""
        meter = self.server.broker.quotas.of_principal(identity.principal)
        if meter is self.meter:
            return
        meter.connect()
        self._leave_quota()
        self.meter = meter

    def _leave_quota(self) -> None:
        if self.meter is not UNLIMITED:
            self.meter.disconnect()
            self.meter = UNLIMITED

    async def _pay_in(self, byte_count: int) -> float:
        """Wait as the quota of the client demands; return for how long."""
        meter, now = self.meter, self._loop.time()
        delay_s = 0.0
        if meter.bytes_in is not None:
            delay_s = meter.take_in(byte_count, now)
        if meter.requests is not None:
            delay_s = max(delay_s, meter.take_request(now))
        if meter.bytes_out is not None:
            delay_s = max(delay_s, meter.delay_out_s(now))
        if delay_s > 0:
            await wait_for_quota(delay_s, self._owed_s)
        return delay_s

    def _pay_out(self, byte_count: int) -> None:
        if self.meter.bytes_out is not None:
            self.meter.take_out(byte_count, self._loop.time())

    def _owed_s(self, now: float) -> float:
        return max(self.meter.delay_received_s(now), self.meter.delay_out_s(now))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _drop(answer: Awaitable[Any]) -> None:
    """Close the coroutine of *answer*: the client has disconnected."""
    if asyncio.iscoroutine(answer):
        answer.close()


@asynccontextmanager
async def listen_kafka(
    server: KafkaServer,
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
    factory = over_tls(partial(KafkaConnection, server), tls)
    name, flag = "Kafka clients", "--kafka-port"
    async with accepting(
        factory, host, port, name=name, flag=flag, own_port=own_port
    ) as bound:
        server.brokers.port = bound
        yield bound
