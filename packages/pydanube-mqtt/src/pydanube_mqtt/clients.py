"""The clients of MQTT as the listener knows them: sessions and their connections."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from pydanube.model.errors import BrokerError
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.operations.authorization import Caller
from pydanube_broker.servers.connections.authentication import ClientIdentity
from pydanube_mqtt.pure.session import Session
from pydanube_mqtt.pure.subscribers import Subscriber
from pydanube_mqtt.session_owners import LeftWill
from pydanube_mqtt.wire.packets import Connack, PacketError, Reason, Will


class Acknowledgement(Protocol):
    """The acknowledgement of a message of QoS 2, which is sent when it is stored."""

    def complete(self) -> None:
        """Send it."""

    def on_stored(self, error: BrokerError | None) -> None:
        """Send it, or tell the client that the message is not stored."""


class Connection(Protocol):
    """A connection as the listener uses it."""

    client: Client | None
    subscriber: Subscriber | None
    will: Will | None
    packet_bytes_max: int
    keep_alive_s: float
    peer: str
    identity: ClientIdentity

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed or about to be."""

    @property
    def caller(self) -> Caller:
        """The client as the one that makes requests."""

    def sweep(self, now: float) -> None:
        """Close it if its client is silent or its credentials are void."""

    def close(self, reason: Reason, text: str) -> None:
        """Tell the client the reason, as far as its version can, and disconnect it."""

    def abort(self) -> None:
        """Close it at once."""

    def send_waiting(self) -> None:
        """Send what waits in the session, as far as the client reads it."""

    def read_missed(self) -> None:
        """Begin to read the messages that the session has missed."""

    def on_session(
        self, client: Client, subscriber: Subscriber, answer: Connack
    ) -> None:
        """Answer CONNECT, and send again what the client has not acknowledged."""


@dataclass(slots=True, eq=False)
class Client:
    """A session with what the listener knows about it."""

    session: Session
    connection: Connection | None = None
    storing: dict[int, Acknowledgement] = field(default_factory=dict)
    """Messages of QoS 2 that are being stored, by packet identifier."""
    expires_at: float = 0.0
    """When the session ends, if the client is not connected."""
    will: LeftWill | None = None
    """The will that is published later, unless the client comes back."""
    is_counted: bool = False
    """Whether the session counts against the quota of its principal."""
    unread: dict[str, int] = field(default_factory=dict)
    """By topic, the positions of its record that were not restored yet."""
    saved: dict[str, int] | None = None
    """The positions that were saved last."""

    def release(self, packet_id: int) -> bool:
        """
        Handle PUBREL of a message of QoS 2; return False if none was received.

        Raises:
            PacketError: The client has not got PUBREC yet.
        """
        if packet_id in self.storing:
            raise PacketError(
                Reason.PROTOCOL_ERROR,
                f"PUBREL of the packet {packet_id} came before PUBREC was sent",
            )
        is_known = packet_id in self.session.received
        self.session.received.discard(packet_id)
        return is_known
