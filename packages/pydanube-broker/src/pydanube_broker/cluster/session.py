"""
A broker's session in the cluster: the key by which others see it, and its own clock.

The key ``/sessions/{session}`` has a lease.  When the store deletes it, other sessions
may claim the shards of this one, and every session that watches learns of it.  This
broker stops to serve earlier, by its own clock: a lease counts from the moment at which
the last keepalive was sent.  It never writes its key again, because others may have
acted on the absence; it begins a new session instead.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from pydanube.aio.futures import watch
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import ClusterInUse, RevisionConflict, SessionLost
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    ABSENT,
    MetadataStore,
    Put,
    Revision,
    Unchanged,
)

log = logging.getLogger(__name__)


def _random_id() -> str:
    return uuid.uuid4().hex


class ClusterSession:
    """This broker's session, and the other ones; made by ``open_cluster_session``."""

    def __init__(
        self, session_id: str, lease: Session, revision: Revision, store: MetadataStore
    ) -> None:
        self.session_id = session_id
        self.lease = lease
        """The lease of the keys of this session; lost when the session is over."""
        self.members = Mirror(keys.SESSIONS)
        """The present sessions by their ids, as they were seen last."""
        self.revision = revision
        """The revision at which the session's key was written."""
        self.broker_id = ""
        self.peer_key = ""
        self.listener_addresses: Mapping[str, str] = {}
        """As in the session's record."""
        self._store = store
        self._watchers: dict[object, Callable[[], None]] = {}

    @property
    def key(self) -> Key[SessionRecord]:
        """The session's key."""
        return keys.SESSIONS.key(self.session_id)

    @property
    def is_over(self) -> bool:
        """
        Whether other sessions may serve what this one has served.

        It is exact, and may be asked before each answer to a reader.
        """
        return self.lease.is_lost

    def check(self) -> None:
        """
        Check that this session may serve.

        Raises:
            SessionLost: It is over.
        """
        if self.is_over:
            raise SessionLost(
                f"session {self.session_id} of this broker in the cluster is over: "
                "other brokers take over its topics. Look up the topic again"
            )

    def watch_members(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* after each change of ``members``; return what ends this."""
        return watch(self._watchers, callback)

    async def follow(self) -> None:
        """Follow the sessions of the cluster, and end this one if its key is gone."""
        await self.members.follow(self._store, self._on_members)

    def _on_members(self) -> None:
        own = self.members.values.get(self.session_id)
        is_gone = own is None or own.revision != self.revision
        if is_gone and not self.is_over:
            log.error(
                "the key of session %s is gone from the metadata store; the broker "
                "serves nothing more",
                self.session_id,
            )
            self.lease.end()
        for callback in tuple(self._watchers.values()):
            callback()


@asynccontextmanager
async def open_cluster_session(
    store: MetadataStore,
    record: SessionRecord,
    *,
    ttl_s: float,
    new_id: Callable[[], str] = _random_id,
) -> AsyncIterator[ClusterSession]:
    """
    Begin a session of a broker, which *record* describes.

    The session is kept alive during the body, and its key is deleted at the end.  The
    body is not interrupted when the session is over: ``lease.lost`` is set then.

    An earlier session of the same broker may have lost its process.  It is awaited for
    twice its lease, because a new leader of the store begins leases again.

    Raises:
        ClusterInUse: Another process with the id of this broker runs.
        MetadataUnavailable: The store does not answer.
    """
    async with store.open_session(ttl_s) as lease:
        key = keys.SESSIONS.key(session_id := new_id())
        name = keys.BROKER_SESSIONS.key(record.broker_id)
        while True:
            await _await_absence(store, name, record.broker_id, 2 * ttl_s)
            try:
                revision = await store.transaction(
                    [Unchanged(key, ABSENT), Unchanged(name, ABSENT)],
                    [Put(key, record, lease), Put(name, session_id, lease)],
                )
            except RevisionConflict:
                # Another process was faster.
                continue
            break
        session = ClusterSession(session_id, lease, revision, store)
        session.broker_id, session.peer_key = record.broker_id, record.peer_key
        session.listener_addresses = record.addresses
        log.info("session %s of broker %s begins", session_id, record.broker_id)
        async with task_scope() as tasks:
            tasks.run(session.follow(), "follow the sessions of the cluster")
            yield session


async def _await_absence(
    store: MetadataStore, name: Key[str], broker_id: str, timeout_s: float
) -> None:
    """Wait until no session of the broker is left, or raise ClusterInUse."""
    held = await store.get(name)
    if held is None:
        return
    log.warning("waiting for the end of session %s of broker %s", held.value, broker_id)
    try:
        async with (
            asyncio.timeout(timeout_s),
            store.watch(keys.BROKER_SESSIONS) as watch,
        ):
            async for _ in watch:
                if await store.get(name) is None:
                    return
    except TimeoutError:
        raise ClusterInUse(
            f"another process is the broker {broker_id!r} of this cluster (session "
            f"{held.value}, which has not ended within {timeout_s:g} s): stop it, or "
            "give this broker another name (cluster.broker_id)"
        ) from None
