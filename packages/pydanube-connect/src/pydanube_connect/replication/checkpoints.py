"""
The subscriptions of the source, and the same ones at the target.

While a replication runs, it stores the cursors of the source in a topic of the target,
where they are found if the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import msgspec

from pydanube.aio.tasks import gather
from pydanube.client.client import Client
from pydanube.client.messages.messages import MessageIds
from pydanube.model.errors import AlreadyExists, TopicNotFound
from pydanube.model.policy import (
    FailurePolicy,
    Retention,
    SubscriptionSettings,
    SubscriptionType,
)
from pydanube_connect.publishing import ensure_topic, last_payload
from pydanube_connect.replication.pure.positions import TopicPosition

RANGES_MAX = 100
"""How many ranges above a cursor are stored; messages of others are delivered again."""
RETENTION_BYTES = 1024 * 1024
REQUESTS_MAX = 32


class SubscriptionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a subscription at the source."""

    topic: str
    subscription: str
    type: SubscriptionType
    cursor: int
    done: tuple[tuple[int, int], ...] = ()
    """Ranges above the cursor that are done."""
    settings: SubscriptionSettings = SubscriptionSettings()


class MovedSubscription(msgspec.Struct, frozen=True):
    """A subscription that continues at the target."""

    topic: str
    """The topic or partition of the target."""
    subscription: str
    source_cursor: int
    cursor: int


async def read_subscriptions(
    source: Client, topics: list[str], own: str
) -> list[SubscriptionState]:
    """Return the subscriptions of *topics*, except *own*, that of the replication."""

    async def states(topic: str) -> list[SubscriptionState]:
        try:
            described = await source.topics.describe(topic)
        except TopicNotFound:
            return []
        return [
            SubscriptionState(
                topic=topic,
                subscription=each.subscription,
                type=each.type,
                cursor=each.cursor,
                done=each.done[:RANGES_MAX],
                settings=each.settings,
            )
            for each in described.subscriptions
            if each.subscription != own
        ]

    found = []
    for first in range(0, len(topics), REQUESTS_MAX):
        for some in await gather(map(states, topics[first : first + REQUESTS_MAX])):
            found += some
    return found


class Checkpoints:
    """Stores the subscriptions in a topic of the target."""

    def __init__(self, target: Client, topic: str) -> None:
        self._target = target
        self._topic = topic
        self._last: list[SubscriptionState] = []

    async def store(self, states: list[SubscriptionState]) -> None:
        """Store *states* if they have changed."""
        if states == self._last:
            return
        await ensure_topic(
            self._target, self._topic, retention=Retention(bytes_max=RETENTION_BYTES)
        )
        async with self._target.producer(self._topic) as producer:
            await producer.send(msgspec.json.encode(states))
        self._last = states

    async def load(self) -> list[SubscriptionState]:
        """
        Return what was stored last; nothing if there is no such topic.

        Raises:
            InvalidRequest: The topic was trimmed.
        """
        payload = await last_payload(self._target, self._topic)
        return msgspec.json.decode(payload or b"[]", type=list[SubscriptionState])


async def move_subscription(
    target: Client, state: SubscriptionState, topics: Mapping[str, TopicPosition]
) -> MovedSubscription:
    """Create a subscription at the target, or let it continue at the right offset."""
    position = topics[state.topic]
    topic, name = position.target, state.subscription
    cursor = position.translate(state.cursor)
    start = max(cursor, (await target.topics.list_offsets([topic]))[topic].base_offset)
    try:
        await target.subscriptions.create(
            topic, name, type=state.type.value, start=start
        )
    except AlreadyExists:
        await target.subscriptions.seek(topic, name, start)
    for first, end in state.done:
        ids = range(max(start, position.translate(first)), position.translate(end))
        # Inexact offsets are earlier ones: messages that are not done.
        if ids and position.is_exact_at(first):
            await target.subscriptions.mark_done(topic, name, MessageIds(topic, ids))
    await target.subscriptions.configure(
        topic,
        name,
        failure_policy=_renamed(state.settings.failure_policy, topics),
        limits=state.settings.limits,
        is_paused=state.settings.is_paused,
    )
    return MovedSubscription(
        topic=topic, subscription=name, source_cursor=state.cursor, cursor=start
    )


def _renamed(
    policy: FailurePolicy | None, topics: Mapping[str, TopicPosition]
) -> FailurePolicy | None:
    """Return *policy* with the name of its dead-letter topic at the target."""
    topic = None if policy is None else policy.dead_letter_topic
    if policy is None or topic is None or topic not in topics:
        return policy
    return replace(policy, dead_letter_topic=topics[topic].target)


async def forget(target: Client, topic: str) -> None:
    """Delete *topic*, which may not exist."""
    with suppress(TopicNotFound):
        await target.topics.delete(topic, force=True)
