"""
A broker: its topics, producers, subscriptions, schemas and staged batches.

The broker knows nothing of connections.  Servers parse requests, call methods of its
parts, and translate the results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pydanube.aio.locks import NamedSemaphores
from pydanube.model.clusters import (
    BrokerLoad,
    BrokerMode,
    ClusterDescription,
    ShardMove,
    ShardMoves,
)
from pydanube.model.descriptions import TopicPlace
from pydanube.model.errors import (
    InvalidRequest,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube_broker.broker.backups import Backups
from pydanube_broker.broker.consumer_registry import ConsumerRegistry
from pydanube_broker.broker.delivery.counts import BrokerCounts
from pydanube_broker.broker.governance.access_control import (
    AccessControl,
)
from pydanube_broker.broker.governance.audit import AuditLog
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.iceberg_tables import IcebergTables
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.governance.quotas import Quotas
from pydanube_broker.broker.governance.stored_connectors import StoredConnectors
from pydanube_broker.broker.named_stores import NamedStores
from pydanube_broker.broker.publishing.message_batcher import MessageBatcher
from pydanube_broker.broker.publishing.schema_registry import SchemaRegistry
from pydanube_broker.broker.pure.activity_rings import ActivityRings
from pydanube_broker.broker.serving.internal_publishing import InternalPublisher, Peers
from pydanube_broker.broker.serving.open_connections import OpenConnections
from pydanube_broker.broker.serving.producers import Producers
from pydanube_broker.broker.serving.shard_serving import ShardServing
from pydanube_broker.broker.serving.subscriptions import Subscriptions
from pydanube_broker.broker.staging.shared_staging import SharedStaging
from pydanube_broker.broker.staging.staging import Staging
from pydanube_broker.broker.topics.dead_letters import DeadLetters
from pydanube_broker.broker.topics.retention_holds import RetentionHolds
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topic_views import TopicViews
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.cluster import overview
from pydanube_broker.cluster.lost_journals import give_up_journals
from pydanube_broker.cluster.shard_moves import (
    measure_balance,
    move_shard,
    plan_rebalance,
    rebalance_some,
    request_rebalance,
)
from pydanube_broker.metadata.damaged_records import DamagedRecords
from pydanube_broker.metadata.store import (
    MetadataStore,
    retry_on_conflict,
)
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Broker:
    """The parts of a broker; ``open_broker`` puts them together."""

    broker_id: str
    access: AccessControl
    """The access policy: roles, bindings, and decisions."""
    activity: ActivityRings
    """The rates and the lag of the last hours."""
    audit: AuditLog
    """The audit log of administrative requests and refusals."""
    backups: Backups | None
    """The backups, if the metadata store can copy itself."""
    batcher: MessageBatcher
    """Publishes single messages to any topic."""
    catalog: Catalog
    """The records of topics; ``topics`` changes them."""
    connections: OpenConnections
    """The clients that are connected through any listener."""
    connectors: StoredConnectors
    """The definitions of connectors, which workers run."""
    consumer_registry: ConsumerRegistry
    """The consumer ids that the gRPC server needs after a restart."""
    counts: BrokerCounts
    dead_letters: DeadLetters
    holds: RetentionHolds
    iceberg_tables: IcebergTables
    internal: InternalPublisher
    """Publishes the messages of the broker itself."""
    lists: NamedSemaphores[str]
    """The turns of requests that list things, by the name of the principal."""
    namespaces: Namespaces
    peers: Peers | None
    """The other brokers, if the broker is in a cluster that has them."""
    producers: Producers
    quotas: Quotas
    """The quotas of principals, namespaces and topics, and what they use."""
    registry: SchemaRegistry
    """The schema registry; ``schemas`` deletes what topics may be using."""
    schemas: TopicSchemas
    shard_serving: ShardServing | None
    """Opens and closes the topics of shards, if the broker is in a cluster."""
    shards: Shards | None
    """The shards that this broker serves, if it is in a cluster."""
    staging: Staging | SharedStaging
    """Batches that are stored and not published yet."""
    storage: Storage
    store: MetadataStore
    stores: NamedStores
    """The object stores that requests may name."""
    subscription_store: SubscriptionStore
    subscriptions: Subscriptions
    topics: Topics
    views: TopicViews
    """Looks at topics, also at those that are not open."""
    wall_clock_us: Callable[[], int]

    async def drain(self) -> None:
        """
        Refuse new batches, and finish those that were accepted.

        Durability: On return every acknowledged message and every cursor is on
            disk.
        """
        await drain(
            self.topics, self.dead_letters, self.subscription_store, self.storage
        )

    async def flush(self) -> None:
        """
        Return when moved cursors, and all that was appended, are committed.

        Raises:
            JournalFailed: The journal accepts nothing more.
        """
        self.subscription_store.cursors.flush()
        await self.storage.journal.sync()

    def wake_subscriptions(self) -> None:
        """Let every subscription look at the clock and do what is due."""
        for topic in self.topics.opened.values():
            for subscription in topic.subscriptions.values():
                subscription.wake_up()

    # Clusters.

    async def describe_cluster(
        self, *, counts_topics: bool = False
    ) -> ClusterDescription:
        """Return the brokers of the cluster; none if the broker is not in one."""
        if self.shards is None:
            return ClusterDescription(brokers=())
        return await overview.describe_cluster(self.store, counts_topics=counts_topics)

    async def count_topics(self, session_id: str) -> int:
        """Return the number of topics in the shards of a session of the cluster."""
        return await overview.count_topics(self.store, session_id)

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
            self.store,
            broker_id,
            mode,
            reason=reason,
            wall_clock_us=self.wall_clock_us(),
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
        return await move_shard(self.store, shard, broker_id)

    async def forget_broker(self, broker_id: str, *, accept_loss: bool) -> ShardMoves:
        """
        Return the shards that wait for journals of a broker; see ``lost_journals``.

        Raises:
            InvalidRequest: This broker is not in a cluster.
        """
        self._clustered()
        shards = await retry_on_conflict(
            partial(give_up_journals, self.store, broker_id, dry_run=not accept_loss)
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
            moves = await rebalance_some(self.store, limits, moves_max)
        else:
            moves = (await plan_rebalance(self.store, limits))[:moves_max]
            if moves and not dry_run:
                await request_rebalance(self.store, self.wall_clock_us())
        return ShardMoves(moves=tuple(moves))

    @property
    def imbalance_max(self) -> float:
        """The part of the average load from which on the controller balances."""
        return self._clustered().limits.begin_ratio

    async def measure_balance(self) -> list[BrokerLoad]:
        """Return the loads of the active brokers; none outside of a cluster."""
        return [] if self.shards is None else await measure_balance(self.store)

    @property
    def damaged_records(self) -> DamagedRecords:
        """The records of the metadata store that this broker could not decode."""
        return self.store.damaged

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


async def drain(
    topics: Topics,
    dead_letters: DeadLetters,
    subscriptions: SubscriptionStore,
    storage: Storage,
) -> None:
    """Refuse new batches, and finish those that were accepted; see ``Broker.drain``."""
    topics.drain()
    # Cursors are saved after parked messages were copied.
    await dead_letters.finish()
    subscriptions.cursors.flush()
    await storage.journal.sync()
