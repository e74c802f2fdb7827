"""Packets that the standard forbids are violations with the right reason."""

from __future__ import annotations

import pytest

from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.packets import V5, V311, PacketError, Ping, Reason

MALFORMED, PROTOCOL_ERROR = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
CONNECT = b"\0\4MQTT"


def packet(first, body):
    return bytes((first, len(body))) + body


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        (packet(0x00, b""), V5, MALFORMED),
        (b"\x30\xff\xff\xff\xff\x01", V5, MALFORMED),
        (packet(0x36, b"\0\1a\0\1\0"), V5, MALFORMED),
        (packet(0x38, b"\0\1a\0"), V5, MALFORMED),
        (packet(0x32, b"\0\1a\0\0\0"), V5, MALFORMED),
        (packet(0x30, b"\0\1\xff\0"), V5, MALFORMED),
        (packet(0x30, b"\0\1\0\0"), V5, MALFORMED),
        (packet(0x30, b"\0\0\0"), V5, PROTOCOL_ERROR),
        (packet(0x30, b"\0\0"), V311, MALFORMED),
        (packet(0x30, b"\0\3a/#\0"), V5, Reason.TOPIC_NAME_INVALID),
        (packet(0x30, b"\0\1a\4\x08\0\1#"), V5, Reason.TOPIC_NAME_INVALID),
        (packet(0x30, b"\0\1a\3\x08\0\0"), V5, Reason.TOPIC_NAME_INVALID),
        (packet(0x30, b"\0\1a\x02\x01\x02"), V5, PROTOCOL_ERROR),
        (packet(0x30, b"\0\1a\x03\x23\0\0"), V5, PROTOCOL_ERROR),
        (packet(0x30, b"\0\1a\x03\x21\0\1"), V5, MALFORMED),
        (packet(0x30, b"\0\1a\x04\x01\0\x01\0"), V5, PROTOCOL_ERROR),
        (packet(0x60, b"\0\1"), V5, MALFORMED),
        (packet(0x40, b"\0\1\0"), V311, MALFORMED),
        (packet(0x40, b"\0\1\x05"), V5, MALFORMED),
        (packet(0x80, b"\0\1\0\0\1a\0"), V5, MALFORMED),
        (packet(0x82, b"\0\1\0"), V5, PROTOCOL_ERROR),
        (packet(0x82, b"\0\1\0\0\1a\3"), V5, MALFORMED),
        (packet(0x82, b"\0\1\0\0\1a\x30"), V5, MALFORMED),
        (packet(0x82, b"\0\1\0\1a\4"), V311, MALFORMED),
        (packet(0xA2, b"\0\1\0"), V5, PROTOCOL_ERROR),
        (packet(0xC0, b"\0"), V5, MALFORMED),
        (packet(0xF0, b""), V311, MALFORMED),
        (packet(0x10, CONNECT + b"\5\1\0\0\0\0\0"), V5, MALFORMED),
        (packet(0x10, CONNECT + b"\5\x08\0\0\0\0\0"), V5, MALFORMED),
        (packet(0x10, CONNECT + b"\5\x1c\0\0\0\0\0"), V5, MALFORMED),
        (packet(0x10, CONNECT + b"\4\x40\0\0\0\0\0\0"), V311, MALFORMED),
        (packet(0x10, CONNECT + b"\4\2\0\0\0\0x"), V311, MALFORMED),
        (
            packet(0x10, CONNECT + b"\6\2\0\0\0\0"),
            V5,
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
        ),
        (b"\x30\xc8\x01", V5, Reason.PACKET_TOO_LARGE),
    ],
)
def test_what_the_standard_forbids_is_refused(data, version, reason):
    reader = PacketReader(100, version)
    reader.add(data)
    with pytest.raises(PacketError) as refusal:
        list(reader.packets())
    assert refusal.value.reason is reason


def test_an_iteration_can_be_continued():
    reader = PacketReader(100)
    reader.add(b"\xc0\0\xd0\0\xc0")
    for _ in reader.packets():
        break
    reader.add(b"\0")
    assert list(reader.packets()) == [Ping(13), Ping(12)]
