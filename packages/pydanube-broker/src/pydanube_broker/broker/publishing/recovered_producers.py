"""The producers of a topic that was opened again, and of one whose connection broke."""

from __future__ import annotations

import asyncio

from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.pure.producer_registrations import (
    RETURN_S,
    AwaitedReturn,
    ProducerRegistrations,
)
from pydanube_broker.storage.journal.state import TopicState

RECONNECT_S = 300.0
"""How long producers from the journal are kept after a topic was opened: they may have
been connected when the broker stopped."""


def restore_producers(topic: Topic, state: TopicState | None, now: float) -> None:
    """Remember the producers that the journal knows of a topic."""
    if state is None or not state.producers:
        return
    for known in state.producers.values():
        if not known.is_internal:
            topic.registrations.remember(known.name)
            topic.last_producer_id = max(topic.last_producer_id, known.producer_id)
            topic.recovered_producers += 1
    topic.reconnect_until = now + RECONNECT_S
    if topic.recovered_producers:
        stop_awaiting_later(topic.registrations, topic.registrations.await_return())


def stop_awaiting_later(
    registrations: ProducerRegistrations, awaited: AwaitedReturn
) -> None:
    """Admit queued producers after ``RETURN_S``."""
    loop = asyncio.get_running_loop()
    loop.call_later(RETURN_S, registrations.stop_awaiting, awaited)
