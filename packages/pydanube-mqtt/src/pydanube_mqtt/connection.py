"""One connection of the MQTT listener: the packets of its client."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from pydanube.model.errors import BrokerError, QuotaExceeded, Refused
from pydanube_broker.broker.serving.open_connections import ConnectionFacts
from pydanube_broker.operations.authorization import Caller
from pydanube_broker.servers.connections.authentication import NOBODY, certificate_of
from pydanube_broker.servers.connections.connections import enable_keepalive
from pydanube_broker.servers.connections.listeners import accepting
from pydanube_broker.servers.settings.tls import ServerTls, over_tls
from pydanube_mqtt.arrivals import Arrival, Introduction, open_arrivals
from pydanube_mqtt.clients import Client
from pydanube_mqtt.link import WRITE_BUFFER_BYTES, MqttLink
from pydanube_mqtt.peers.peer_serving import serving_peers
from pydanube_mqtt.pure.reasons import explained, reason_of
from pydanube_mqtt.pure.session import Delivery, Session
from pydanube_mqtt.pure.subscribers import Subscriber
from pydanube_mqtt.receiving import MessageReceiver
from pydanube_mqtt.server import MqttServer
from pydanube_mqtt.wire.encoding import encode, encode_ack
from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketError,
    PacketType,
    Ping,
    Properties,
    Property,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
CONNECT_BYTES_MAX = 256 * 1024
"""The longest packet of a client that has not connected yet; a will fits into it."""


class MqttConnection(MqttLink):
    """
    One connection.

    Bounds: Besides those of the link, the queue of the session.
    """

    __slots__ = (
        "_has_acks",
        "_introduction",
        "_last_received",
        "_number",
        "_receiver",
        "_room",
        "_task",
        "_timer",
        "_wants_reasons",
        "client",
        "identity",
        "keep_alive_s",
        "packet_bytes_max",
        "server",
        "subscriber",
        "will",
    )

    def __init__(
        self, server: MqttServer, introduction: Introduction | None = None
    ) -> None:
        """*introduction* is given if its first bytes were received before."""
        super().__init__(
            server.tasks, min(CONNECT_BYTES_MAX, server.config.packet_bytes_max)
        )
        self.server = server
        self.client: Client | None = None
        """The client, after CONNECT."""
        self.subscriber: Subscriber | None = None
        self.will: Will | None = None
        self.identity = NOBODY
        self.keep_alive_s = 0.0
        """The time after which a silent client is disconnected; 0: never."""
        self.packet_bytes_max = 0
        """The longest packet that the client accepts; 0: any."""
        self._introduction = introduction
        self._has_acks = False
        self._last_received = self._loop.time()
        # Its number among the connections of the broker.
        self._number = 0
        self._receiver: MessageReceiver | None = None
        self._wants_reasons = True
        self._room: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def caller(self) -> Caller:
        """The client as the one that makes requests."""
        principal = self.identity.principal
        return Caller(self.server.broker, principal, self.peer, "mqtt")

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            enable_keepalive(connection, self.server.parts.idle_timeout_s)
        if (introduction := self._introduction) is not None:
            self.peer, self.address = introduction.peer, introduction.address
        self._timer = self._loop.call_later(
            HANDSHAKE_TIMEOUT_S, self._on_handshake_timeout
        )
        if not self.server.on_connected(self):
            self._transport.abort()
        elif introduction is not None:
            self.receive(introduction.received)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        super().connection_lost(exc)
        self._stop_timer()
        self._detach()
        self.server.broker.connections.remove(self._number)
        self.server.on_lost(self)

    # What the server asks for.

    def sweep(self, now: float) -> None:
        """Close the connection if its client is silent or its credentials are void."""
        if self.client is None:
            return
        authenticator = self.server.parts.authenticator
        if not authenticator.is_valid(self.identity):
            self.close(
                Reason.NOT_AUTHORIZED, str(authenticator.why_invalid(self.identity))
            )
            return
        if self._has_received or self._pauses - {"turn", "writing"}:
            self._has_received = False
            self._last_received = now
        elif self.keep_alive_s and now - self._last_received > self.keep_alive_s:
            self.server.parts.counts.silent_total += 1
            self.close(
                Reason.KEEP_ALIVE_TIMEOUT,
                f"nothing came for {self.keep_alive_s:g} s, which is one and a half "
                "times the keep alive",
            )
            # A client that does not read would keep the connection open.
            self._transport.abort()

    def facts(self, may_see: object) -> ConnectionFacts:
        """Describe it for administrators."""
        return ConnectionFacts(
            listener="mqtt",
            address=self.peer,
            client="" if self.client is None else self.client.session.client_id,
            principal=self.identity.principal.name,
        )

    def end(self, reason: str) -> None:
        """Close it for an administrator."""
        self.close(Reason.ADMINISTRATIVE_ACTION, reason)

    def close(self, reason: Reason, text: str) -> None:
        """Tell the client the reason, as far as its version can, and disconnect it."""
        if self.is_lost:
            return
        log.info("closing the connection of %s: %s", self._name, text)
        if self.client is not None and self.version >= V5:
            properties = self._explained(text)
            self._send(Disconnect(reason=reason, properties=properties))
        self._detach()
        self._write_buffer.close()

    def on_session(
        self, client: Client, subscriber: Subscriber, answer: Connack
    ) -> None:
        """Answer CONNECT, and send again what the client has not acknowledged."""
        self.client, self.subscriber = client, subscriber
        self._number = self.server.broker.connections.add(self)
        self._reader.packet_bytes_max = self.server.config.packet_bytes_max
        self._send(answer)
        session, now_us = client.session, self.server.parts.wall_clock_us()
        for each in session.resume():
            if each.is_released:
                self.write(encode_ack(PacketType.PUBREL, each.packet_id, self.version))
            elif (encoded := self._encode(each, now_us, is_duplicate=True)) is None:
                session.discard(each)
            else:
                self.write(encoded)
        if session.behind:
            self.read_missed()
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send what waits in the session, as far as the client reads it."""
        client = self.client
        if client is None or self.subscriber is None:
            # Another connection may have the session.
            return
        if not self._can_write or self._is_lost or self._is_held:
            return
        parts: list[bytes] = []
        byte_count = 0
        session, now_us = client.session, self.server.parts.wall_clock_us()
        for delivery in session.take_due(now_us):
            encoded = self._encode(delivery, now_us)
            if encoded is None:
                session.discard(delivery)
                continue
            parts.append(encoded)
            byte_count += len(encoded)
            if byte_count >= WRITE_BUFFER_BYTES:
                break
        if parts:
            self.server.counts.sent += len(parts)
            self.write(b"".join(parts))
            self._charge_sent(byte_count)
            if byte_count >= WRITE_BUFFER_BYTES:
                self._loop.call_soon(self.send_waiting)
        if self._room is not None and session.is_half_empty:
            self._room.set()
        if "queue" in self._pauses and session.has_room:
            self.unpause("queue")

    def read_missed(self) -> None:
        """Begin to read the messages that the session has missed."""
        if self._task is None and not self._is_lost and self.subscriber is not None:
            self._room = asyncio.Event()
            self._task = self.server.tasks.run(self._read_missed(self.subscriber))

    async def _read_missed(self, subscriber: Subscriber) -> None:
        try:
            await self.server.read_missed(subscriber, self._wait_for_room)
        except Exception:
            log.exception("closing the connection of %s after a failure", self._name)
            self.abort()
        finally:
            self._task = None
            self._room = None

    async def _wait_for_room(self) -> None:
        assert self._room is not None
        self._room.clear()
        self.send_waiting()
        await self._room.wait()

    # Received packets.

    def _on_violation(self, error: PacketError) -> None:
        self.server.parts.counts.abusive_total += 1
        self.server.counts.refused[error.reason.name.lower()] += 1
        if self.client is None:
            if error.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
                # In the form that the oldest clients understand.
                self.write(b"\x20\2\0\1")
            log.info("closing the connection of %s: %s", self.peer, error)
            self._write_buffer.close()
            return
        self.close(error.reason, str(error))

    def _on_packet(self, packet: Packet) -> None:
        if self.client is None:
            if not isinstance(packet, Connect):
                raise PacketError(
                    Reason.PROTOCOL_ERROR, "the first packet is not CONNECT"
                )
            self._on_connect(packet)
            return
        match packet:
            case Publish():
                self._on_publish(packet, self.client)
            case Ack():
                self._on_ack(packet, self.client)
            case Ping(PacketType.PINGREQ):
                self._send(Ping(PacketType.PINGRESP))
            case Subscribe():
                self.do(self._subscribe(packet, self.client))
            case Unsubscribe():
                self.do(self._unsubscribe(packet, self.client))
            case Disconnect():
                self._on_disconnect(packet, self.client.session)
            case Auth():
                raise PacketError(
                    Reason.PROTOCOL_ERROR, "this broker has no extended authentication"
                )
            case _:
                raise PacketError(
                    Reason.PROTOCOL_ERROR, f"a client sent {type(packet).__name__}"
                )

    # CONNECT.

    def _on_connect(self, packet: Connect) -> None:
        self._reader.version = packet.version
        self._wants_reasons = bool(
            packet.properties.get(Property.REQUEST_PROBLEM_INFORMATION, 1)
        )
        try:
            self._authenticate(packet)
            self.server.check_will(self, packet)
        except PacketError as error:
            self._refuse_connect(error.reason, str(error))
            return
        except BrokerError as error:
            self._refuse_connect(
                reason_of(error) or Reason.SERVER_UNAVAILABLE, str(error)
            )
            return
        self._stop_timer()
        self.do(self._connect(packet))

    def _authenticate(self, packet: Connect) -> None:
        if Property.AUTHENTICATION_METHOD in packet.properties:
            raise PacketError(
                Reason.BAD_AUTHENTICATION_METHOD,
                "this broker has no extended authentication: send an API key or a "
                "token as the password",
            )
        try:
            credential = (packet.password or b"").decode()
        except UnicodeDecodeError:
            # No credential of this broker.
            credential = "?"
        try:
            self.identity = self.server.parts.authenticator.authenticate(
                credential,
                self.address,
                certificate_of(self._transport)
                if self._introduction is None
                else self._introduction.certificate,
                listener="mqtt",
            )
        except Refused as error:
            is_limited = isinstance(error, QuotaExceeded)
            raise PacketError(
                Reason.CONNECTION_RATE_EXCEEDED
                if is_limited
                else Reason.BAD_USER_NAME_OR_PASSWORD,
                str(error),
            ) from None
        meter = self.server.broker.quotas.of_principal(self.identity.principal)
        meter.connect()
        self.meter = meter

    async def _connect(self, packet: Connect) -> None:
        try:
            await self.server.connect(self, packet)
        except PacketError as error:
            self._refuse_connect(error.reason, str(error))
        except BrokerError as error:
            reason = reason_of(error) or Reason.SERVER_UNAVAILABLE
            self._refuse_connect(reason, str(error))

    def _refuse_connect(self, reason: Reason, text: str) -> None:
        self.server.counts.refused[reason.name.lower()] += 1
        log.info("refusing the connection of %s: %s", self.peer, text)
        self._send(Connack(reason=reason, properties=self._explained(text)))
        self._write_buffer.close()

    # PUBLISH, and the acknowledgements of messages to the client.

    def _on_publish(self, packet: Publish, client: Client) -> None:
        if self._receiver is None:
            server = self.server
            self._receiver = MessageReceiver(
                self, client, server.publisher, server.config.in_flight_max
            )
            self._receiver.explains = self._wants_reasons
        self._receiver.publish(packet)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call *callback* at the end of this turn of the event loop."""
        self._loop.call_soon(callback)

    def _on_ack(self, packet: Ack, client: Client) -> None:
        session = client.session
        packet_id = packet.packet_id
        match packet.type:
            case PacketType.PUBACK:
                session.on_acknowledged(packet_id, qos=1)
            case PacketType.PUBCOMP:
                session.on_acknowledged(packet_id, qos=2)
            case PacketType.PUBREC:
                is_error = packet.reason >= Reason.UNSPECIFIED_ERROR
                is_known = session.on_received(packet_id, is_error=is_error)
                if not is_error:
                    reason = (
                        Reason.SUCCESS
                        if is_known
                        else Reason.PACKET_IDENTIFIER_NOT_FOUND
                    )
                    self.write(
                        encode_ack(PacketType.PUBREL, packet_id, self.version, reason)
                    )
            case _:
                reason = (
                    Reason.SUCCESS
                    if client.release(packet_id)
                    else Reason.PACKET_IDENTIFIER_NOT_FOUND
                )
                self.write(
                    encode_ack(PacketType.PUBCOMP, packet_id, self.version, reason)
                )
        self._has_acks = True

    def _on_handled(self) -> None:
        if self._has_acks:
            self._has_acks = False
            self.send_waiting()

    # SUBSCRIBE, UNSUBSCRIBE, DISCONNECT.

    async def _subscribe(self, packet: Subscribe, client: Client) -> None:
        reasons, retained = await self.server.subscribe(self, client, packet)
        if self.is_lost:
            return
        self._send(Suback(packet_id=packet.packet_id, reasons=reasons))
        client.session.add(retained)
        self.send_waiting()
        if not client.session.has_room:
            self._pauses.add("queue")

    async def _unsubscribe(self, packet: Unsubscribe, client: Client) -> None:
        reasons = await self.server.unsubscribe(self, client, packet)
        if not self.is_lost:
            self._send(Unsuback(packet_id=packet.packet_id, reasons=reasons))

    def _on_disconnect(self, packet: Disconnect, session: Session) -> None:
        expiry_s = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL)
        if expiry_s is not None:
            if expiry_s and not session.is_persistent:
                raise PacketError(
                    Reason.PROTOCOL_ERROR,
                    "the session ends with the connection, which DISCONNECT cannot "
                    "change",
                )
            session.expiry_s = self.server.bounded_expiry_s(expiry_s)
        if packet.reason is Reason.SUCCESS:
            self.will = None
        self._detach()
        self._write_buffer.close()

    def _detach(self) -> None:
        """Separate the connection from the session of its client."""
        if self._task is not None:
            self._task.cancel()
        if self.client is not None and self.subscriber is not None:
            client, subscriber = self.client, self.subscriber
            self.subscriber = None
            self.server.disconnect(self, client, subscriber)

    # Sending.

    def _encode(
        self, delivery: Delivery, now_us: int, *, is_duplicate: bool = False
    ) -> bytes | None:
        """Return a packet; None: it is too long for the client, and counts as sent."""
        encoded = delivery.message.encode(
            self.version,
            now_us,
            qos=delivery.qos,
            retain=delivery.retain,
            packet_id=delivery.packet_id,
            is_duplicate=is_duplicate,
            subscription_ids=delivery.identifiers,
        )
        if self.packet_bytes_max and len(encoded) > self.packet_bytes_max:
            self.server.counts.dropped += 1
            return None
        return encoded

    def _send(self, packet: Packet) -> None:
        self.write(encode(packet, self.version))

    def _explained(self, text: str) -> Properties:
        return explained(text, self.version) if self._wants_reasons else NO_PROPERTIES

    @property
    def _name(self) -> str:
        if self.client is None:
            return self.peer
        return f"the client {self.client.session.client_id!r} at {self.peer}"

    def _on_handshake_timeout(self) -> None:
        self._timer = None
        if self.client is None and not self._is_lost:
            self.server.parts.counts.silent_total += 1
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@asynccontextmanager
async def listen_mqtt(
    server: MqttServer, host: str, port: int, tls: ServerTls | None = None
) -> AsyncIterator[int]:
    """
    Accept connections on *host* and *port* (0: any free port); yields the port.

    Raises:
        InvalidConfig: The address is not available.
    """
    group = server.parts.processes
    async with AsyncExitStack() as stack:
        accept: Callable[[], asyncio.BaseProtocol] = partial(MqttConnection, server)
        if group is not None:
            await stack.enter_async_context(serving_peers(server.broker, group))
            accept = partial(
                Arrival,
                await stack.enter_async_context(
                    open_arrivals(
                        group, partial(MqttConnection, server), CONNECT_BYTES_MAX
                    )
                ),
            )
        factory = over_tls(accept, tls)
        yield await stack.enter_async_context(
            accepting(
                factory,
                host,
                port,
                name="MQTT",
                flag="--mqtt-port",
                is_shared=group is not None,
            )
        )
