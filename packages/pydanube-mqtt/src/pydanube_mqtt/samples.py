"""The values of the metrics of the MQTT listener."""

from __future__ import annotations

from collections.abc import Iterator

from pydanube.model.metrics import Sample
from pydanube_mqtt import metrics
from pydanube_mqtt.server import MqttServer


def of_mqtt(server: MqttServer) -> Iterator[Sample]:
    """Yield the current values, without waiting."""
    counts, clients = server.counts, server.clients.values()
    yield metrics.SESSIONS, (), len(server.clients)
    subscriptions = sum(len(each.session.subscriptions) for each in clients)
    yield metrics.SUBSCRIPTIONS, (), subscriptions
    behind = sum(
        bool(each.session.behind) for each in clients if each.connection is not None
    )
    yield metrics.SESSIONS_BEHIND, (), behind
    yield metrics.MESSAGES_IN, (), counts.received
    yield metrics.MESSAGES_OUT, (), counts.sent
    yield metrics.MESSAGES_DROPPED, (), counts.dropped
    yield metrics.MESSAGES_UNMAPPED, (), counts.unmapped
    yield metrics.MESSAGES_LOST, (), counts.lost
    for action, count in counts.invalid.items():
        yield metrics.MESSAGES_INVALID, (action,), count
    yield metrics.WILLS, (), counts.wills
    yield metrics.RETAINED, (), server.retained.count
    yield metrics.RETAINED_BYTES, (), server.retained.byte_count
    for reason, count in counts.refused.items():
        yield metrics.REFUSALS, (reason,), count
