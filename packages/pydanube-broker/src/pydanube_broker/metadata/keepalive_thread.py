"""
A thread for the keepalives of one session, with an event loop and a connection.

The event loop of a broker may be late when it takes over many shards with little
processor time.  Keepalives must not wait for that, or the broker loses its session and
leaves its work to others, which then lose theirs.

A thread that always renews the lease would keep the session of a broker that hangs.
Therefore the event loop of the holder says now and then that it runs
(``Session.beat``), and the thread ends the session if it has not done so for
``STALLED_TTLS`` times the TTL.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from pydanube.aio.loops import new_loop
from pydanube.aio.tasks import task_scope
from pydanube_broker.metadata.sessions import STALLED_TTLS, Session

log = logging.getLogger(__name__)

BEATS_PER_TTL = 10


@asynccontextmanager
async def session_in_thread(
    opening: Callable[[], AbstractAsyncContextManager[Session]],
) -> AsyncIterator[Session]:
    """
    Open a session in a thread of its own, which keeps it alive during the body.

    *opening* is called in the thread.  At the end of the body, the thread closes the
    session and ends.

    Raises: As *opening*.
    """
    thread = _KeepaliveThread(opening, asyncio.get_running_loop())
    thread.start()
    try:
        session = await asyncio.wrap_future(thread.opened)
        async with task_scope() as tasks:
            tasks.run(_beat(session), "show that the event loop runs")
            try:
                yield session
            finally:
                tasks.cancel()
    finally:
        thread.close()
        await asyncio.shield(asyncio.wrap_future(thread.ended))


async def _beat(session: Session) -> None:
    while not session.is_lost:
        session.beat()
        await asyncio.sleep(session.ttl_s / BEATS_PER_TTL)


class _KeepaliveThread:
    """The thread of one session."""

    def __init__(
        self,
        opening: Callable[[], AbstractAsyncContextManager[Session]],
        holder: asyncio.AbstractEventLoop,
    ) -> None:
        self.opened: Future[Session] = Future()
        self.ended: Future[None] = Future()
        self._opening = opening
        self._holder = holder
        self._loop = new_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        # A daemon, so that it does not delay the end of a process that crashes.
        self._thread = threading.Thread(
            target=self._run, name="danube-keepalive", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Begin to close the session."""

        def cancel() -> None:
            self._is_closing = True
            if self._task is not None:
                self._task.cancel()

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(cancel)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._hold())
        except BaseException as error:  # The holder raises it.
            if not self.opened.done():
                self.opened.set_exception(error)
            elif not isinstance(error, asyncio.CancelledError):
                # The holder learns that its session has ended.
                log.exception("the keepalives of a session end")
        finally:
            self._loop.close()
            self.ended.set_result(None)

    async def _hold(self) -> None:
        if self._is_closing:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        async with self._opening() as session:
            session.hold_in(self._holder)
            self.opened.set_result(session)
            await asyncio.Future()


def has_stalled(session: Session) -> bool:
    """Return whether a session is not renewed because of its holder, and log that."""
    if session.is_stalled:
        log.error(
            "session %s is given up: the event loop of this broker has stood still for "
            "%g s, %d times the TTL",
            session.session_id,
            STALLED_TTLS * session.ttl_s,
            STALLED_TTLS,
        )
    return session.is_stalled


def extend(session: Session, valid_until: float) -> None:
    """Take an answer to a keepalive, and log if it came nearly too late."""
    left_s = session.extend(valid_until)
    if left_s is not None:
        log.warning(
            "session %s was nearly lost: a keepalive was answered %.1f s before its "
            "end (the TTL is %g s); this broker or the metadata store has too little "
            "processor time, or the network is slow",
            session.session_id,
            left_s,
            session.ttl_s,
        )
