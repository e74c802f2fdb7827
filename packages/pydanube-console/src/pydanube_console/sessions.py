"""
The sessions of browsers.

A session has a client that proves the identity of its user to the broker, so the broker
decides what the user may see and do.  The browser has only a random key in a cookie,
and the console remembers credentials only as long as the session lasts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.client import Client
from pydanube.client.held_client import HeldClient
from pydanube.client.operations.security import ClientIdentity
from pydanube.model.errors import QuotaExceeded
from pydanube.model.shown_text import printable
from pydanube_console.access import Access
from pydanube_console.connector_monitor import ConnectorMonitor, FindConnectors
from pydanube_console.monitor import Monitor
from pydanube_console.pipeline_monitor import FindPipelines, PipelineMonitor

log = logging.getLogger("pydanube_console.changes")

SESSIONS_MAX = 50
IDLE_MAX_S = 30 * 60.0
"""A session without an open page ends after this time."""
EXPIRY_INTERVAL_S = 10.0
CONNECT_TIMEOUT_S = 5.0
KEY_BYTES = 32


@dataclass(slots=True, kw_only=True)
class Session:
    """One user in one browser; all users without credentials together."""

    key: str = field(repr=False)
    client: Client
    identity: ClientIdentity
    monitor: Monitor
    access: Access
    connectors: ConnectorMonitor
    """The connectors that the console was given; all sessions share them."""
    pipelines: PipelineMonitor
    """The pipelines that it was given, likewise."""
    used_at: float
    end: Callable[[], None] = field(repr=False)
    """Ends what belongs to it; called once."""
    is_open: bool = True

    @property
    def user(self) -> str:
        """The name that is shown."""
        return self.identity.name if self.identity.is_enforced else ""

    def note_change(self, what: str) -> None:
        """Log a change that the broker does not know, and so cannot audit."""
        log.info("%s: %s", printable(self.user or "a user"), printable(what))


class Sessions:
    """The open sessions; made by ``open_sessions``."""

    def __init__(
        self,
        url: str,
        tasks: TaskScope,
        connectors: ConnectorMonitor,
        pipelines: PipelineMonitor,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._tasks = tasks
        self._connectors = connectors
        self._pipelines = pipelines
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._opening = 0
        self._anonymous: Session | None = None

    async def open(self, credentials: str = "") -> Session:
        """
        Connect with an API key or a token.

        Users without credentials share one session, because the broker cannot tell
        them apart.

        Raises:
            Unauthenticated: The broker does not accept them, or needs some.
            QuotaExceeded: There are ``SESSIONS_MAX`` sessions.
            BrokerError: As ``connect``.
        """
        shared = self._anonymous
        if not credentials and shared is not None and shared.is_open:
            return shared
        if len(self._open) + self._opening >= SESSIONS_MAX:
            raise QuotaExceeded(
                f"{SESSIONS_MAX} sessions are open, the most allowed: sign out in "
                "another browser, or try again later"
            )
        self._opening += 1
        try:
            session = await self._connect(credentials)
        finally:
            self._opening -= 1
        self._open[session.key] = session
        if not credentials:
            self._anonymous = session
        return session

    async def _connect(self, credentials: str) -> Session:
        held = HeldClient(self._url, credentials, connect_timeout_s=CONNECT_TIMEOUT_S)
        self._tasks.run(held.run(), "client of a session")
        try:
            client = await held.get()
            identity = await client.security.who_am_i()
        except BaseException:
            held.release()
            raise
        monitor = Monitor(client)
        sampling = self._tasks.run(monitor.run(), "monitor of a session")

        def end() -> None:
            sampling.cancel()
            held.release()

        return Session(
            key=secrets.token_urlsafe(KEY_BYTES),
            client=client,
            identity=identity,
            monitor=monitor,
            access=Access(client),
            connectors=self._connectors,
            pipelines=self._pipelines,
            used_at=self._clock(),
            end=end,
        )

    def find(self, key: str) -> Session | None:
        """Return the open session with this key, and note that it is used."""
        session = self._open.get(key)
        if session is not None:
            session.used_at = self._clock()
        return session

    def close(self, session: Session) -> None:
        """End a session; its client disconnects soon."""
        if session.is_open:
            session.is_open = False
            del self._open[session.key]
            session.end()

    async def expire(self) -> None:
        """End idle sessions, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            self.close_idle()

    def close_idle(self) -> None:
        """End the sessions that have not been used for ``IDLE_MAX_S``."""
        end = self._clock() - IDLE_MAX_S
        for session in list(self._open.values()):
            if session.used_at < end:
                self.close(session)


@asynccontextmanager
async def open_sessions(
    url: str,
    find_connectors: FindConnectors | None = None,
    find_pipelines: FindPipelines | None = None,
) -> AsyncIterator[Sessions]:
    """
    Keep the sessions of a console during the body, and end them.

    *find_connectors* returns the processes whose connectors are shown, and
    *find_pipelines* the runs of pipelines.
    """
    async with task_scope() as tasks:
        connectors = ConnectorMonitor(find_connectors, tasks)
        tasks.run(connectors.run(), "find connectors")
        pipelines = PipelineMonitor(find_pipelines)
        tasks.run(pipelines.run(), "read the state of pipelines")
        sessions = Sessions(url, tasks, connectors, pipelines)
        tasks.run(sessions.expire(), "expire sessions")
        yield sessions
