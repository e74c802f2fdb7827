"""
Messages on their way between MQTT and the topics of the broker.  Pure.

A message in a topic has what MQTT 5 says about it in its attributes.  Messages that
other clients publish need none of them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydanube.model.batch import Column
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.positions import TIME_MAX
from pydanube.wire.batches import BatchFrame
from pydanube_mqtt.wire.encoding import encode_publish
from pydanube_mqtt.wire.packets import (
    NO_PROPERTIES,
    V5,
    Properties,
    Property,
    Publish,
)
from pydanube_mqtt.wire.properties import TEXT_BYTES_MAX, is_text, is_topic

TOPIC = "mqtt.topic"
"""The attribute with the topic, if it is not the key."""
QOS = "mqtt.qos"
"""The attribute with the QoS of the publisher, if it is not 1."""
RETAIN = "mqtt.retain"
"""The attribute of messages that were published with RETAIN."""
CONTENT_TYPE = "mqtt.content_type"
RESPONSE_TOPIC = "mqtt.response_topic"
CORRELATION_DATA = "mqtt.correlation_data"
"""The attribute with the correlation data, in base64."""
PAYLOAD_FORMAT = "mqtt.payload_format"
USER = "mqtt.user."
"""The beginning of the attributes with the user properties."""

_OF_PROPERTY = {
    Property.CONTENT_TYPE: CONTENT_TYPE,
    Property.RESPONSE_TOPIC: RESPONSE_TOPIC,
}

MESSAGE_BYTES = 200
"""The memory that a message takes in addition to its topic, payload and properties."""
PROPERTY_BYTES = 100
"""The memory that a property takes in addition to its text."""


class Message:
    """A message for subscribers of MQTT; sessions share it."""

    __slots__ = (
        "_encoded",
        "byte_count",
        "expires_at_us",
        "offset",
        "payload",
        "properties",
        "publisher",
        "qos",
        "retain",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        expires_at_us: int | None = None,
        publisher: str = "",
        offset: int = 0,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        """Whether it was published with RETAIN."""
        self.properties = properties
        self.expires_at_us = expires_at_us
        self.publisher = publisher
        """The client id of the publisher."""
        self.offset = offset
        """Its offset in the topic of the broker."""
        self.byte_count = MESSAGE_BYTES + len(topic) + len(payload)
        if properties:
            self.byte_count += byte_count_of(properties)
        # The packet of QoS 0 without properties, which is the same for all sessions.
        self._encoded: bytes | None = None

    def without_content(self) -> Message:
        """Return what stands for the message while nobody needs its content."""
        return Message("", b"", qos=self.qos, offset=self.offset)

    def is_expired(self, now_us: int) -> bool:
        """Return whether subscribers should not get it any more."""
        return self.expires_at_us is not None and self.expires_at_us <= now_us

    def encode(
        self,
        version: int,
        now_us: int,
        *,
        qos: int,
        retain: bool,
        packet_id: int = 0,
        is_duplicate: bool = False,
        subscription_ids: tuple[int, ...] = (),
    ) -> bytes:
        """Return the packet for one subscriber."""
        properties = NO_PROPERTIES
        if version >= V5 and (
            self.properties or subscription_ids or self.expires_at_us is not None
        ):
            properties = self._properties(now_us, subscription_ids)
        is_plain = not (qos or retain or properties) and version < V5
        if is_plain and self._encoded is not None:
            return self._encoded
        packet = Publish(
            topic=self.topic,
            payload=self.payload,
            qos=qos,
            retain=retain,
            is_duplicate=is_duplicate,
            packet_id=packet_id,
            properties=properties,
        )
        encoded = encode_publish(packet, version)
        if is_plain:
            self._encoded = encoded
        return encoded

    def _properties(self, now_us: int, subscription_ids: tuple[int, ...]) -> Properties:
        found: dict[Property, Any] = dict(self.properties)
        if self.expires_at_us is not None:
            left_s = (self.expires_at_us - now_us) // 1_000_000
            found[Property.MESSAGE_EXPIRY_INTERVAL] = max(0, left_s)
        if subscription_ids:
            found[Property.SUBSCRIPTION_IDENTIFIER] = subscription_ids
        return found


def expires_at_us_of(properties: Properties, now_us: int) -> int | None:
    """Return when a message with *properties* expires; None: never."""
    interval_s = properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
    if interval_s is None:
        return None
    return min(now_us + int(interval_s) * 1_000_000, TIME_MAX)


def kept_properties(properties: Properties) -> Properties:
    """Return the properties that subscribers get as they are."""
    if not properties:
        return NO_PROPERTIES
    return {name: properties[name] for name in properties if name in _KEPT}


def byte_count_of(properties: Properties) -> int:
    """Return about how much memory *properties* take."""
    count = 0
    for value in properties.values():
        if isinstance(value, str | bytes):
            count += PROPERTY_BYTES + len(value)
        elif isinstance(value, tuple):
            for name, text in value:
                count += PROPERTY_BYTES + len(name) + len(text)
    return count


_KEPT = {
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
}


def attributes_to_store(packet: Publish, key: str) -> dict[str, str] | None:
    """Return the attributes of a message whose rule has *key*."""
    if packet.qos == 1 and key == "topic" and not (packet.retain or packet.properties):
        return None
    found: dict[str, str] = {}
    if key != "topic":
        found[TOPIC] = packet.topic
    if packet.qos != 1:
        found[QOS] = str(packet.qos)
    if packet.retain:
        found[RETAIN] = "1"
    found.update(attributes_of(packet.properties))
    return found


def attributes_of(properties: Properties) -> dict[str, str]:
    """Return the attributes that stand for *properties*."""
    found: dict[str, str] = {}
    if properties:
        for name, attribute in _OF_PROPERTY.items():
            if name in properties:
                found[attribute] = properties[name]
        if Property.CORRELATION_DATA in properties:
            data = properties[Property.CORRELATION_DATA]
            found[CORRELATION_DATA] = b64encode(data).decode()
        if properties.get(Property.PAYLOAD_FORMAT_INDICATOR):
            found[PAYLOAD_FORMAT] = "1"
        for name, value in properties.get(Property.USER_PROPERTY, ()):
            # Attributes have one value for each name: the last one counts.
            found[USER + name] = value
    return found


def properties_of(attributes: Mapping[str, str]) -> Properties:
    """
    Return the properties of MQTT that *attributes* stand for.

    Other clients of the broker may set attributes to values that MQTT does not have;
    those are left out.
    """
    found: dict[Property, Any] = {}
    for name, attribute in _OF_PROPERTY.items():
        is_valid = is_topic if name is Property.RESPONSE_TOPIC else is_text
        if attribute in attributes and is_valid(attributes[attribute]):
            found[name] = attributes[attribute]
    if CORRELATION_DATA in attributes:
        with suppress(Base64Error, ValueError):
            data = b64decode(attributes[CORRELATION_DATA], validate=True)
            if len(data) <= TEXT_BYTES_MAX:
                found[Property.CORRELATION_DATA] = data
    if PAYLOAD_FORMAT in attributes:
        found[Property.PAYLOAD_FORMAT_INDICATOR] = 1
    if user := tuple(
        (name.removeprefix(USER), value)
        for name, value in attributes.items()
        if name.startswith(USER) and is_text(name) and is_text(value)
    ):
        found[Property.USER_PROPERTY] = user
    return found


@dataclass(slots=True, kw_only=True)
class Row:
    """A message of a topic of the broker, as it is stored."""

    offset: int
    payload: bytes
    key: bytes | None
    attributes: Mapping[str, str]
    expires_at_us: int | None
    producer: str

    def message(self, topic: str) -> Message:
        """Return the message for subscribers of *topic*."""
        attributes = self.attributes
        qos, retain, properties = 1, False, NO_PROPERTIES
        if attributes:
            qos = _QOS.get(attributes.get(QOS, ""), 1)
            retain = RETAIN in attributes
            properties = properties_of(attributes)
        return Message(
            topic,
            self.payload,
            qos=qos,
            retain=retain,
            properties=properties,
            expires_at_us=self.expires_at_us,
            publisher=self.producer,
            offset=self.offset,
        )


_QOS = {"0": 0, "1": 1, "2": 2}


def rows_of(frame: BatchFrame) -> Iterator[Row]:
    """Yield the messages of *frame*."""
    batch, header = frame.arrow(), frame.header
    count, columns = frame.count, header.columns
    payloads = batch.column("payload").to_pylist()
    keys = batch.column("key").to_pylist() if columns & Column.KEY else [None] * count
    attributes: list[Any] = [()] * count
    if columns & Column.ATTRIBUTES:
        attributes = batch.column("attributes").to_pylist()
    expires = [None] * count
    if columns & Column.EXPIRES_AT:
        column = batch.column("expires_at")
        expires = column.cast("int64").to_pylist()
    producers = [header.producer] * count
    if columns & Column.PRODUCER:
        producers = batch.column("producer").to_pylist()
    offsets: Any = range(frame.base, frame.base + count)
    if columns & Column.OFFSET:
        offsets = batch.column("offset").to_pylist()
    for offset, payload, key, pairs, expires_at_us, producer in zip(
        offsets, payloads, keys, attributes, expires, producers, strict=True
    ):
        yield Row(
            offset=offset,
            payload=payload,
            key=key,
            attributes=dict(pairs) if pairs else {},
            expires_at_us=expires_at_us,
            producer=producer or "",
        )
