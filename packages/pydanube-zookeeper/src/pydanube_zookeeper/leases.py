"""
Sessions as sessions of ZooKeeper, and the end of their keys.

A session of ours is a connection with a ZooKeeper session of its own, and an ephemeral
node in ``sessions``.  When the node is gone, all store objects try to delete the paths
that belonged to it, with one change in the log; one of them succeeds.

The holder does not count the TTL from the newest keepalive that was answered, but from
one that was sent a third of the TTL before that.  A member that is not the leader tells
the leader which sessions it has heard of, every half tick, and may die before it does.
Each keepalive makes the member ask the leader for all changes (sync).  Its answer
therefore shows that the member is in contact with the leader, and has told it about
keepalives that are older than half a tick.  ZooKeeper's shortest TTL is two ticks, and
a third of it is more than half a tick.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from kazoo.exceptions import NodeExistsError, NoNodeError

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, InvalidConfig
from pydanube_broker.metadata.keepalive_thread import extend, has_stalled
from pydanube_broker.metadata.sessions import Session, boot_clock
from pydanube_broker.metadata.store import Revision
from pydanube_zookeeper.change_log import ChangeLog
from pydanube_zookeeper.client import (
    RETRY_S,
    NoAnswer,
    ZookeeperClient,
)
from pydanube_zookeeper.pure.nodes import Nodes

log = logging.getLogger(__name__)

KEEPALIVES_PER_TTL = 6

CONFIRMED_AFTER = 1 / 3
"""The part of the TTL after which an answer to a later keepalive shows that the leader
knows about an earlier one."""

_CLOSE_TIMEOUT_S = 2.0


@asynccontextmanager
async def open_lease(
    connecting: AbstractAsyncContextManager[ZookeeperClient],
    nodes: Nodes,
    ttl_s: float,
    clock: Callable[[], float] = boot_clock,
) -> AsyncIterator[Session]:
    """
    Open a session, and keep it alive; see MetadataStore.open_session.

    *connecting* opens the client of the session, whose own session it is.
    """
    session_id = uuid.uuid4().hex
    node = nodes.session(session_id)
    opened_at = clock()
    async with connecting as client, task_scope() as tasks:
        # An attempt without an answer may have created it.
        with suppress(NodeExistsError):
            await client.ask(
                lambda kazoo: kazoo.create_async(node, acl=client.acl, ephemeral=True)
            )
        granted_s = client.session_s
        if granted_s < ttl_s:
            raise InvalidConfig(
                f"metadata.zookeeper.session_ttl_s: ZooKeeper ends sessions after "
                f"{granted_s:g} s, got {ttl_s:g} s; choose a shorter time, or raise "
                "maxSessionTimeout of ZooKeeper"
            )
        session = Session(
            session_id,
            valid_until=opened_at + granted_s,
            ttl_s=granted_s,
            clock=clock,
        )
        tasks.run(
            _keep_alive(client, session, node, opened_at, clock),
            "keep a session alive",
        )
        try:
            yield session
        finally:
            tasks.cancel()
            session.end()


async def _keep_alive(
    client: ZookeeperClient,
    session: Session,
    node: str,
    opened_at: float,
    clock: Callable[[], float],
) -> None:
    """Renew the session until it is lost, and then say so."""
    is_due = asyncio.Event()
    on_event = client.calling(is_due.set)
    pause_s = 0.0
    # When keepalives were sent that were answered; the leader knows about the first.
    answered = deque([opened_at])
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, session.remaining_s)):
                    await is_due.wait()
            is_due.clear()
            if session.is_lost or has_stalled(session):
                break
            sent_at = clock()
            try:
                _, found = await client.ask_once(
                    lambda kazoo: kazoo.sync_async(node),
                    lambda kazoo: kazoo.exists_async(node, watch=on_event),
                    deadline=client.new_deadline(session.remaining_s),
                )
            except (NoAnswer, BrokerError) as error:
                log.warning(
                    "a keepalive of session %s failed: %s", session.session_id, error
                )
                pause_s = RETRY_S
                continue
            if found is None:
                break
            ttl_s = client.session_s
            answered.append(sent_at)
            while answered[1] <= sent_at - ttl_s * CONFIRMED_AFTER:
                answered.popleft()
            extend(session, answered[0] + ttl_s)
            pause_s = ttl_s / KEEPALIVES_PER_TTL
    finally:
        is_new = session.end()
    if is_new:
        log.error("session %s of the metadata store is lost", session.session_id)


async def delete_keys(
    client: ZookeeperClient, changes: ChangeLog, session_id: str
) -> None:
    """Delete the keys of a session that its holder closes."""
    deadline = client.new_deadline(_CLOSE_TIMEOUT_S)
    try:
        await end_session(changes, session_id, deadline)
    except BrokerError as error:
        log.warning("the keys of a session stay until its TTL has passed: %s", error)


async def end_session(
    changes: ChangeLog, session_id: str, deadline: float | None = None
) -> Revision:
    """Delete the paths that belong to a session."""
    revision, _ = await changes.commit(
        lambda replica: dict.fromkeys(replica.paths_of(session_id)), deadline=deadline
    )
    return revision


class SessionReaper:
    """Deletes the paths of sessions that have ended."""

    def __init__(
        self, client: ZookeeperClient, nodes: Nodes, changes: ChangeLog
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._changes = changes
        self._present: set[str] = set()
        """The sessions that were there when they were last listed."""
        self._is_due = asyncio.Event()
        self._is_due.set()

    def on_change(self) -> None:
        """Look for ended sessions, if a path belongs to one that is not known."""
        if not self._present.issuperset(self._changes.replica.holders.values()):
            self._is_due.set()

    async def run(self) -> None:
        """Delete paths until cancelled."""
        on_event = self._client.calling(self._is_due.set)
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            # First: a session that is listed by neither has ended.
            holders = set(self._changes.replica.holders.values())
            try:
                (names,) = await self._client.ask(
                    lambda kazoo: kazoo.get_children_async(
                        self._nodes.sessions, watch=on_event
                    )
                )
                self._present = set(names)
                for session_id in holders - self._present:
                    log.info("session %s has ended; deleting its keys", session_id)
                    await end_session(self._changes, session_id)
            except (BrokerError, NoNodeError) as error:
                log.debug("keys of ended sessions stay for now: %s", error)
                await asyncio.sleep(RETRY_S)
                self._is_due.set()
            self.on_change()
