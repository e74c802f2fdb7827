"""
A broker: the topics it serves, and what may be done with them.

It knows nothing of connections.  A server parses, calls one of the methods here,
and translates the result; what it may hold on to is a ``Topic``, a
``ProducerSession`` and a ``Subscription``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydanube.broker.catalog import Catalog
from pydanube.broker.consumer_registry import ConsumerRegistry
from pydanube.broker.counts import Counts
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.message_batcher import BATCH_BYTES_MAX, MessageBatcher
from pydanube.broker.namespaces import FIRST_NAMESPACES, Namespaces
from pydanube.broker.partitions import names_of
from pydanube.broker.producer_registrations import (
    AccessRequest,
    OnFenced,
    ProducerRegistration,
)
from pydanube.broker.reliable_subscription import ReliableSubscription
from pydanube.broker.retention_holds import RetentionHolds, check_no_holds
from pydanube.broker.sessions import ProducerSessions
from pydanube.broker.staging import Staging, open_staging
from pydanube.broker.subscription_settings import (
    check_ack_timeout,
    check_settings,
    dead_letter_topic_of,
)
from pydanube.broker.subscriptions import Subscriptions
from pydanube.broker.topic import DirectTopic, ReliableTopic, Topic
from pydanube.broker.topic_schemas import TopicSchemas, check_schema_reference
from pydanube.metadata import keys
from pydanube.metadata.records import BrokerRecord, NamespaceRecord
from pydanube.metadata.store import ABSENT, Put, Unchanged
from pydanube.metadata.transactions import settled
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Draining,
    InconsistentDirectory,
    InvalidName,
    InvalidRequest,
    SubscriptionInUse,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import (
    NamespaceName,
    SubscriptionName,
    TopicName,
    check_new_namespace,
)
from pydanube.model.policy import (
    AtTime,
    CorruptionPolicy,
    NamespacePolicy,
    ProducerAccess,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.schemas import TopicSchema
from pydanube.schemas.registry import SchemaRegistry
from pydanube.storage.config import StagingConfig
from pydanube.storage.files import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Sequence,
    )

    from pydanube.broker.producer_session import ProducerSession
    from pydanube.broker.subscription import Subscription
    from pydanube.metadata.store import MetadataStore
    from pydanube.model.descriptions import Hold
    from pydanube.model.policy import (
        DispatchLimits,
        FailurePolicy,
        Position,
        SubscriptionSettings,
    )
    from pydanube.model.ranges import Range
    from pydanube.model.schemas import ProducerSchema, SchemaReference
    from pydanube.storage.files import Files
    from pydanube.storage.manifest import SegmentEntry
    from pydanube.storage.replacement import Replacement
    from pydanube.storage.storage import Storage

log = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")

TOGETHER_MAX = 64
"""So many topics are opened or cleared away at a time, and share the syncs of that."""
FIND_TIMES_MAX = 1000
"""So many times may be looked for in one request."""


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
        batch_bytes_max: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.topics: dict[TopicName, Topic] = {}
        """The topics that are open here."""
        self.storage = storage
        self.counts = Counts()
        self.is_draining = False
        self.staging: Staging
        """Batches that are stored and not published yet."""
        self._store = store
        self._auto_create_topics = auto_create_topics
        self._loop = asyncio.get_running_loop()
        self.batcher = MessageBatcher(self._loop, batch_bytes_max=batch_bytes_max)
        """Takes messages one by one, for any topic."""
        self.consumer_registry = ConsumerRegistry(store)
        """Whom a server has to know again after a restart."""
        self._namespaces = Namespaces(store, wall_clock_us)
        self._holds = RetentionHolds(store, wall_clock_us)
        self._catalog = Catalog(store, self._namespaces, wall_clock_us)
        self.registry = SchemaRegistry(store, wall_clock_us)
        """The subjects of the schema registry; what topics use is deleted here."""
        self._schemas = TopicSchemas(
            self.registry, self._catalog, tasks, self._loop.time
        )
        self._sessions = ProducerSessions(storage, self._loop.time)
        self.dead_letters = DeadLetters(
            self._open_dead_letter_topic,
            lambda: storage.has_room,
            tasks,
            self._loop.time,
        )
        """Where messages go that subscriptions have given up on."""
        self.dead_letters.broker_address = broker_id
        self._subscriptions = Subscriptions(
            store,
            storage,
            dead_letters=self.dead_letters,
            tasks=tasks,
            done_ranges_max=done_ranges_max,
            wall_clock_us=wall_clock_us,
        )
        # Whoever opens, creates or deletes a topic or changes its limits holds it.
        self._changing = asyncio.Lock()

    # Namespaces and limits.

    async def create_namespace(
        self,
        name: NamespaceName,
        policy: NamespacePolicy = NamespacePolicy(),  # noqa: B008  # It is immutable.
        *,
        exist_ok: bool = False,
    ) -> None:
        """
        Make a namespace, whose topics have the limits of *policy*.

        Durability: On return it is on disk.

        Raises:
            AlreadyExists: It exists and *exist_ok* is false; else it stays as it is.
            InvalidRequest: A limit is negative.
        """
        await self._namespaces.create(name, policy, exist_ok=exist_ok)

    async def delete_namespace(self, name: NamespaceName) -> None:
        """
        Remove a namespace that has no topics.

        Raises:
            NamespaceNotFound: There is none.
            NamespaceInUse: It has topics.
            InvalidRequest: It is one of those that are always there.
        """
        async with self._changing:
            await self._namespaces.delete(name)

    async def namespace_names(self) -> list[NamespaceName]:
        """Every namespace, by name."""
        return await self._namespaces.names()

    async def namespace_policy(self, name: NamespaceName) -> NamespacePolicy:
        """
        The limits of the topics in a namespace.

        Raises:
            NamespaceNotFound: There is none.
        """
        return (await self._namespaces.find(name)).value.policy

    async def set_namespace_policy(
        self, name: NamespaceName, policy: NamespacePolicy
    ) -> None:
        """
        Give the topics of a namespace other limits, also those that are open.

        Nobody who is there is disconnected; newcomers are refused.

        Raises:
            NamespaceNotFound: There is none.
            InvalidRequest: A limit is negative.
        """
        async with self._changing:
            await self._namespaces.set_policy(name, policy)
            for topic in self.topics.values():
                if topic.name.namespace == name and not topic.has_own_limits:
                    topic.set_limits(policy, are_own=False)

    async def set_topic_limits(
        self, name: TopicName, limits: NamespacePolicy | None
    ) -> None:
        """
        Give a topic limits of its own; with None, those of its namespace hold.

        For the base name of partitions it is about all of them, later ones too.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: A limit is negative.
        """
        async with self._changing:
            names = await self._catalog.set_limits(name, limits)
            holding = limits or await self._limits_of_namespace(name)
            for topic in filter(None, map(self.topics.get, names)):
                topic.set_limits(holding, are_own=limits is not None)

    async def set_on_corruption(
        self, name: TopicName, on_corruption: CorruptionPolicy
    ) -> None:
        """
        Change what subscriptions of a topic do when a segment cannot be read.

        For the base name of partitions it is about all of them, later ones too.

        Raises:
            TopicNotFound: There is no such topic.
        """
        async with self._changing:
            names = await self._catalog.set_on_corruption(name, on_corruption)
            for topic in filter(None, map(self.topics.get, names)):
                topic.set_on_corruption(on_corruption)

    async def topic_limits(self, name: TopicName) -> NamespacePolicy | None:
        """
        The limits that a topic, or a base name, has of its own.

        Raises:
            TopicNotFound: There is no such topic.
        """
        stored = await self._catalog.find(name)
        found = stored or await self._catalog.find_partitioned(name)
        if found is None:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        return found.value.limits

    # Topics.

    async def create_topic(
        self,
        name: TopicName,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool = False,
    ) -> Topic:
        """
        The topic *name*, new.

        Durability: On return its existence is on disk.

        Also a partition by its name, which is one more of its base name then, and
        has the schema of the others.

        Raises:
            AlreadyExists: It exists and *exist_ok* is false, or its policy differs;
                or it has partitions, or its base name is a topic itself.
            NamespaceNotFound: Its namespace does not exist.
            SchemaNotFound: There is no such subject or version.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        async with self._changing:
            try:
                await self._catalog.create(name, policy, schema)
            except AlreadyExists:
                record = await self._catalog.find(name)
                if not exist_ok or record is None or record.value.policy != policy:
                    raise
                if schema not in {None, record.value.schema}:
                    raise
            return await self._open(name)

    async def create_partitioned_topic(
        self,
        base: TopicName,
        partitions: int,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """
        The topics ``base-part-0`` and so on, new; all of them or none.

        Durability: On return their existence is on disk.

        Raises:
            AlreadyExists: There are some and *exist_ok* is false, or their number or
                policy differs; or *base* is a topic itself.
            NamespaceNotFound: Its namespace does not exist.
            SchemaNotFound: There is no such subject or version.
            InvalidRequest: So many are not possible.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        async with self._changing:
            await self._catalog.create_partitioned(
                base, partitions, policy, schema, exist_ok=exist_ok
            )

    async def add_partitions(self, base: TopicName, partitions: int) -> None:
        """
        More partitions for *base*, so that there are *partitions* altogether.

        Raises:
            TopicNotFound: It has none.
            InvalidRequest: That are not more than before, or too many.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        async with self._changing:
            await self._catalog.add_partitions(base, partitions)

    async def partition_count(self, base: TopicName) -> int | None:
        """How many partitions a name has; None if it has none."""
        stored = await self._catalog.find_partitioned(base)
        return None if stored is None else stored.value.partitions

    async def partitions_of(self, name: TopicName) -> list[TopicName]:
        """What a name stands for: itself, its partitions by number, or nothing."""
        return await self._catalog.partitions_of(name)

    async def partitioned_topics(
        self, namespace: NamespaceName | None = None
    ) -> dict[TopicName, int]:
        """Every name that has partitions, or those of *namespace*, and how many."""
        found = await self._catalog.partitioned(namespace)
        return {base: record.partitions for base, record in found.items()}

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

    async def open_recovered(self, names: Sequence[TopicName]) -> None:
        """Open topics at the start, when nobody else changes anything."""
        await _together(self._open, names)

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
        return [name for name, _ in await self._catalog.records(namespace)]

    async def topic_page(
        self, namespace: NamespaceName | None, after: TopicName | None, limit: int
    ) -> dict[TopicName, TopicPolicy]:
        """
        At most *limit* topics, or topics of *namespace*, by name, and their policies.

        The first is the first whose name comes after *after*.
        """
        page = await self._catalog.page(namespace, after, limit)
        return {name: record.policy for name, record in page}

    async def topic_policies(
        self, namespace: NamespaceName | None = None
    ) -> dict[TopicName, TopicPolicy]:
        """The same with what was decided about each; none is opened."""
        records = await self._catalog.records(namespace)
        return {name: record.policy for name, record in records}

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """
        Remove a topic, or all partitions of a name, with messages and subscriptions.

        Durability: The name vanishes at once, and with it all its partitions; what
            they hold is removed by the next start at the latest.

        Raises:
            TopicNotFound: There is none.
            SubscriptionInUse: It has producers or consumers and *force* is false.
            TopicHeld: Somebody relies on its segments and *force* is false.
            InvalidRequest: It is one of the partitions of a name.
        """
        async with self._changing:
            topics = await settled(partial(self._remove_names, name, force=force))
            for topic in topics:
                del self.topics[topic.name]
                topic.close(TopicNotFound(f"{topic.name} has been deleted"))
                self._subscriptions.on_topic_gone(topic)
            await self._forget_all(_stored(topics))

    async def _remove_names(self, name: TopicName, *, force: bool) -> list[Topic]:
        """Take a name and its partitions out of the catalog; returns the topics."""
        await self._catalog.check_not_a_partition(name)
        stored = await self._catalog.find_partitioned(name)
        names = [name] if stored is None else names_of(name, stored.value)
        topics = await _together(self._open, names)
        for topic in topics:
            if topic.is_in_use and not force:
                raise SubscriptionInUse(
                    f"{topic.name} has producers or consumers; disconnect them or "
                    "force it"
                )
            if isinstance(topic, ReliableTopic) and not force:
                check_no_holds(topic.log)
        partitioned = None if stored is None else (name, stored)
        with _refusing(topics):
            # The names go first: what is left of the topics after a crash belongs
            # to nobody, and is removed at the next start.
            await self._catalog.remove(names, _stored(topics), partitioned)
        return topics

    async def _forget_all(self, topic_ids: Iterable[TopicId]) -> None:
        """Remove what is left of several topics; one that fails leaves the others."""

        async def forget(topic_id: TopicId) -> BrokerError | None:
            try:
                await self.forget_topic(topic_id)
            except BrokerError as error:
                return error
            return None

        for failure in await _together(forget, topic_ids):
            if failure is not None:
                raise failure

    async def forget_topic(self, topic_id: TopicId) -> None:
        """Remove what is left of a topic that has no name any more."""
        await self.storage.delete_topic(topic_id)
        await self._catalog.forget_content(topic_id)

    # What segments topics consist of.

    async def replace_segments(
        self,
        name: TopicName,
        topic_id: TopicId,
        old_names: Sequence[str],
        offered: Sequence[Replacement],
    ) -> int:
        """
        Put objects in the place of segments of a topic; how many messages that removes.

        See ``Storage.replace_segments``.

        Raises:
            TopicNotFound: There is no such topic, or it is not the one of *topic_id*.
        """
        topic = await self.reliable_topic(name)
        if topic.topic_id != topic_id:
            raise TopicNotFound(
                f"{name} was created again: it is topic {topic.topic_id} now, not "
                f"{topic_id}"
            )
        before = {each.object_name: each.count for each in topic.segments}
        new = await self.storage.replace_segments(topic_id, old_names, offered)
        count = sum(each.count for each in new)
        return sum(before[each] for each in old_names) - count

    async def hold_topic(self, name: TopicName, holder: str, reason: str) -> None:
        """
        Have *holder* rely on the segments of a topic as they are.

        Durability: On return it is on disk, and no segment that the topic has from now
            on is dropped or replaced, until it is released.

        Raises:
            TopicNotFound: There is none.
            InvalidRequest: It is not reliable, or too many hold it already.
        """
        topic = await self.reliable_topic(name)
        await self._holds.take(topic.log, holder, reason)

    async def release_topic(self, name: TopicName, holder: str) -> None:
        """
        Undo ``hold_topic``.

        Raises:
            TopicNotFound: There is none.
            NotFound: *holder* does not hold it.
        """
        topic = await self.reliable_topic(name)
        await self._holds.release(topic.log, holder)

    async def holds_of(self, topic: Topic) -> tuple[Hold, ...]:
        """Who holds a topic."""
        return await self._holds.of(topic.topic_id)

    # Schemas.

    async def topic_schema(self, name: TopicName) -> TopicSchema | None:
        """
        What the messages of a topic, or of all partitions of a name, keep to.

        Raises:
            TopicNotFound: There is no such topic.
        """
        if not await self.partitions_of(name):
            raise TopicNotFound(f"Unable to find the topic: {name}")
        return await self._schemas.of(name)

    async def bind_topic_schema(
        self, name: TopicName, schema: TopicSchema | None
    ) -> None:
        """
        Have the messages of a topic keep to *schema* from now on; None: to nothing.

        Partitions have one schema: the name of one stands for all of them.  What was
        published before stays.

        Durability: On return it is on disk.

        Raises:
            TopicNotFound: There is no such topic.
            SchemaNotFound: There is no such subject, or not in such a version.
        """
        async with self._changing:
            await self._bind(name, schema)

    async def delete_schema_version(
        self, subject: str, version: int, *, force: bool = False
    ) -> None:
        """
        Remove a version of a subject; its number is not given out again.

        Messages that have it stay, and cannot be decoded any more.

        Raises:
            SchemaNotFound: There is no such subject or version.
            SchemaInUse: A topic takes only this version, and *force* is false.
        """
        await self._schemas.delete_version(
            self.topics.values(), subject, version, force=force
        )

    async def delete_schema_subject(self, subject: str, *, force: bool = False) -> None:
        """
        Remove a subject with all its versions; its id is not given out again.

        A topic that keeps to it although it is gone takes nothing, or warns of
        everything, until there is a subject of this name again.

        Raises:
            SchemaNotFound: There is none.
            SchemaInUse: A topic keeps to it, and *force* is false.
        """
        await self._schemas.delete_subject(self.topics.values(), subject, force=force)

    async def _bind(self, name: TopicName, schema: TopicSchema | None) -> None:
        names = await self._catalog.set_schema(name, schema)
        for topic in filter(None, map(self.topics.get, names)):
            self._schemas.give(topic, schema)

    async def _bind_first(self, topic: Topic, reference: SchemaReference) -> None:
        """Bind a topic that is not bound to what its first producer writes."""
        if topic.schema is None:
            async with self._changing:
                if topic.schema is None:
                    await self._bind(topic.name, TopicSchema(subject=reference.subject))
        check_schema_reference(topic.name, topic.schema, reference)

    # Producers.

    async def open_producer(
        self,
        name: TopicName,
        producer: str,
        *,
        policy: TopicPolicy | None,
        takes_any_kind: bool = False,
        resume: tuple[int, int] = (0, 0),
        access: ProducerAccess = ProducerAccess.SHARED,
        on_fenced: OnFenced | None = None,
        schema: SchemaReference | None = None,
    ) -> tuple[Topic, ProducerSession]:
        """
        A session for a producer of the topic, which is created if *policy* says how.

        A topic that exists must be of that kind, unless *takes_any_kind*.

        *resume* is the id and epoch of the session that a client had before its
        connection broke; anybody else's session of this name is fenced.

        With ``EXCLUSIVE_WAIT`` this waits until no other producer is there.

        *on_fenced* is called, once at most, when the producer may not publish any
        more though nobody closed it: another one took its place, or the topic has
        been deleted.  That may be before this returns.

        *schema* says what the producer means to write; the session's place has what
        that came to.  The first one binds the topic to its subject.

        Durability: On return the session's epoch is on disk.

        Ordering: Those who wait are let in in the order of their calls, and nobody
            who comes later is let in before them.

        Cancellation: The producer is not open, and does not wait.

        Raises:
            TopicNotFound: There is no such topic, and it may not be created.
            AlreadyExists: The topic exists, and is not as *policy* wants it.
            SchemaNotFound: There is no such subject or version.
            OtherSchema: The topic keeps to another one.
            ProducerBusy: It or another producer must be the only one.
            QuotaExceeded: The topic has as many producers as it may.
            Draining: The broker is stopping.
        """
        self._refuse_when_draining()
        chosen = None if schema is None else await self._schemas.choose(name, schema)
        topic = await self._topic_for_producer(
            name, policy, takes_any_kind=takes_any_kind
        )
        if schema is not None:
            await self._bind_first(topic, schema)
        request = AccessRequest(
            name=producer, access=access, on_fenced=on_fenced, schema=chosen
        )
        session = await self._sessions.open(topic, request, resume)
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

    async def choose_schema(
        self, topic: Topic, reference: SchemaReference
    ) -> ProducerSchema:
        """
        What somebody may write to *topic* who refers to a schema.

        The first one binds the topic to its subject.

        Raises:
            SchemaNotFound: There is no such subject or version.
            OtherSchema: The topic keeps to another one.
        """
        chosen = await self._schemas.choose(topic.name, reference)
        await self._bind_first(topic, reference)
        return chosen

    async def attach_producer(
        self,
        name: TopicName,
        producer: str,
        *,
        policy: TopicPolicy | None,
        takes_any_kind: bool = False,
        access: ProducerAccess = ProducerAccess.SHARED,
        on_fenced: OnFenced | None = None,
        schema: SchemaReference | None = None,
    ) -> tuple[Topic, ProducerRegistration]:
        """
        A place for a producer that does not number its messages.

        Its messages are published by ``gathering``.  It keeps the place until its
        server says that it is gone; if it comes again meanwhile under the same name,
        it has the same registration.  Otherwise as ``open_producer``.
        """
        self._refuse_when_draining()
        chosen = None if schema is None else await self._schemas.choose(name, schema)
        topic = await self._topic_for_producer(
            name, policy, takes_any_kind=takes_any_kind
        )
        if schema is not None:
            await self._bind_first(topic, schema)
        request = AccessRequest(
            name=producer,
            access=access,
            on_fenced=on_fenced,
            is_joining=True,
            schema=chosen,
        )
        return topic, await self._sessions.register(topic, request)

    def detach_producer(self, topic: Topic, registration: ProducerRegistration) -> None:
        """The producer, which was attached, is gone."""
        topic.registrations.leave(registration)

    # Subscriptions.

    async def open_subscription(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
        *,
        ack_timeout_s: float | None = None,
    ) -> tuple[Topic, Subscription]:
        """
        The subscription, created at *start* if it does not exist.

        One that exists keeps its position and its type; *ack_timeout_s*, unless
        None, holds from now on, instead of its failure policy's.

        Durability: On return the subscription and its position are on disk.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It exists with another type, or the topic has no such
                offset yet, or the timeout is impossible.
            QuotaExceeded: The topic has as many subscriptions as it may.
        """
        self._refuse_when_draining()
        if ack_timeout_s is not None:
            check_ack_timeout(ack_timeout_s)
        start = await self._look_up(name, start)
        async with self._changing:
            topic = await self._open(name)
            found = topic.subscriptions.get(subscription)
            if found is None:
                found = await self._subscriptions.begin(
                    topic, subscription, type_, start
                )
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
        start: Position,
    ) -> None:
        """
        Make a subscription that has no consumer yet.

        Raises:
            AlreadyExists: There is one of this name.
            TopicNotFound: There is no such topic.
            InvalidRequest, QuotaExceeded: As in ``open_subscription``.
        """
        self._refuse_when_draining()
        start = await self._look_up(name, start)
        async with self._changing:
            topic = await self._open(name)
            if subscription in topic.subscriptions:
                raise AlreadyExists(
                    f"{name} has a subscription {subscription!r} already"
                )
            await self._subscriptions.begin(topic, subscription, type_, start)

    async def subscription_names(self, name: TopicName) -> list[SubscriptionName]:
        """
        The subscriptions of a topic, by name, whether anybody is attached or not.

        Raises:
            TopicNotFound: There is no such topic.
        """
        return sorted((await self.topic(name)).subscriptions)

    async def delete_subscription(
        self, name: TopicName, subscription: SubscriptionName, *, force: bool = False
    ) -> None:
        """
        Forget the subscription with its position and its settings.

        Raises:
            SubscriptionNotFound: There is none.
            SubscriptionInUse: It has consumers and *force* is false.
        """
        async with self._changing:
            topic = await self._open(name)
            found = topic.find_subscription(subscription)
            if found.has_consumers and not force:
                raise SubscriptionInUse(
                    f"subscription {subscription} of {name} has consumers; disconnect "
                    "them or force it"
                )
            found.close(BrokerError(f"subscription {subscription} has been deleted"))
            found.cancel()
            await self._subscriptions.end(topic, subscription)

    async def seek(
        self, topic: Topic, subscription: Subscription, where: Position
    ) -> None:
        """
        Go on at *where*, for all consumers of the subscription.

        What was blocked, delayed or on its way to the dead-letter topic is
        forgotten, and comes again if it is not below *where*.

        Durability: On return the new position is on disk.

        Raises:
            InvalidRequest: The topic is not reliable, or has no such offset yet.
        """
        if not isinstance(topic, ReliableTopic) or not isinstance(
            subscription, ReliableSubscription
        ):
            raise InvalidRequest(f"{topic.name} is not reliable: there is no position")
        offset = await self._subscriptions.locate(topic, where)
        subscription.hold()
        try:
            subscription.seek(max(offset, topic.log.base_offset))
            await self._subscriptions.save(subscription)
        finally:
            # The caller's answer comes first: what follows it is from the new
            # position.
            self._loop.call_soon(subscription.release)

    async def skip(
        self, name: TopicName, subscription: SubscriptionName, count: int
    ) -> None:
        """
        The next *count* messages that are not done are done.

        Durability: On return that is on disk.

        Raises:
            InvalidRequest: The topic is not reliable, or *count* is negative.
            SubscriptionNotFound: There is none.
        """
        if count < 0:
            raise InvalidRequest(f"{count} messages cannot be skipped")
        found = await self._reliable_subscription(name, subscription)
        await found.skip(count)
        await self._subscriptions.save(found)

    async def mark_done(
        self, name: TopicName, subscription: SubscriptionName, ranges: Sequence[Range]
    ) -> None:
        """
        These messages are done, although no consumer has said so.

        Durability: On return that is on disk.

        Raises:
            InvalidRequest: The topic is not reliable.
            SubscriptionNotFound: There is none.
        """
        found = await self._reliable_subscription(name, subscription)
        found.ack(ranges, 0)
        await self._subscriptions.save(found)

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
        if offset > found.cursor_offset:
            found.seek(offset)

    async def find_offsets(
        self, name: TopicName, publish_times: Sequence[int]
    ) -> tuple[list[int], int, int]:
        """
        For each time the first message published then or later, and ``base … end``.

        It is the end where there is none yet.  What is published meanwhile does not
        count, so *end* belongs to the offsets.

        Bounds: FIND_TIMES_MAX times.

        Raises:
            InvalidRequest: The topic is not reliable, or there are too many times.
            CorruptSegment: A segment that may hold one is damaged or missing.
        """
        if len(publish_times) > FIND_TIMES_MAX:
            raise InvalidRequest(
                f"{len(publish_times)} times are too many; ask for {FIND_TIMES_MAX} at "
                "most"
            )
        topic = await self.reliable_topic(name)
        base, end = topic.log.base_offset, topic.end_offset
        offsets = [
            min(end, await self._subscriptions.locate(topic, AtTime(time)))
            for time in publish_times
        ]
        return offsets, base, end

    async def _look_up(self, name: TopicName, start: Position) -> Position:
        """*start* without a time, which may take a while to find."""
        if isinstance(start, AtTime):
            topic = await self.topic(name)
            if isinstance(topic, ReliableTopic):
                return await self._subscriptions.locate(topic, start)
        return start

    async def _reliable_subscription(
        self, name: TopicName, subscription: SubscriptionName
    ) -> ReliableSubscription:
        topic = await self.reliable_topic(name)
        found = topic.find_subscription(subscription)
        assert isinstance(found, ReliableSubscription)
        return found

    # What is decided about subscriptions.

    async def subscription_settings(
        self, name: TopicName, subscription: SubscriptionName
    ) -> SubscriptionSettings:
        """
        What was decided about a subscription, which need not exist.

        Raises:
            TopicNotFound: There is no such topic.
        """
        topic = await self.topic(name)
        return await self._subscriptions.settings_of(topic, subscription)

    async def set_subscription_settings(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        settings: SubscriptionSettings,
    ) -> None:
        """
        Decide about a subscription, which need not exist yet.

        They hold at once, also for messages that have failed already.

        Durability: On return they are on disk, and stay until the subscription or
            the topic is deleted.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or a value is impossible, or
                the dead-letter topic is.
            NamespaceNotFound: The dead-letter topic's namespace does not exist.
            InvalidName: The dead-letter topic's name is malformed.
        """
        await self._decide(name, subscription, lambda _: settings)

    async def set_failure_policy(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        policy: FailurePolicy | None,
    ) -> None:
        """The same for the failure policy alone; None: the defaults."""
        await self._decide(name, subscription, partial(replace, failure_policy=policy))

    async def set_dispatch_limits(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        limits: DispatchLimits | None,
    ) -> None:
        """The same for the limits alone; None: there are none."""
        await self._decide(name, subscription, partial(replace, limits=limits))

    async def set_paused(
        self, name: TopicName, subscription: SubscriptionName, *, is_paused: bool
    ) -> None:
        """The same for whether nothing is to be delivered for the time being."""
        await self._decide(name, subscription, partial(replace, is_paused=is_paused))

    async def _decide(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        change: Callable[[SubscriptionSettings], SubscriptionSettings],
    ) -> None:
        async with self._changing:
            topic = await self._open(name)
            if not isinstance(topic, ReliableTopic):
                raise InvalidRequest(
                    "subscription failure policy can only be configured for reliable "
                    "topics"
                )
            before = await self._subscriptions.settings_of(topic, subscription)
            settings = change(before)
            check_settings(settings, name)
            await self._check_dead_letter_topic(dead_letter_topic_of(settings))
            await self._subscriptions.decide(topic, subscription, settings)

    async def _check_dead_letter_topic(self, name: TopicName | None) -> None:
        if name is None:
            return
        await self._namespaces.find(name.namespace)
        if await self._catalog.find_partitioned(name) is not None:
            raise InvalidRequest(
                f"the dead-letter topic {name} has partitions; name one of them"
            )
        stored = await self._catalog.find(name)
        if stored is not None and not stored.value.policy.is_reliable:
            raise InvalidRequest(f"the dead-letter topic {name} is not reliable")

    async def _open_dead_letter_topic(self, name: TopicName) -> ReliableTopic:
        try:
            return await self.reliable_topic(name)
        except TopicNotFound:
            topic = await self.create_topic(name, TopicPolicy(), exist_ok=True)
            assert isinstance(topic, ReliableTopic)
            return topic

    # Room, end.

    @property
    def has_room(self) -> bool:
        """Whether servers may go on taking batches."""
        return self.storage.has_room and self._schemas.backlog.has_room

    async def room(self) -> None:
        """Wait until there is room for more batches."""
        await self._schemas.backlog.room()
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
            topic.registrations.reject_queued(topic.refusal)
        # What is on its way to dead-letter topics is in the positions then.
        await self.dead_letters.finish()
        self._subscriptions.flush()
        await self.storage.sync()

    # What follows.

    async def _open(self, name: TopicName) -> Topic:
        found = self.topics.get(name)
        if found is not None:
            return found
        record = await self._catalog.find(name)
        if record is None:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        topic_id = TopicId(record.value.topic_id)
        policy, own_limits = record.value.policy, record.value.limits
        limits = own_limits or await self._limits_of_namespace(name)
        topic: Topic
        if policy.is_reliable:
            # It is open already if what follows failed the last time.
            topic_log = self.storage.find_log(topic_id)
            if topic_log is None:
                _warn_of_long_name(name)
                epoch = await self._claim(topic_id)
                topic_log = await self.storage.open_log(topic_id, name, epoch, policy)
                await self._holds.load(topic_log)
            topic = ReliableTopic(
                name,
                topic_id,
                policy,
                self.counts,
                self._loop.time,
                topic_log=topic_log,
            )
            await self._subscriptions.load(topic)
            self._sessions.load(topic)
        else:
            topic = DirectTopic(name, topic_id, policy, self.counts, self._loop.time)
        topic.set_limits(limits, are_own=own_limits is not None)
        self._schemas.give(topic, record.value.schema)
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

    async def _limits_of_namespace(self, name: TopicName) -> NamespacePolicy:
        return (await self._namespaces.find(name.namespace)).value.policy

    async def _topic_for_producer(
        self, name: TopicName, policy: TopicPolicy | None, *, takes_any_kind: bool
    ) -> Topic:
        try:
            topic = await self.topic(name)
        except TopicNotFound:
            if policy is None or not self._auto_create_topics:
                raise
            policy = await self._policy_of_siblings(name, policy)
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

    async def _policy_of_siblings(
        self, name: TopicName, policy: TopicPolicy
    ) -> TopicPolicy:
        """The policy of a name's other partitions, if it is of the same kind."""
        split = name.split_partition()
        if split is None:
            return policy
        stored = await self._catalog.find_partitioned(split[0])
        if stored is None or stored.value.policy.dispatch is not policy.dispatch:
            return policy
        return stored.value.policy

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
    batch_bytes_max: int = BATCH_BYTES_MAX,
    staging_files: Files | None = None,
    staging: StagingConfig = StagingConfig(),  # noqa: B008  # It is immutable.
) -> AsyncIterator[Broker]:
    """
    A broker over what *store* and *storage* hold.

    What is staged is kept in *staging_files*; without any, in memory.

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
            batch_bytes_max=batch_bytes_max,
            wall_clock_us=wall_clock_us,
        )
        await _open_recovered(broker, store, storage)
        try:
            async with open_staging(
                broker,
                store,
                storage,
                MemoryFiles() if staging_files is None else staging_files,
                staging,
                clock=asyncio.get_running_loop().time,
                wall_clock_us=wall_clock_us,
            ) as broker.staging:
                yield broker
        finally:
            await broker.drain()
            for topic in broker.topics.values():
                topic.close(Draining("the broker is stopping (draining)"))


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
        for name in FIRST_NAMESPACES
    ]
    await store.transaction(
        [Unchanged(keys.BROKER, ABSENT)], [Put(keys.BROKER, record), *namespaces]
    )
    return record.broker_id


def _warn_of_long_name(name: TopicName) -> None:
    """Say in the log what is wrong with a topic that an older broker created."""
    try:
        check_new_namespace(name.namespace)
        name.check_new()
    except InvalidName as error:
        log.warning(
            "%s; the topic can be read, and its messages cannot be sealed in a "
            "directory: copy them to a topic with a shorter name, and delete it",
            error,
        )


async def _open_recovered(
    broker: Broker, store: MetadataStore, storage: Storage
) -> None:
    """
    Open the topics with messages that are not sealed; remove deleted ones.

    Raises:
        InconsistentDirectory: The journal has a topic whose deletion is not recorded,
            and the metadata store does not know it.
    """
    known = {
        stored.value.topic_id: TopicName.parse("/" + keys.TOPICS.name_of(path))
        for path, stored in await store.scan(keys.TOPICS)
    }
    deleted = {
        TopicId(int(keys.DELETED_TOPICS.name_of(path))): stored.value.name
        for path, stored in await store.scan(keys.DELETED_TOPICS)
    }
    unsealed: list[TopicName] = []
    for topic_id, text in storage.recovered:
        name = known.get(topic_id)
        if name is None:
            if topic_id not in deleted:
                raise InconsistentDirectory(
                    f"the journal has the topic {text} (number {topic_id}), and the "
                    "metadata store neither knows it nor records that it was deleted; "
                    "put the right metadata store back, or rebuild its records with "
                    "'danube recover --from-segments'"
                )
        elif storage.has_recovered(topic_id):
            unsealed.append(name)
    for topic_id, text in deleted.items():
        log.info("removing what is left of the deleted topic %s", text)
        try:
            await broker.forget_topic(topic_id)
        except BrokerError as error:
            log.warning("the next start will try again: %s", error)
    await broker.open_recovered(unsealed)


def _stored(topics: Iterable[Topic]) -> dict[TopicId, TopicName]:
    """Those of *topics* that leave something behind."""
    return {
        topic.topic_id: topic.name
        for topic in topics
        if isinstance(topic, ReliableTopic)
    }


@contextmanager
def _refusing(topics: Sequence[Topic]) -> Iterator[None]:
    """Let *topics* take nothing; if the body fails, all is as it was."""
    before = [topic.refusal for topic in topics]
    for topic in topics:
        topic.refusal = TopicNotFound(f"{topic.name} has been deleted")
    try:
        yield
    except BaseException:
        for topic, refusal in zip(topics, before, strict=True):
            topic.refusal = refusal
        raise


async def _together(work: Callable[[A], Awaitable[B]], items: Iterable[A]) -> list[B]:
    """What *work* comes to for each item; several at a time share their syncs."""
    slots = asyncio.Semaphore(TOGETHER_MAX)

    async def one(item: A) -> B:
        async with slots:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(item)) for item in items]
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
    return [task.result() for task in running]
