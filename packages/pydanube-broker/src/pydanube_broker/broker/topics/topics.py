"""
The topics of a broker: creating, opening, configuring and deleting them.

Ordering: Changes of one topic run one after the other.  Different topics are created
    and opened concurrently, and share their syncs; configuring and deleting topics
    excludes all other changes.  Publishing and delivering never wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from pydanube.aio.locks import NamedLocks, SharedLock
from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import gather, run_all
from pydanube.model.descriptions import RetentionDrops
from pydanube.model.errors import (
    AlreadyExists,
    Draining,
    InvalidRequest,
    NotOwner,
    SubscriptionInUse,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import TopicName
from pydanube.model.policy import KEEP_ALL, Position, Retention, TopicPolicy
from pydanube.model.schemas import TopicSchema
from pydanube.model.settings_text import settings_text
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.governance.quotas import Quotas
from pydanube_broker.broker.publishing.recovered_producers import restore_producers
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.pure.partitions import names_of
from pydanube_broker.broker.topics.retention_drops import describe_drops
from pydanube_broker.broker.topics.retention_holds import RetentionHolds
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topic_failures import TopicFailures
from pydanube_broker.broker.topics.topic_loading import TopicLoader
from pydanube_broker.broker.topics.topic_records import apply_records
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.metadata.store import ABSENT, MetadataStore, retry_on_conflict
from pydanube_broker.storage.pure.by_shard import ByShard
from pydanube_broker.storage.segments.replacement import Replacement
from pydanube_broker.storage.segments.topic_openings import Leftover
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

CONCURRENT_MAX = 64
"""The number of topics that are opened or removed at a time, sharing their syncs."""


class Topics:
    """The topics of one broker."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        storage: Storage,
        catalog: Catalog,
        namespaces: Namespaces,
        quotas: Quotas,
        schemas: TopicSchemas,
        holds: RetentionHolds,
        subscriptions: SubscriptionStore,
        loader: TopicLoader,
        opened: ByShard[TopicName, Topic],
        lock: SharedLock,
        clock: Callable[[], float],
        auto_creates: bool,
        shards: Shards | None = None,
    ) -> None:
        """
        Hold the open topics; *shards* are given in a cluster.

        Producers and consumers create the topics that they miss if it *auto_creates*.
        """
        self.opened = opened
        """The open topics."""
        self.lock = lock
        """Shared while topics are created and opened."""
        self.is_draining = False
        self.failures = TopicFailures()
        self.locks: NamedLocks[TopicName] = NamedLocks()
        """Held while a topic is created or opened, and its subscriptions change."""
        self.leftovers = asyncio.Event()
        """Set if there may be contents of deleted topics; see ``DeletedTopics``."""
        self.removals: NamedLocks[TopicId] = NamedLocks()
        """Held while the contents of a deleted topic are removed."""
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)
        self._store = store
        self._storage = storage
        self._catalog = catalog
        self._namespaces = namespaces
        self._quotas = quotas
        self._schemas = schemas
        self._holds = holds
        self._subscriptions = subscriptions
        self._loader = loader
        self._clock = clock
        self._auto_creates = auto_creates
        self._shards = shards

    # Creating.

    async def add(
        self,
        name: TopicName,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """
        Create the topic *name* as ``create`` does, whichever broker is to serve it.

        Raises: As ``create``, except NotOwner.
        """
        with suppress(NotOwner):
            await self.create(name, policy, schema, exist_ok=exist_ok)

    async def create(
        self,
        name: TopicName,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool = False,
    ) -> Topic:
        """
        Create the topic *name*.

        If the name is that of a partition, the partition is added to its base name,
        and has the schema of the other partitions.

        Durability: On return the topic is on disk.

        Raises:
            AlreadyExists: The topic exists, and *exist_ok* is false or its policy or
                schema differs; or it has partitions, or its base name is a topic.
            NamespaceNotFound: Its namespace does not exist.
            SchemaNotFound: The schema's subject or version does not exist.
            Draining: The broker is stopping.
            NotOwner: The topic exists now, and another broker serves it.
        """
        self.check_not_draining()
        async with self.lock.shared(), self.locks.of(name):
            new = None
            try:
                new = await self._catalog.create(name, policy, schema)
            except AlreadyExists:
                record = await self._catalog.find(name)
                if not exist_ok or record is None or record.value.policy != policy:
                    raise
                if schema not in {None, record.value.schema}:
                    raise
            return await self._open(name, new)

    async def get_or_create(self, name: TopicName, policy: TopicPolicy) -> Topic:
        """
        Return the topic *name*; create it with *policy* if the settings allow that.

        A new partition has the policy of its siblings if their dispatch is the same.

        Raises:
            TopicNotFound: There is no such topic, and it is not created.
            NamespaceNotFound, Draining, NotOwner: As ``create``.
        """
        try:
            return await self.get(name)
        except TopicNotFound:
            if not self._auto_creates:
                raise
        policy = await self._policy_of_siblings(name, policy)
        return await self.create(name, policy, exist_ok=True)

    async def _policy_of_siblings(
        self, name: TopicName, policy: TopicPolicy
    ) -> TopicPolicy:
        split = name.split_partition()
        if split is None:
            return policy
        stored = await self._catalog.find_partitioned(split[0])
        if stored is None or stored.value.policy.dispatch is not policy.dispatch:
            return policy
        return stored.value.policy

    async def create_partitioned(
        self,
        base: TopicName,
        partitions: int,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """
        Create the topics ``base-part-0``, ``base-part-1``, …: all of them or none.

        Durability: On return the topics are on disk.

        Raises:
            AlreadyExists: Some exist, and *exist_ok* is false or their number or
                policy differs; or *base* is a topic.
            NamespaceNotFound: Their namespace does not exist.
            SchemaNotFound: The schema's subject or version does not exist.
            InvalidRequest: The number of partitions is out of range.
            Draining: The broker is stopping.
        """
        self.check_not_draining()
        async with self.lock.shared():
            await self._catalog.create_partitioned(
                base, partitions, policy, schema, exist_ok=exist_ok
            )

    async def add_partitions(self, base: TopicName, partitions: int) -> None:
        """
        Add partitions to *base*, so that it has *partitions* in total.

        Raises:
            TopicNotFound: *base* is not a partitioned topic.
            InvalidRequest: It has as many or more already, or the number is too large.
            Draining: The broker is stopping.
        """
        self.check_not_draining()
        async with self.lock.shared():
            await self._catalog.add_partitions(base, partitions)

    # Finding.

    async def get(self, name: TopicName) -> Topic:
        """
        Return the topic *name*, and open it if it is not open yet.

        Raises:
            TopicNotFound: It does not exist.
            NotOwner: Another broker serves it.
            SessionLost: The session of this broker in the cluster is over.
        """
        found = self.find_open(name)
        if found is not None:
            return found
        # If the shard is just arriving, wait for it without the locks, which its
        # arrival may need, and try once more.
        with suppress(NotOwner):
            async with self.opening(name) as topic:
                return topic
        assert self._shards is not None
        shard = (await self._catalog.get_topic(name)).value.shard
        if shard is not None and self._shards.owners.owns(shard):
            await self._shards.settle(shard)
        async with self.opening(name) as topic:
            return topic

    def find_open(self, name: TopicName) -> Topic | None:
        """
        Return the topic *name* if it is open.

        Raises:
            SessionLost: The session of this broker in the cluster is over.
        """
        found = self.opened.get(name)
        if found is not None and self._shards is not None:
            self._shards.owners.check_session()
        return found

    async def find_addresses(self, name: TopicName) -> Mapping[str, str]:
        """
        Return the addresses of the broker that serves a topic, by listener.

        There are none if this broker serves it.  While the topic moves to another
        broker, this waits a moment for it.

        Raises:
            TopicNotFound: It does not exist.
            NotOwner: No broker serves it at the moment.
        """
        owner = await self.find_owner(name)
        return {} if owner is None else owner.addresses

    async def find_owner(self, name: TopicName) -> SessionRecord | None:
        """Return the broker of ``find_addresses``; None if this one serves a topic."""
        if self._shards is None:
            await self.get(name)
            return None
        shard = (await self._catalog.get_topic(name)).value.shard
        await self._shards.settle(shard)
        owner = None if shard is None else self._shards.owners.find_owner(shard)
        if owner is None or self._shards.serves(shard):
            self._shards.epoch_of(name, shard)
            return None
        return owner

    async def get_reliable(self, name: TopicName) -> ReliableTopic:
        """
        Return the topic *name*, which must be reliable.

        Raises:
            TopicNotFound: It does not exist.
            InvalidRequest: It is not reliable.
        """
        return require_reliable(await self.get(name))

    # Configuring.

    async def configure(self, name: TopicName, **settings: Any) -> None:
        """
        Change these settings of a topic, all or none; the others keep their values.

        Those are the settings that may change: ``limits``, ``schema``, ``retention``,
        ``on_corruption``, ``seal_bytes``, ``seal_age_s`` and ``deduplication``.  None
        as limits or retention stands for those of the namespace.

        The base name of partitions stands for all of them, also for later ones.  All
        partitions have the same schema: the name of one stands for all.  Messages that
        were published before are not validated again.  Of concurrent changes of a
        setting, the last one wins.

        Durability: On return the changes are on disk.  After a crash, either all of
            them are in effect, or none.

        Raises:
            TopicNotFound: There is no such topic.
            SchemaNotFound: There is no such subject or version.
            InvalidRequest: A value is out of range.
        """
        # Alone: a topic that is opened meanwhile could have the record from before.
        async with self.lock:
            records = await self._catalog.configure(name, **settings)
            namespace = (await self._namespaces.find(name.namespace)).value
            for each, record in records.items():
                topic = self.opened.get(each)
                if topic is not None:
                    apply_records(topic, record, namespace, self._schemas)
            log.info("changed the settings of %s: %s", name, settings_text(settings))

    async def plan_retention(
        self,
        name: TopicName,
        assume: Callable[[TopicPolicy, Retention], Retention] | None = None,
    ) -> RetentionDrops:
        """
        Return what retention would drop from a topic now.

        *assume* returns the retention to assume, given the topic's policy and the
        retention of its namespace.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable.
        """
        topic = await self.get_reliable(name)
        retention = topic.retention
        if assume is not None:
            retention = assume(topic.policy, topic.namespace_retention)
        drops = self._storage.sealer.plan_retention(topic.log, retention)
        return describe_drops(topic, drops, topic.segments[len(drops) :])

    async def apply_retention(self, name: TopicName) -> RetentionDrops:
        """
        Drop what a topic's retention does not keep now, not at the next pass.

        See ``Sealer.apply_retention``.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable.
            BackupRunning: A backup is being made, which needs all segments.
        """
        topic = await self.get_reliable(name)
        self._storage.check_may_remove()
        drops = await self._storage.sealer.apply_retention(topic.log)
        return describe_drops(topic, drops, topic.segments)

    async def trim(self, name: TopicName, before: Position) -> RetentionDrops:
        """
        Remove the messages of a topic before a position, for all readers at once.

        Cursors before it move to it.  The segments that have no later message are
        dropped as ``apply_retention`` does: the newest one stays, and holds and backups
        keep all of them, though nobody can read them.  A position before the first
        message changes nothing.

        Durability: On return the start of the topic is on disk.  After an error it may
            be.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or has no such offset yet.
            TopicFenced: Another broker serves the topic now.
        """
        topic = await self.get_reliable(name)
        offset, topic_log = await topic.locate(before), topic.log
        if offset > topic_log.base_offset:
            # A power failure must not take the end of the topic back below its start.
            await self._storage.journal.sync()
            async with self.lock:
                topic.check_stays()
                record = await self._catalog.trim(
                    name, topic.topic_id, offset, epoch=topic_log.epoch
                )
                topic.check_stays()
                namespace = (await self._namespaces.find(name.namespace)).value
                apply_records(topic, record, namespace, self._schemas)
            log.info("topic %s: trimmed up to offset %d", name, offset - 1)
        drops = await self._storage.sealer.apply_retention(topic_log)
        return describe_drops(topic, drops, topic.segments)

    async def replace_segments(
        self,
        name: TopicName,
        topic_id: TopicId,
        old_names: Sequence[str],
        offered: Sequence[Replacement],
    ) -> int:
        """
        Replace segments of a topic; return the number of messages that this removes.

        See ``Storage.replace_segments``.

        Raises:
            TopicNotFound: There is no such topic, or its id is not *topic_id*.
        """
        topic = await self.get_reliable(name)
        if topic.topic_id != topic_id:
            raise TopicNotFound(
                f"{name} was deleted and created again: its id is {topic.topic_id} "
                f"now, not {topic_id}"
            )
        before = {each.object_name: each.count for each in topic.segments}
        new = await self._storage.replace_segments(topic_id, old_names, offered)
        count = sum(each.count for each in new)
        return sum(before[each] for each in old_names) - count

    # Deleting.

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """
        Delete a topic, or all partitions of a base name.

        Durability: On return all names have disappeared.  After a crash meanwhile, a
            topic of many partitions may be left with some of them: delete it again.
            Messages, subscriptions and segments are removed by the next start at the
            latest.

        Raises:
            TopicNotFound: There is no such topic.
            SubscriptionInUse: It has producers or consumers and *force* is false.
            TopicHeld: A retention hold keeps its segments and *force* is false.
            BackupRunning: A backup is being made.
            InvalidRequest: It is a partition of a partitioned topic.
            NotOwner: Another broker serves it, or one of its partitions, and *force*
                is false.
        """
        async with self.lock:
            records, topics = await retry_on_conflict(
                partial(self._remove_names, name, force=force)
            )
            # The next owner removes the contents of topics that have left meanwhile.
            closed = {each.topic_id for each in topics if self.close_deleted(each)}
            log.info("deleted %s%s", name, " by force" if force else "")
            reliable = {
                each: TopicId(record.topic_id)
                for each, record in records.items()
                if record.policy.is_reliable
            }
        # Without the lock: an object store may be slow, and nobody creates a topic of
        # this name meanwhile.
        await run_all(
            self.remove_content(topic_id, each)
            for each, topic_id in reliable.items()
            if topic_id in closed
        )
        others = {each for each in reliable if reliable[each] not in closed}
        if others:
            await self._catalog.wait_forgotten(others, name)

    async def _remove_names(
        self, name: TopicName, *, force: bool
    ) -> tuple[dict[TopicName, TopicRecord], list[Topic]]:
        """
        Remove a name and its partitions from the catalog.

        Return the records of the topics, and those that this broker serves.
        """
        self._storage.check_may_remove()
        await self._catalog.check_not_a_partition(name)
        partitioned = await self._catalog.find_partitioned(name)
        names = [name] if partitioned is None else names_of(name, partitioned.value)
        stored = [(each, await self._catalog.get_topic(each)) for each in names]
        # Without force, all must be here, because only owners know who uses them.
        opening = self._open_served if force else self.open_all
        topics = await opening(
            each for each, record in stored if self._serves(record.value) or not force
        )
        for topic in topics:
            if topic.is_in_use and not force:
                raise SubscriptionInUse(
                    f"{topic.name} has producers or consumers; disconnect them or "
                    "force the deletion"
                )
            if isinstance(topic, ReliableTopic) and not force:
                topic.log.check_not_held("release it first, or force the deletion")
        with _refusing_batches(topics):
            # The names are removed first: contents that a crash leaves behind belong
            # to no topic, and the next start removes them.
            await self._catalog.remove(
                stored, None if partitioned is None else (name, partitioned)
            )
        return {each: record.value for each, record in stored}, topics

    def close_deleted(self, topic: Topic) -> bool:
        """
        Close an open topic whose name is removed already.

        Return False if it was closed before, because its shard has left.
        """
        if self.opened.get(topic.name) is not topic:
            return False
        del self.opened[topic.name]
        names = list(topic.subscriptions)
        topic.close(TopicNotFound(f"{topic.name} has been deleted"))
        self._subscriptions.cursors.forget(topic.topic_id, names)
        return True

    async def remove_content(
        self, topic_id: TopicId, name: TopicName, leftover: Leftover | None = None
    ) -> None:
        """
        Remove the contents of the topic *topic_id*, which does not exist any more.

        Afterwards, another topic may have its *name*: the names of its objects may be
        the same.

        See ``Storage.delete_topic``.
        """
        try:
            async with self.removals.of(topic_id), self._slots:
                await self._storage.delete_topic(topic_id, leftover)
                await self._catalog.forget_content(topic_id, name)
        except Exception:
            self.leftovers.set()
            raise

    # Opening.

    async def open_all(self, names: Iterable[TopicName]) -> list[Topic]:
        """Return the topics *names*; the caller holds ``lock``, or nobody else runs."""
        return await gather(map(self._open, names))

    async def _open_served(self, names: Iterable[TopicName]) -> list[Topic]:
        """Do the same, except for topics whose shards leave meanwhile."""

        async def open_next(name: TopicName) -> Topic | None:
            with suppress(NotOwner):
                return await self._open(name)
            return None

        return list(filter(None, await gather(map(open_next, names))))

    async def open_recovered(
        self, names: Iterable[TopicName]
    ) -> list[tuple[TopicName, Exception]]:
        """Open the topics *names*; return those that cannot be opened."""
        failed: list[tuple[TopicName, Exception]] = []

        async def open_next(name: TopicName) -> None:
            try:
                async with self.locks.of(name):
                    await self._open(name)
            except TopicNotFound:
                # It was deleted meanwhile.
                return
            except Exception as error:  # noqa: BLE001  # The caller reports it.
                failed.append((name, error))

        async with self.lock.shared():
            await run_all(map(open_next, names))
        return failed

    async def open_ids(self, topic_ids: Collection[TopicId], purpose: str) -> None:
        """
        Open the topics with these ids for *purpose*, which is logged if that fails.

        Topics that other brokers serve are left out.

        Raises:
            MetadataUnavailable: The topics cannot be listed.
        """
        if not topic_ids:
            return
        for name, record in await self._catalog.records():
            if record.topic_id in topic_ids and self._serves(record):
                try:
                    await self.get(name)
                except Exception as error:  # noqa: BLE001  # The others are opened.
                    self.failures.report(name, f"opening it to {purpose}", error)

    async def remove_expired_holds(self, topic_ids: Collection[TopicId]) -> None:
        """Remove the expired holds of the topics that this broker serves."""
        await self.open_ids(topic_ids, "release expired holds")
        for topic in list(self.opened.values()):
            if topic.topic_id in topic_ids and isinstance(topic, ReliableTopic):
                await self._holds.remove_expired(topic.log)

    async def find_idle_drops(self) -> set[TopicId]:
        """
        Return the topics that are not open and have segments that retention drops.

        Raises:
            MetadataUnavailable: The topics or segments cannot be listed.
        """
        of_namespaces = await self._namespaces.retentions()
        retentions, starts = dict[TopicId, Retention](), dict[TopicId, int]()
        work = LongWork()
        for name, record in await self._catalog.records():
            await work.did()
            if not record.policy.is_reliable or not self._serves(record):
                continue
            topic_id = TopicId(record.topic_id)
            retentions[topic_id] = record.policy.effective_retention(
                of_namespaces.get(name.namespace, KEEP_ALL)
            )
            if record.start_offset:
                starts[topic_id] = record.start_offset
        return await self._storage.idle.find_drops(retentions, starts)

    @asynccontextmanager
    async def opening(self, name: TopicName) -> AsyncIterator[Topic]:
        """
        Open the topic *name*; nobody else changes or deletes it during the body.

        Raises:
            TopicNotFound: It does not exist.
            NotOwner: Another broker serves it.
        """
        async with self.lock.shared(), self.locks.of(name):
            yield await self._open(name)

    async def _open(self, name: TopicName, new: TopicRecord | None = None) -> Topic:
        """Return a topic, which nobody else opens; *new* is its record if it is new."""
        found = self.opened.get(name)
        if found is not None:
            return found
        async with self._slots:
            record = new or (await self._catalog.get_topic(name)).value
            return await self._open_recorded(name, record, is_new=new is not None)

    async def _open_recorded(
        self, name: TopicName, record: TopicRecord, *, is_new: bool
    ) -> Topic:
        topic_id, shard = TopicId(record.topic_id), record.shard
        claimed = None
        if self._shards is not None:
            # Before the first await, to compare it at the end.
            claimed = self._shards.epoch_of(name, shard)
        topic_log = None
        if record.policy.is_reliable:
            # The log is open already if a later step failed the last time.
            topic_log = self._storage.logs.get(topic_id)
            if topic_log is None:
                await self._namespaces.find(name.namespace)
                epoch = claimed or await self._claim(topic_id)
                topic_log = await self._storage.open_log(
                    *(topic_id, name, epoch, record.policy),
                    shard=shard,
                    is_new=is_new,
                    start_offset=record.start_offset,
                )
            if not is_new:
                await self._holds.load(topic_log)
        # From here on retention is applied: the loader knows the subscriptions.
        topic = await self._loader.load(name, record, topic_log, is_new=is_new)
        restore_producers(topic, self._storage.find_state(topic_id), self._clock())
        self._quotas.apply_to(topic)
        if self.is_draining:
            topic.refusal = Draining("the broker is stopping (draining)")
        # No await between: from here on the departure of the shard closes the topic.
        self._check_still_served(topic, claimed)
        assert name not in self.opened, f"{name} was opened twice"
        self.opened[name] = topic
        return topic

    def _check_still_served(self, topic: Topic, claimed: Epoch | None) -> None:
        """Close *topic* and raise if its shard has left while it was opened."""
        if self._shards is None or topic.shard is None:
            return
        if self._shards.served.get(topic.shard) == claimed:
            return
        reason = self._shards.not_owner(topic.name, topic.shard)
        topic.close(reason)
        if topic.topic_id in self._storage.logs:
            self._storage.release_log(topic.topic_id, reason)
        raise reason

    async def _claim(self, topic_id: TopicId) -> Epoch:
        """Raise the topic's epoch, which fences an earlier writer."""
        key = keys.EPOCHS.key(topic_id)
        current = await self._store.get(key)
        epoch = Epoch(1 if current is None else current.value + 1)
        await self._store.put(
            key, epoch, expected=ABSENT if current is None else current.revision
        )
        return epoch

    # Shards.

    def _serves(self, record: TopicRecord) -> bool:
        return self._shards is None or self._shards.serves(record.shard)

    # Backpressure, draining.

    @property
    def has_room(self) -> bool:
        """Whether servers may accept more batches."""
        return self._storage.has_room and self._schemas.backlog.has_room

    async def wait_for_room(self) -> None:
        """Wait until there is room for more batches."""
        await self._schemas.backlog.wait_for_room()
        await self._storage.wait_for_room()

    def check_not_draining(self) -> None:
        """Raise ``Draining`` if the broker is stopping."""
        if self.is_draining:
            raise Draining("the broker is stopping (draining)")

    def drain(self) -> None:
        """Refuse new batches from now on."""
        self.is_draining = True
        for topic in self.opened.values():
            topic.refusal = Draining("the broker is stopping (draining)")
            topic.registrations.reject_queued(topic.refusal)


def require_reliable(topic: Topic) -> ReliableTopic:
    """
    Return *topic*, which must be reliable.

    Raises:
        InvalidRequest: It is not.
    """
    if not isinstance(topic, ReliableTopic):
        raise InvalidRequest(
            f"{topic.name} is not reliable: none of its messages are stored"
        )
    return topic


@contextmanager
def _refusing_batches(topics: Sequence[Topic]) -> Iterator[None]:
    """Make *topics* refuse batches, unless the body fails."""
    before = [topic.refusal for topic in topics]
    for topic in topics:
        topic.refusal = TopicNotFound(f"{topic.name} has been deleted")
    try:
        yield
    except BaseException:
        for topic, refusal in zip(topics, before, strict=True):
            topic.refusal = refusal
        raise
