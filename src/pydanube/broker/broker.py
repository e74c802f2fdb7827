"""
A broker: the topics it serves, and what may be done with them.

It knows nothing of connections.  A door parses, calls one of the methods here,
and translates the result; what it may hold on to is a ``Topic``, a
``ProducerSession`` and a ``Subscription``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.broker.counts import Counts
from pydanube.broker.cursors import CursorSaver, state_of
from pydanube.broker.direct import DirectSubscription
from pydanube.broker.sessions import ProducerSessions
from pydanube.broker.subscription import ReliableSubscription, Subscription
from pydanube.broker.topic import DirectTopic, ReliableTopic, Topic
from pydanube.dispatch import machine_for
from pydanube.dispatch.cursor import Cursor
from pydanube.metadata import keys
from pydanube.metadata.records import (
    BrokerRecord,
    NamespaceRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pydanube.metadata.store import ABSENT, Delete, Put, Unchanged
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Draining,
    InvalidRequest,
    NamespaceNotFound,
    RevisionConflict,
    SubscriptionInUse,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import (
    DEFAULT_NAMESPACE,
    SYSTEM_NAMESPACE,
    NamespaceName,
    SubscriptionName,
    TopicName,
)
from pydanube.model.policy import Start, SubscriptionType, TopicPolicy
from pydanube.model.ranges import RangeSet
from pydanube.storage.journal import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pydanube.broker.producers import ProducerSession
    from pydanube.metadata.key import Prefix
    from pydanube.metadata.store import MetadataStore
    from pydanube.storage.manifest import SegmentEntry
    from pydanube.storage.storage import Storage

log = logging.getLogger(__name__)

OPENED_TOGETHER_MAX = 64
"""At the start: topics that share the syncs of their opening."""


class Broker:
    """
    One broker's topics.

    Ordering: Changes of one topic's life (creating, opening, deleting) happen
        one after the other; publishing and delivering never wait for them.
    """

    def __init__(
        self,
        broker_id: str,
        *,
        store: MetadataStore,
        storage: Storage,
        tasks: asyncio.TaskGroup,
        auto_create_topics: bool,
        done_ranges_max: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.topics: dict[TopicName, Topic] = {}
        """The topics that are open here."""
        self.storage = storage
        self.counts = Counts()
        self.is_draining = False
        self._store = store
        self._tasks = tasks
        self._auto_create_topics = auto_create_topics
        self._done_ranges_max = done_ranges_max
        self._wall_clock_us = wall_clock_us
        self._loop = asyncio.get_running_loop()
        self._cursors = CursorSaver(storage, self._loop)
        self._sessions = ProducerSessions(storage)
        # Whoever opens, creates or deletes a topic holds it.
        self._changing = asyncio.Lock()

    # Topics.

    async def create_topic(
        self, name: TopicName, policy: TopicPolicy, *, exist_ok: bool = False
    ) -> Topic:
        """
        The topic *name*, new.

        Durability: On return its existence is on disk.

        Raises:
            AlreadyExists: It exists and *exist_ok* is false, or its policy differs.
            NamespaceNotFound: Its namespace does not exist.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        async with self._changing:
            record = await self._store.get(keys.topic(name))
            if record is not None:
                if not exist_ok or record.value.policy != policy:
                    raise AlreadyExists(f"Topic '{name}' already exists")
                return await self._open(name)
            if await self._store.get(keys.namespace(name.namespace)) is None:
                raise NamespaceNotFound(
                    f"Unable to find the namespace {name.namespace}; a topic can be "
                    "created only in an existing namespace"
                )
            await self._record_topic(name, policy)
            return await self._open(name)

    async def topic(self, name: TopicName) -> Topic:
        """
        The topic *name*, opened if it is not open yet.

        Raises:
            TopicNotFound: There is none.
        """
        found = self.topics.get(name)
        if found is not None:
            return found
        async with self._changing:
            return await self._open(name)

    async def open_recovered(self, name: TopicName) -> None:
        """Open a topic at the start, when nobody else changes anything."""
        await self._open(name)

    async def reliable_topic(self, name: TopicName) -> ReliableTopic:
        """
        The topic *name*, which must be a stored one.

        Raises:
            TopicNotFound: There is none.
            InvalidRequest: It is not reliable, so there is nothing to read.
        """
        topic = await self.topic(name)
        if not isinstance(topic, ReliableTopic):
            raise InvalidRequest(f"{name} is not reliable: nothing of it is stored")
        return topic

    async def topic_names(
        self, namespace: NamespaceName | None = None
    ) -> list[TopicName]:
        """Every topic, or those of *namespace*, by name."""
        prefix = keys.TOPICS if namespace is None else keys.topics_of(namespace)
        stored = await self._store.scan(prefix)
        return [TopicName.parse("/" + keys.TOPICS.name_of(path)) for path, _ in stored]

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """
        Remove the topic with its messages and subscriptions.

        Raises:
            TopicNotFound: There is none.
            SubscriptionInUse: It has producers or consumers and *force* is false.
        """
        async with self._changing:
            topic = await self._open(name)
            if topic.is_in_use and not force:
                raise SubscriptionInUse(
                    f"{name} has producers or consumers; disconnect them or force it"
                )
            gone = TopicNotFound(f"{name} has been deleted")
            topic.refusal = gone
            del self.topics[name]
            topic.close(gone)
            self._cursors.forget(topic.topic_id)
            # The name goes first: what is left of the topic after a crash belongs
            # to nobody, and is removed at the next start.
            await self._store.delete(keys.topic(name))
            if isinstance(topic, ReliableTopic):
                await self.forget_topic(topic.topic_id)

    async def forget_topic(self, topic_id: TopicId) -> None:
        """Remove what is left of a topic that has no name any more."""
        await self.storage.delete_topic(topic_id)
        await self._store.transaction([], await self._records_of(topic_id))

    # Producers.

    async def open_producer(
        self,
        name: TopicName,
        producer: str,
        *,
        policy: TopicPolicy | None,
        takes_any_kind: bool = False,
        resume: tuple[int, int] = (0, 0),
    ) -> tuple[Topic, ProducerSession]:
        """
        A session for a producer of the topic, which is created if *policy* says how.

        A topic that exists must be of that kind, unless *takes_any_kind*.

        *resume* is the id and epoch of the session that a client had before its
        connection broke; anybody else's session of this name is fenced.

        Durability: On return the session's epoch is on disk.

        Raises:
            TopicNotFound: There is no such topic, and it may not be created.
            AlreadyExists: The topic exists, and is not as *policy* wants it.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        topic = await self._topic_for_producer(
            name, policy, takes_any_kind=takes_any_kind
        )
        session = await self._sessions.open(topic, producer, resume)
        return topic, session

    def close_producer(
        self, topic: Topic, session: ProducerSession, *, forget: bool
    ) -> None:
        """
        The producer is gone.

        It is remembered, in case it comes back and sends something again,
        unless *forget* says that it will not.
        """
        self._sessions.close(topic, session, forget=forget)

    # Subscriptions.

    async def open_subscription(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        type_: SubscriptionType,
        start: Start,
        *,
        ack_timeout_s: float | None = None,
    ) -> tuple[Topic, Subscription]:
        """
        The subscription, created at *start* if it does not exist.

        One that exists keeps its position and its type; *ack_timeout_s*, unless
        None, holds from now on.

        Durability: On return the subscription and its position are on disk.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It exists with another type.
        """
        self._refuse_when_draining()
        topic = await self.topic(name)
        async with self._changing:
            found = topic.subscriptions.get(subscription)
            if found is None:
                found = await self._new_subscription(topic, subscription, type_, start)
            elif found.type is not type_:
                raise InvalidRequest(
                    f"subscription {subscription} of {name} is {found.type.value}, "
                    f"not {type_.value}"
                )
            if ack_timeout_s is not None:
                found.set_ack_timeout(ack_timeout_s)
            return topic, found

    async def create_subscription(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        type_: SubscriptionType,
        start: Start,
    ) -> None:
        """
        Make a subscription that has no consumer yet.

        Raises:
            AlreadyExists: There is one of this name.
            TopicNotFound: There is no such topic.
        """
        topic = await self.topic(name)
        if subscription in topic.subscriptions:
            raise AlreadyExists(f"{name} has a subscription {subscription!r} already")
        await self.open_subscription(name, subscription, type_, start)

    async def delete_subscription(
        self, name: TopicName, subscription: SubscriptionName, *, force: bool = False
    ) -> None:
        """
        Forget the subscription and its position.

        Raises:
            SubscriptionNotFound: There is none.
            SubscriptionInUse: It has consumers and *force* is false.
        """
        topic = await self.topic(name)
        async with self._changing:
            found = topic.find_subscription(subscription)
            if found.has_consumers and not force:
                raise SubscriptionInUse(
                    f"subscription {subscription} of {name} has consumers; disconnect "
                    "them or force it"
                )
            found.close(BrokerError(f"subscription {subscription} has been deleted"))
            del topic.subscriptions[subscription]
            if isinstance(topic, ReliableTopic):
                self._cursors.forget(topic.topic_id, subscription)
                await self._store.delete(
                    keys.subscription(topic.topic_id, subscription)
                )
                self.storage.delete_cursor(topic.topic_id, subscription)
                await self.storage.sync()

    async def seek(
        self, topic: Topic, subscription: Subscription, where: int | Start
    ) -> None:
        """
        Go on at *where*, for all consumers of the subscription.

        Durability: On return the new position is on disk.

        Raises:
            InvalidRequest: The topic is not reliable, or has no such offset yet.
        """
        if not isinstance(topic, ReliableTopic) or not isinstance(
            subscription, ReliableSubscription
        ):
            raise InvalidRequest(f"{topic.name} is not reliable: there is no position")
        offset = where if isinstance(where, int) else _offset_of(topic, where)
        if offset > topic.end_offset:
            raise InvalidRequest(
                f"{topic.name} ends at offset {topic.end_offset}; {offset} is beyond it"
            )
        subscription.hold()
        try:
            subscription.seek(max(offset, topic.log.base_offset))
            await self._saved(subscription)
        finally:
            # The caller's answer comes first: what follows it is from the new
            # position.
            self._loop.call_soon(subscription.release)

    async def report_progress(
        self, name: TopicName, subscription: SubscriptionName, offset: int
    ) -> None:
        """
        A reader that keeps its own positions has come to *offset*.

        The subscription is created if it does not exist; its position only
        rises.

        Raises:
            InvalidRequest: The topic is not reliable, or ends before *offset*.
        """
        topic = await self.reliable_topic(name)
        if offset > topic.end_offset:
            raise InvalidRequest(
                f"{name} ends at offset {topic.end_offset}; {offset} is beyond it"
            )
        found = topic.subscriptions.get(subscription)
        if found is None:
            _, found = await self.open_subscription(
                name, subscription, SubscriptionType.SHARED, Start.EARLIEST
            )
        assert isinstance(found, ReliableSubscription)
        if offset > found.describe(topic.end_offset).cursor:
            found.seek(offset)

    # Room, end.

    @property
    def has_room(self) -> bool:
        """Whether doors may go on taking batches."""
        return self.storage.has_room

    async def room(self) -> None:
        """Wait until there is room for more batches."""
        await self.storage.room()

    def segment_url(self, entry: SegmentEntry) -> str:
        """Where any engine can read the segment."""
        return self.storage.segment_url(entry)

    async def drain(self) -> None:
        """
        Refuse new batches, and finish what was taken.

        Durability: On return every acknowledged message and every cursor is on
            disk.
        """
        self.is_draining = True
        for topic in self.topics.values():
            topic.refusal = Draining("the broker is stopping (draining)")
        self._cursors.flush()
        await self.storage.sync()

    # What follows.

    async def _open(self, name: TopicName) -> Topic:
        found = self.topics.get(name)
        if found is not None:
            return found
        record = await self._store.get(keys.topic(name))
        if record is None:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        topic_id = TopicId(record.value.topic_id)
        policy = record.value.policy
        topic: Topic
        if policy.is_reliable:
            epoch = await self._claim(topic_id)
            topic_log = await self.storage.open_log(topic_id, name, epoch, policy)
            topic = ReliableTopic(name, topic_id, policy, self.counts, topic_log)
            await self._open_subscriptions(topic)
        else:
            topic = DirectTopic(name, topic_id, policy, self.counts)
        if self.is_draining:
            topic.refusal = Draining("the broker is stopping (draining)")
        self.topics[name] = topic
        return topic

    async def _claim(self, topic_id: TopicId) -> Epoch:
        """Take the topic over from whoever has it, fencing the previous owner."""
        key = keys.topic_epoch(topic_id)
        current = await self._store.get(key)
        epoch = Epoch(1 if current is None else current.value + 1)
        await self._store.put(
            key, epoch, expected=ABSENT if current is None else current.revision
        )
        return epoch

    async def _record_topic(self, name: TopicName, policy: TopicPolicy) -> None:
        while True:
            last = await self._store.get(keys.LAST_TOPIC_ID)
            topic_id = 1 if last is None else last.value + 1
            record = TopicRecord(
                topic_id=topic_id, policy=policy, created_at=self._wall_clock_us()
            )
            try:
                await self._store.transaction(
                    [
                        Unchanged(keys.topic(name), ABSENT),
                        Unchanged(
                            keys.LAST_TOPIC_ID,
                            ABSENT if last is None else last.revision,
                        ),
                    ],
                    [Put(keys.topic(name), record), Put(keys.LAST_TOPIC_ID, topic_id)],
                )
            except RevisionConflict:
                if await self._store.get(keys.topic(name)) is not None:
                    return
            else:
                return

    async def _records_of(self, topic_id: TopicId) -> list[Delete[Any]]:
        """What the metadata store knows of a topic besides its name."""
        paths: list[Delete[Any]] = [Delete(keys.topic_epoch(topic_id))]
        prefixes: list[Prefix[Any]] = [
            keys.subscriptions_of(topic_id),
            keys.segments_of(topic_id),
        ]
        for prefix in prefixes:
            stored = await self._store.scan(prefix)
            paths += [Delete(prefix.key(prefix.name_of(path))) for path, _ in stored]
        return paths

    async def _topic_for_producer(
        self, name: TopicName, policy: TopicPolicy | None, *, takes_any_kind: bool
    ) -> Topic:
        try:
            topic = await self.topic(name)
        except TopicNotFound:
            if policy is None or not self._auto_create_topics:
                raise
            return await self.create_topic(name, policy, exist_ok=True)
        if (
            policy is not None
            and not takes_any_kind
            and policy.dispatch is not topic.policy.dispatch
        ):
            raise AlreadyExists(
                f"{name} is {topic.policy.dispatch.value}, the producer wants it "
                f"{policy.dispatch.value}"
            )
        return topic

    async def _open_subscriptions(self, topic: ReliableTopic) -> None:
        prefix = keys.subscriptions_of(topic.topic_id)
        state = self.storage.find_state(topic.topic_id)
        for path, stored in await self._store.scan(prefix):
            name = SubscriptionName(prefix.name_of(path))
            known = state.cursors.get(name) if state is not None else None
            cursor = (
                Cursor(topic.log.base_offset, RangeSet())
                if known is None
                else Cursor(known.offset, RangeSet(known.ranges))
            )
            topic.subscriptions[name] = self._reliable_subscription(
                topic, name, stored.value.type, cursor
            )

    async def _new_subscription(
        self,
        topic: Topic,
        name: SubscriptionName,
        type_: SubscriptionType,
        start: Start,
    ) -> Subscription:
        if not isinstance(topic, ReliableTopic):
            subscription: Subscription = DirectSubscription(
                name,
                type_,
                machine_for(type_, Cursor(topic.end_offset, RangeSet())),
                self._loop.time,
                Counts(topic.counts),
            )
            topic.subscriptions[name] = subscription
            return subscription
        cursor = Cursor(_offset_of(topic, start), RangeSet())
        # The position is written first: a record without one would say nothing.
        saved = self._loop.create_future()
        self.storage.save_cursor(
            topic.topic_id, name, state_of(cursor), partial(settle, saved)
        )
        await saved
        record = SubscriptionRecord(type=type_, created_at=self._wall_clock_us())
        await self._store.put(keys.subscription(topic.topic_id, name), record)
        reliable = self._reliable_subscription(topic, name, type_, cursor)
        topic.subscriptions[name] = reliable
        return reliable

    def _reliable_subscription(
        self,
        topic: ReliableTopic,
        name: SubscriptionName,
        type_: SubscriptionType,
        cursor: Cursor,
    ) -> ReliableSubscription:
        return ReliableSubscription(
            name,
            type_,
            machine_for(type_, cursor, done_ranges_max=self._done_ranges_max),
            self._loop.time,
            Counts(topic.counts),
            topic_log=topic.log,
            cursors=self._cursors,
            tasks=self._tasks,
        )

    async def _saved(self, subscription: ReliableSubscription) -> None:
        saved = self._loop.create_future()
        subscription.save_cursor_now(partial(settle, saved))
        await saved

    def _refuse_when_draining(self) -> None:
        if self.is_draining:
            raise Draining("the broker is stopping (draining)")


@asynccontextmanager
async def open_broker(
    store: MetadataStore,
    storage: Storage,
    *,
    new_broker_id: Callable[[], str],
    wall_clock_us: Callable[[], int],
    auto_create_topics: bool = True,
    done_ranges_max: int = 100_000,
) -> AsyncIterator[Broker]:
    """
    A broker over what *store* and *storage* hold.

    Topics with messages that are not sealed are opened at once, the others when
    somebody asks for them.  On leaving, the broker is drained.
    """
    broker_id = await _found_cluster(store, new_broker_id, wall_clock_us)
    async with asyncio.TaskGroup() as tasks:
        broker = Broker(
            broker_id,
            store=store,
            storage=storage,
            tasks=tasks,
            auto_create_topics=auto_create_topics,
            done_ranges_max=done_ranges_max,
            wall_clock_us=wall_clock_us,
        )
        await _open_recovered(broker, store, storage)
        try:
            yield broker
        finally:
            await broker.drain()
            for topic in broker.topics.values():
                topic.close(Draining("the broker is stopping (draining)"))
                for subscription in topic.subscriptions.values():
                    subscription.cancel()


async def _found_cluster(
    store: MetadataStore,
    new_broker_id: Callable[[], str],
    wall_clock_us: Callable[[], int],
) -> str:
    """What a store holds from its first day; returns the broker's id."""
    known = await store.get(keys.BROKER)
    if known is not None:
        return known.value.broker_id
    now = wall_clock_us()
    record = BrokerRecord(broker_id=new_broker_id(), created_at=now)
    namespaces = [
        Put(keys.namespace(name), NamespaceRecord(created_at=now))
        for name in (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)
    ]
    await store.transaction(
        [Unchanged(keys.BROKER, ABSENT)], [Put(keys.BROKER, record), *namespaces]
    )
    return record.broker_id


async def _open_recovered(
    broker: Broker, store: MetadataStore, storage: Storage
) -> None:
    """Open the topics with messages that are not sealed; remove deleted ones."""
    known = {
        stored.value.topic_id: TopicName.parse("/" + keys.TOPICS.name_of(path))
        for path, stored in await store.scan(keys.TOPICS)
    }
    # Several at a time share the syncs that opening takes.
    places = asyncio.Semaphore(OPENED_TOGETHER_MAX)

    async def open_topic(name: TopicName) -> None:
        async with places:
            await broker.open_recovered(name)

    async with asyncio.TaskGroup() as tasks:
        for topic_id, text in storage.recovered:
            name = known.get(topic_id)
            if name is None:
                log.info("removing what is left of the deleted topic %s", text)
                await broker.forget_topic(topic_id)
            elif storage.has_recovered(topic_id):
                tasks.create_task(open_topic(name))


def _offset_of(topic: ReliableTopic, start: Start) -> int:
    if start is Start.EARLIEST:
        return topic.log.base_offset
    return topic.log.end_offset
