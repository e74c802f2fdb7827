"""The values of the metrics of the MQTT listener."""

from __future__ import annotations

from collections.abc import Iterator

from pydanube.model import metrics
from pydanube.model.metrics import Sample
from pydanube.servers.mqtt.server import MqttServer


def of_mqtt(server: MqttServer) -> Iterator[Sample]:
    """Yield the current values, without waiting."""
    counts, clients = server.counts, server.clients.values()
    yield metrics.MQTT_SESSIONS, (), len(server.clients)
    subscriptions = sum(len(each.session.subscriptions) for each in clients)
    yield metrics.MQTT_SUBSCRIPTIONS, (), subscriptions
    behind = sum(
        bool(each.session.behind) for each in clients if each.connection is not None
    )
    yield metrics.MQTT_SESSIONS_BEHIND, (), behind
    yield metrics.MQTT_MESSAGES_IN, (), counts.received
    yield metrics.MQTT_MESSAGES_OUT, (), counts.sent
    yield metrics.MQTT_MESSAGES_DROPPED, (), counts.dropped
    yield metrics.MQTT_MESSAGES_UNMAPPED, (), counts.unmapped
    yield metrics.MQTT_MESSAGES_LOST, (), counts.lost
    for action, count in counts.invalid.items():
        yield metrics.MQTT_MESSAGES_INVALID, (action,), count
    yield metrics.MQTT_WILLS, (), counts.wills
    yield metrics.MQTT_RETAINED, (), server.retained.count
    yield metrics.MQTT_RETAINED_BYTES, (), server.retained.byte_count
    for reason, count in counts.refused.items():
        yield metrics.MQTT_REFUSALS, (reason,), count
