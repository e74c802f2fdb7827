"""A broker's part in a cluster: its session, taking over shards, and directing."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from urllib.parse import urlsplit

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import ClusterInUse, InvalidConfig
from pydanube.objects.store import Objects, wall_clock_us
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.broker.serving.record_changes import RecordChanges
from pydanube_broker.broker.serving.shard_traffic import traffic_of
from pydanube_broker.cluster.controller import Controller, create_shards
from pydanube_broker.cluster.journal_host import JournalHost
from pydanube_broker.cluster.journal_removal import JournalRemoval
from pydanube_broker.cluster.load_reports import LoadReports
from pydanube_broker.cluster.overview import (
    GRPC,
    GRPC_CONNECT,
    PEER_ADMIN,
    PEER_GRPC,
    PEER_HTTP,
    STREAM,
)
from pydanube_broker.cluster.pure.directions import Director
from pydanube_broker.cluster.session import ClusterSession, open_cluster_session
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.takeover import Takeovers
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.remote_config import RemoteStoreConfig
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.settings.addresses import url_of
from pydanube_broker.servers.settings.config import BrokerConfig
from pydanube_broker.storage.journal.object_journal import ObjectJournal

PEER_KEY_BYTES = 32
PROCESS_WAIT_S = 10
"""How long a process waits at most for the end of the one that it replaces."""


@asynccontextmanager
async def open_membership(
    config: BrokerConfig,
    store: MetadataStore,
    listener_ports: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[ClusterSession]:
    """
    Begin the session of a broker in the cluster that *store* describes.

    Raises:
        ClusterInUse: A broker outside of a cluster uses the store, or another process
            has the name of this broker.
        InvalidConfig: The store has the topics of such a broker.
        MetadataUnavailable: The store does not answer.
    """
    remote = config.metadata.remote
    if remote is not None:
        await check_is_cluster(store, remote)
    await create_shards(store, config.cluster.shards)
    if remote is not None:
        # Such a broker may have started meanwhile.
        await check_is_cluster(store, remote)
    record = session_record_of(
        config, started_at=wall_clock_us(), listener_ports=listener_ports
    )
    ttl_s = PROCESS_WAIT_S if remote is None else remote.session_ttl_s
    async with open_cluster_session(store, record, ttl_s=ttl_s) as session:
        yield session


async def check_is_cluster(store: MetadataStore, remote: RemoteStoreConfig) -> None:
    """
    Raise if *store* belongs to a broker outside of a cluster.

    Raises:
        ClusterInUse: It runs.
        InvalidConfig: It has stored a journal, which no cluster can take over.
    """
    active = await store.get(keys.ACTIVE_BROKER)
    if active is not None:
        raise ClusterInUse(
            f"the broker on {active.value.host} (process {active.value.process_id}) "
            "uses this metadata outside of a cluster; stop it, or choose another name "
            f"({remote.setting('cluster_name')})"
        )
    if await store.get(keys.JOURNAL) is not None:
        raise InvalidConfig(
            "cluster.enabled: the metadata is that of a broker outside of a cluster, "
            "whose topics a cluster cannot take over; choose another name "
            f"({remote.setting('cluster_name')}), and copy the messages"
        )


def session_record_of(
    config: BrokerConfig,
    *,
    started_at: int,
    listener_ports: Mapping[str, int] = MappingProxyType({}),
) -> SessionRecord:
    """
    Return the description of a broker for the others.

    *listener_ports* are the ports of plug-ins by the names of their listeners, if they
    are not those of the settings.
    """
    listens, cluster = config.listen, config.cluster
    stream_url = cluster.advertised_url or url_of(
        listens.host, listens.stream_port, config.tls.stream_scheme
    )
    addresses = {STREAM: stream_url}
    if listens.advertised_url or listens.grpc_port:
        grpc_url = listens.advertised_url or url_of(
            listens.host, listens.grpc_port, config.tls.http_scheme
        )
        addresses[GRPC] = grpc_url
        if listens.connect_url:
            addresses[GRPC_CONNECT] = listens.connect_url
    for name, port in (
        (PEER_GRPC, listens.grpc_port),
        (PEER_ADMIN, listens.admin_port),
        (PEER_HTTP, listens.http_port),
    ):
        if port:
            host = cluster.peer_host or listens.host
            addresses[name] = url_of(host, port, config.tls.http_scheme)
    reached_host = urlsplit(stream_url).hostname or listens.host
    for each in config.open_listeners:
        own_port = listener_ports.get(each.NAME) or each.port
        if each.SERVES_CLUSTERS and own_port:
            addresses[each.NAME] = each.address(reached_host, own_port)
    return SessionRecord(
        broker_id=broker_id_of(config),
        addresses=addresses,
        started_at=started_at,
        zone=cluster.zone,
        peer_key=secrets.token_hex(PEER_KEY_BYTES),
    )


def broker_id_of(config: BrokerConfig) -> str:
    """Return the name of a broker in its cluster."""
    return config.cluster.broker_id or socket.gethostname()


@asynccontextmanager
async def serving_shards(
    session: ClusterSession,
    store: MetadataStore,
    broker: Broker,
    owners: ShardOwners,
    *,
    journal_id: bytes,
    journal_objects: Objects,
    wall_clock_us: Callable[[], int] = wall_clock_us,
) -> AsyncIterator[Takeovers]:
    """
    Take over, serve and leave shards during the body, and take part in elections.

    *owners* are those of the broker's shards.  *journal_objects* is the store of the
    journals of all sessions.  At the end of the body, or of the session, no shard is
    served any more.
    """
    journal, shards, serving = (
        broker.storage.journal,
        broker.shards,
        broker.shard_serving,
    )
    assert isinstance(journal, ObjectJournal)
    assert shards is not None
    assert serving is not None
    host = JournalHost(
        session.session_id,
        store,
        serving,
        journal=journal,
        journal_id=journal_id,
        objects=journal_objects,
        manifest=MetadataManifest(store),
        counts=owners.counts,
    )
    takeovers = Takeovers(session, store, host, owners)
    clock = asyncio.get_running_loop().time
    controller = Controller(
        session,
        store,
        Director(shards.limits),
        clock=clock,
        wall_clock_us=wall_clock_us,
    )
    loads = LoadReports(
        session,
        store,
        find_traffic=lambda: traffic_of(broker.topics.opened.values()),
        find_served=lambda: shards.served,
        clock=clock,
        wall_clock_us=wall_clock_us,
    )
    removal = JournalRemoval(store, journal_objects, lambda: controller.is_controller)
    changes = RecordChanges(
        store, broker.topics, broker.namespaces, broker.schemas, serving
    )
    async with task_scope() as tasks:
        tasks.run(takeovers.run(), "take over shards")
        tasks.run(controller.run(), "direct the cluster")
        tasks.run(loads.run(), "report the load of shards")
        tasks.run(removal.run(), "remove journals of ended sessions")
        tasks.run(changes.run(), "apply changed records")
        yield takeovers
