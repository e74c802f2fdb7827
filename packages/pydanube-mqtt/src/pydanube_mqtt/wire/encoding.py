"""The bytes of packets; see ``decoding`` for the way back."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Properties,
    Publish,
    Reason,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from pydanube_mqtt.wire.properties import (
    write_binary,
    write_properties,
    write_text,
    write_varint,
)

_U16 = struct.Struct(">H")
_ACK = struct.Struct(">BBH")

# The first byte of each acknowledgement: PUBREL has a flag.
_ACK_FIRST = {
    PacketType.PUBACK: 0x40,
    PacketType.PUBREC: 0x50,
    PacketType.PUBREL: 0x62,
    PacketType.PUBCOMP: 0x70,
}

_RETURN_CODES = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.BAD_AUTHENTICATION_METHOD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
"""The return codes of CONNACK in version 3.1.1; 3, server unavailable, for others."""
_SERVER_UNAVAILABLE = 3

_SUBACK_FAILURE = 0x80
_QOS_MAX = 2


def encode(packet: Packet, version: int) -> bytes:  # noqa: PLR0911  # One per type.
    """Return the bytes of *packet* in a *version* of MQTT."""
    match packet:
        case Publish():
            return encode_publish(packet, version)
        case Ack(type_, packet_id, reason, properties):
            return encode_ack(type_, packet_id, version, reason, properties)
        case Ping(type_):
            return bytes((type_ << 4, 0))
        case Connack():
            return _packet(0x20, *_connack(packet, version))
        case Suback() | Unsuback():
            return _suback(packet, version)
        case Connect():
            return _packet(0x10, *_connect(packet))
        case Subscribe():
            parts = [_options(each, version) for each in packet.subscriptions]
            return _request(0x82, packet.packet_id, packet.properties, parts, version)
        case Unsubscribe():
            parts = [write_text(each) for each in packet.filters]
            return _request(0xA2, packet.packet_id, packet.properties, parts, version)
        case Disconnect(reason=reason, properties=properties):
            if version < V5 or (not reason and not properties):
                return b"\xe0\0"
            return _packet(0xE0, bytes((reason,)), write_properties(properties))
        case Auth(reason=reason, properties=properties):
            return _packet(0xF0, bytes((reason,)), write_properties(properties))


def encode_publish(packet: Publish, version: int) -> bytes:
    """Return the bytes of an application message."""
    topic = packet.topic.encode()
    qos = packet.qos
    first = 0x30 | qos << 1 | packet.retain | packet.is_duplicate << 3
    identifier = _U16.pack(packet.packet_id) if qos else b""
    properties = write_properties(packet.properties) if version >= V5 else b""
    payload = packet.payload
    length = 2 + len(topic) + len(identifier) + len(properties) + len(payload)
    return b"".join(
        (
            bytes((first,)),
            write_varint(length),
            _U16.pack(len(topic)),
            topic,
            identifier,
            properties,
            payload,
        )
    )


def encode_ack(
    type_: PacketType,
    packet_id: int,
    version: int,
    reason: Reason = Reason.SUCCESS,
    properties: Properties = NO_PROPERTIES,
) -> bytes:
    """Return the bytes of PUBACK, PUBREC, PUBREL or PUBCOMP."""
    first = _ACK_FIRST[type_]
    if version < V5 or (not reason and not properties):
        return _ACK.pack(first, 2, packet_id)
    parts = [_U16.pack(packet_id), bytes((reason,))]
    if properties:
        parts.append(write_properties(properties))
    return _packet(first, *parts)


def return_code_of(reason: Reason) -> int:
    """Return the return code of CONNACK in version 3.1.1 for *reason*."""
    return _RETURN_CODES.get(reason, _SERVER_UNAVAILABLE)


def _packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((first,)) + write_varint(len(body)) + body


def _connack(packet: Connack, version: int) -> list[bytes]:
    if version < V5:
        return [bytes((packet.session_present, return_code_of(packet.reason)))]
    return [
        bytes((packet.session_present, packet.reason)),
        write_properties(packet.properties),
    ]


def _suback(packet: Suback | Unsuback, version: int) -> bytes:
    first = 0x90 if isinstance(packet, Suback) else 0xB0
    identifier = _U16.pack(packet.packet_id)
    if version >= V5:
        properties = write_properties(packet.properties)
        return _packet(first, identifier, properties, bytes(packet.reasons))
    if isinstance(packet, Unsuback):
        return _packet(first, identifier)
    codes = [
        reason if reason <= _QOS_MAX else _SUBACK_FAILURE for reason in packet.reasons
    ]
    return _packet(first, identifier, bytes(codes))


def _connect(packet: Connect) -> list[bytes]:
    will, is_v5 = packet.will, packet.version >= V5
    flags = packet.clean_start << 1
    payload = [write_text(packet.client_id)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        if is_v5:
            payload.append(write_properties(will.properties))
        payload += (write_text(will.topic), write_binary(will.payload))
    if packet.username is not None:
        flags |= 0x80
        payload.append(write_text(packet.username))
    if packet.password is not None:
        flags |= 0x40
        payload.append(write_binary(packet.password))
    return [
        b"\0\4MQTT",
        bytes((packet.version, flags)),
        _U16.pack(packet.keep_alive_s),
        write_properties(packet.properties) if is_v5 else b"",
        *payload,
    ]


def _request(
    first: int,
    packet_id: int,
    properties: Properties,
    parts: Sequence[bytes],
    version: int,
) -> bytes:
    written = write_properties(properties) if version >= V5 else b""
    return _packet(first, _U16.pack(packet_id), written, *parts)


def _options(each: SubscriptionOptions, version: int) -> bytes:
    options = each.qos
    if version >= V5:
        options |= (
            each.no_local << 2
            | each.retain_as_published << 3
            | each.retain_handling << 4
        )
    return write_text(each.filter) + bytes((options,))
