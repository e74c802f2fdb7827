"""
The metadata of the MQTT listener: its sessions and retained messages.

``docs/format/metadata.md`` describes the records.
"""

from __future__ import annotations

import msgspec

from pydanube.security.principals import Method
from pydanube_broker.metadata.key import prefix_of


class MqttSubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a session of MQTT."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0
    """The subscription identifier; 0: none."""


class MqttSessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of MQTT that outlives its connection."""

    client_id: str
    principal: str
    """The name of the principal whose session it is; empty: anonymous."""
    method: Method = "anonymous"
    """How the principal has proved its identity."""
    groups: tuple[str, ...] = ()
    """The groups of the principal when it was connected last."""
    expiry_s: int
    """How long it is kept without a connection."""
    seen_at: int
    """When the client was connected last, if it is not connected."""
    is_connected: bool = False
    """Whether the client was connected when the record was written."""
    subscriptions: tuple[MqttSubscriptionRecord, ...] = ()
    received: tuple[int, ...] = ()
    """The packet identifiers of messages of QoS 2 that were published, and that the
    client has not released yet."""
    positions: dict[str, int] = {}
    """By topic, the offset from which the client has not got the messages."""


class MqttRetainedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The retained message of a topic of MQTT."""

    topic: str
    payload: bytes
    qos: int
    publisher: str
    """The id of the client that published it."""
    expires_at: int | None = None
    properties: dict[str, str] = {}
    """The properties of MQTT 5, as in the attributes of messages."""


SESSIONS = prefix_of("/mqtt/sessions/", MqttSessionRecord)
"""``/mqtt/sessions/{SHA-256 of the client id, hexadecimal}``"""

RETAINED = prefix_of("/mqtt/retained/", MqttRetainedRecord)
"""``/mqtt/retained/{SHA-256 of the topic of MQTT, hexadecimal}``"""
