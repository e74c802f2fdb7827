"""The values of the metrics of the MQTT listener."""

from __future__ import annotations

from collections.abc import Iterator

from pydanube.aio.long_work import LongWork
from pydanube.model.metrics import Sample
from pydanube_mqtt import metrics
from pydanube_mqtt.server import MqttServer


async def of_mqtt(server: MqttServer) -> list[Sample]:
    """Return the current values, and let other tasks run in between."""
    work, subscriptions, behind = LongWork(), 0, 0
    for each in list(server.clients.values()):
        subscriptions += len(each.session.subscriptions)
        behind += each.connection is not None and bool(each.session.behind)
        await work.did()
    return [
        (metrics.SUBSCRIPTIONS, (), subscriptions),
        (metrics.SESSIONS_BEHIND, (), behind),
        *_of_server(server),
    ]


def _of_server(server: MqttServer) -> Iterator[Sample]:
    counts = server.counts
    yield metrics.SESSIONS, (), len(server.clients)
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
