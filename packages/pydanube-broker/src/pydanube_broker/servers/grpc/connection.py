"""
Connections of the gRPC server: the I/O around ``wire.grpc.connection``, and calls.

A call runs as a task, unless its method can be answered without one (``CallNowait``).

Everything runs on the broker's event loop.  All requests of one read are handled at
once, and all answers of one turn are sent in one write, so many calls at a time cost
little more than one.

A connection may do ``WORK_PER_TURN`` in each turn of the loop.  After that, the server
stops reading from it and continues in the next turn, after the other connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from pydanube.model.errors import BrokerError
from pydanube.security.credentials import credential_of
from pydanube.security.principals import Principal
from pydanube.wire.turn_budget import TurnBudget
from pydanube_broker.broker.serving.open_connections import ConnectionFacts
from pydanube_broker.dispatch.quota_meter import QuotaMeter
from pydanube_broker.operations.authorization import (
    AllowedTopics,
    Caller,
    authorized,
    is_checked,
)
from pydanube_broker.operations.quota_holds import wait_for_quota
from pydanube_broker.servers.connections.authentication import (
    NOBODY,
    ClientIdentity,
    certificate_of,
)
from pydanube_broker.servers.connections.errors import grpc_status_of
from pydanube_broker.servers.connections.quota_uses import QuotaUses
from pydanube_broker.servers.grpc.call_rules import Charge
from pydanube_broker.servers.grpc.calls import CallContext, PendingCall, RequestStream
from pydanube_broker.servers.grpc.grpc_server import GrpcServer
from pydanube_broker.servers.grpc.services import Method
from pydanube_broker.wire.grpc.connection import (
    CallCancelled,
    CallStarted,
    GrpcConnection,
    HalfClosed,
    MessageReceived,
    WriteCompleted,
)
from pydanube_broker.wire.grpc.http2_frames import ErrorCode, Http2Error
from pydanube_broker.wire.grpc.status import StatusCode

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 1024 * 1024
"""A connection is not read while this number of bytes waits to be sent."""
STRANGER_BYTES_MAX = 64 * 1024
"""The most bytes of requests, and of unsent answers, of a connection that has not yet
proved an identity."""
PEER_CLIENT = "another broker or process"
"""The client of a connection of another broker or process, in lists."""
STRANGER_CALLS_MAX = 16
"""The most calls of such a connection at a time."""
WORK_PER_TURN = 128
"""The units of work, as counted by ``Http2Connection``, that one connection may cause
in one turn of the loop: about 60 calls."""
CLOSE_S = 1.0
"""The time that a peer that violated the protocol has to read the error."""
PING_ANSWER_DELAY_S = 0.05
"""The time that an answer to a PING waits for other data to be sent with it.  Some
clients send a PING with every call."""
TIMEOUT_S_MAX = 24 * 3600.0
"""Longer timeouts of callers count as no timeout."""


class GrpcProtocol(asyncio.Protocol):
    """One connection of a gRPC server."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._is_stranger = server.authenticator.is_enabled
        """Whether credentials are needed, and no call has had valid ones yet."""
        self._grpc = GrpcConnection(server.message_bytes_max, server.public)
        self._transport: asyncio.Transport
        self._peer = "?"
        self._address = "?"
        # The identity of the caller, for each running call with a task.
        self._identities: dict[int, ClientIdentity] = {}
        self._allowed = AllowedTopics()
        self._quota_uses = QuotaUses()
        self.calls: dict[int, asyncio.Task[None]] = {}
        """The tasks of running calls, by call."""
        # Running calls without a task, and the timers of their deadlines.
        self._answering: dict[int, asyncio.TimerHandle | None] = {}
        self._answered = asyncio.Event()
        # Calls whose request has not arrived yet.
        self._pending: dict[int, PendingCall] = {}
        self._requests: dict[int, RequestStream] = {}
        self._writers: dict[int, asyncio.Event] = {}
        self._is_flushing = False
        self._turn = TurnBudget(WORK_PER_TURN)
        self._is_reading = True
        self._is_broken = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._keepalive: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        """The received bytes of unanswered requests, as counted by the server."""
        # Set while the answer to a PING waits for other data.
        self._ping_timer: asyncio.TimerHandle | None = None
        self._pinged_at = 0.0
        self._was_silent = False
        self._has_received = True
        # Its number among the connections of the broker.
        self._number = 0
        # Whether another broker of the cluster, or another process, has shown its key.
        self._is_peer = False
        # Whether the keepalive timer has fired before.
        self._is_old = False
        # The bytes written to the transport, and those that it had sent when the
        # keepalive timer last fired.
        self._written_bytes = 0
        self._sent_bytes = 0

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(
            high=STRANGER_BYTES_MAX if self._is_stranger else WRITE_BUFFER_BYTES
        )
        host, port = transport.get_extra_info("peername", ("in process", 0))[:2]
        self._peer, self._address = f"{host}:{port}", str(host)
        is_admitted = self._server.counts.admit()
        # It may have been accepted just before the server was closed.
        if self._server.is_closed or not is_admitted:
            self._is_broken = True
            self._transport.abort()
            return
        log.debug("%s has connected", self._peer)
        self._server.connections[self] = None
        if self._server.broker is not None:
            self._number = self._server.broker.connections.add(self)
        self._start_keepalive()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._has_received = True
        self._process(data)

    def _process(self, data: bytes) -> None:
        """Handle received data within the budget for this turn."""
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
            # A match statement would take several times as long.
            if type(event) is CallStarted:
                self._begin(event)
            elif type(event) is MessageReceived:
                self._take(event)
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
            # Usually an answer to a call follows at once and is sent with it.
            self._pinged_at = self._loop.time()
            if self._ping_timer is None:
                self._time_ping_answer(PING_ANSWER_DELAY_S)
        else:
            self.flush_soon()

    def _time_ping_answer(self, delay_s: float) -> None:
        self._ping_timer = self._loop.call_later(delay_s, self._send_ping_answer)

    def _send_ping_answer(self) -> None:
        self._ping_timer = None
        if self._grpc.http2.has_only_ping_ack:
            # It may be the answer to a later PING than the timer was set for.
            left_s = self._pinged_at + PING_ANSWER_DELAY_S - self._loop.time()
            if left_s > 0:
                self._time_ping_answer(left_s)
            else:
                self.flush_soon()

    def _process_rest(self) -> None:
        """Continue with data that was received in an earlier turn."""
        if self._grpc.http2.has_backlog and self._can_write.is_set():
            self._process(b"")

    def _update_reading(self) -> None:
        """Read from the client only while it can be served at once."""
        is_reading = self._can_write.is_set() and not self._grpc.http2.has_backlog
        if is_reading != self._is_reading and not self._transport.is_closing():
            self._is_reading = is_reading
            if is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._can_write.clear()
        # A client that does not read its answers may not send more requests.
        self._update_reading()

    def resume_writing(self) -> None:
        self._can_write.set()
        self._update_reading()
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        log.debug("the connection of %s is closed: %s", self._peer, exc or "regularly")
        self._server.connections.pop(self, None)
        self._server.counts.lose()
        if self._server.broker is not None:
            self._server.broker.connections.remove(self._number)
        self._quota_uses.leave()
        self._is_broken = True
        self._cancel_keepalive()
        self._can_write.set()
        self._drop_calls()
        if self._ping_timer is not None:
            self._ping_timer.cancel()

    @property
    def is_answering(self) -> bool:
        """True while calls without tasks are running."""
        return bool(self._answering)

    async def all_answered(self) -> None:
        """Wait until no call without a task is running."""
        while self._answering:
            self._answered.clear()
            await self._answered.wait()

    # What administrators see and do.

    def facts(self, may_see: object) -> ConnectionFacts:
        """Return facts; each call has a principal of its own."""
        return ConnectionFacts(
            listener=self._server.counts.listener,
            address=self._peer,
            client=PEER_CLIENT if self._is_peer else "",
            principal="",
        )

    def end(self, reason: str) -> None:
        log.info("closing the connection of %s: %s", self._peer, reason)
        self.go_away()
        self.close()

    # Closing.

    def go_away(self) -> None:
        """Accept no more calls."""
        self._grpc.http2.go_away()
        self.flush_soon()

    def refuse(self, reason: str) -> None:
        """Close the connection because the peer misbehaves, and send *reason*."""
        self._grpc.http2.go_away(ErrorCode.ENHANCE_YOUR_CALM, reason)
        self._drop_calls()
        self._grpc.forget_calls()
        self._break(reason)

    def _break(self, reason: str) -> None:
        log.info("closing the connection of %s: %s", self._peer, reason)
        self._server.counts.abusive_total += 1
        self._is_broken = True
        self._release_held()
        self._flush()
        self._transport.close()
        # The peer may not read the reason.
        self._cancel_keepalive()
        self._keepalive = self._loop.call_later(CLOSE_S, self._transport.abort)

    def _drop_calls(self) -> None:
        for task in self.calls.values():
            task.cancel()
        for number in list(self._answering):
            self._end_answering(number)
        self._pending.clear()
        self._release_held()

    def _release_held(self) -> None:
        self._server.count_held(-self.held_bytes)
        self.held_bytes = 0

    def close(self) -> None:
        """Cancel all calls and close the connection."""
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
            return
        try:
            identity = self._identity_of(event, method)
            meter = self._meter_of(method, identity, event)
        except BrokerError as error:
            # Before the request arrives, which therefore takes no memory.
            self._grpc.finish(number, *method.service.refusal(error))
            return
        if self._is_stranger and self._grpc.http2.stream_count > STRANGER_CALLS_MAX:
            self._grpc.finish(
                *(number, StatusCode.RESOURCE_EXHAUSTED),
                f"more than {STRANGER_CALLS_MAX} calls at a time need credentials",
            )
            return
        call, message = PendingCall(method, event, identity, meter), event.message
        if method.streams_requests:
            requests = self._requests[number] = RequestStream(self, number, method)
            self._run(number, call, requests)
            if message is not None:
                requests.add(message)
                requests.end()
        elif message is None:
            self._pending[number] = call
        else:
            self._run(number, call, message)

    def _identity_of(self, started: CallStarted, method: Method) -> ClientIdentity:
        """
        Return the identity of the caller.

        Raises:
            Unauthenticated: The credentials are missing or not valid.
            QuotaExceeded: Too many attempts from its address have failed.
            Unavailable: The credentials cannot be verified at the moment.
        """
        authenticator = self._server.authenticator
        if method.service.check_caller is not None:
            method.service.check_caller(credential_of(started.credentials))
            self._is_peer = True
            self._become_known()
            return NOBODY
        if not authenticator.is_enabled or method.service.is_public:
            return NOBODY
        credential = credential_of(started.credentials)
        # The certificate of a broker that forwards a call is not the caller's.
        is_callers = not credential and not started.is_forwarded
        certificate = certificate_of(self._transport) if is_callers else None
        identity = authenticator.authenticate(
            *(credential, self._address, certificate),
            listener=self._server.counts.listener,
        )
        self._become_known()
        return identity

    def _become_known(self) -> None:
        """Note that a call of this connection has had valid credentials."""
        if self._is_stranger:
            self._is_stranger = False
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def _meter_of(
        self, method: Method, identity: ClientIdentity, started: CallStarted
    ) -> QuotaMeter | None:
        """
        Return the meter of the caller's quota; None: the call needs none.

        Raises:
            QuotaExceeded: The caller has as many connections as allowed.
        """
        broker = self._server.broker
        if broker is None or method.rule is None or method.service.is_public:
            return None
        if self._is_charged(started):
            # The client has no connection to this process.
            self._is_peer = True
            return broker.quotas.of_principal(identity.principal)
        return self._quota_uses.admit(broker.quotas, identity.principal)

    def _is_charged(self, started: CallStarted) -> bool:
        """Return whether another process of the broker has charged a call."""
        if started.forwarded is None:
            return False
        broker = self._server.broker
        return broker is not None and broker.quotas.shared.is_proof(started.forwarded)

    def _hold_of(
        self, call: PendingCall, data: bytes | RequestStream
    ) -> Coroutine[Any, Any, None] | None:
        """Charge a call, and return for how long it has to wait; None: not at all."""
        meter, rule = call.meter, call.method.rule
        if meter is None or rule is None:
            return None
        has_limits = meter.bytes_in is not None or meter.requests is not None
        if not has_limits or self._is_charged(call.started):
            return None
        delay_s, due = 0.0, meter.delay_request_s
        if rule.charge is Charge.PUBLISHED:
            if meter.bytes_in is not None and isinstance(data, bytes):
                delay_s, due = (
                    meter.take_in(len(data), self._loop.time()),
                    meter.delay_in_s,
                )
        elif rule.charge is Charge.REQUEST and meter.requests is not None:
            delay_s = meter.take_request(self._loop.time())
        return wait_for_quota(delay_s, due) if delay_s > 0 else None

    def end_invalid_calls(self) -> None:
        """End the running calls whose credentials have expired or were revoked."""
        authenticator = self._server.authenticator
        for number, identity in list(self._identities.items()):
            if not authenticator.is_valid(identity):
                error = authenticator.why_invalid(identity)
                self._grpc.finish(number, grpc_status_of(error), str(error))
                self._cancel(number)
                self.flush_soon()

    def _take(self, event: MessageReceived) -> None:
        number = event.call
        if (pending := self._pending.get(number)) is not None:
            pending.message = event.data
            pending.message_count += 1
        elif (requests := self._requests.get(number)) is not None:
            requests.add(event.data)
        if event.is_last:
            self._finish(number)

    def _finish(self, number: int) -> None:
        pending = self._pending.pop(number, None)
        if pending is None:
            if (requests := self._requests.get(number)) is not None:
                requests.end()
            return
        if pending.message_count != 1:
            self._grpc.finish(
                *(number, StatusCode.INVALID_ARGUMENT),
                f"{pending.message_count} requests where there must be one",
            )
            return
        self._run(number, pending, pending.message)

    def _cancel(self, number: int) -> None:
        self._pending.pop(number, None)
        self._end_answering(number)
        if task := self.calls.get(number):
            task.cancel()
            # A task that has not started yet would not remove the call.
            self._forget(number)

    def _caller(self, method: Method, principal: Principal) -> Caller | None:
        """Return *principal* as the one that calls; None: it may call everything."""
        broker = self._server.broker
        if broker is None or method.rule is None or not is_checked(broker):
            return None
        listener = self._server.counts.listener
        return Caller(broker, principal, self._peer, listener)

    def _answer_nowait(
        self,
        number: int,
        method: Method,
        data: bytes,
        principal: Principal,
        timeout_s: float | None,
    ) -> bool:
        """Start a call without a task if possible, and return whether it started."""
        self._answering[number] = (
            None
            if timeout_s is None
            else self._loop.call_later(
                timeout_s, self._on_timeout, number, method, timeout_s
            )
        )
        on_answer = partial(self._on_answer, number, method, self._loop.time())
        try:
            request = method.request_of(data)
            caller, rule = self._caller(method, principal), method.rule
            if caller is not None and rule is not None:
                self._allowed.check(caller, rule.kind, rule.topic_of(request))
            assert method.call_nowait is not None
            if method.call_nowait(request, on_answer):
                return True
        except Exception as error:  # noqa: BLE001  # The caller gets it.
            on_answer(error)
            return True
        self._end_answering(number)
        return False

    def _on_timeout(self, number: int, method: Method, timeout_s: float) -> None:
        """End a call that was not answered in the time that its caller gave."""
        self._end_answering(number)
        self._grpc.finish(
            number,
            StatusCode.DEADLINE_EXCEEDED,
            f"not answered within {timeout_s:g} s",
        )
        method.service.errors["deadline_exceeded"] += 1
        self.flush_soon()

    def _on_answer(
        self, number: int, method: Method, begun_at: float, answer: Any
    ) -> None:
        if number not in self._answering:
            # The client cancelled the call, or the connection was lost.
            return
        if isinstance(answer, Exception):
            self._grpc.finish(number, *method.service.refusal(answer))
        else:
            self._grpc.answer(number, answer.SerializeToString())
        method.seconds.observe(self._loop.time() - begun_at)
        self._end_answering(number)
        self.flush_soon()

    def _end_answering(self, number: int) -> None:
        timer = self._answering.pop(number, None)
        if timer is not None:
            timer.cancel()
        if not self._answering:
            self._answered.set()

    def _run(self, number: int, call: PendingCall, data: bytes | RequestStream) -> None:
        method, started, identity = call.method, call.started, call.identity
        authenticator = self._server.authenticator
        if identity is not NOBODY and not authenticator.is_valid(identity):
            # The request has taken long to arrive.
            error = authenticator.why_invalid(identity)
            self._grpc.finish(number, *method.service.refusal(error))
            self._forget(number)
            return
        hold = self._hold_of(call, data)
        timeout_s = started.timeout_s
        if timeout_s is not None and timeout_s >= TIMEOUT_S_MAX:
            timeout_s = None
        if (
            method.call_nowait is not None
            and hold is None
            and not started.broker_url
            and isinstance(data, bytes)
            and self._answer_nowait(number, method, data, identity.principal, timeout_s)
        ):
            return
        context = CallContext(
            *(self, number, self._peer), address=self._address, identity=identity
        )
        if identity is not NOBODY:
            self._identities[number] = identity
        work = self._answer(number, method, started, data, context, hold=hold)
        if timeout_s is not None:
            work = self._answer_in_time(number, method, timeout_s, work)
        self.calls[number] = self._server.run(work)

    async def _answer(
        self,
        number: int,
        method: Method,
        started: CallStarted,
        data: bytes | RequestStream,
        context: CallContext,
        *,
        hold: Coroutine[Any, Any, None] | None,
    ) -> None:
        begun_at = self._loop.time()
        try:
            if hold is not None:
                await hold
            request = (
                data if isinstance(data, RequestStream) else method.request_of(data)
            )
            here = partial(self._call, method, request, context)
            forwarding = self._server.forwarding
            answer = (
                await here()
                if forwarding is None or isinstance(data, RequestStream)
                else await forwarding.answer(method, started, request, context, here)
            )
            if method.streams_answers:
                self._grpc.finish(number, StatusCode.OK)
            else:
                if answer is None:
                    answer = method.success
                if not isinstance(answer, bytes):
                    answer = answer.SerializeToString()
                self._grpc.answer(number, answer)
        except Exception as error:  # noqa: BLE001  # The caller gets it.
            self._grpc.finish(number, *method.service.refusal(error))
        finally:
            if method.is_unary:
                method.seconds.observe(self._loop.time() - begun_at)
            self._forget(number)
            self.flush_soon()

    async def _call(self, method: Method, request: Any, context: CallContext) -> Any:
        arguments = (request, context) if method.takes_context else (request,)
        caller, rule = self._caller(method, context.principal), method.rule
        if caller is None or rule is None:
            return await method.call(*arguments)
        named = rule.native_request(request)
        async with authorized(caller, rule.kind, named, request, rule.targets):
            return await method.call(*arguments)

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
            self._on_timeout(number, method, timeout_s)

    def _forget(self, number: int) -> None:
        self.calls.pop(number, None)
        self._requests.pop(number, None)
        self._writers.pop(number, None)
        self._identities.pop(number, None)

    # Writing.

    def begin(self, number: int) -> None:
        self._grpc.begin(number)
        self.flush_soon()

    async def write(self, number: int, messages: Sequence[bytes]) -> None:
        """Send messages of a streamed answer."""
        if not self._grpc.write(number, messages):
            self.flush_soon()
            writer = self._writers.setdefault(number, asyncio.Event())
            writer.clear()
            await writer.wait()
        self.flush_soon()
        if not self._can_write.is_set():
            await self._can_write.wait()

    def consumed(self, number: int, message: bytes) -> None:
        """Give back the flow-control window for one request of a stream."""
        self._grpc.consumed(number, message)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send the output at the end of this turn of the loop."""
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
            if self._is_stranger and self.held_bytes > STRANGER_BYTES_MAX:
                self.refuse(
                    f"requests of more than {STRANGER_BYTES_MAX} bytes need credentials"
                )
        self._turn.refill()
        if http2.has_backlog:
            self._loop.call_soon(self._process_rest)

    # Keepalive.

    def _start_keepalive(self) -> None:
        self._keepalive = self._loop.call_later(
            self._server.keepalive_s, self.on_keepalive
        )

    def _cancel_keepalive(self) -> None:
        if self._keepalive is not None:
            self._keepalive.cancel()
            self._keepalive = None

    def on_keepalive(self) -> None:
        http2 = self._grpc.http2
        http2.allowance.refill()
        sent_bytes = self._written_bytes - self._transport.get_write_buffer_size()
        if not http2.has_preface or (self._is_old and not http2.has_settings_ack):
            log.info("the client %s did not complete the handshake", self._peer)
            self._server.counts.silent_total += 1
            self._transport.abort()
            return
        self._is_old = True
        # While the connection is not read, the client is alive if it reads.
        is_blocked = not self._can_write.is_set()
        if self._has_received or (is_blocked and sent_bytes > self._sent_bytes):
            self._was_silent = False
        elif self._was_silent:
            log.info("the client %s does not answer PING", self._peer)
            self._server.counts.silent_total += 1
            self._transport.abort()
            return
        else:
            self._was_silent = True
            http2.ping()
            self.flush_soon()
        self._has_received = False
        self._sent_bytes = sent_bytes
        self._start_keepalive()
