"""Strategies for the packets of MQTT, and their bytes."""

from __future__ import annotations

from hypothesis import strategies as st

from pydanube_mqtt.wire import properties
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    Auth,
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
    Unsuback,
    Unsubscribe,
    Will,
)

VERSIONS = st.sampled_from([V311, V5])
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)
TOPICS = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]),
    min_size=1,
    max_size=20,
)
IDS = st.integers(1, 65_535)
QOS = st.integers(0, 2)
PAYLOADS = st.binary(max_size=200)

_VALUES = {
    properties._Kind.BYTE: st.integers(0, 1),
    properties._Kind.U16: st.integers(1, 65_535),
    properties._Kind.U32: st.integers(1, 2**32 - 1),
    properties._Kind.VARINT: st.integers(1, 2**28 - 1).map(lambda each: (each,)),
    properties._Kind.TEXT: TEXTS,
    properties._Kind.BINARY: st.binary(max_size=20),
    properties._Kind.PAIR: st.lists(
        st.tuples(TEXTS, TEXTS), min_size=1, max_size=3
    ).map(tuple),
}


def properties_of(packet, version):
    """Properties that a packet of this type may have in a version."""
    if version < V5:
        return st.just({})
    allowed = {
        name: TOPICS if name is Property.RESPONSE_TOPIC else _VALUES[kind]
        for name, kind, packets in properties._TABLE.values()
        if packet in packets
    }
    return st.fixed_dictionaries({}, optional=allowed)


@st.composite
def publishes(draw, version):
    qos = draw(QOS)
    found = draw(properties_of(PacketType.PUBLISH, version))
    has_alias = Property.TOPIC_ALIAS in found
    return Publish(
        topic=draw(st.just("") | TOPICS if has_alias else TOPICS),
        payload=draw(PAYLOADS),
        qos=qos,
        retain=draw(st.booleans()),
        is_duplicate=bool(qos) and draw(st.booleans()),
        packet_id=draw(IDS) if qos else 0,
        properties=found,
    )


@st.composite
def connects(draw, version):
    will = None
    if draw(st.booleans()):
        will = Will(
            topic=draw(TEXTS),
            payload=draw(PAYLOADS),
            qos=draw(QOS),
            retain=draw(st.booleans()),
            properties=draw(properties_of(properties.WILL, version)),
        )
    username = draw(st.none() | TEXTS)
    password = draw(st.none() | st.binary(max_size=30))
    return Connect(
        version=version,
        client_id=draw(TEXTS),
        clean_start=draw(st.booleans()),
        keep_alive_s=draw(st.integers(0, 65_535)),
        username=username,
        password=None if version < V5 and username is None else password,
        will=will,
        properties=draw(properties_of(PacketType.CONNECT, version)),
    )


@st.composite
def options(draw, version):
    is_v5 = version >= V5
    return SubscriptionOptions(
        draw(TEXTS),
        draw(QOS),
        is_v5 and draw(st.booleans()),
        is_v5 and draw(st.booleans()),
        draw(QOS) if is_v5 else 0,
    )


@st.composite
def acks(draw, version):
    type_ = draw(
        st.sampled_from(
            [
                *(PacketType.PUBACK, PacketType.PUBREC),
                *(PacketType.PUBREL, PacketType.PUBCOMP),
            ]
        )
    )
    is_v5 = version >= V5
    reason = draw(st.sampled_from(Reason)) if is_v5 else Reason.SUCCESS
    return Ack(type_, draw(IDS), reason, draw(properties_of(type_, version)))


REASONS = st.lists(st.sampled_from(Reason), min_size=1, max_size=5)
GRANTED = st.lists(
    st.sampled_from([Reason(0), Reason(1), Reason(2), Reason(0x80)]), min_size=1
)


def packets(version):
    """All packets of a version."""
    is_v5 = version >= V5
    whole = [
        publishes(version),
        connects(version),
        acks(version),
        st.builds(Ping, st.sampled_from([PacketType.PINGREQ, PacketType.PINGRESP])),
        st.builds(
            Subscribe,
            packet_id=IDS,
            subscriptions=st.lists(options(version), min_size=1, max_size=4),
            properties=properties_of(PacketType.SUBSCRIBE, version),
        ),
        st.builds(
            Unsubscribe,
            packet_id=IDS,
            filters=st.lists(TEXTS, min_size=1, max_size=4),
            properties=properties_of(PacketType.UNSUBSCRIBE, version),
        ),
        st.builds(
            Suback,
            packet_id=IDS,
            reasons=REASONS if is_v5 else GRANTED,
            properties=properties_of(PacketType.SUBACK, version),
        ),
        st.builds(
            Unsuback,
            packet_id=IDS,
            reasons=REASONS if is_v5 else st.just([]),
            properties=properties_of(PacketType.UNSUBACK, version),
        ),
        st.builds(
            Connack,
            session_present=st.booleans(),
            reason=st.sampled_from(Reason) if is_v5 else st.just(Reason.SUCCESS),
            properties=properties_of(PacketType.CONNACK, version),
        ),
        st.builds(
            Disconnect,
            reason=st.sampled_from(Reason) if is_v5 else st.just(Reason.SUCCESS),
            properties=properties_of(PacketType.DISCONNECT, version),
        ),
    ]
    if is_v5:
        auth = properties_of(PacketType.AUTH, version)
        whole.append(st.builds(Auth, reason=st.sampled_from(Reason), properties=auth))
    return st.one_of(whole)
