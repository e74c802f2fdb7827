"""The settings of a rule of the MQTT listener."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidName
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName, parse_subject
from pydanube.wire.batches import INT32_MAX
from pydanube_mqtt.wire.packets import PacketError
from pydanube_mqtt.wire.topics import TopicFilter


class MqttRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The topic of the broker that has the messages of some topics of MQTT."""

    filter: str
    """The topics of MQTT, such as ``sensors/+/temperature``."""
    topic: str
    """The topic of the broker, such as ``/iot/temperature``."""
    reliable: bool = True
    """Whether the topic is reliable, if the listener creates it."""
    key: Literal["topic", "client_id", "none"] = "topic"
    """The key of the messages: the topic of MQTT, the id of the client, or none."""
    schema: str = ""
    """The subject of the schema that payloads must match; empty: any payload."""
    schema_version: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    """The version of the subject; 0: the latest one."""
    on_invalid: Literal["refuse", "drop", "dead_letter"] = "refuse"
    """The treatment of messages that do not match the schema of the rule or the topic.

    A refused message ends the connection of a client of version 3.1.1."""
    dead_letter_topic: str = ""
    """The topic of the broker that has the messages if they are dead letters."""

    def __post_init__(self) -> None:
        try:
            parsed = TopicFilter.parse(self.filter)
            TopicName.parse(self.topic)
            if self.schema:
                parse_subject(self.schema)
            dead_letters = TopicName.parse(self.dead_letter_topic or self.topic)
        except (PacketError, InvalidName) as error:
            raise ValueError(str(error)) from None
        if parsed.group or self.filter.startswith("$"):
            raise ValueError(
                f"{self.filter!r} begins with $, which stands for topics of the broker"
            )
        if self.schema_version and not self.schema:
            raise ValueError("schema_version needs the field schema")
        if (self.on_invalid == "dead_letter") != bool(self.dead_letter_topic):
            raise ValueError(
                "on_invalid: dead_letter needs the field dead_letter_topic, which only "
                "it has"
            )
        if self.dead_letter_topic and (
            dead_letters.namespace == SYSTEM_NAMESPACE
            or self.dead_letter_topic == self.topic
        ):
            raise ValueError(
                f"{self.dead_letter_topic} cannot have the dead letters of {self.topic}"
            )
