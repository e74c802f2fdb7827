"""The clients that are connected to brokers, as they are described."""

from __future__ import annotations

from pydanube.model.lazy_dataclasses import dataclass

CONNECTIONS_MAX = 1000
"""The most connections in one answer of a broker."""
CLIENT_CHARACTERS_MAX = 200
"""The longest text of a client about itself that is kept."""
MEMBERS_MAX = 20
"""The most producers and consumers of a connection that a broker names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionMember:
    """A producer of a connection, or a consumer of a subscription."""

    topic: str
    """The topic, or the partition."""
    name: str
    subscription: str = ""
    """The subscription of a consumer; empty: it is a producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDescription:
    """A client that is connected to a broker."""

    broker_id: str
    """The broker."""
    connection_id: int
    """When it was made, in microseconds of UTC; no two of a broker have the same."""
    listener: str
    """``stream`` for the native protocol, ``mqtt``, ``kafka`` or another."""
    address: str
    client: str
    """The text that the client says about itself, such as its name and version."""
    principal: str
    members: tuple[ConnectionMember, ...] = ()
    """The first ``MEMBERS_MAX`` whose topics the caller may see."""
    member_count: int = 0
    """The number of all whose topics the caller may see."""
    received_messages: int | None = None
    """Messages that the client has published; None: they are not counted."""
    received_bytes: int | None = None
    sent_messages: int | None = None
    """Messages that it was sent."""
    sent_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The connections of a broker or a cluster."""

    connections: tuple[ConnectionDescription, ...] = ()
    """Those of each broker, the oldest first."""
    connection_count: int = 0
    """The number of all; ``connections`` may have fewer."""
