"""
The composition root: the module that connects all parts of a broker.

The ``async with`` statements open lower layers first and close them last, so no part is
closed while another one still uses it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import (
    AsyncIterator,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydanube.aio.loops import new_loop
from pydanube.model.arrow import load as load_arrow
from pydanube.model.histograms import NO_EXEMPLARS
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.version import __version__
from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.store import Objects, wall_clock_us
from pydanube.security.addresses import host_in_url, parse_proxies
from pydanube.wire.native.frames import batch_bytes_max
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.manifest import MetadataManifest, SharedManifest
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.cluster.leaving import leave
from pydanube_broker.cluster.overview import PEER_ADMIN, PEER_GRPC
from pydanube_broker.cluster.pure.placement import PlacementLimits
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.dispatch.shared_counts import ONE_PROCESS, SharedCounts
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.shared_sqlite import SharedSqliteStore
from pydanube_broker.metadata.store import MetadataStore, retry_on_conflict
from pydanube_broker.servers.activity_recording import recording_activity
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    open_authenticator,
    verifying_api_keys,
)
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.listeners import (
    ListenerParts,
    OpenListener,
    serving_listener,
)
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_broker.servers.directories.directory import (
    DataDirectory,
    hold_directory,
    hold_metadata,
    watching_directory,
)
from pydanube_broker.servers.directories.identity import (
    ClusterIdentity,
    identify,
    recording_progress,
    refuse_lost_metadata,
)
from pydanube_broker.servers.directories.journals import (
    find_kind,
    journal_opener,
    journal_place,
    open_journal_objects,
)
from pydanube_broker.servers.directories.metadata import open_metadata, watching_session
from pydanube_broker.servers.grpc.admin import admin_services
from pydanube_broker.servers.grpc.danube_server import schema_registry, serving_danube
from pydanube_broker.servers.grpc.forwarding import Forwarding, Owners
from pydanube_broker.servers.grpc.grpc_server import MESSAGE_BYTES_MAX
from pydanube_broker.servers.grpc.peer_channels import (
    PeerChannels,
    PeerFiles,
    open_peer_channels,
)
from pydanube_broker.servers.grpc.peers import PeerCalls, peer_service
from pydanube_broker.servers.grpc.server import Listener, open_listener
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.http.app import BrokerState, Ports
from pydanube_broker.servers.http.forwarding import HttpForwarding
from pydanube_broker.servers.http.server import open_http
from pydanube_broker.servers.idle_memory import memory_upkeep
from pydanube_broker.servers.membership import (
    broker_id_of,
    open_membership,
    serving_shards,
)
from pydanube_broker.servers.native.connection import listen
from pydanube_broker.servers.native.server import open_native_server
from pydanube_broker.servers.process_backups import ProcessMoments
from pydanube_broker.servers.process_reports import ProcessReports, Question
from pydanube_broker.servers.recovery.journal_switch import switch_journal
from pydanube_broker.servers.settings.addresses import (
    Addresses,
    addresses_of,
    addresses_text,
    check_exposure,
    http_hosts_of,
    url_of,
)
from pydanube_broker.servers.settings.config import BrokerConfig, ListenConfig
from pydanube_broker.servers.settings.logs import configure_logging
from pydanube_broker.servers.settings.process_config import (
    has_processes,
    process_count,
    reached_config,
)
from pydanube_broker.servers.settings.tls import ServerTls, open_tls
from pydanube_broker.servers.settings.tracing import open_traces
from pydanube_broker.servers.supervisor import (
    ProcessPart,
    return_to_one_process,
    supervising,
)
from pydanube_broker.storage.config import FILES, StorageConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.reserve import Reserve, ReserveFile
from pydanube_broker.storage.remote.tiered_objects import TieredObjects, open_remote
from pydanube_broker.storage.segments.removal_lock import RemovalLock
from pydanube_broker.storage.storage import Storage
from pydanube_broker.storage.storage_opening import open_storage

log = logging.getLogger(__name__)

MIB = 1024 * 1024
_RESERVE_BYTES = 4 * 1024 * 1024
"""The disk space that the journal allocates ahead of its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """The addresses of a running broker."""

    directory: DataDirectory
    stream_url: str
    grpc_url: str
    """The URL for clients of the original Danube."""
    admin_url: str
    """The URL for its administration tools."""
    http_url: str
    listener_urls: Mapping[str, str]
    """The URLs of the listeners of plug-ins that are open, by their name."""
    session: Session | None
    """The session by which the broker uses the metadata store, if others may do so,
    too; it must stop when that is lost."""


@asynccontextmanager
async def serve(
    config: BrokerConfig,
    *,
    own: ListenConfig | None = None,
    listener_ports: Mapping[str, int] = MappingProxyType({}),
    shared_counts: SharedCounts = ONE_PROCESS,
) -> AsyncIterator[RunningBroker]:
    """
    Run a complete broker during the body.

    With *own*, it shares the ports of ``config.listen`` with other processes of the
    broker, and *own* has further ports and the addresses of this process;
    *listener_ports* are those of the listeners of plug-ins, by their names, and
    *shared_counts* has what the processes count together.

    At the end, the broker refuses to publish, commits accepted messages, saves cursors
    and sends clients GOODBYE.

    Raises:
        DirectoryLocked: Another broker uses the data directory or the metadata store.
        ClusterInUse: Another broker uses the cluster's metadata.
        DirectoryReplaced: The data directory was replaced while it was opened.
        InvalidConfig: The data directory or a port cannot be used.
        CorruptJournal: The journal is damaged; nothing was changed.
        JournalFailed: Another broker takes over the journal at the same time.
        ObjectsUnavailable: The object store of the journal does not answer.
        InconsistentDirectory: A part of the data directory is missing, older than the
            others, or belongs to another cluster; nothing was deleted.
    """
    listens = config.listen
    reached = config if own is None else reached_config(config, own)
    counts = {
        name: ConnectionCounts(
            listener=name,
            connections_max=listens.connections_max,
            shared=shared_counts,
        )
        for name in (
            "grpc",
            "admin",
            "http",
            *(each.NAME for each in config.open_listeners),
        )
    }
    state = BrokerState(list(counts.values()), series_max=config.metrics.series_max)
    host = listens.host
    group = None if own is None else _group_of(config)
    is_shared = config.storage.journal.kind != "local"
    with (
        # Before anything is read: another broker may be changing it.
        hold_directory(
            config.data_dir, config.metadata.file, config.metadata.remote
        ) as directory,
        hold_metadata(directory, is_shared=is_shared),
    ):
        refuse_lost_metadata(directory)
        reserve = Reserve(ReserveFile(directory.reserve), config.storage.reserve_bytes)
        reserve.open()
        tls, scheme = open_tls(config.tls), config.tls.http_scheme
        async with (
            open_authenticator(config.security) as authenticator,
            _reporting(own, group, state),
            # Before the recovery, which may take minutes: probes get an answer.
            open_http(
                host,
                listens.http_port,
                state,
                own_port=own.http_port if own else None,
                forwarding=HttpForwarding(_peer_files(config)) if own else None,
                hosts=http_hosts_of(listens),
                trusted_proxies=parse_proxies(listens.trusted_proxies),
                counts=counts["http"],
                tls=tls,
                authenticator=authenticator,
            ) as http_port,
            # The broker's own address has this port.  Nobody is served before
            # _open_grpc().
            open_listener(
                host,
                listens.grpc_port,
                name="clients of Danube",
                flag="--grpc-port",
                tls=tls,
                own_port=own.grpc_port if own else None,
            ) as danube_listener,
            open_metadata(config, directory, make_room=reserve.release) as metadata,
            _open_session(reached, metadata.store, listener_ports) as (session, owners),
            _open_storage(
                config.storage, directory, metadata.store, reserve, session
            ) as (storage, identity),
            open_traces(config.traces, broker_id_of(config)) as tracing,
            _peer_channels(config) as channels,
            open_broker(
                metadata.store,
                storage,
                new_broker_id=partial(_new_broker_id, config),
                shards=_shards_of(config, owners),
                wall_clock_us=wall_clock_us,
                address=(addresses := _addresses(reached, danube_listener)).broker_url,
                auto_create_topics=config.topics.auto_create,
                done_ranges_max=config.subscriptions.done_ranges_max,
                batch_bytes_max=batch_bytes_max(config.listen.frame_bytes_max),
                staging_files=DirectoryFiles(directory.staging),
                staging=config.staging,
                snapshots=metadata.file,
                moments=_process_moments(config, metadata.store, state.processes),
                is_superuser=config.security.is_superuser
                if config.security.enabled
                else None,
                audit_file=Path(config.security.audit_file)
                if config.security.audit_file
                else None,
                default_quota=config.security.quota.quota,
                stores=config.stores,
                tracing=tracing,
                peers=None if channels is None else PeerCalls(channels),
                shared_counts=shared_counts,
            ) as broker,
            verifying_api_keys(
                authenticator,
                metadata.store,
                wall_clock_us=wall_clock_us,
                on_failure=broker.audit.record_failed_authentication,
            ),
            open_native_server(
                broker,
                listens,
                authenticator,
                exemplars=NO_EXEMPLARS if tracing is None else tracing.published,
                shared=shared_counts,
                http_port=http_port,
            ) as server,
            listen(
                server,
                host,
                listens.stream_port,
                tls,
                own_port=own.stream_port if own else None,
            ) as stream_port,
            _open_listeners(
                broker,
                config,
                metadata.store,
                counts=counts,
                tls=tls,
                authenticator=authenticator,
                processes=group,
                own_ports=listener_ports,
                addresses={} if session is None else session.listener_addresses,
            ) as listeners,
            _open_grpc(
                broker,
                config,
                http_port,
                danube_listener,
                addresses,
                session=session,
                channels=channels,
                counts=counts,
                tls=tls,
                authenticator=authenticator,
                own=own,
            ) as (
                admin_port,
                services,
            ),
            # The last one: as soon as the broker has shards, other brokers send
            # clients to its listeners.
            _serving_shards(
                config,
                session,
                owners,
                store=metadata.store,
                broker=broker,
                identity=identity,
            ),
            recording_activity(broker),
        ):
            grpc_port = danube_listener.port
            state.on_serving(
                broker,
                server,
                services,
                ports=Ports(
                    stream=stream_port,
                    grpc=grpc_port,
                    admin=admin_port,
                ),
                listeners=listeners,
            )
            try:
                yield RunningBroker(
                    directory=directory,
                    stream_url=f"{config.tls.stream_scheme}://{host_in_url(host)}:{stream_port}",
                    grpc_url=f"{scheme}://{host_in_url(host)}:{grpc_port}",
                    admin_url=f"{scheme}://{host_in_url(host)}:{admin_port}",
                    http_url=f"{scheme}://{host_in_url(host)}:{http_port}",
                    listener_urls={
                        each.config.NAME: each.url(
                            host_in_url(host), is_encrypted=config.tls.is_enabled
                        )
                        for each in listeners
                    },
                    session=metadata.session if session is None else session.lease,
                )
            finally:
                # Before the shards leave, so that load balancers send nobody here.
                state.on_stopping()
                if session is not None and own is None:
                    # Before the drain: other brokers take the shards over while this
                    # one still serves the rest.  Processes of one broker are stopped
                    # together.
                    await leave(session, metadata.store)
                await broker.drain()


@asynccontextmanager
async def _open_storage(
    config: StorageConfig,
    directory: DataDirectory,
    store: MetadataStore,
    reserve: Reserve,
    session: ClusterSession | None,
) -> AsyncIterator[tuple[Storage, ClusterIdentity]]:
    """
    Open the storage in *directory* after checking that its parts belong together.

    *session* is that of the broker in its cluster, if it is in one.

    Raises:
        InvalidConfig: The remote object store cannot be used with these settings.
    """
    local = DirectoryObjects(directory.objects)
    kind, place = config.journal.kind, journal_place(config, directory)
    # The first brokers of a cluster may start at the same time.
    identity = await retry_on_conflict(
        partial(identify, store, directory, local, kind=kind, journal=place)
    )
    if identity.recorded_kind not in {None, kind}:
        await switch_journal(config, identity, store)
        identity = await identify(store, directory, local, kind=kind, journal=place)
    objects: Objects = local
    claim_remote = None
    if config.remote.url:
        remote = open_remote(config.remote)
        objects = TieredObjects(local, remote)
        claim_remote = partial(identity.claim_remote, remote, config.remote.url)
    begun_at = time.monotonic()
    async with open_storage(
        config,
        files=DirectoryFiles(directory.journal, reserve_bytes=_RESERVE_BYTES),
        objects=objects,
        claim_remote=claim_remote,
        manifest=MetadataManifest(store) if session is None else SharedManifest(store),
        # The directories of the processes are beside each other.
        removal_lock=RemovalLock(directory.path.parent / "removals.lock")
        if kind == FILES
        else None,
        reserve=reserve,
        cache_path=directory.cache,
        new_journal=journal_opener(config, identity, store, session),
    ) as storage:
        _log_recovery(storage, time.monotonic() - begun_at)
        # After the recovery: a directory whose parts do not fit must stay as it is.
        await identity.record(local)
        if session is not None:
            yield storage, identity
            return
        async with recording_progress(store, storage, config.journal.kind):
            yield storage, identity


@asynccontextmanager
async def _reporting(
    own: ListenConfig | None, group: ProcessGroup | None, state: BrokerState
) -> AsyncIterator[None]:
    """Report together with the other processes of the broker, if it has several."""
    if own is None or group is None:
        yield
        return
    state.processes = ProcessReports(
        group=group,
        own_port=own.http_port,
        report=state.report,
    )
    async with state.processes.answering():
        yield


def _group_of(config: BrokerConfig) -> ProcessGroup:
    """Return the processes of a broker; their directories are beside each other."""
    return ProcessGroup(
        directory=config.data_dir.parent,
        number=int(config.data_dir.name),
        count=process_count(config),
    )


def _process_moments(
    config: BrokerConfig, store: MetadataStore, processes: ProcessReports | None
) -> ProcessMoments | None:
    """Return what takes the state of the processes of a broker, if it has several."""
    if processes is None or not isinstance(store, SharedSqliteStore):
        return None

    async def flush_all() -> None:
        await processes.ask_all(Question(flush=True))

    storage = config.storage
    directory = processes.group.directory
    objects = (directory.parent / "objects").as_uri()
    return ProcessMoments(
        store,
        directory=directory,
        journals=Path(storage.journal_url),
        has_remote=storage.remote.url != objects,
        flush_all=flush_all,
        wall_clock_us=wall_clock_us,
    )


@asynccontextmanager
async def _open_session(
    config: BrokerConfig, store: MetadataStore, listener_ports: Mapping[str, int]
) -> AsyncIterator[tuple[ClusterSession | None, ShardOwners | None]]:
    """Begin the session of the broker in its cluster, if it is in one."""
    if not config.is_in_cluster:
        yield None, None
        return
    async with open_membership(config, store, listener_ports) as session:
        yield session, ShardOwners(session)


def _new_broker_id(config: BrokerConfig) -> str:
    return broker_id_of(config) if config.is_in_cluster else uuid.uuid4().hex


def _shards_of(config: BrokerConfig, owners: ShardOwners | None) -> Shards | None:
    if owners is None:
        return None
    limits = PlacementLimits.of(
        moves_max=config.cluster.moves_max,
        imbalance_percent_max=config.cluster.imbalance_percent_max,
    )
    return Shards(config.cluster.shards, owners, limits)


@asynccontextmanager
async def _serving_shards(
    config: BrokerConfig,
    session: ClusterSession | None,
    owners: ShardOwners | None,
    *,
    store: MetadataStore,
    broker: Broker,
    identity: ClusterIdentity,
) -> AsyncIterator[None]:
    """Take over and serve shards during the body, if the broker is in a cluster."""
    if session is None or owners is None:
        yield
        return
    async with serving_shards(
        session,
        store,
        broker,
        owners,
        journal_id=identity.journal_id(),
        journal_objects=open_journal_objects(config.storage),
    ):
        yield


def _log_recovery(storage: Storage, taken_s: float) -> None:
    """Log what the journal had that is not sealed in segments."""
    frames = [each for found in storage.journal.recovered.values() for each in found]
    log.info(
        "read the journal in %.2f s: %d bytes in %d files, with %d messages (%d bytes) "
        "of %d topics that are not sealed",
        taken_s,
        storage.journal.byte_count,
        storage.journal.file_count,
        sum(frame.count for frame in frames),
        sum(frame.byte_count for frame in frames),
        len(storage.journal.recovered),
    )


@asynccontextmanager
async def _open_listeners(
    broker: Broker,
    config: BrokerConfig,
    store: MetadataStore,
    *,
    counts: Mapping[str, ConnectionCounts],
    tls: ServerTls | None,
    authenticator: Authenticator,
    processes: ProcessGroup | None,
    own_ports: Mapping[str, int],
    addresses: Mapping[str, str],
) -> AsyncIterator[Sequence[OpenListener]]:
    """Open the listeners of plug-ins that have a port."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                serving_listener(
                    each,
                    ListenerParts(
                        broker=broker,
                        store=store,
                        host=config.listen.host,
                        own_port=own_ports.get(each.NAME),
                        address=addresses.get(each.NAME, ""),
                        tls=tls,
                        authenticator=authenticator,
                        counts=counts[each.NAME],
                        idle_timeout_s=config.listen.idle_timeout_s,
                        wall_clock_us=wall_clock_us,
                        processes=processes,
                    ),
                )
            )
            for each in config.open_listeners
        ]


@asynccontextmanager
async def _open_grpc(
    broker: Broker,
    config: BrokerConfig,
    http_port: int,
    danube_listener: Listener,
    addresses: Addresses,
    *,
    session: ClusterSession | None,
    channels: PeerChannels | None,
    counts: Mapping[str, ConnectionCounts],
    tls: ServerTls | None,
    authenticator: Authenticator,
    own: ListenConfig | None,
) -> AsyncIterator[tuple[int, Sequence[Service]]]:
    """Open both gRPC servers; yields the port for administrators, and the services."""
    listens = config.listen
    forwarding = _forwarding(broker, channels, PEER_GRPC)
    admin_forwarding = _forwarding(broker, channels, PEER_ADMIN)
    message_bytes_max, peer_services = MESSAGE_BYTES_MAX, []
    if session is not None:
        # The longest dead letter, as other brokers send it.
        frame_bytes_max = listens.frame_bytes_max + MIB
        message_bytes_max = max(message_bytes_max, frame_bytes_max)
        peer_services.append(peer_service(broker, session.peer_key))
    async with (
        serving_danube(
            danube_listener,
            broker,
            addresses,
            wall_clock_us=wall_clock_us,
            window_messages_max=config.subscriptions.grpc_window_messages_max,
            counts=counts["grpc"],
            receive_bytes_max=listens.receive_bytes_max,
            authenticator=authenticator,
            forwarding=forwarding,
            message_bytes_max=message_bytes_max,
            peer_services=peer_services,
        ) as danube,
        open_listener(
            listens.host,
            listens.admin_port,
            name="administrators",
            flag="--admin-port",
            tls=tls,
            own_port=own.admin_port if own else None,
        ) as admin,
    ):
        admins = admin_services(
            broker,
            broker_url=addresses.broker_url,
            admin_url=url_of(listens.host, admin.port, config.tls.http_scheme),
            metrics_address=f"{host_in_url(listens.host)}:{http_port}",
        )
        services = [*admins, schema_registry(broker)]
        async with admin.serving(
            services,
            broker,
            counts=counts["admin"],
            receive_bytes_max=listens.receive_bytes_max,
            authenticator=authenticator,
            forwarding=admin_forwarding,
        ):
            yield admin.port, [*danube.services, *services]


def _addresses(config: BrokerConfig, listener: Listener) -> Addresses:
    """Return the addresses of a broker that *listener* serves to clients of Danube."""
    return addresses_of(
        config.listen.host,
        config.listen.grpc_port or listener.port,
        advertised_url=config.listen.advertised_url,
        connect_url=config.listen.connect_url,
        scheme=config.tls.http_scheme,
    )


def _peer_channels(
    config: BrokerConfig,
) -> AbstractAsyncContextManager[PeerChannels | None]:
    """Return the connections to other brokers; a broker alone has none."""
    if not config.is_in_cluster:
        return nullcontext()
    return open_peer_channels(_peer_files(config))


def _peer_files(config: BrokerConfig) -> PeerFiles:
    """Return the files for TLS with other brokers, or other processes."""
    return PeerFiles(
        ca=config.cluster.ca_file,
        certificate=config.tls.certificate_file,
        key=config.tls.key_file,
    )


def _forwarding(
    broker: Broker, channels: PeerChannels | None, listener: str
) -> Forwarding | None:
    """Return the forwarding of calls in a cluster; a broker alone forwards none."""
    if broker.shards is None or channels is None:
        return None
    owners = Owners(broker.topics.find_addresses, broker.shards.addresses_of_owners)
    return Forwarding(
        owners,
        listener=listener,
        channels=channels,
        proof=broker.quotas.shared.proof,
    )


def run(config: BrokerConfig, *, ignored_variables: Sequence[str] = ()) -> None:
    """
    Run a broker until SIGINT or SIGTERM, and print its addresses when it is ready.

    A second signal kills the process.  *ignored_variables* are reported in the log.

    Raises:
        InvalidConfig: Other machines could reach a broker that needs no credentials.

    For others, see ``serve``.
    """
    check_exposure(config)
    configure_logging(config.log)
    log.info(
        "starting pydanube %s, process %d, on the data directory %s, with the journal "
        "of kind %s and metadata in %s",
        __version__,
        os.getpid(),
        config.data_dir.absolute(),
        config.storage.journal.kind,
        config.metadata.kind,
    )
    if ignored_variables:
        log.warning(
            "ignoring environment variables of Kubernetes or the original Danube that "
            "are not settings of this broker: %s",
            ", ".join(ignored_variables),
        )
    if config.storage.journal.kind == FILES:
        # Only the processes of a broker have it.
        find_kind(FILES)
    if has_processes(config.data_dir) and not config.processes.are_several:
        return_to_one_process(config)
    if config.processes.are_several:
        # Before the processes are forked, so that they share the memory.
        load_arrow()
        with supervising(config) as part:
            if part is not None:
                run_loop(_run(part.config, part))
        return
    run_loop(_run(config))


def run_loop(running: Coroutine[Any, Any, None]) -> None:
    """Run a broker in an event loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(running)


async def _run(config: BrokerConfig, part: ProcessPart | None = None) -> None:
    stop = asyncio.Event()
    failure: BaseException | None = None
    begun_at = time.monotonic()
    with _stopping_on_signals(stop):
        try:
            shared: dict[str, Any] = {}
            if part is not None:
                shared = {
                    "own": part.own,
                    "listener_ports": part.listener_ports,
                    "shared_counts": part.shared_counts,
                }
            async with serve(config, **shared) as running:
                if part is None:
                    sys.stdout.write(
                        addresses_text(
                            stream_url=running.stream_url,
                            grpc_url=running.grpc_url,
                            admin_url=running.admin_url,
                            http_url=running.http_url,
                            listener_urls=running.listener_urls,
                            data_dir=running.directory.path,
                        )
                    )
                    sys.stdout.flush()
                log.info(
                    "serving after %.2f s: %s, %s (gRPC), %s (administration), %s",
                    time.monotonic() - begun_at,
                    running.stream_url,
                    running.grpc_url,
                    running.admin_url,
                    running.http_url,
                )
                for name, url in running.listener_urls.items():
                    log.info("serving clients of %s: %s", name, url)
                async with (
                    nullcontext() if part is None else part.reporting(stop.set),
                    memory_upkeep(),
                    watching_directory(running.directory),
                    watching_session(running.session),
                ):
                    await stop.wait()
                log.info("stopping: committing accepted messages")
            log.info("stopped")
        except BaseExceptionGroup as group:
            failure = _first(group)
    if failure is not None:
        raise failure


@contextmanager
def _stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set *stop* on the first SIGINT or SIGTERM; the second one kills the process."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        log.info("received %s", signal.Signals(number).name)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
