"""
A metadata store in ZooKeeper.

Each store object has all values in memory, and follows a log of changes in ZooKeeper
(see ``change_log``).  A revision is a zxid.  All clusters and other programs in one
ZooKeeper share them, so the changes of a cluster do not have consecutive numbers.

Durability.  ZooKeeper answers when most of its members have a change on disk.  Before
a read, the member asks the leader for the changes that it does not have yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Closed, SessionLost
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.keepalive_thread import session_in_thread
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    Changes,
    Comparison,
    Operation,
    RawChanges,
    Revision,
    SharedStore,
    Stored,
    check,
    encode_changes,
    sessions_of,
)
from pydanube_broker.metadata.watches import LocalWatches
from pydanube_zookeeper.change_log import ChangeLog
from pydanube_zookeeper.client import ZookeeperClient, open_client
from pydanube_zookeeper.config import ZookeeperConfig
from pydanube_zookeeper.leases import (
    SessionReaper,
    delete_keys,
    open_lease,
)
from pydanube_zookeeper.pure.nodes import Nodes, Write
from pydanube_zookeeper.replica import Replica

T = TypeVar("T")

CLIENT_SESSION_S = 10.0
"""The session of the connection for reads and changes, which has no keys."""


@asynccontextmanager
async def open_zookeeper(config: ZookeeperConfig) -> AsyncIterator[ZookeeperStore]:
    """
    Open the store of the cluster ``config.cluster_name``.

    Raises:
        MetadataUnavailable: No endpoint answers.
        InvalidConfig: There are no endpoints, a file cannot be read, or ZooKeeper
            refuses the user or the password.
    """
    async with open_client(config, CLIENT_SESSION_S) as client, task_scope() as tasks:
        store = ZookeeperStore(config, client)
        await store.changes.open()
        tasks.run(store.changes.follow(), "follow the changes of metadata")
        tasks.run(store.reaper.run(), "delete the keys of ended sessions")
        try:
            yield store
        finally:
            store.close()
            tasks.cancel()


@dataclass(frozen=True, slots=True)
class _Guard:
    """The condition that a session holds its key."""

    session: Session
    path: str
    revision: Revision

    def check(self, replica: Replica) -> None:
        """Raise SessionLost if the session does not hold the key any more."""
        self.session.check()
        stored = replica.get(self.path)
        if stored is None or stored.revision != self.revision:
            raise SessionLost(
                "this broker's session in ZooKeeper has ended, so it must not change "
                "metadata any more"
            )


@asynccontextmanager
async def _open_lease(
    config: ZookeeperConfig, nodes: Nodes, ttl_s: float
) -> AsyncIterator[Session]:
    """Open a session with a connection of its own."""
    async with open_lease(open_client(config, ttl_s), nodes, ttl_s) as session:
        yield session


class ZookeeperStore(SharedStore):
    """A ``MetadataStore`` in ZooKeeper; opened by ``open_zookeeper``."""

    def __init__(self, config: ZookeeperConfig, client: ZookeeperClient) -> None:
        self.is_closed = False
        self._config = config
        self._client = client
        self._nodes = Nodes(config.cluster_name)
        self._guard: _Guard | None = None
        self._watches = LocalWatches()
        self.changes = ChangeLog(
            client,
            self._nodes,
            on_values=self._on_values,
            on_own_change=self._on_own_change,
        )
        self.reaper = SessionReaper(client, self._nodes, self.changes)

    def close(self) -> None:
        """Refuse further calls, and end the watches; ``open_zookeeper`` does more."""
        self.is_closed = True
        self._watches.close()

    def guard(self, session: Session, key: Key[T], revision: Revision) -> None:
        """See SharedStore."""
        self._guard = _Guard(session, key.path, revision)

    async def revision(self) -> Revision:
        """See MetadataStore."""
        return (await self._current()).position.revision

    def open_session(self, ttl_s: float) -> AbstractAsyncContextManager[Session]:
        """
        See MetadataStore; ZooKeeper has a shortest and a longest TTL.

        Raises: As MetadataStore, and
            InvalidConfig: The TTL is longer than ZooKeeper allows.
        """
        return self._open_session(ttl_s)

    @asynccontextmanager
    async def _open_session(self, ttl_s: float) -> AsyncIterator[Session]:
        async with session_in_thread(
            partial(_open_lease, self._config, self._nodes, ttl_s)
        ) as session:
            try:
                yield session
            finally:
                session.end()
                await delete_keys(self._client, self.changes, session.session_id)

    async def _get(self, path: str) -> Stored[bytes] | None:
        return (await self._current()).get(path)

    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> Sequence[tuple[str, Stored[bytes]]]:
        return (await self._current()).scan(prefix, after, limit)

    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        self._check_open()
        encoded = encode_changes(operations)

        def plan(replica: Replica) -> Mapping[str, Write | None]:
            if self._guard is not None:
                self._guard.check(replica)
            sessions = sessions_of(operations)
            for comparison in comparisons:
                check(comparison, replica.get(comparison.key.path))
            return {
                path: None if value is None else _write(value, sessions.get(path))
                for path, value in encoded.items()
            }

        return await self.changes.commit(plan)

    @asynccontextmanager
    async def _watch(self, prefix: str) -> AsyncIterator[AsyncIterator[RawChanges]]:
        async def load() -> RawChanges:
            replica = await self._current()
            return Changes(replica.position.revision, dict(replica.scan(prefix)))

        # First, so that no change is made between reading and watching.
        with self._watches.watching(prefix) as watch:
            yield watch.read(load)

    async def _current(self) -> Replica:
        """Return the replica with all changes that were made before this call."""
        self._check_open()
        await self.changes.refresh()
        return self.changes.replica

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the metadata store is closed")

    def _on_values(
        self, revision: Revision, values: Mapping[str, Stored[bytes] | None]
    ) -> None:
        self._watches.on_change(revision, values)
        self.reaper.on_change()

    def _on_own_change(self, revision: Revision, paths: list[str]) -> None:
        if self._on_change is not None:
            self._on_change(revision, paths)


def _write(value: bytes, session: Session | None) -> Write:
    return Write(
        value=value, session_id=None if session is None else session.session_id
    )
