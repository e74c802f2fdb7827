"""The messages of one client to the broker, and their acknowledgements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from pydanube.model.errors import BrokerError, Draining
from pydanube.wire.native.kinds import Kind
from pydanube_broker.operations.authorization import AllowedTopics, Caller
from pydanube_mqtt.clients import Client
from pydanube_mqtt.publisher import Publisher
from pydanube_mqtt.pure.reasons import explained, reason_of
from pydanube_mqtt.pure.rules import Rule
from pydanube_mqtt.wire.encoding import encode_ack
from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    PacketError,
    PacketType,
    Property,
    Publish,
    Reason,
)

TOPIC_ALIASES_MAX = 64
"""The most topic aliases of a connection."""


class Link(Protocol):
    """The connection of the client, as its messages use it."""

    @property
    def version(self) -> int:
        """The version of MQTT that the client speaks."""

    @property
    def caller(self) -> Caller:
        """The client as the one that makes requests."""

    def write(self, data: bytes) -> None:
        """Send *data*, unless the connection is lost."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call *callback* at the end of this turn of the event loop."""

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do *work*, which may wait, before the next packet."""

    def pause(self, reason: str) -> None:
        """Stop reading until ``unpause`` is called with *reason*."""

    def unpause(self, reason: str) -> None:
        """Remove a reason to pause."""

    def close(self, reason: Reason, text: str) -> None:
        """Tell the client the reason, and disconnect it."""


class PendingAck:
    """An acknowledgement that the client gets after those of earlier messages."""

    __slots__ = ("packet_id", "reason", "receiver", "text", "type")

    def __init__(
        self, receiver: MessageReceiver, type_: PacketType, packet_id: int
    ) -> None:
        self.receiver = receiver
        self.type = type_
        self.packet_id = packet_id
        self.reason: Reason | None = None
        """None while the message is being stored."""
        self.text = ""

    def complete(self, reason: Reason = Reason.SUCCESS, text: str = "") -> None:
        """Send it as soon as those of earlier messages are sent."""
        self.reason, self.text = reason, text
        self.receiver.send_acks_soon()

    def on_stored(self, error: BrokerError | None) -> None:
        """Acknowledge the message, or tell the client that it is not stored."""
        if error is None:
            self.complete()
        else:
            self.receiver.on_failed(self, error)


class MessageReceiver:
    """
    Publishes the messages of one connection.

    Ordering: PUBACK and PUBREC are sent in the order of the messages.

    Bounds: *receive_max* messages are not acknowledged yet.
    """

    __slots__ = (
        "_acks",
        "_aliases",
        "_allowed",
        "_client",
        "_is_due",
        "_link",
        "_publisher",
        "_receive_max",
        "explains",
    )

    def __init__(
        self, link: Link, client: Client, publisher: Publisher, receive_max: int
    ) -> None:
        self.explains = True
        """Whether the client wants to know why a message was refused."""
        self._link = link
        self._client = client
        self._publisher = publisher
        self._receive_max = receive_max
        self._acks: deque[PendingAck] = deque()
        self._is_due = False
        self._aliases: dict[int, str] = {}
        self._allowed = AllowedTopics()

    def publish(self, packet: Publish) -> None:
        """
        Publish a message at once, or when its topic, memory and quotas allow it.

        Raises:
            PacketError: The client violates the protocol.
        """
        if packet.properties:
            self._resolve_alias(packet)
        ack = self._expect(packet) if packet.qos else None
        session, publisher = self._client.session, self._publisher
        if ack is not None and packet.qos == 2 and packet.packet_id in session.received:
            # Sent again: it is stored, or is being stored.
            if packet.packet_id in self._client.storing:
                self._client.storing[packet.packet_id] = ack
            else:
                ack.complete()
            return
        try:
            rule = self._check(packet)
        except PacketError as error:
            self._refuse(ack, error.reason, str(error))
            return
        except BrokerError as error:
            self.on_failed(ack, error)
            return
        done = self._on_stored_of(packet, ack)
        if publisher.can_publish(packet, rule):
            publisher.publish(packet, session.client_id, rule, done)
        else:
            self._link.do(
                publisher.publish_later(packet, session.client_id, rule, done)
            )

    def on_failed(self, ack: PendingAck | None, error: BrokerError) -> None:
        """Tell the client that a message is not stored."""
        reason = reason_of(error)
        if reason is not None:
            self._refuse(ack, reason, str(error))
            return
        # The client sends it again when it has connected again.
        is_stopping = isinstance(error, Draining)
        self._link.close(
            Reason.SERVER_SHUTTING_DOWN if is_stopping else Reason.SERVER_BUSY,
            f"the message is not stored: {error}",
        )

    def send_acks_soon(self) -> None:
        """Send the acknowledgements that are due at the end of this turn."""
        if not self._is_due:
            self._is_due = True
            self._link.call_soon(self._send_acks)

    def _send_acks(self) -> None:
        self._is_due = False
        acks, version, parts = self._acks, self._link.version, []
        while acks and acks[0].reason is not None:
            ack = acks.popleft()
            assert ack.reason is not None
            properties = NO_PROPERTIES
            if ack.text and self.explains:
                properties = explained(ack.text, version)
            parts.append(
                encode_ack(ack.type, ack.packet_id, version, ack.reason, properties)
            )
        self._link.write(b"".join(parts))
        if len(acks) * 2 <= self._receive_max:
            self._link.unpause("acks")

    def _expect(self, packet: Publish) -> PendingAck:
        """Return the acknowledgement that the client expects for a message."""
        most, received = self._receive_max, self._client.session.received
        if len(self._acks) >= most or (
            packet.qos == 2
            and packet.packet_id not in received
            and len(received) >= most
        ):
            raise PacketError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"the client has more messages in flight than {most}, the receive "
                "maximum",
            )
        type_ = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
        ack = PendingAck(self, type_, packet.packet_id)
        self._acks.append(ack)
        if len(self._acks) >= most and self._link.version < V5:
            # A client of version 5 knows the limit.
            self._link.pause("acks")
        return ack

    def _check(self, packet: Publish) -> Rule:
        """Return the rule for a message, or raise if it is refused."""
        publisher = self._publisher
        rule = publisher.rules.check(packet.topic)
        if publisher.broker.access.is_enforced:
            target = str(rule.target)
            self._allowed.check(self._link.caller, Kind.OPEN_PRODUCER, target)
        if packet.retain:
            publisher.check_retained(packet)
        return rule

    def _on_stored_of(
        self, packet: Publish, ack: PendingAck | None
    ) -> Callable[[BrokerError | None], None]:
        if ack is None:
            return self._on_unacknowledged
        if packet.qos == 2:
            self._client.session.received.add(packet.packet_id)
            self._client.storing[packet.packet_id] = ack
            return partial(_on_received, self._client, packet.packet_id)
        return ack.on_stored

    def _on_unacknowledged(self, error: BrokerError | None) -> None:
        if error is not None:
            self.on_failed(None, error)

    def _refuse(self, ack: PendingAck | None, reason: Reason, text: str) -> None:
        self._publisher.counts.refused[reason.name.lower()] += 1
        if ack is None or self._link.version < V5:
            # There is no other way to say so.
            self._link.close(reason, text)
        else:
            ack.complete(reason, text)

    def _resolve_alias(self, packet: Publish) -> None:
        """Replace a topic alias by the topic that it stands for."""
        properties = packet.properties
        if Property.SUBSCRIPTION_IDENTIFIER in properties:
            raise PacketError(
                Reason.PROTOCOL_ERROR, "a client published a subscription identifier"
            )
        alias = properties.get(Property.TOPIC_ALIAS)
        if alias is None:
            return
        if alias > TOPIC_ALIASES_MAX:
            raise PacketError(
                Reason.TOPIC_ALIAS_INVALID,
                f"the topic alias {alias}; the maximum is {TOPIC_ALIASES_MAX}",
            )
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias in self._aliases:
            packet.topic = self._aliases[alias]
        else:
            raise PacketError(
                Reason.PROTOCOL_ERROR, f"the topic alias {alias} stands for no topic"
            )


def _on_received(client: Client, packet_id: int, error: BrokerError | None) -> None:
    """Acknowledge a message of QoS 2, on the connection that sent it last."""
    ack = client.storing.pop(packet_id)
    if error is not None:
        client.session.received.discard(packet_id)
    ack.on_stored(error)
