"""
The packets of MQTT 3.1.1 and 5, as values.

One class describes a packet of both versions.  Version 3.1.1 has no properties and
fewer reason codes; ``encoding`` leaves out what a version does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any

from pydanube.model.lazy_dataclasses import dataclass

V311 = 4
"""The protocol level of MQTT 3.1.1."""
V5 = 5
"""The protocol level of MQTT 5."""

PACKET_BYTES_MAX = 268_435_455 + 5
"""The longest packet of MQTT."""


class PacketType(IntEnum):
    """The type of a packet: the high four bits of its first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """The reason codes of MQTT 5; from ``UNSPECIFIED_ERROR`` on they are errors."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class PacketError(Exception):
    """The peer violates MQTT; the connection must be closed with ``reason``."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Property(IntEnum):
    """The properties of MQTT 5."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


Properties = Mapping[Property, Any]
"""Values by property: numbers, texts, bytes; of ``USER_PROPERTY`` a tuple of pairs of
texts, and of ``SUBSCRIPTION_IDENTIFIER`` a tuple of numbers."""

NO_PROPERTIES: Properties = {}


def _no_properties() -> Properties:
    return NO_PROPERTIES


@dataclass(slots=True, kw_only=True)
class Will:
    """The message that a server publishes when the connection of a client breaks."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Connect:
    """A client opens a connection."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Connack:
    """The server's answer to ``Connect``."""

    session_present: bool = False
    reason: Reason = Reason.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Publish:
    """An application message, in both directions."""

    topic: str
    """Empty in version 5 if a topic alias stands for it."""
    payload: bytes
    qos: int = 0
    retain: bool = False
    is_duplicate: bool = False
    packet_id: int = 0
    """0 if ``qos`` is 0."""
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    type: PacketType
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """A topic filter with the options that a client asks for."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """When retained messages are sent: 0 always, 1 if the subscription is new, 2
    never."""


@dataclass(slots=True, kw_only=True)
class Subscribe:
    """A client subscribes."""

    packet_id: int
    subscriptions: list[SubscriptionOptions]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Suback:
    """The server's answer to ``Subscribe``, with a reason for each filter."""

    packet_id: int
    reasons: list[Reason]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Unsubscribe:
    """A client ends subscriptions."""

    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Unsuback:
    """The server's answer to ``Unsubscribe``; version 3.1.1 has no reasons."""

    packet_id: int
    reasons: list[Reason] = field(default_factory=list)
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True)
class Ping:
    """PINGREQ or PINGRESP."""

    type: PacketType = PacketType.PINGREQ


@dataclass(slots=True, kw_only=True)
class Disconnect:
    """The end of a connection; in version 3.1.1 only clients send it."""

    reason: Reason = Reason.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


@dataclass(slots=True, kw_only=True)
class Auth:
    """A step of extended authentication in version 5."""

    reason: Reason = Reason.SUCCESS
    properties: Properties = field(default_factory=_no_properties)


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Ping
    | Disconnect
    | Auth
)
