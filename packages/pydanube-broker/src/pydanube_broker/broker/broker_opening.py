"""Opening a broker: the one place where its parts are made and put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydanube.aio.locks import NamedSemaphores, SharedLock
from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import BrokerError, Draining, InconsistentDirectory
from pydanube.model.histograms import NO_EXEMPLARS
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.security.quotas import NO_QUOTA, Quota
from pydanube_broker.broker.backups import Backups, Moments, OneProcess, Snapshots
from pydanube_broker.broker.broker import Broker, drain
from pydanube_broker.broker.consumer_registry import ConsumerRegistry
from pydanube_broker.broker.delivery.counts import BrokerCounts
from pydanube_broker.broker.delivery.internal_batches import InternalBatch, Source
from pydanube_broker.broker.governance.access_control import (
    IsSuperuser,
    open_access_control,
)
from pydanube_broker.broker.governance.audit import AuditTopic, open_audit
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.iceberg_tables import IcebergTables
from pydanube_broker.broker.governance.indirect_targets import IndirectTargets
from pydanube_broker.broker.governance.namespaces import FIRST_NAMESPACES, Namespaces
from pydanube_broker.broker.governance.quotas import Quotas, following_quotas
from pydanube_broker.broker.governance.stored_connectors import open_stored_connectors
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.broker.named_stores import NamedStores
from pydanube_broker.broker.publishing.message_batcher import (
    BATCH_BYTES_MAX,
    MessageBatcher,
)
from pydanube_broker.broker.publishing.schema_registry import SchemaRegistry
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.publishing.tracing import Tracing
from pydanube_broker.broker.pure.activity_rings import ActivityRings
from pydanube_broker.broker.serving.internal_publishing import InternalPublisher, Peers
from pydanube_broker.broker.serving.open_connections import OpenConnections
from pydanube_broker.broker.serving.producers import Producers
from pydanube_broker.broker.serving.shard_serving import ShardServing
from pydanube_broker.broker.serving.subscriptions import Subscriptions
from pydanube_broker.broker.staging.shared_staging import (
    SharedStaging,
    open_shared_staging,
)
from pydanube_broker.broker.staging.staging import Staging, open_staging
from pydanube_broker.broker.topics.dead_letters import DeadLetters
from pydanube_broker.broker.topics.deleted_topics import DeletedTopics
from pydanube_broker.broker.topics.reply_topics import ReplyTopics
from pydanube_broker.broker.topics.retention_holds import RetentionHolds
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topic_loading import TopicLoader
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topic_views import TopicViews
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.dispatch.shared_counts import ONE_PROCESS, SharedCounts
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import BrokerRecord, NamespaceRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    MetadataStore,
    Put,
    Unchanged,
    retry_on_conflict,
)
from pydanube_broker.storage.config import NamedStoreConfig, StagingConfig
from pydanube_broker.storage.files import Files, MemoryFiles
from pydanube_broker.storage.pure.by_shard import ByShard
from pydanube_broker.storage.remote.uploading import Uploader
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

_OPENING_RETRY_S = 10.0
IDLE_RETENTION_INTERVALS = 60
"""Topics that are not open are examined for retention after so many intervals."""
LISTS_MAX = 4
"""The most requests of one principal that list things at the same time."""


@asynccontextmanager
async def open_broker(
    store: MetadataStore,
    storage: Storage,
    *,
    new_broker_id: Callable[[], str],
    wall_clock_us: Callable[[], int],
    clock: Callable[[], float] | None = None,
    address: str = "",
    auto_create_topics: bool = True,
    done_ranges_max: int = 100_000,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    staging_files: Files | None = None,
    staging: StagingConfig = StagingConfig(),  # noqa: B008  # It is immutable.
    snapshots: Snapshots | None = None,
    moments: Moments | None = None,
    shards: Shards | None = None,
    is_superuser: IsSuperuser | None = None,
    tracing: Tracing | None = None,
    audit_file: Path | None = None,
    default_quota: Quota = NO_QUOTA,
    stores: Mapping[str, NamedStoreConfig] = MappingProxyType({}),
    peers: Peers | None = None,
    shared_counts: SharedCounts = ONE_PROCESS,
) -> AsyncIterator[Broker]:
    """
    Open a broker on *store* and *storage*.

    *wall_clock_us* is the clock of records and of delivery windows.  *clock* is that of
    timeouts, delays and expiry in subscriptions, by default the event loop's.  After it
    has jumped, call ``wake_subscriptions``.

    Dead letters name the broker by *address*, or else by its id.  Staged batches are
    kept in *staging_files*, or in memory if there are none.
    Without *is_superuser*, every client may do everything; with it, clients may do what
    roles permit them, superusers everything, and the topic ``/system/audit`` has the
    audit log.  *audit_file* has it, too.  Principals without a quota of their own have
    *default_quota*, except superusers.

    *snapshots* is *store* if it can copy itself.  *moments* takes the state of a broker
    with several processes.  Without both there are no backups.
    *stores* are the object stores that requests may name.

    Topics with messages that are not sealed are opened at once, the others on first
    use.  With *shards*, the broker is one of a cluster: it opens topics when it serves
    their shards (``Broker.shard_serving``), and its id is that of *new_broker_id*.  It
    publishes its own messages, as dead letters, at *peers*.  *shared_counts* has what
    the other processes of a broker with several count.  On exit it is drained.
    """
    broker_id = await retry_on_conflict(
        partial(_found_cluster, store, new_broker_id, wall_clock_us)
    )
    if shards is not None:
        # The store has the id of the broker that founded the cluster.
        broker_id = new_broker_id()
    loop = asyncio.get_running_loop()
    delivery_clock = clock or loop.time
    # Shared by the parts below: Topics adds to it, while it holds the lock, and the
    # others look up what is open.
    opened: ByShard[TopicName, Topic] = ByShard()
    lock = SharedLock()
    async with (
        asyncio.TaskGroup() as tasks,
        open_access_control(store, wall_clock_us, is_superuser) as access,
    ):
        # Readers of changes learn what they may not read any more.
        access.on_change.append(storage.offset_changes.forget)
        counts = BrokerCounts(
            wall_clock_us, NO_EXEMPLARS if tracing is None else tracing.delivered
        )
        namespaces = Namespaces(
            store, opened=opened, lock=lock, wall_clock_us=wall_clock_us
        )
        holds = RetentionHolds(store, wall_clock_us)
        registry = SchemaRegistry(store, wall_clock_us)
        quotas = Quotas(
            store,
            opened=opened,
            clock=loop.time,
            wall_clock_us=wall_clock_us,
            default=default_quota,
            is_exempt=is_superuser,
            shared=shared_counts,
        )
        catalog = Catalog(
            store,
            namespaces,
            wall_clock_us,
            tasks=tasks,
            quotas=quotas,
            shard_count=None if shards is None else shards.count,
        )
        schemas = TopicSchemas(
            registry, catalog, opened=opened, lock=lock, tasks=tasks, clock=loop.time
        )
        targets = IndirectTargets(access, catalog)

        async def publish_internally(
            topic: TopicName, source: Source, batches: Sequence[InternalBatch]
        ) -> None:
            # Dead letters go from topics to topics: that circle is closed here.
            await internal.publish(topic, source, batches)

        dead_letters = DeadLetters(
            publish_internally,
            targets.check,
            tasks,
            delivery_clock,
            broker=address or broker_id,
        )
        subscription_store = SubscriptionStore(
            store,
            storage,
            dead_letters=dead_letters,
            tasks=tasks,
            done_ranges_max=done_ranges_max,
            clock=delivery_clock,
            wall_clock_us=wall_clock_us,
            tracing=tracing,
        )
        loader = TopicLoader(
            namespaces=namespaces,
            subscriptions=subscription_store,
            schemas=schemas,
            counts=counts,
            clock=loop.time,
            wall_clock_us=wall_clock_us,
            tracing=tracing,
        )
        topics = Topics(
            store=store,
            storage=storage,
            catalog=catalog,
            namespaces=namespaces,
            quotas=quotas,
            schemas=schemas,
            holds=holds,
            subscriptions=subscription_store,
            loader=loader,
            opened=opened,
            lock=lock,
            clock=loop.time,
            auto_creates=auto_create_topics,
            shards=shards,
        )
        internal = InternalPublisher(topics, storage, peers)
        named_stores = NamedStores(stores, broker_id)
        files = MemoryFiles() if staging_files is None else staging_files
        backups = None
        if snapshots is not None:
            moments = OneProcess(
                snapshots,
                storage,
                files,
                flush_cursors=subscription_store.cursors.flush,
                wall_clock_us=wall_clock_us,
            )
        if moments is not None:
            backups = Backups(
                moments, storage, named_stores, tasks, wall_clock_us=wall_clock_us
            )
        if shards is None:
            await _open_recovered(topics, store, storage)
        # In reverse order at the end: staging and the audit log, which publish, end
        # before _working() closes the topics.
        async with (
            _working(
                topics, dead_letters, subscription_store, storage, backups
            ) as opening,
            following_quotas(quotas),
            open_stored_connectors(store, access, wall_clock_us) as connectors,
            open_audit(
                wall_clock_us,
                path=audit_file,
                publish=None
                if is_superuser is None
                else AuditTopic(internal.publish, broker_id, wall_clock_us).publish,
            ) as audit,
            _open_staging(
                topics,
                schemas,
                shards,
                store=store,
                storage=storage,
                files=files,
                config=staging,
                clock=loop.time,
                wall_clock_us=wall_clock_us,
            ) as opened_staging,
        ):
            opening.run(_open_for_retention(topics, storage), "apply retention")
            expiring = _release_expired_holds(
                topics, holds, storage.retention_interval_s
            )
            opening.run(expiring, "release expired holds")
            opening.run(
                DeletedTopics(topics, store, shards).run(), "remove deleted topics"
            )
            opening.run(
                ReplyTopics(topics, catalog, shards).run(), "delete unused reply topics"
            )
            if storage.uploader is not None:
                opening.run(
                    _open_backlog(topics, storage.uploader), "open topics to upload"
                )
            yield Broker(
                broker_id=broker_id,
                access=access,
                activity=ActivityRings(wall_clock_us() / 1e6),
                audit=audit,
                backups=backups,
                batcher=MessageBatcher(
                    loop, storage.journal.when_free, batch_bytes_max=batch_bytes_max
                ),
                catalog=catalog,
                connections=OpenConnections(wall_clock_us),
                connectors=connectors,
                consumer_registry=ConsumerRegistry(store),
                counts=counts,
                dead_letters=dead_letters,
                holds=holds,
                iceberg_tables=IcebergTables(
                    catalog,
                    MetadataManifest(store),
                    storage.public_objects,
                    must_be_uploaded=storage.remote is not None,
                    wall_clock_us=wall_clock_us,
                ),
                internal=internal,
                lists=NamedSemaphores(LISTS_MAX),
                namespaces=namespaces,
                peers=peers,
                producers=Producers(topics, schemas, storage, loop.time),
                quotas=quotas,
                registry=registry,
                schemas=schemas,
                shard_serving=None
                if shards is None
                else ShardServing(
                    shards,
                    topics,
                    subscription_store,
                    store=store,
                    storage=storage,
                    on_served=opened_staging.on_served,
                ),
                shards=shards,
                staging=opened_staging,
                storage=storage,
                store=store,
                stores=named_stores,
                subscription_store=subscription_store,
                subscriptions=Subscriptions(
                    topics, catalog, namespaces, subscription_store, targets
                ),
                topics=topics,
                views=TopicViews(topics, catalog, storage, loader, shards),
                wall_clock_us=wall_clock_us,
            )


@asynccontextmanager
async def _working(
    topics: Topics,
    dead_letters: DeadLetters,
    subscription_store: SubscriptionStore,
    storage: Storage,
    backups: Backups | None,
) -> AsyncIterator[TaskScope]:
    """Run tasks that open topics during the body; then close all topics."""
    async with task_scope() as tasks:
        try:
            yield tasks
        finally:
            # A topic that is opened from here on would not be closed below.
            tasks.cancel()
            if backups is not None:
                backups.cancel()
            await drain(topics, dead_letters, subscription_store, storage)
            for topic in topics.opened.values():
                topic.close(Draining("the broker is stopping (draining)"))


def _open_staging(
    topics: Topics,
    schemas: TopicSchemas,
    shards: Shards | None,
    **options: Any,
) -> AbstractAsyncContextManager[Staging | SharedStaging]:
    if shards is None:
        return open_staging(topics, schemas, **options)
    return open_shared_staging(topics, schemas, shards=shards, **options)


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
    topics: Topics, store: MetadataStore, storage: Storage
) -> None:
    """
    Open the topics with unsealed or failed messages; remove deleted topics.

    Raises:
        InconsistentDirectory: The metadata store has neither a topic of the journal
            nor the record of its deletion.
    """
    # Few names are needed, and there may be very many.
    known = {
        stored.value.topic_id: path
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
        path = known.get(topic_id)
        if path is None:
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
            unsealed.append(TopicName.parse("/" + keys.TOPICS.name_of(path)))
    for topic_id, name in deleted.items():
        log.info("removing the contents of the deleted topic %s", name)
        try:
            await topics.remove_content(topic_id, name)
        except BrokerError as error:
            log.warning("it is tried again: %s", error)
    await topics.open_all(unsealed)


async def _open_backlog(topics: Topics, uploader: Uploader) -> None:
    """Open the topics whose segments are not uploaded, so that they are uploaded."""
    await uploader.loaded.wait()
    while True:
        try:
            await topics.open_ids(uploader.unopened_topics(), "upload segments")
        except BrokerError as error:
            log.warning("the topics cannot be listed: %s", error)
            await asyncio.sleep(_OPENING_RETRY_S)
        else:
            return


async def _release_expired_holds(
    topics: Topics, holds: RetentionHolds, interval_s: float
) -> None:
    """Remove the holds of readers that are gone, forever."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await topics.remove_expired_holds(await holds.find_expired())
        except BrokerError as error:
            log.warning("expired holds are not released: %s", error)


async def _open_for_retention(topics: Topics, storage: Storage) -> None:
    """
    Open topics whose old segments retention drops, forever.

    Retention is then applied to them as to all open topics.
    """
    interval_s = storage.retention_interval_s
    await asyncio.sleep(interval_s)
    while True:
        try:
            due = await topics.find_idle_drops()
            await topics.open_ids(due, "apply retention")
        except BrokerError as error:
            log.warning("retention is not applied to topics without users: %s", error)
        await asyncio.sleep(interval_s * IDLE_RETENTION_INTERVALS)
