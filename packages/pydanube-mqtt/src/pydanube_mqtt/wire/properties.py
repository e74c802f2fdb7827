"""The properties of MQTT 5: which packets may have them, and their bytes."""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any

from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    PacketError,
    PacketType,
    Properties,
    Property,
    Reason,
)

WILL = 0
"""Stands for the properties of a will, as the types of packets stand for theirs."""

TEXT_BYTES_MAX = 65_535

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


class _Kind(Enum):
    BYTE = "byte"
    U16 = "u16"
    U32 = "u32"
    VARINT = "varint"
    TEXT = "text"
    BINARY = "binary"
    PAIR = "pair"


_P, _T, _K = Property, PacketType, _Kind
_REASONS = (
    _T.CONNACK,
    _T.PUBACK,
    _T.PUBREC,
    _T.PUBREL,
    _T.PUBCOMP,
    _T.SUBACK,
    _T.UNSUBACK,
    _T.DISCONNECT,
    _T.AUTH,
)
_CONNACK = (_T.CONNACK,)
_MESSAGES = (_T.PUBLISH, WILL)

# The kind of each property, and the packets that may have it.
_TABLE: dict[int, tuple[Property, _Kind, frozenset[int]]] = {
    int(each): (each, kind, frozenset(map(int, packets)))
    for each, kind, packets in (
        (_P.PAYLOAD_FORMAT_INDICATOR, _K.BYTE, _MESSAGES),
        (_P.MESSAGE_EXPIRY_INTERVAL, _K.U32, _MESSAGES),
        (_P.CONTENT_TYPE, _K.TEXT, _MESSAGES),
        (_P.RESPONSE_TOPIC, _K.TEXT, _MESSAGES),
        (_P.CORRELATION_DATA, _K.BINARY, _MESSAGES),
        (_P.SUBSCRIPTION_IDENTIFIER, _K.VARINT, (_T.PUBLISH, _T.SUBSCRIBE)),
        (
            _P.SESSION_EXPIRY_INTERVAL,
            _K.U32,
            (_T.CONNECT, _T.CONNACK, _T.DISCONNECT),
        ),
        (_P.ASSIGNED_CLIENT_IDENTIFIER, _K.TEXT, _CONNACK),
        (_P.SERVER_KEEP_ALIVE, _K.U16, _CONNACK),
        (_P.AUTHENTICATION_METHOD, _K.TEXT, (_T.CONNECT, _T.CONNACK, _T.AUTH)),
        (_P.AUTHENTICATION_DATA, _K.BINARY, (_T.CONNECT, _T.CONNACK, _T.AUTH)),
        (_P.REQUEST_PROBLEM_INFORMATION, _K.BYTE, (_T.CONNECT,)),
        (_P.WILL_DELAY_INTERVAL, _K.U32, (WILL,)),
        (_P.REQUEST_RESPONSE_INFORMATION, _K.BYTE, (_T.CONNECT,)),
        (_P.RESPONSE_INFORMATION, _K.TEXT, _CONNACK),
        (_P.SERVER_REFERENCE, _K.TEXT, (_T.CONNACK, _T.DISCONNECT)),
        (_P.REASON_STRING, _K.TEXT, _REASONS),
        (_P.RECEIVE_MAXIMUM, _K.U16, (_T.CONNECT, _T.CONNACK)),
        (_P.TOPIC_ALIAS_MAXIMUM, _K.U16, (_T.CONNECT, _T.CONNACK)),
        (_P.TOPIC_ALIAS, _K.U16, (_T.PUBLISH,)),
        (_P.MAXIMUM_QOS, _K.BYTE, _CONNACK),
        (_P.RETAIN_AVAILABLE, _K.BYTE, _CONNACK),
        (
            _P.USER_PROPERTY,
            _K.PAIR,
            (_T.CONNECT, _T.SUBSCRIBE, _T.UNSUBSCRIBE, *_MESSAGES, *_REASONS),
        ),
        (_P.MAXIMUM_PACKET_SIZE, _K.U32, (_T.CONNECT, _T.CONNACK)),
        (_P.WILDCARD_SUBSCRIPTION_AVAILABLE, _K.BYTE, _CONNACK),
        (_P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, _K.BYTE, _CONNACK),
        (_P.SHARED_SUBSCRIPTION_AVAILABLE, _K.BYTE, _CONNACK),
    )
}
assert _TABLE.keys() == set(Property)

_MAY_BE_0_OR_1 = frozenset(
    {
        _P.PAYLOAD_FORMAT_INDICATOR,
        _P.REQUEST_PROBLEM_INFORMATION,
        _P.REQUEST_RESPONSE_INFORMATION,
        _P.MAXIMUM_QOS,
        _P.RETAIN_AVAILABLE,
        _P.WILDCARD_SUBSCRIPTION_AVAILABLE,
        _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        _P.SHARED_SUBSCRIPTION_AVAILABLE,
    }
)
_NOT_ZERO = frozenset(
    {
        _P.RECEIVE_MAXIMUM,
        _P.MAXIMUM_PACKET_SIZE,
        _P.SUBSCRIPTION_IDENTIFIER,
        _P.TOPIC_ALIAS,
    }
)


def malformed(text: str) -> PacketError:
    """Return the error for bytes that are no valid packet."""
    return PacketError(Reason.MALFORMED_PACKET, text)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """
    Return the variable byte integer at *at*, and the position after it.

    Raises:
        PacketError: It is longer than four bytes or not complete.
    """
    value = shift = 0
    while True:
        if at >= end or shift > 21:
            raise malformed("a variable byte integer is not complete or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def write_varint(value: int) -> bytes:
    """Return a variable byte integer."""
    if value < 0x80:
        return bytes((value,))
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def read_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """
    Return bytes with a length of two bytes in front, and the position after them.

    Raises:
        PacketError: They are not complete.
    """
    begin = at + 2
    if begin > end:
        raise malformed("the packet ends within a length")
    after = begin + (data[at] << 8 | data[at + 1])
    if after > end:
        raise malformed("the packet ends within a text or binary data")
    return data[begin:after], after


def read_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    """
    Return a text and the position after it.

    Raises:
        PacketError: It is not complete, is not UTF-8, or has the character U+0000.
    """
    encoded, after = read_binary(data, at, end)
    return text_of(encoded), after


def text_of(encoded: bytes) -> str:
    """
    Return the text that *encoded* is in UTF-8.

    Raises:
        PacketError: It is not UTF-8, or has the character U+0000.
    """
    if b"\0" in encoded:
        raise malformed("a text has the character U+0000")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise malformed("a text is not UTF-8") from None


def is_text(text: str) -> bool:
    """Return whether MQTT has *text*: it is short enough, and without U+0000."""
    return "\0" not in text and len(text.encode()) <= TEXT_BYTES_MAX


def is_topic(text: str) -> bool:
    """Return whether *text* is the name of a topic: not empty, and no filter."""
    return bool(text) and not {"+", "#"} & set(text) and is_text(text)


def write_text(text: str) -> bytes:
    """Return *text* with its length in front."""
    return write_binary(text.encode())


def write_binary(data: bytes) -> bytes:
    """Return *data* with its length in front."""
    assert len(data) <= TEXT_BYTES_MAX
    return _U16.pack(len(data)) + data


def read_properties(
    data: bytes, at: int, end: int, packet: int
) -> tuple[Properties, int]:
    """
    Return the properties of a packet of the type *packet*, and the position after them.

    Raises:
        PacketError: They are not valid, or the packet may not have one of them.
    """
    length, at = read_varint(data, at, end)
    if not length:
        return NO_PROPERTIES, at
    after = at + length
    if after > end:
        raise malformed("the packet ends within its properties")
    found: dict[Property, Any] = {}
    while at < after:
        number, at = read_varint(data, at, after)
        row = _TABLE.get(number)
        if row is None or packet not in row[2]:
            raise malformed(f"a packet of the type {packet} has the property {number}")
        name, kind, _ = row
        value, at = _read_value(data, at, after, kind)
        _check_value(name, value)
        if kind is _Kind.PAIR or (
            name is Property.SUBSCRIPTION_IDENTIFIER and packet == PacketType.PUBLISH
        ):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise PacketError(Reason.PROTOCOL_ERROR, f"{name.name} is given twice")
        elif kind is _Kind.VARINT:
            found[name] = [value]
        else:
            found[name] = value
    for name in (Property.USER_PROPERTY, Property.SUBSCRIPTION_IDENTIFIER):
        if name in found:
            found[name] = tuple(found[name])
    return found, at


def _check_value(name: Property, value: Any) -> None:
    """Raise PacketError if a packet may not have *value* in the property *name*."""
    if name in _MAY_BE_0_OR_1 and value > 1:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{name.name} is {value}, not 0 or 1")
    if name in _NOT_ZERO and not value:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{name.name} is 0")
    if name is Property.RESPONSE_TOPIC and not is_topic(value):
        raise PacketError(
            Reason.TOPIC_NAME_INVALID,
            f"the response topic {value[:80]!r} is not the name of a topic",
        )


def _read_value(  # noqa: PLR0911  # One per kind.
    data: bytes, at: int, end: int, kind: _Kind
) -> tuple[Any, int]:
    match kind:
        case _Kind.BYTE:
            if at >= end:
                raise malformed("the properties end within a byte")
            return data[at], at + 1
        case _Kind.U16:
            if at + 2 > end:
                raise malformed("the properties end within a number")
            return _U16.unpack_from(data, at)[0], at + 2
        case _Kind.U32:
            if at + 4 > end:
                raise malformed("the properties end within a number")
            return _U32.unpack_from(data, at)[0], at + 4
        case _Kind.VARINT:
            return read_varint(data, at, end)
        case _Kind.TEXT:
            return read_text(data, at, end)
        case _Kind.BINARY:
            return read_binary(data, at, end)
        case _Kind.PAIR:
            name, at = read_text(data, at, end)
            value, at = read_text(data, at, end)
            return (name, value), at


def write_properties(properties: Properties) -> bytes:
    """Return *properties* with their length in front."""
    if not properties:
        return b"\0"
    parts: list[bytes] = []
    for name, value in properties.items():
        kind = _TABLE[name][1]
        number = bytes((name,))
        match kind:
            case _Kind.BYTE:
                parts += (number, bytes((value,)))
            case _Kind.U16:
                parts += (number, _U16.pack(value))
            case _Kind.U32:
                parts += (number, _U32.pack(value))
            case _Kind.VARINT:
                parts += (number + write_varint(each) for each in value)
            case _Kind.TEXT:
                parts += (number, write_text(value))
            case _Kind.BINARY:
                parts += (number, write_binary(value))
            case _Kind.PAIR:
                parts += (
                    number + write_text(key) + write_text(text) for key, text in value
                )
    written = b"".join(parts)
    return write_varint(len(written)) + written
