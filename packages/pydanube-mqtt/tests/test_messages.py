"""Messages keep what MQTT says about them on the way through a topic."""

from __future__ import annotations

from base64 import b64encode

import pytest

from pydanube.model.batch import batch_of
from pydanube.wire.batches import BatchHeader, encode
from pydanube_mqtt.pure.messages import (
    Message,
    attributes_to_store,
    expires_at_us_of,
    properties_of,
    rows_of,
)
from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.packets import V5, V311, Property, Publish

PROPERTIES = {
    Property.CONTENT_TYPE: "text/plain",
    Property.RESPONSE_TOPIC: "answers",
    Property.CORRELATION_DATA: b"\0\xff",
    Property.PAYLOAD_FORMAT_INDICATOR: 1,
    Property.USER_PROPERTY: (("a", "1"), ("b", "2")),
}
HEADER = {"first_publish_time": 1, "last_publish_time": 1}


def publish(**fields):
    return Publish(**{"topic": "t", "payload": b"x", "qos": 1} | fields)


def test_the_usual_message_needs_no_attributes():
    assert attributes_to_store(publish(), "topic") is None


def test_attributes_have_what_the_key_has_not():
    packet = publish(qos=2, retain=True, properties=PROPERTIES)
    attributes = attributes_to_store(packet, "client_id")
    assert attributes["mqtt.topic"] == "t"
    assert attributes["mqtt.qos"] == "2"
    assert attributes["mqtt.retain"] == "1"
    assert properties_of(attributes) == PROPERTIES


def test_attributes_of_other_clients_may_be_invalid():
    assert properties_of({"mqtt.correlation_data": "not base64!", "x": "y"}) == {}


@pytest.mark.parametrize("topic", ["", "#", "a/+/b", "a/#"])
def test_response_topics_that_mqtt_does_not_have_are_left_out(topic):
    assert properties_of({"mqtt.response_topic": topic}) == {}


@pytest.mark.parametrize("text", ["x" * 65_536, "é" * 40_000, "a\0b"])
def test_attributes_that_mqtt_does_not_have_are_left_out(text):
    attributes = {
        "mqtt.content_type": text,
        "mqtt.response_topic": text,
        "mqtt.user.long": text,
        f"mqtt.user.{text}": "name",
        "mqtt.user.a": "1",
        "mqtt.correlation_data": b64encode(b"x" * 65_536).decode(),
    }
    properties = properties_of(attributes)
    assert properties == {Property.USER_PROPERTY: (("a", "1"),)}
    Message("t", b"", properties=properties).encode(V5, 0, qos=0, retain=False)


def test_the_size_of_a_message_has_its_properties():
    plain = Message("t", b"x").byte_count
    for properties in (
        {Property.USER_PROPERTY: (("a", "x" * 1000),)},
        {Property.CORRELATION_DATA: b"x" * 1000},
        {Property.CONTENT_TYPE: "x" * 1000, Property.PAYLOAD_FORMAT_INDICATOR: 1},
    ):
        assert Message("t", b"x", properties=properties).byte_count > plain + 1000
    many = {Property.USER_PROPERTY: (("", ""),) * 100}
    assert Message("t", b"x", properties=many).byte_count > plain + 5000


def test_rows_have_all_columns():
    batch = batch_of(
        [b"1", b"2"],
        keys=[b"k", None],
        attributes=[{"mqtt.qos": "0"}, None],
        producers=["p", None],
        expires_at=[7, None],
    )
    frame = encode(batch, BatchHeader(**HEADER))
    frame.stamp(5, 1)
    one, two = rows_of(frame)
    assert (one.offset, one.key, one.producer, one.expires_at_us) == (5, b"k", "p", 7)
    assert one.message("t").qos == 0
    assert (two.offset, two.key, two.producer, two.expires_at_us) == (6, None, "", None)
    assert two.message("t").qos == 1


def test_rows_of_batches_of_one_producer_have_its_name():
    frame = encode(batch_of([b"1"]), BatchHeader(**HEADER, producer="p"))
    assert [each.producer for each in rows_of(frame)] == ["p"]


@pytest.mark.parametrize("version", [V311, V5])
def test_packets_have_the_rest_of_the_expiry(version):
    message = Message("t", b"x", properties=PROPERTIES, expires_at_us=10_000_000)
    reader = PacketReader(1000, version)
    reader.add(message.encode(version, 3_000_000, qos=0, retain=False))
    (packet,) = reader.packets()
    if version == V5:
        assert packet.properties.pop(Property.MESSAGE_EXPIRY_INTERVAL) == 7
        assert packet.properties == PROPERTIES
    else:
        assert packet.properties == {}


def test_messages_expire_after_their_interval():
    assert expires_at_us_of({}, 5) is None
    assert expires_at_us_of({Property.MESSAGE_EXPIRY_INTERVAL: 2}, 5) == 2_000_005
