"""
The subscriptions of each topic: how they begin, where they go on, how they end.

What exists is in the metadata store, how far it is in the journal, and what was
decided about it in the metadata store again, also before it exists.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pydanube.broker.counts import Counts
from pydanube.broker.cursors import CursorSaver, state_of
from pydanube.broker.direct_subscription import DirectSubscription
from pydanube.broker.reliable_subscription import (
    DEFAULT_POLICY,
    NO_LIMITS,
    ReliableSubscription,
)
from pydanube.broker.subscription_settings import SettingsStore
from pydanube.broker.topic import ReliableTopic, Topic
from pydanube.dispatch import create_machine
from pydanube.dispatch.cursor import Cursor
from pydanube.metadata import keys
from pydanube.metadata.records import SubscriptionRecord
from pydanube.metadata.store import Delete
from pydanube.model.descriptions import DEFAULT_SETTINGS
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import AtTime, FailurePolicy, Start
from pydanube.storage.journal import complete_future
from pydanube.wire.batches import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.broker.dead_letters import DeadLetters
    from pydanube.broker.subscription import Subscription
    from pydanube.metadata.store import MetadataStore
    from pydanube.model.policy import (
        Position,
        SubscriptionSettings,
        SubscriptionType,
    )
    from pydanube.storage.storage import Storage

# What was sent is done, so nothing ever fails.
_DIRECT_POLICY = FailurePolicy(ack_timeout_s=None)


class Subscriptions:
    """
    Makes, finds and removes the subscriptions of all topics.

    Whoever calls sees to it that two changes of one topic do not meet.
    """

    def __init__(
        self,
        store: MetadataStore,
        storage: Storage,
        *,
        dead_letters: DeadLetters,
        tasks: asyncio.TaskGroup,
        done_ranges_max: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._storage = storage
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._done_ranges_max = done_ranges_max
        self._wall_clock_us = wall_clock_us
        self._loop = asyncio.get_running_loop()
        self._cursors = CursorSaver(storage, self._loop)
        self._settings = SettingsStore(store, wall_clock_us)

    # They begin and end.

    async def load(self, topic: ReliableTopic) -> None:
        """Have the subscriptions in the topic that it had before."""
        prefix = keys.subscriptions_of(topic.topic_id)
        stored = await self._store.scan(prefix)
        if not stored:
            return
        settings = await self._settings.all_of(topic.topic_id)
        state = self._storage.find_state(topic.topic_id)
        for path, record in stored:
            name = SubscriptionName(prefix.name_of(path))
            known = state.cursors.get(name) if state is not None else None
            cursor = (
                Cursor(topic.log.base_offset)
                if known is None
                else Cursor(known.offset, known.done.copy())
            )
            topic.subscriptions[name] = self._reliable(
                topic,
                name,
                record.value.type,
                cursor,
                settings.get(name, DEFAULT_SETTINGS),
            )

    async def begin(
        self,
        topic: Topic,
        name: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
    ) -> Subscription:
        """
        A new subscription; see ``Broker.open_subscription``.

        Raises:
            InvalidRequest: The topic has no such position.
            QuotaExceeded: The topic has as many subscriptions as it may.
        """
        topic.check_new_subscription()
        subscription: Subscription
        if isinstance(topic, ReliableTopic):
            subscription = await self._begin_reliable(topic, name, type_, start)
        else:
            subscription = self._direct(topic, name, type_)
        topic.subscriptions[name] = subscription
        return subscription

    async def _begin_reliable(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
    ) -> ReliableSubscription:
        cursor = Cursor(await self.locate(topic, start))
        # The position is written first: a record without one would say nothing.
        saved = self._loop.create_future()
        self._storage.save_cursor(
            topic.topic_id, name, state_of(cursor), partial(complete_future, saved)
        )
        await saved
        record = SubscriptionRecord(type=type_, created_at=self._wall_clock_us())
        await self._store.put(keys.subscription(topic.topic_id, name), record)
        settings = await self._settings.get(topic.topic_id, name)
        return self._reliable(topic, name, type_, cursor, settings)

    async def end(self, topic: Topic, name: SubscriptionName) -> None:
        """Forget a subscription of the topic, and what was decided about it."""
        del topic.subscriptions[name]
        if not isinstance(topic, ReliableTopic):
            return
        self._cursors.forget(topic.topic_id, [name])
        await self._store.transaction(
            [],
            [
                Delete(keys.subscription(topic.topic_id, name)),
                Delete(keys.settings(topic.topic_id, name)),
            ],
        )
        self._storage.delete_cursor(topic.topic_id, name)
        await self._storage.sync()

    def on_topic_gone(self, topic: Topic) -> None:
        """The topic is deleted, and its subscriptions with it."""
        self._cursors.forget(topic.topic_id, topic.subscriptions)

    # Where they are.

    async def locate(self, topic: ReliableTopic, where: Position) -> int:
        """
        The offset of a position; that of the first message, if it is older.

        Raises:
            InvalidRequest: The topic ends before it, or it is negative.
            CorruptSegment: A time cannot be found in what is stored.
        """
        if isinstance(where, AtTime):
            # Further away there are no times; all messages are later, or none is.
            time = max(TIME_MIN, min(where.publish_time, TIME_MAX + 1))
            offset: int = await topic.log.find_time(time)
        elif isinstance(where, Start):
            is_latest = where is Start.LATEST
            offset = topic.end_offset if is_latest else topic.log.base_offset
        else:
            offset = where
        if offset < 0:
            raise InvalidRequest(f"{offset} is no offset")
        if offset > topic.end_offset:
            raise InvalidRequest(
                f"{topic.name} ends at offset {topic.end_offset}; {offset} is beyond it"
            )
        return max(offset, topic.log.base_offset)

    async def save(self, subscription: Subscription) -> None:
        """Return when the subscription's position is on disk."""
        saved = self._loop.create_future()
        subscription.save_cursor_now(partial(complete_future, saved))
        await saved

    def flush(self) -> None:
        """Hand every position that has moved to the journal."""
        self._cursors.flush()

    # What was decided about them.

    async def settings_of(
        self, topic: Topic, name: SubscriptionName
    ) -> SubscriptionSettings:
        """What was decided about a subscription, whether it exists or not."""
        return await self._settings.get(topic.topic_id, name)

    async def decide(
        self, topic: Topic, name: SubscriptionName, settings: SubscriptionSettings
    ) -> None:
        """Remember other settings, and have the subscription go on with them."""
        await self._settings.put(topic.topic_id, name, settings)
        found = topic.subscriptions.get(name)
        if isinstance(found, ReliableSubscription):
            found.apply(settings)

    # What they are made of.

    def _reliable(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        type_: SubscriptionType,
        cursor: Cursor,
        settings: SubscriptionSettings,
    ) -> ReliableSubscription:
        machine = create_machine(
            type_,
            cursor,
            failure_policy=settings.failure_policy or DEFAULT_POLICY,
            limits=settings.limits or NO_LIMITS,
            done_ranges_max=self._done_ranges_max,
        )
        now = self._loop.time()
        # Nobody is there yet, so neither leads to anything.
        machine.set_paused(settings.is_paused, now)
        machine.set_rate(topic.dispatch_rate, now)
        return ReliableSubscription(
            name,
            type_,
            machine,
            self._loop.time,
            Counts(topic.counts),
            check_new_consumer=topic.check_new_consumer,
            topic=topic.name,
            topic_log=topic.log,
            settings=settings,
            cursors=self._cursors,
            dead_letters=self._dead_letters,
            tasks=self._tasks,
            wall_clock_us=self._wall_clock_us,
        )

    def _direct(
        self, topic: Topic, name: SubscriptionName, type_: SubscriptionType
    ) -> DirectSubscription:
        return DirectSubscription(
            name,
            type_,
            create_machine(
                type_, Cursor(topic.end_offset), failure_policy=_DIRECT_POLICY
            ),
            self._loop.time,
            Counts(topic.counts),
            check_new_consumer=topic.check_new_consumer,
        )
