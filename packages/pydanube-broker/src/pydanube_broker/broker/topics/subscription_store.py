"""
Loading, creating and deleting subscriptions, and saving their cursors and settings.

The metadata store has the subscriptions and their settings, which may be set before a
subscription exists.  The journal has their cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from pydanube.aio.futures import completion
from pydanube.model.descriptions import DEFAULT_SETTINGS
from pydanube.model.errors import NotOwner
from pydanube.model.ids import TopicId
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import (
    FailurePolicy,
    Position,
    SubscriptionSettings,
    SubscriptionType,
)
from pydanube.security.principals import Principal
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import CursorSaved, SubscriptionDeleted
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.broker.delivery.cursors import CursorSaver, state_of
from pydanube_broker.broker.delivery.direct_subscription import DirectSubscription
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.publishing.tracing import Tracing
from pydanube_broker.broker.topics.dead_letters import DeadLetters
from pydanube_broker.broker.topics.owned_changes import change_owned
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.machine import DEFAULT_POLICY, NO_LIMITS
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import SettingsRecord, SubscriptionRecord
from pydanube_broker.metadata.store import (
    Delete,
    MetadataStore,
    Operation,
    Put,
)
from pydanube_broker.storage.storage import Storage

_DEFAULT_RECORD = SettingsRecord(settings=DEFAULT_SETTINGS, changed_at=0)
# Messages are done when they are sent, so none is redelivered.
_DIRECT_POLICY = FailurePolicy(ack_timeout_s=None)


class SubscriptionStore:
    """
    The subscriptions of all topics, as they are stored.

    The caller must not change one topic's subscriptions concurrently.
    """

    def __init__(
        self,
        store: MetadataStore,
        storage: Storage,
        *,
        dead_letters: DeadLetters,
        tasks: asyncio.TaskGroup,
        done_ranges_max: int,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._store = store
        self._storage = storage
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._done_ranges_max = done_ranges_max
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self.cursors = CursorSaver(storage, asyncio.get_running_loop())

    # Loading, creating, deleting.

    async def load(self, topic: ReliableTopic, *, is_new: bool = False) -> None:
        """Load the subscriptions of a topic that is being opened, unless it is new."""
        topic.log.follow_cursors(partial(self._find_cursors, topic))
        if is_new:
            return
        prefix = keys.SUBSCRIPTIONS.within(topic.topic_id)
        stored = await self._store.scan(prefix)
        if not stored:
            return
        all_settings = keys.SETTINGS.within(topic.topic_id)
        settings = {
            all_settings.name_of(path): each.value
            for path, each in await self._store.scan(all_settings)
        }
        state = self._storage.find_state(topic.topic_id)
        for path, record in stored:
            name = SubscriptionName(prefix.name_of(path))
            known = state.cursors.get(name) if state is not None else None
            cursor = (
                Cursor(topic.log.base_offset)
                if known is None
                else Cursor(
                    known.offset,
                    known.done.copy(),
                    generation=known.generation,
                    failures=known.failures,
                    note=known.note,
                )
            )
            topic.subscriptions[name] = self._reliable(
                topic,
                name,
                record.value.type,
                cursor,
                settings.get(name, _DEFAULT_RECORD),
            )

    async def create(
        self,
        topic: Topic,
        name: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
    ) -> Subscription:
        """
        Create a subscription at *start*, and add it to the topic.

        Durability: On return the subscription and its cursor are on disk.
        """
        topic.check_new_subscription()
        subscription: Subscription
        if isinstance(topic, ReliableTopic):
            subscription = await self._create_reliable(topic, name, type_, start)
        else:
            subscription = DirectSubscription(
                name,
                type_,
                MACHINES[type_](
                    Cursor(topic.end_offset), failure_policy=_DIRECT_POLICY
                ),
                self._clock,
                Counts(topic.counts),
                check_new_consumer=topic.check_new_consumer,
                on_send=self._on_send(topic, name),
            )
        topic.subscriptions[name] = subscription
        return subscription

    def _find_cursors(self, topic: ReliableTopic) -> list[int]:
        """
        Return for each subscription an offset that it has certainly acknowledged.

        All earlier messages are acknowledged, too, both in memory and in the journal: a
        seek may have moved the cursor back, and a crash may take it back.
        """
        state = self._storage.find_state(topic.topic_id)
        saved = {} if state is None else state.cursors
        cursors = [
            min(each.cursor_offset, saved[name].offset) if name in saved else 0
            for name, each in topic.subscriptions.items()
        ]
        return [*cursors, *topic.starting.values()]

    async def _create_reliable(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
    ) -> ReliableSubscription:
        offset = await topic.locate(start)
        cursor = Cursor(offset, generation=self._wall_clock_us())
        topic.check_stays()
        # Retention must not drop acknowledged segments from here on.
        topic.starting[name] = cursor.offset
        try:
            # The cursor is written first: a subscription's record must not lack one.
            saved = CursorSaved(topic.topic_id, name, state_of(cursor))
            await completion(partial(self._storage.save, saved))
            # The cursor may be behind the mark that ends the shard.
            topic.check_stays()
            record = SubscriptionRecord(type=type_, created_at=self._wall_clock_us())
            key = keys.SUBSCRIPTIONS.key(topic.topic_id, name)
            await self._change(topic, [Put(key, record)])
            settings = await self.record_of(topic.topic_id, name)
            # Nobody would close a subscription of a topic that is closed.
            topic.check_stays()
            created = self._reliable(topic, name, type_, cursor, settings)
            topic.subscriptions[name] = created
        finally:
            del topic.starting[name]
        return created

    async def delete(self, topic: Topic, name: SubscriptionName) -> None:
        """Delete a subscription of the topic, its cursor and its settings."""
        if not isinstance(topic, ReliableTopic):
            del topic.subscriptions[name]
            return
        await self._change(
            topic,
            [
                Delete(keys.SUBSCRIPTIONS.key(topic.topic_id, name)),
                Delete(keys.SETTINGS.key(topic.topic_id, name)),
            ],
        )
        topic.subscriptions.pop(name, None)
        self.cursors.forget(topic.topic_id, [name])
        self._storage.save(SubscriptionDeleted(topic.topic_id, name))
        await self._storage.journal.sync()

    # Settings.

    async def record_of(
        self, topic_id: TopicId, name: SubscriptionName
    ) -> SettingsRecord:
        """Return the settings of a subscription, or the defaults, and their author."""
        stored = await self._store.get(keys.SETTINGS.key(topic_id, name))
        return _DEFAULT_RECORD if stored is None else stored.value

    async def save_settings(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        settings: SubscriptionSettings,
        author: Principal | None,
    ) -> None:
        """
        Store settings; the defaults are not stored.

        Raises:
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        key = keys.SETTINGS.key(topic.topic_id, name)
        if settings == DEFAULT_SETTINGS:
            await self._change(topic, [Delete(key)])
        else:
            record = SettingsRecord(
                settings=settings, changed_at=self._wall_clock_us(), author=author
            )
            await self._change(topic, [Put(key, record)])

    async def _change(
        self, topic: ReliableTopic, operations: Sequence[Operation]
    ) -> None:
        """
        Change what the next owner of *topic* reads, unless it has begun to.

        A change that is on its way while the shard moves is known to the next owner,
        or it is refused.

        Raises:
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        try:
            await change_owned(self._store, topic.log, operations)
        except NotOwner:
            topic.check_stays()
            raise

    # Construction.

    def _reliable(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        type_: SubscriptionType,
        cursor: Cursor,
        record: SettingsRecord,
    ) -> ReliableSubscription:
        settings = record.settings
        machine = MACHINES[type_](
            cursor,
            failure_policy=settings.failure_policy or DEFAULT_POLICY,
            limits=settings.limits or NO_LIMITS,
            done_ranges_max=self._done_ranges_max,
        )
        now = self._clock()
        # There are no consumers yet, so neither call has effects.
        machine.set_paused(settings.is_paused, now)
        machine.set_rate(topic.dispatch_rate, now)
        return ReliableSubscription(
            name,
            type_,
            machine,
            self._clock,
            Counts(topic.counts),
            check_new_consumer=topic.check_new_consumer,
            on_send=self._on_send(topic, name),
            topic=topic.name,
            topic_log=topic.log,
            settings=settings,
            author=record.author,
            cursors=self.cursors,
            dead_letters=self._dead_letters,
            tasks=self._tasks,
            wall_clock_us=self._wall_clock_us,
        )

    def _on_send(
        self, topic: Topic, name: SubscriptionName
    ) -> Callable[[BatchFrame, int], None] | None:
        if self._tracing is None:
            return None
        return partial(self._tracing.deliver, topic.name, name)
