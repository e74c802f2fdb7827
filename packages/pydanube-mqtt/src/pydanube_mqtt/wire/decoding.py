"""
Packets from the bytes of a connection.

Nothing in a packet is trusted: its length is compared with the limit before bytes are
kept, and each length inside it with the end of the packet before something is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    V311,
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
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Will,
)
from pydanube_mqtt.wire.properties import (
    WILL,
    malformed,
    read_binary,
    read_properties,
    read_text,
    text_of,
)

_LENGTH_BYTES_MAX = 4
_REASONS = {int(each): each for each in Reason}
_QOS_MAX = 2
_RETAIN_HANDLING_MAX = 2

_Body = Callable[[bytes, int, int, int], Packet]


class PacketReader:
    """
    Splits received bytes into packets.

    The first packet of a connection, CONNECT or CONNACK, decides the version of a
    server; a client sets it.

    Bounds: One incomplete packet of ``packet_bytes_max``.
    """

    __slots__ = ("_needed", "_received", "packet_bytes_max", "version")

    def __init__(self, packet_bytes_max: int, version: int = V5) -> None:
        self.packet_bytes_max = packet_bytes_max
        """The longest packet; a longer one is an error."""
        self.version = version
        """The version of packets other than CONNECT."""
        self._received = bytearray()
        # The length of the incomplete packet, if it is known.
        self._needed = 0

    def add(self, data: bytes | memoryview) -> None:
        """Add received bytes; call ``packets`` afterwards."""
        self._received += data

    def packets(self) -> Iterator[Packet]:
        """
        Yield the complete packets.

        The iteration may end early: it continues with the next packet.

        Raises:
            PacketError: The bytes are not valid MQTT.
        """
        if len(self._received) < self._needed:
            return
        data, at = bytes(self._received), 0
        end = len(data)
        self._received.clear()
        try:
            while at < end:
                begin, after = self._find_packet(data, at, end)
                if after > end:
                    self._needed = after - at
                    return
                if not after:
                    self._needed = 0
                    return
                first, at = data[at], after
                yield decode(first, data, begin, after, self.version)
            self._needed = 0
        finally:
            self._received[:0] = data[at:]

    def _find_packet(self, data: bytes, at: int, end: int) -> tuple[int, int]:
        """Return where the body of a packet begins and ends; 0: not known yet."""
        length = shift = 0
        begin = at + 1
        while True:
            if begin - at > _LENGTH_BYTES_MAX:
                raise malformed("the length of a packet has more than four bytes")
            if begin >= end:
                return 0, 0
            byte = data[begin]
            begin += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if begin - at + length > self.packet_bytes_max:
            raise PacketError(
                Reason.PACKET_TOO_LARGE,
                f"a packet of {begin - at + length} bytes; packets have at most "
                f"{self.packet_bytes_max}",
            )
        return begin, begin + length


def decode(first: int, data: bytes, at: int, end: int, version: int) -> Packet:
    """
    Return the packet with the *first* byte and the body ``data[at:end]``.

    Raises:
        PacketError: It is not valid.
    """
    kind = first >> 4
    if kind == PacketType.PUBLISH:
        return _publish(first, data, at, end, version)
    if not kind:
        raise malformed("a packet of the type 0")
    if first & 0x0F != _FLAGS.get(kind, 0):
        raise malformed(f"a packet of the type {kind} has the flags {first & 0x0F}")
    if kind in _ACKS:
        return _ack(_ACKS[kind], data, at, end, version)
    return _BODIES[kind](data, at, end, version)


_FLAGS: dict[int, int] = {
    PacketType.PUBREL: 2,
    PacketType.SUBSCRIBE: 2,
    PacketType.UNSUBSCRIBE: 2,
}
_ACKS = {
    int(each): each
    for each in (
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.PUBCOMP,
    )
}


def _publish(first: int, data: bytes, at: int, end: int, version: int) -> Publish:
    qos = first >> 1 & 3
    if qos > _QOS_MAX:
        raise malformed("PUBLISH has QoS 3")
    if first & 8 and not qos:
        raise malformed("PUBLISH with QoS 0 is marked as a duplicate")
    encoded, at = read_binary(data, at, end)
    topic = text_of(encoded)
    packet_id = 0
    if qos:
        packet_id, at = _packet_id(data, at, end)
    properties = NO_PROPERTIES
    if version >= V5:
        properties, at = read_properties(data, at, end, PacketType.PUBLISH)
        if not topic and Property.TOPIC_ALIAS not in properties:
            raise PacketError(
                Reason.PROTOCOL_ERROR, "PUBLISH has neither a topic nor an alias"
            )
    elif not topic:
        raise malformed("PUBLISH has no topic")
    if b"+" in encoded or b"#" in encoded:
        raise PacketError(
            Reason.TOPIC_NAME_INVALID, f"{topic[:80]!r} is not the name of a topic"
        )
    return Publish(
        topic=topic,
        payload=data[at:end],
        qos=qos,
        retain=bool(first & 1),
        is_duplicate=bool(first & 8),
        packet_id=packet_id,
        properties=properties,
    )


def _packet_id(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise malformed("the packet ends within its identifier")
    packet_id = data[at] << 8 | data[at + 1]
    if not packet_id:
        raise malformed("the packet has the identifier 0")
    return packet_id, at + 2


def _ack(type_: PacketType, data: bytes, at: int, end: int, version: int) -> Ack:
    packet_id, at = _packet_id(data, at, end)
    if at == end:
        return Ack(type_, packet_id)
    if version < V5:
        raise malformed(f"{type_.name} has bytes after its identifier")
    reason, at = _reason(data, at, end)
    properties = NO_PROPERTIES
    if at < end:
        properties, at = read_properties(data, at, end, type_)
    _check_end(at, end, type_)
    return Ack(type_, packet_id, reason, properties)


def _reason(data: bytes, at: int, end: int) -> tuple[Reason, int]:
    if at >= end:
        raise malformed("the packet ends before its reason code")
    reason = _REASONS.get(data[at])
    if reason is None:
        raise malformed(f"{data[at]} is not a reason code")
    return reason, at + 1


def _check_end(at: int, end: int, type_: PacketType) -> None:
    if at != end:
        raise malformed(f"{type_.name} has {end - at} bytes after its end")


def _connect(data: bytes, at: int, end: int, _: int) -> Connect:
    name, at = read_binary(data, at, end)
    if at + 4 > end:
        raise malformed("CONNECT is not complete")
    version, flags = data[at], data[at + 1]
    keep_alive_s = data[at + 2] << 8 | data[at + 3]
    at += 4
    if name != b"MQTT" or version not in {V311, V5}:
        raise PacketError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            f"the client speaks {name[:16]!r}, version {version}; this server speaks "
            "MQTT 3.1.1 and 5",
        )
    is_v5 = version >= V5
    if flags & 1:
        raise malformed("CONNECT has its reserved flag set")
    if not flags & 4 and flags & 0x38:
        raise malformed("CONNECT has flags of a will and no will")
    if flags >> 3 & 3 > _QOS_MAX:
        raise malformed("the will has QoS 3")
    if not is_v5 and flags & 0x40 and not flags & 0x80:
        raise malformed("CONNECT has a password without a user name")
    properties = NO_PROPERTIES
    if is_v5:
        properties, at = read_properties(data, at, end, PacketType.CONNECT)
    client_id, at = read_text(data, at, end)
    will = None
    if flags & 4:
        will, at = _will(data, at, end, flags, is_v5=is_v5)
    username = password = None
    if flags & 0x80:
        username, at = read_text(data, at, end)
    if flags & 0x40:
        password, at = read_binary(data, at, end)
    _check_end(at, end, PacketType.CONNECT)
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=bool(flags & 2),
        keep_alive_s=keep_alive_s,
        username=username,
        password=password,
        will=will,
        properties=properties,
    )


def _will(
    data: bytes, at: int, end: int, flags: int, *, is_v5: bool
) -> tuple[Will, int]:
    properties: Properties = NO_PROPERTIES
    if is_v5:
        properties, at = read_properties(data, at, end, WILL)
    topic, at = read_text(data, at, end)
    payload, at = read_binary(data, at, end)
    will = Will(
        topic=topic,
        payload=payload,
        qos=flags >> 3 & 3,
        retain=bool(flags & 0x20),
        properties=properties,
    )
    return will, at


def _connack(data: bytes, at: int, end: int, version: int) -> Connack:
    if at + 2 > end or data[at] > 1:
        raise malformed("CONNACK is not complete or has unknown flags")
    session_present, code = bool(data[at]), data[at + 1]
    properties = NO_PROPERTIES
    if version >= V5:
        reason, at = _reason(data, at + 1, end)
        properties, at = read_properties(data, at, end, PacketType.CONNACK)
    else:
        at += 2
        reason = _CONNACK_REASONS.get(code, Reason.UNSPECIFIED_ERROR)
    _check_end(at, end, PacketType.CONNACK)
    return Connack(
        session_present=session_present, reason=reason, properties=properties
    )


_CONNACK_REASONS = {
    0: Reason.SUCCESS,
    1: Reason.UNSUPPORTED_PROTOCOL_VERSION,
    2: Reason.CLIENT_IDENTIFIER_NOT_VALID,
    3: Reason.SERVER_UNAVAILABLE,
    4: Reason.BAD_USER_NAME_OR_PASSWORD,
    5: Reason.NOT_AUTHORIZED,
}


def _subscribe(data: bytes, at: int, end: int, version: int) -> Subscribe:
    packet_id, properties, at = _request(
        data, at, end, PacketType.SUBSCRIBE, version=version
    )
    found: list[SubscriptionOptions] = []
    while at < end:
        text, at = read_text(data, at, end)
        if at >= end:
            raise malformed("SUBSCRIBE ends before the options of a filter")
        options = data[at]
        at += 1
        qos, retain_handling = options & 3, options >> 4 & 3
        if (
            qos > _QOS_MAX
            or options & (0xC0 if version >= V5 else 0xFC)
            or retain_handling > _RETAIN_HANDLING_MAX
        ):
            raise malformed(f"a subscription has the options {options:#x}")
        found.append(
            SubscriptionOptions(
                text, qos, bool(options & 4), bool(options & 8), retain_handling
            )
        )
    _check_not_empty(found, PacketType.SUBSCRIBE)
    return Subscribe(packet_id=packet_id, subscriptions=found, properties=properties)


def _unsubscribe(data: bytes, at: int, end: int, version: int) -> Unsubscribe:
    packet_id, properties, at = _request(
        data, at, end, PacketType.UNSUBSCRIBE, version=version
    )
    filters: list[str] = []
    while at < end:
        text, at = read_text(data, at, end)
        filters.append(text)
    _check_not_empty(filters, PacketType.UNSUBSCRIBE)
    return Unsubscribe(packet_id=packet_id, filters=filters, properties=properties)


def _request(
    data: bytes, at: int, end: int, type_: PacketType, *, version: int
) -> tuple[int, Properties, int]:
    packet_id, at = _packet_id(data, at, end)
    properties = NO_PROPERTIES
    if version >= V5:
        properties, at = read_properties(data, at, end, type_)
    return packet_id, properties, at


def _check_not_empty(
    filters: list[SubscriptionOptions] | list[str], type_: PacketType
) -> None:
    if not filters:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{type_.name} has no filter")


def _suback(data: bytes, at: int, end: int, version: int) -> Suback:
    packet_id, properties, at = _request(
        data, at, end, PacketType.SUBACK, version=version
    )
    return Suback(
        packet_id=packet_id, reasons=_reasons(data, at, end), properties=properties
    )


def _unsuback(data: bytes, at: int, end: int, version: int) -> Unsuback:
    packet_id, properties, at = _request(
        data, at, end, PacketType.UNSUBACK, version=version
    )
    if version < V5:
        _check_end(at, end, PacketType.UNSUBACK)
    return Unsuback(
        packet_id=packet_id, reasons=_reasons(data, at, end), properties=properties
    )


def _reasons(data: bytes, at: int, end: int) -> list[Reason]:
    found: list[Reason] = []
    while at < end:
        reason, at = _reason(data, at, end)
        found.append(reason)
    return found


def _pingreq(_: bytes, at: int, end: int, __: int) -> Ping:
    _check_end(at, end, PacketType.PINGREQ)
    return Ping(PacketType.PINGREQ)


def _pingresp(_: bytes, at: int, end: int, __: int) -> Ping:
    _check_end(at, end, PacketType.PINGRESP)
    return Ping(PacketType.PINGRESP)


def _disconnect(data: bytes, at: int, end: int, version: int) -> Disconnect:
    if version < V5:
        _check_end(at, end, PacketType.DISCONNECT)
    reason, properties = _reason_and_properties(data, at, end, PacketType.DISCONNECT)
    return Disconnect(reason=reason, properties=properties)


def _auth(data: bytes, at: int, end: int, version: int) -> Auth:
    if version < V5:
        raise malformed("AUTH does not exist in version 3.1.1")
    reason, properties = _reason_and_properties(data, at, end, PacketType.AUTH)
    return Auth(reason=reason, properties=properties)


def _reason_and_properties(
    data: bytes, at: int, end: int, type_: PacketType
) -> tuple[Reason, Properties]:
    if at == end:
        return Reason.SUCCESS, NO_PROPERTIES
    reason, at = _reason(data, at, end)
    properties = NO_PROPERTIES
    if at < end:
        properties, at = read_properties(data, at, end, type_)
    _check_end(at, end, type_)
    return reason, properties


_BODIES: dict[int, _Body] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
