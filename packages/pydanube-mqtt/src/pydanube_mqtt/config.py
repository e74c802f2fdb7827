"""The settings of the MQTT listener."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from pydanube.model.errors import InvalidConfig
from pydanube.model.metrics import Metric
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from pydanube_mqtt.metrics import MQTT_METRICS
from pydanube_mqtt.rule_config import MqttRule
from pydanube_mqtt.wire.packets import PACKET_BYTES_MAX

KIB = 1024
MIB = 1024 * KIB
PACKET_BYTES_MIN = KIB

RULES_MAX = 1000


class MqttConfig(ListenerConfig, frozen=True, kw_only=True):
    """The listener for MQTT 3.1.1 and 5, and the topics that its clients use."""

    NAME: ClassVar[str] = "mqtt"
    TITLE: ClassVar[str] = "MQTT 3.1.1 and 5"
    OPEN: ClassVar[str] = "pydanube_mqtt.listener:open_mqtt"
    SCHEMES: ClassVar[tuple[str, str]] = ("mqtt", "mqtts")
    USUAL_PORT: ClassVar[int] = 1883
    METRICS: ClassVar[Sequence[Metric]] = MQTT_METRICS
    SERVES_PROCESSES: ClassVar[bool] = True

    port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """The port for clients of MQTT, usually 1883, or 8883 with TLS; 0 chooses a free
    port and prints it. Without it, the broker has no MQTT listener."""
    rules: tuple[MqttRule, ...] = (MqttRule(filter="#", topic="/default/mqtt"),)
    """Which topic of the broker has the messages of which topics of MQTT: a list of
    rules with the fields filter, topic, reliable (true), key (topic, client_id or
    none), schema, schema_version (the latest), on_invalid (refuse, drop or dead_letter)
    and dead_letter_topic. The first rule whose filter matches counts; topics without a
    rule are refused. The listener creates the topics that do not exist."""
    packet_bytes_max: Annotated[int, Meta(ge=PACKET_BYTES_MIN, le=PACKET_BYTES_MAX)] = (
        MIB
    )
    """The maximum length of a packet. A longer one closes its connection."""
    keep_alive_s_max: Annotated[int, Meta(ge=1, le=65_535)] = 1200
    """Clients of version 5 with a longer keep alive, or none, are given this one. A
    connection is closed if its client sends nothing for one and a half times its keep
    alive."""
    session_expiry_s_max: Annotated[int, Meta(ge=0, le=4_294_967_295)] = 7 * 86_400
    """The maximum time for which the broker keeps the session of a client that is not
    connected. Sessions of version 3.1.1 that are not clean are kept for this time."""
    sessions_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """The maximum number of sessions, with those of clients that are not connected.
    Beyond it, clients are refused."""
    subscriptions_max: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """The maximum number of subscriptions of a session."""
    in_flight_max: Annotated[int, Meta(ge=1, le=65_535)] = 1000
    """The maximum number of messages of QoS 1 and 2 that a client has published and the
    broker has not acknowledged, and the other way round."""
    queue_messages_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """The maximum number of messages that wait in memory for a connected client. Beyond
    it, messages of QoS 0 are dropped, and those of reliable topics are read from the
    topic later."""
    queue_bytes_max: Annotated[int, Meta(ge=64 * KIB)] = MIB
    """The maximum size of these messages."""
    retained_messages_max: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    """The maximum number of retained messages. More are refused."""
    retained_bytes_max: Annotated[int, Meta(ge=0)] = 64 * MIB
    """The maximum size of the retained messages, which the broker has in memory."""

    def __post_init__(self) -> None:
        if len(self.rules) > RULES_MAX:
            raise InvalidConfig(
                f"rules: expected at most {RULES_MAX} rules, got {len(self.rules)}"
            )
        kinds: dict[str, bool] = {}
        for rule in self.rules:
            if kinds.setdefault(rule.topic, rule.reliable) != rule.reliable:
                raise InvalidConfig(
                    f"rules: expected the same value of reliable in all rules with the "
                    f"topic {rule.topic}, got true and false"
                )
