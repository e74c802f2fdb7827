"""Packets have the bytes that the standard shows."""

from __future__ import annotations

import pytest

from pydanube_mqtt.wire.encoding import encode, return_code_of
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Ping,
    Property,
    Publish,
    Reason,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Will,
)


@pytest.mark.parametrize(
    ("packet", "version", "data"),
    [
        (
            Connect(version=V311, client_id="c", keep_alive_s=10),
            V311,
            b"\x10\x0d\0\x04MQTT\x04\x02\0\x0a\0\x01c",
        ),
        (
            Connect(
                version=V5,
                client_id="",
                clean_start=False,
                username="u",
                password=b"p",
                will=Will(topic="t", payload=b"w", qos=1, retain=True),
            ),
            V5,
            b"\x10\x1a\0\x04MQTT\x05\xec\0\0\0\0\0\0\0\x01t\0\x01w\0\x01u\0\x01p",
        ),
        (Connack(session_present=True), V311, b"\x20\x02\x01\0"),
        (Connack(reason=Reason.NOT_AUTHORIZED), V311, b"\x20\x02\0\x05"),
        (Connack(reason=Reason.NOT_AUTHORIZED), V5, b"\x20\x03\0\x87\0"),
        (Publish(topic="a/b", payload=b"x"), V311, b"\x30\x06\0\x03a/bx"),
        (
            Publish(topic="a", payload=b"x", qos=2, retain=True, packet_id=258),
            V5,
            b"\x35\x07\0\x01a\x01\x02\0x",
        ),
        (
            Publish(topic="a", payload=b"", properties={Property.CONTENT_TYPE: "t"}),
            V5,
            b"\x30\x08\0\x01a\x04\x03\0\x01t",
        ),
        (Ack(PacketType.PUBACK, 1), V5, b"\x40\x02\0\x01"),
        (Ack(PacketType.PUBREL, 1), V311, b"\x62\x02\0\x01"),
        (
            Ack(PacketType.PUBREC, 1, Reason.QUOTA_EXCEEDED),
            V5,
            b"\x50\x03\0\x01\x97",
        ),
        (
            Subscribe(
                packet_id=1,
                subscriptions=[SubscriptionOptions("a", 1, True, True, 2)],
            ),
            V5,
            b"\x82\x07\0\x01\0\0\x01a\x2d",
        ),
        (
            Suback(packet_id=1, reasons=[Reason(1), Reason.NOT_AUTHORIZED]),
            V311,
            b"\x90\x04\0\x01\x01\x80",
        ),
        (Ping(PacketType.PINGRESP), V5, b"\xd0\0"),
        (Disconnect(), V5, b"\xe0\0"),
        (Disconnect(reason=Reason.SESSION_TAKEN_OVER), V5, b"\xe0\x02\x8e\0"),
    ],
)
def test_packets_have_their_bytes(packet, version, data):
    assert encode(packet, version) == data


def test_long_packets_have_longer_lengths():
    for length, prefix in (
        (124, b"\x7f"),
        (125, b"\x80\x01"),
        (16_381, b"\x80\x80\x01"),
    ):
        data = encode(Publish(topic="a", payload=bytes(length)), V311)
        assert data[1 : 1 + len(prefix)] == prefix


def test_unknown_reasons_are_unavailable_servers_in_version_3():
    assert return_code_of(Reason.QUOTA_EXCEEDED) == 3
