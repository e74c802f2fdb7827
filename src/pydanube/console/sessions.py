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
from pydanube.client.access import Identity
from pydanube.client.client import Client, connect
from pydanube.console.monitor import Monitor
from pydanube.model.errors import BrokerError, QuotaExceeded

log = logging.getLogger(__name__)

SESSIONS_MAX = 50
IDLE_MAX_S = 30 * 60.0
"""A session without an open page ends after this time."""
EXPIRY_INTERVAL_S = 10.0
CONNECT_TIMEOUT_S = 5.0
KEY_BYTES = 32


@dataclass(slots=True, kw_only=True)
class Session:
    """One user in one browser."""

    key: str = field(repr=False)
    client: Client
    identity: Identity
    monitor: Monitor
    used_at: float
    theme: str = ""
    """The theme that the browser has stored."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_open(self) -> bool:
        """Whether the session has not ended."""
        return not self.ended.is_set()

    @property
    def user(self) -> str:
        """The name that is shown."""
        return self.identity.name if self.identity.is_enforced else ""


class Sessions:
    """The open sessions; made by ``open_sessions``."""

    def __init__(
        self,
        url: str,
        tasks: TaskScope,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._tasks = tasks
        self._clock = clock
        self._open: dict[str, Session] = {}

    async def open(self, *, api_key: str = "", token: str = "") -> Session:
        """
        Connect with these credentials, or without any.

        Raises:
            Unauthenticated: The broker does not accept them, or needs some.
            QuotaExceeded: There are ``SESSIONS_MAX`` sessions.
            BrokerError: As ``connect``.
        """
        if len(self._open) >= SESSIONS_MAX:
            raise QuotaExceeded(
                f"{SESSIONS_MAX} sessions are open, the most allowed: sign out in "
                "another browser, or try again later"
            )
        opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._hold(api_key, token, opened), "session of the console")
        return await opened

    def find(self, key: str) -> Session | None:
        """Return the open session with this key, and note that it is used."""
        session = self._open.get(key)
        if session is not None:
            session.used_at = self._clock()
        return session

    def close(self, session: Session) -> None:
        """End a session; its client disconnects soon."""
        self._open.pop(session.key, None)
        session.ended.set()

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

    async def _hold(
        self, api_key: str, token: str, opened: asyncio.Future[Session]
    ) -> None:
        """Own the client of a session until the session ends."""
        try:
            async with connect(
                *(self._url,),
                api_key=api_key,
                token=token,
                connect_timeout_s=CONNECT_TIMEOUT_S,
            ) as client:
                session = Session(
                    key=secrets.token_urlsafe(KEY_BYTES),
                    client=client,
                    identity=await client.who_am_i(),
                    monitor=Monitor(client),
                    used_at=self._clock(),
                )
                self._open[session.key] = session
                opened.set_result(session)
                try:
                    async with task_scope() as tasks:
                        tasks.run(session.monitor.run(), "monitor")
                        await session.ended.wait()
                finally:
                    self.close(session)
        except BrokerError as error:
            if not opened.done():
                opened.set_exception(error)
            else:
                log.warning("a session has ended: %s", error)


@asynccontextmanager
async def open_sessions(url: str) -> AsyncIterator[Sessions]:
    """Keep the sessions of a console during the body, and end them."""
    async with task_scope() as tasks:
        sessions = Sessions(url, tasks)
        tasks.run(sessions.expire(), "expire sessions")
        yield sessions
