"""The metadata store that a broker's settings choose, and the broker's claim on it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    ClusterInUse,
    InvalidConfig,
    RevisionConflict,
    SessionLost,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.objects.store import wall_clock_us
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ActiveBrokerRecord
from pydanube_broker.metadata.remote_config import RemoteStoreConfig
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.shared_sqlite import open_shared_sqlite
from pydanube_broker.metadata.sqlite import SqliteStore, open_sqlite
from pydanube_broker.metadata.store import (
    ABSENT,
    MetadataStore,
    Put,
    Revision,
    Stored,
    Unchanged,
)
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.settings.config import BrokerConfig
from pydanube_broker.storage.config import FILES

log = logging.getLogger(__name__)

CLAIM_MARGIN_S = 3.0
"""The time beyond its TTL after which the session of a dead broker has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetadata:
    """A broker's metadata store."""

    store: MetadataStore
    file: SqliteStore | None
    """The store, if it is a file, which can copy itself for backups."""
    session: Session | None
    """The session by which the broker uses the store; None: it cannot be lost."""


@asynccontextmanager
async def open_metadata(
    config: BrokerConfig,
    directory: DataDirectory,
    *,
    make_room: Callable[[], bool],
) -> AsyncIterator[BrokerMetadata]:
    """
    Open the store; claim it for this broker, unless it is that of a cluster.

    Raises:
        MetadataUnavailable: The file cannot be used, or the service does not answer.
        ClusterInUse: Another broker uses the cluster's metadata.
        InvalidConfig: The metadata is that of a cluster of brokers.
        MissingExtra: The packages for the service are not installed.
    """
    if config.storage.journal.kind == FILES:
        async with open_shared_sqlite(
            directory.metadata, config.cluster.broker_id, make_room=make_room
        ) as shared:
            yield BrokerMetadata(store=shared, file=None, session=None)
        return
    if (remote := config.metadata.remote) is None:
        async with open_sqlite(directory.metadata, make_room=make_room) as file:
            yield BrokerMetadata(store=file, file=file, session=None)
        return
    if config.cluster.enabled:
        async with remote.open_store() as store:
            yield BrokerMetadata(store=store, file=None, session=None)
        return
    async with (
        remote.open_store() as store,
        store.open_session(remote.session_ttl_s) as session,
    ):
        record = ActiveBrokerRecord(
            session_id=session.session_id,
            host=socket.gethostname(),
            process_id=os.getpid(),
            data_dir=str(directory.path.absolute()),
            started_at=wall_clock_us(),
        )
        claimed = await claim_cluster(
            store,
            session,
            record,
            remote=remote,
            # ZooKeeper has a shortest time for sessions.
            patience_s=max(remote.session_ttl_s, session.remaining_s) + CLAIM_MARGIN_S,
        )
        store.guard(session, keys.ACTIVE_BROKER, claimed)
        await refuse_cluster(store, remote)
        yield BrokerMetadata(store=store, file=None, session=session)


async def refuse_cluster(store: MetadataStore, remote: RemoteStoreConfig) -> None:
    """
    Raise if *store* belongs to a cluster of brokers.

    Raises:
        InvalidConfig: It does.
    """
    if await store.scan(keys.SHARDS, limit=1):
        raise InvalidConfig(
            f"the metadata of {remote.cluster_name!r} in {remote.SERVICE} is that of a "
            "cluster of brokers; set cluster.enabled, or choose another name "
            f"({remote.setting('cluster_name')})"
        )


async def claim_cluster(
    store: MetadataStore,
    session: Session,
    record: ActiveBrokerRecord,
    *,
    remote: RemoteStoreConfig,
    patience_s: float,
) -> Revision:
    """
    Record that this broker uses the store, until *session* ends.

    Another broker may have been killed: its record is waited for, until its session has
    ended.

    Returns: The revision of the record.

    Raises:
        ClusterInUse: The other broker's session has not ended within *patience_s*.
    """
    put = Put(keys.ACTIVE_BROKER, record, session)
    holder: Stored[ActiveBrokerRecord] | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s), store.watch(keys.ACTIVE) as watch:
            async for changes in watch:
                found = changes.values.get(keys.ACTIVE_BROKER.path)
                if found is not None:
                    log.info(
                        "waiting for the session of the broker on %s (process %d)",
                        found.value.host,
                        found.value.process_id,
                    )
                    holder = found
                    continue
                with suppress(RevisionConflict):
                    return await store.transaction(
                        [Unchanged(keys.ACTIVE_BROKER, ABSENT)], [put]
                    )
    found = await store.get(keys.ACTIVE_BROKER) or holder
    name = "another broker" if found is None else _describe(found.value)
    raise ClusterInUse(
        f"cluster {remote.cluster_name!r} in {remote.SERVICE} is in use by {name}; "
        f"stop it, or choose another name ({remote.setting('cluster_name')})"
    )


def _describe(record: ActiveBrokerRecord) -> str:
    return (
        f"the broker on {record.host} (process {record.process_id}, data directory "
        f"{record.data_dir})"
    )


@asynccontextmanager
async def watching_session(session: Session | None) -> AsyncIterator[None]:
    """Cancel the body and raise SessionLost if *session*, if there is one, is lost."""

    async def watch(session: Session) -> None:
        await session.lost.wait()
        raise SessionLost(
            "the broker stops, because the metadata store did not receive its "
            "keepalives for the time in session_ttl_s, so another broker may have "
            "taken over; start it again when the metadata store answers"
        )

    async with task_scope() as tasks:
        if session is not None:
            tasks.run(watch(session), "watch the session")
        yield
