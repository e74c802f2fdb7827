"""
A broker: its topics, producers, subscriptions, schemas and staged batches.

The broker knows nothing of connections.  Servers parse requests, call methods of its
parts, and translate the results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from pydanube.aio.locks import NamedSemaphores, SharedLock
from pydanube.broker.access_control import (
    AccessControl,
    IsSuperuser,
    open_access_control,
)
from pydanube.broker.audit import AuditLog, AuditTopic, open_audit
from pydanube.broker.backups import Backups, Snapshots
from pydanube.broker.catalog import Catalog
from pydanube.broker.consumer_registry import ConsumerRegistry
from pydanube.broker.counts import BrokerCounts
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.deleted_topics import DeletedTopics
from pydanube.broker.iceberg_tables import IcebergTables
from pydanube.broker.indirect_targets import IndirectTargets
from pydanube.broker.internal_batches import InternalBatch, Source
from pydanube.broker.internal_publishing import InternalPublisher, Peers
from pydanube.broker.manifest import MetadataManifest
from pydanube.broker.message_batcher import BATCH_BYTES_MAX, MessageBatcher
from pydanube.broker.named_stores import NamedStores
from pydanube.broker.namespaces import FIRST_NAMESPACES, Namespaces
from pydanube.broker.producers import Producers
from pydanube.broker.quotas import Quotas, following_quotas
from pydanube.broker.retention_holds import RetentionHolds
from pydanube.broker.schema_registry import SchemaRegistry
from pydanube.broker.shard_serving import ShardServing
from pydanube.broker.shards import Shards
from pydanube.broker.shared_staging import SharedStaging, open_shared_staging
from pydanube.broker.staging import Staging, open_staging
from pydanube.broker.subscription_store import SubscriptionStore
from pydanube.broker.subscriptions import Subscriptions
from pydanube.broker.topic import Topic
from pydanube.broker.topic_loading import TopicLoader
from pydanube.broker.topic_schemas import TopicSchemas
from pydanube.broker.topic_views import TopicViews
from pydanube.broker.topics import Topics
from pydanube.broker.tracing import Tracing
from pydanube.cluster import overview
from pydanube.cluster.lost_journals import give_up_journals
from pydanube.cluster.shard_moves import (
    measure_balance,
    move_shard,
    plan_rebalance,
    rebalance_some,
    request_rebalance,
)
from pydanube.metadata import keys
from pydanube.metadata.damaged_records import DamagedRecords
from pydanube.metadata.records import BrokerRecord, NamespaceRecord
from pydanube.metadata.store import (
    ABSENT,
    MetadataStore,
    Put,
    Unchanged,
    retry_on_conflict,
)
from pydanube.model.clusters import (
    BrokerLoad,
    BrokerMode,
    ClusterDescription,
    ShardMove,
    ShardMoves,
)
from pydanube.model.descriptions import TopicPlace
from pydanube.model.errors import (
    BrokerError,
    Draining,
    InconsistentDirectory,
    InvalidRequest,
)
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.security.quotas import NO_QUOTA, Quota
from pydanube.storage.config import NamedStoreConfig, StagingConfig
from pydanube.storage.files import Files, MemoryFiles
from pydanube.storage.storage import Storage
from pydanube.storage.uploading import Uploader

log = logging.getLogger(__name__)

_OPENING_RETRY_S = 10.0
IDLE_RETENTION_INTERVALS = 60
"""Topics that are not open are examined for retention after so many intervals."""


LISTS_MAX = 4
"""The most requests of one principal that list things at the same time."""


class Broker:
    """The parts of a broker; made by ``open_broker``."""

    access: AccessControl
    """The access policy: roles, bindings, and decisions."""
    audit: AuditLog
    """The audit log of administrative requests and refusals."""
    staging: Staging | SharedStaging
    """Batches that are stored and not published yet."""

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
        shards: Shards | None,
        wall_clock_us: Callable[[], int],
        clock: Callable[[], float] | None,
        default_quota: Quota,
        is_superuser: IsSuperuser | None,
        tracing: Tracing | None,
        stores: NamedStores,
        peers: Peers | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        delivery_clock = clock or loop.time
        opened: dict[TopicName, Topic] = {}
        lock = SharedLock()
        self.broker_id = broker_id
        self.storage = storage
        self.counts = BrokerCounts(wall_clock_us)
        self.backups: Backups | None = None
        self.lists: NamedSemaphores[str] = NamedSemaphores(LISTS_MAX)
        """The turns of requests that list things, by the name of the principal."""
        self.stores = stores
        """The object stores that requests may name."""
        self.batcher = MessageBatcher(loop, batch_bytes_max=batch_bytes_max)
        """Publishes single messages to any topic."""
        self.consumer_registry = ConsumerRegistry(store)
        """The consumer ids that the gRPC server needs after a restart."""
        self.namespaces = Namespaces(
            store, opened=opened, lock=lock, wall_clock_us=wall_clock_us
        )
        self._store = store
        self._wall_clock_us = wall_clock_us
        self.holds = RetentionHolds(store, wall_clock_us)
        self.registry = SchemaRegistry(store, wall_clock_us)
        """The schema registry; ``schemas`` deletes what topics may be using."""
        self.shards = shards
        """The shards that this broker serves, if it is in a cluster."""
        self.quotas = Quotas(
            store,
            opened=opened,
            clock=loop.time,
            wall_clock_us=wall_clock_us,
            default=default_quota,
            is_exempt=is_superuser,
        )
        """The quotas of principals, namespaces and topics, and what they use."""
        self.catalog = catalog = Catalog(
            store,
            self.namespaces,
            wall_clock_us,
            tasks=tasks,
            quotas=self.quotas,
            shard_count=None if shards is None else shards.count,
        )
        """The records of topics; ``topics`` changes them."""
        self.iceberg_tables = IcebergTables(
            catalog,
            MetadataManifest(store),
            storage.public_objects,
            must_be_uploaded=storage.remote is not None,
            wall_clock_us=wall_clock_us,
        )
        self.schemas = TopicSchemas(
            self.registry,
            catalog,
            opened=opened,
            lock=lock,
            tasks=tasks,
            clock=loop.time,
        )
        targets = IndirectTargets(lambda: self.access, catalog)
        self.dead_letters = DeadLetters(
            self._publish_internally, targets.check, tasks, delivery_clock
        )
        self.dead_letters.broker_address = broker_id
        self._subscription_store = SubscriptionStore(
            store,
            storage,
            dead_letters=self.dead_letters,
            tasks=tasks,
            done_ranges_max=done_ranges_max,
            clock=delivery_clock,
            wall_clock_us=wall_clock_us,
            tracing=tracing,
        )
        loader = TopicLoader(
            namespaces=self.namespaces,
            subscriptions=self._subscription_store,
            schemas=self.schemas,
            counts=self.counts,
            clock=loop.time,
            wall_clock_us=wall_clock_us,
            tracing=tracing,
        )
        self.topics = Topics(
            store=store,
            storage=storage,
            catalog=catalog,
            namespaces=self.namespaces,
            quotas=self.quotas,
            schemas=self.schemas,
            holds=self.holds,
            subscriptions=self._subscription_store,
            loader=loader,
            opened=opened,
            lock=lock,
            clock=loop.time,
            shards=shards,
        )
        self.views = TopicViews(self.topics, catalog, storage, loader, shards)
        """Looks at topics, also at those that are not open."""
        self.shard_serving: ShardServing | None = None
        """Opens and closes the topics of shards, if the broker is in a cluster."""
        if shards is not None:
            self.shard_serving = ShardServing(
                shards,
                self.topics,
                self._subscription_store,
                store=store,
                storage=storage,
            )
        self.internal = InternalPublisher(self.topics, storage, peers)
        """Publishes the messages of the broker itself."""
        self.producers = Producers(
            self.topics,
            catalog,
            self.schemas,
            storage,
            loop.time,
            auto_create_topics=auto_create_topics,
        )
        self.subscriptions = Subscriptions(
            self.topics, catalog, self.namespaces, self._subscription_store, targets
        )

    async def drain(self) -> None:
        """
        Refuse new batches, and finish those that were accepted.

        Durability: On return every acknowledged message and every cursor is on
            disk.
        """
        self.topics.drain()
        # Cursors are saved after parked messages were copied.
        await self.dead_letters.finish()
        self.flush_cursors()
        await self.storage.journal.sync()

    def flush_cursors(self) -> None:
        """Append cursors that have moved, and failures of messages, to the journal."""
        self._subscription_store.cursors.flush()

    def wake_subscriptions(self) -> None:
        """Let every subscription look at the clock and do what is due."""
        for topic in self.topics.opened.values():
            for subscription in topic.subscriptions.values():
                subscription.wake_up()

    async def _publish_internally(
        self, topic: TopicName, source: Source, batches: Sequence[InternalBatch]
    ) -> None:
        await self.internal.publish(topic, source, batches)

    # Clusters.

    async def describe_cluster(
        self, *, counts_topics: bool = False
    ) -> ClusterDescription:
        """Return the brokers of the cluster; none if the broker is not in one."""
        if self.shards is None:
            return ClusterDescription(brokers=())
        return await overview.describe_cluster(self._store, counts_topics=counts_topics)

    async def count_topics(self, session_id: str) -> int:
        """Return the number of topics in the shards of a session of the cluster."""
        return await overview.count_topics(self._store, session_id)

    def place_of(self, shard: int | None) -> TopicPlace:
        """Return who serves a topic in *shard*, which is None without a cluster."""
        if self.shards is None:
            return TopicPlace(broker_id=self.broker_id)
        owner = self.shards.broker_of(shard, self.broker_id)
        return TopicPlace(broker_id=owner, shard=shard)

    async def set_broker_mode(
        self, broker_id: str, mode: BrokerMode, reason: str
    ) -> None:
        """
        Drain a broker of the cluster, or activate it again.

        Raises:
            InvalidRequest: This broker is not in a cluster; or as
                ``overview.set_broker_mode``.
        """
        self._clustered()
        await overview.set_broker_mode(
            self._store,
            broker_id,
            mode,
            reason=reason,
            wall_clock_us=self._wall_clock_us(),
        )

    async def move_topic(self, name: TopicName, broker_id: str | None) -> ShardMove:
        """
        Move the shard of a topic to a broker, as ``shard_moves.move_shard``.

        Raises:
            TopicNotFound: The topic does not exist.
            InvalidRequest: This broker is not in a cluster; or as ``move_shard``.
        """
        self._clustered()
        shard = (await self.catalog.get_topic(name)).value.shard
        if shard is None:
            raise InvalidRequest(f"{name} was created outside of a cluster: no shard")
        return await move_shard(self._store, shard, broker_id)

    async def forget_broker(self, broker_id: str, *, accept_loss: bool) -> ShardMoves:
        """
        Return the shards that wait for journals of a broker; see ``lost_journals``.

        Raises:
            InvalidRequest: This broker is not in a cluster.
        """
        self._clustered()
        shards = await retry_on_conflict(
            partial(give_up_journals, self._store, broker_id, dry_run=not accept_loss)
        )
        return ShardMoves(moves=tuple(shards))

    async def rebalance(
        self, *, dry_run: bool, moves_max: int | None = None
    ) -> ShardMoves:
        """
        Return the moves that balance the cluster; unless *dry_run*, begin them.

        With *moves_max*, only so many shards move, those with the highest loads.

        Raises:
            InvalidRequest: This broker is not in a cluster.
        """
        limits = self._clustered().limits
        if moves_max is not None and not dry_run:
            moves = await rebalance_some(self._store, limits, moves_max)
        else:
            moves = (await plan_rebalance(self._store, limits))[:moves_max]
            if moves and not dry_run:
                await request_rebalance(self._store, self._wall_clock_us())
        return ShardMoves(moves=tuple(moves))

    @property
    def imbalance_max(self) -> float:
        """The part of the average load from which on the controller balances."""
        return self._clustered().limits.begin_ratio

    async def measure_balance(self) -> list[BrokerLoad]:
        """Return the loads of the active brokers; none outside of a cluster."""
        return [] if self.shards is None else await measure_balance(self._store)

    @property
    def damaged_records(self) -> DamagedRecords:
        """The records of the metadata store that this broker could not decode."""
        return self._store.damaged

    @property
    def problems(self) -> list[str]:
        """Descriptions of present problems, for administrators."""
        waits = [] if self.shards is None else self.shards.problems
        return [*self.storage.problems, *waits, *self.damaged_records.problems]

    def _clustered(self) -> Shards:
        """Return the shards of this broker, or raise if it is not in a cluster."""
        if self.shards is None:
            raise InvalidRequest(
                "this broker is not part of a cluster, so no other broker could serve "
                "its topics: start brokers with the setting cluster.enabled"
            )
        return self.shards


@asynccontextmanager
async def open_broker(
    store: MetadataStore,
    storage: Storage,
    *,
    new_broker_id: Callable[[], str],
    wall_clock_us: Callable[[], int],
    clock: Callable[[], float] | None = None,
    auto_create_topics: bool = True,
    done_ranges_max: int = 100_000,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    staging_files: Files | None = None,
    staging: StagingConfig = StagingConfig(),  # noqa: B008  # It is immutable.
    snapshots: Snapshots | None = None,
    shards: Shards | None = None,
    is_superuser: IsSuperuser | None = None,
    tracing: Tracing | None = None,
    audit_file: Path | None = None,
    default_quota: Quota = NO_QUOTA,
    stores: Mapping[str, NamedStoreConfig] = MappingProxyType({}),
    peers: Peers | None = None,
) -> AsyncIterator[Broker]:
    """
    Open a broker on *store* and *storage*.

    *wall_clock_us* is the clock of records and of delivery windows.  *clock* is that of
    timeouts, delays and expiry in subscriptions, by default the event loop's.  After it
    has jumped, call ``wake_subscriptions``.

    Staged batches are kept in *staging_files*, or in memory if there are none.
    Without *is_superuser*, every client may do everything; with it, clients may do what
    roles permit them, superusers everything, and the topic ``/system/audit`` has the
    audit log.  *audit_file* has it, too.  Principals without a quota of their own have
    *default_quota*, except superusers.

    *snapshots* is *store* if it can copy itself; without it there are no backups.
    *stores* are the object stores that requests may name.

    Topics with messages that are not sealed are opened at once, the others on first
    use.  With *shards*, the broker is one of a cluster: it opens topics when it serves
    their shards (``Broker.shard_serving``), and its id is that of *new_broker_id*.  It
    publishes its own messages, as dead letters, at *peers*.  On exit it is drained.
    """
    broker_id = await retry_on_conflict(
        partial(_found_cluster, store, new_broker_id, wall_clock_us)
    )
    if shards is not None:
        broker_id = new_broker_id()
    async with asyncio.TaskGroup() as tasks:
        broker = Broker(
            broker_id,
            store=store,
            storage=storage,
            tasks=tasks,
            auto_create_topics=auto_create_topics,
            done_ranges_max=done_ranges_max,
            batch_bytes_max=batch_bytes_max,
            shards=shards,
            wall_clock_us=wall_clock_us,
            clock=clock,
            default_quota=default_quota,
            is_superuser=is_superuser,
            tracing=tracing,
            stores=NamedStores(stores, broker_id),
            peers=peers,
        )
        if shards is None:
            await _open_recovered(broker, store, storage)
        opening = [
            tasks.create_task(_open_for_retention(broker)),
            tasks.create_task(DeletedTopics(broker.topics, store, shards).run()),
        ]
        if storage.uploader is not None:
            opening.append(tasks.create_task(_open_backlog(broker, storage.uploader)))
        files = MemoryFiles() if staging_files is None else staging_files
        if snapshots is not None:
            broker.backups = Backups(
                *(snapshots, storage, files, broker.stores, tasks),
                flush_cursors=broker.flush_cursors,
                wall_clock_us=wall_clock_us,
            )
        try:
            async with (
                following_quotas(broker.quotas),
                open_access_control(
                    store, wall_clock_us, is_superuser
                ) as broker.access,
                open_audit(
                    wall_clock_us,
                    path=audit_file,
                    publish=None
                    if is_superuser is None
                    else AuditTopic(
                        broker.internal.publish, broker_id, wall_clock_us
                    ).publish,
                ) as broker.audit,
                _open_staging(
                    broker,
                    store=store,
                    storage=storage,
                    files=files,
                    config=staging,
                    wall_clock_us=wall_clock_us,
                ) as broker.staging,
            ):
                if broker.shard_serving is not None:
                    assert isinstance(broker.staging, SharedStaging)
                    broker.shard_serving.watch_served(broker.staging.commits.wake)
                yield broker
        finally:
            for task in opening:
                task.cancel()
            if broker.backups is not None:
                broker.backups.cancel()
            await broker.drain()
            for topic in broker.topics.opened.values():
                topic.close(Draining("the broker is stopping (draining)"))


def _open_staging(
    broker: Broker,
    *,
    store: MetadataStore,
    storage: Storage,
    files: Files,
    config: StagingConfig,
    wall_clock_us: Callable[[], int],
) -> AbstractAsyncContextManager[Staging | SharedStaging]:
    opening: Callable[..., AbstractAsyncContextManager[Staging | SharedStaging]]
    opening = open_staging
    if broker.shards is not None:
        opening = partial(open_shared_staging, shards=broker.shards)
    return opening(
        broker.topics,
        broker.schemas,
        store=store,
        storage=storage,
        files=files,
        config=config,
        clock=asyncio.get_running_loop().time,
        wall_clock_us=wall_clock_us,
    )


async def _found_cluster(
    store: MetadataStore,
    new_broker_id: Callable[[], str],
    wall_clock_us: Callable[[], int],
) -> str:
    """Create the first records of an empty store; return the broker's id."""
    known = await store.get(keys.BROKER)
    if known is not None:
        return known.value.broker_id
    now = wall_clock_us()
    record = BrokerRecord(broker_id=new_broker_id(), created_at=now)
    namespaces = [
        Put(keys.NAMESPACES.key(name), NamespaceRecord(created_at=now))
        for name in FIRST_NAMESPACES
    ]
    await store.transaction(
        [Unchanged(keys.BROKER, ABSENT)], [Put(keys.BROKER, record), *namespaces]
    )
    return record.broker_id


async def _open_recovered(
    broker: Broker, store: MetadataStore, storage: Storage
) -> None:
    """
    Open the topics with unsealed or failed messages; remove deleted topics.

    Raises:
        InconsistentDirectory: The metadata store has neither a topic of the journal
            nor the record of its deletion.
    """
    known = {
        stored.value.topic_id: TopicName.parse("/" + keys.TOPICS.name_of(path))
        for path, stored in await store.scan_valid(keys.TOPICS)
    }
    deleted = {
        TopicId(stored.value.topic_id): TopicName.parse(
            "/" + keys.DELETED_TOPICS.name_of(path)
        )
        for path, stored in await store.scan_valid(keys.DELETED_TOPICS)
    }
    unsealed: list[TopicName] = []
    for topic_id, text in storage.recovered:
        name = known.get(topic_id)
        if name is None:
            former = TopicName.parse(text)
            records = keys.topic(former), keys.deleted_topic(former)
            if any(key.path in store.damaged for key in records):
                # Its contents stay until its record is repaired.
                continue
            if topic_id not in deleted:
                raise InconsistentDirectory(
                    f"the journal has the topic {text} (number {topic_id}), and the "
                    "metadata store neither knows it nor records that it was deleted; "
                    "put the right metadata store back, or rebuild its records with "
                    "'danube recover --from-segments'"
                )
        elif storage.must_be_opened(topic_id):
            unsealed.append(name)
    for topic_id, name in deleted.items():
        log.info("removing the contents of the deleted topic %s", name)
        try:
            await broker.topics.remove_content(topic_id, name)
        except BrokerError as error:
            log.warning("it is tried again: %s", error)
    await broker.topics.open_all(unsealed)


async def _open_backlog(broker: Broker, uploader: Uploader) -> None:
    """Open the topics whose segments are not uploaded, so that they are uploaded."""
    await uploader.loaded.wait()
    while True:
        try:
            await broker.topics.open_ids(uploader.unopened_topics(), "upload segments")
        except BrokerError as error:
            log.warning("the topics cannot be listed: %s", error)
            await asyncio.sleep(_OPENING_RETRY_S)
        else:
            return


async def _open_for_retention(broker: Broker) -> None:
    """
    Open topics whose old segments retention drops, forever.

    Retention is then applied to them as to all open topics.
    """
    interval_s = broker.storage.retention_interval_s
    await asyncio.sleep(interval_s)
    while True:
        try:
            due = await broker.topics.find_idle_drops()
            await broker.topics.open_ids(due, "apply retention")
        except BrokerError as error:
            log.warning("retention is not applied to topics without users: %s", error)
        await asyncio.sleep(interval_s * IDLE_RETENTION_INTERVALS)
