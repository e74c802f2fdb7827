"""
Calls of ZooKeeper, at any of its members, by kazoo.

kazoo has threads of its own: one for the connection, and one that calls back.  Callers
wait for futures of the event loop, and nothing here blocks the loop.

All requests go to one member, in order.  kazoo leaves a member that closes the
connection; one that hangs is left when it is silent for too long (see ``liveness``).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

from kazoo import exceptions as failures
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    Closed,
    InvalidConfig,
    MetadataUnavailable,
)
from pydanube_zookeeper.config import ZookeeperConfig, parse_endpoints
from pydanube_zookeeper.pure.liveness import Liveness

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 1.0
"""How long connecting to a member may take."""

CHECK_INTERVAL_S = 0.1
"""How often the silence of the member is measured."""

RETRY_S = 0.05
"""The pause before another attempt, also when no member could be connected to."""

RETRY_S_MAX = 0.2
"""The longest of the pauses before connecting again, which grow."""

_CLOSE_TIMEOUT_S = 1.0

# kazoo logs requests, with passwords, and repeats what this module logs once.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

Request = Callable[[Any], Any]
"""Sends a request by the client of kazoo that it is given; returns the result's
placeholder."""


class NoAnswer(Exception):
    """
    The member did not answer, or the connection was lost.

    It may have executed the requests, or may do so later.
    """


_NO_ANSWER = (
    failures.ConnectionLoss,
    failures.OperationTimeoutError,
    failures.RequestTimeoutError,
    failures.SessionExpiredError,
    failures.SessionMovedError,
    failures.ThrottledOpError,
)
_EXPECTED = (
    failures.BadVersionError,
    failures.NoNodeError,
    failures.NodeExistsError,
)
"""Answers that tell the caller about a node."""


@asynccontextmanager
async def open_client(
    config: ZookeeperConfig, session_s: float
) -> AsyncIterator[ZookeeperClient]:
    """
    Open a client, whose session ZooKeeper keeps for *session_s* without a connection.

    It connects in the background.

    Raises:
        InvalidConfig: There are no endpoints, or a file cannot be read.
    """
    client = ZookeeperClient(config, session_s)
    async with task_scope() as tasks:
        client.start()
        try:
            tasks.run(client.leave_hung_members(), "leave hung members of ZooKeeper")
            yield client
        finally:
            tasks.cancel()
            await client.close()


class ZookeeperClient:
    """A client of all members of ZooKeeper; opened by ``open_client``."""

    def __init__(self, config: ZookeeperConfig, session_s: float) -> None:
        endpoints = parse_endpoints(config.endpoints)
        if not endpoints:
            raise config.missing_endpoints()
        self.acl = CREATOR_ALL_ACL if config.user else OPEN_ACL_UNSAFE
        """The permissions of the nodes that the client creates."""
        self.is_closed = False
        self._timeout_s = config.timeout_s
        self._loop = asyncio.get_running_loop()
        self._liveness = Liveness(len(endpoints))
        self._handler = _Handler(_tls_of(config) if config.tls else None)
        retry = KazooRetry(
            max_tries=-1, delay=RETRY_S, max_delay=RETRY_S_MAX, max_jitter=0.2
        )
        self._kazoo: Any = KazooClient(
            hosts=",".join(endpoints),
            timeout=session_s,
            handler=self._handler,
            randomize_hosts=False,
            connection_retry=retry,
            auth_data=[("digest", f"{config.user}:{config.read_password()}")]
            if config.user
            else None,
            logger=_kazoo_log,
        )
        self._connection = _Connection(self._kazoo, retry.copy(), logger=_kazoo_log)
        self._kazoo._connection = self._connection  # noqa: SLF001

    @property
    def session_s(self) -> float:
        """The time for which ZooKeeper keeps the session; 0: not connected yet."""
        return self._connection.session_s

    def start(self) -> None:
        """Begin to connect."""
        self._kazoo.start_async()

    async def close(self) -> None:
        """End the session and the threads."""
        self.is_closed = True
        stopped = self._loop.run_in_executor(None, self._stop)
        await asyncio.wait([stopped], timeout=_CLOSE_TIMEOUT_S)
        while not stopped.done():
            # The member does not say farewell.
            self._handler.drop()
            await asyncio.wait([stopped], timeout=CHECK_INTERVAL_S)
        await stopped

    def _stop(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def new_deadline(self, timeout_s: float | None = None) -> float:
        """Return when an operation that begins now must end."""
        return self._loop.time() + (timeout_s or self._timeout_s)

    async def ask(self, *requests: Request, deadline: float | None = None) -> list[Any]:
        """
        Return the answers to *requests*, which may be executed several times.

        All of them go to one member, in order.

        Raises:
            MetadataUnavailable: No member has answered.
            NoNodeError, NodeExistsError, BadVersionError: The first one of an answer.
            InvalidConfig: ZooKeeper refuses the user.
        """
        deadline = deadline or self.new_deadline()
        while True:
            try:
                return await self.ask_once(*requests, deadline=deadline)
            except NoAnswer:
                await self.pause(deadline)

    async def ask_once(self, *requests: Request, deadline: float) -> list[Any]:
        """
        Send *requests* to one member, and return the answers.

        Raises: As ``ask``, and
            NoAnswer: It is unknown whether the requests are executed.
        """
        if self.is_closed:
            raise Closed("the metadata store is closed")
        if self._loop.time() >= deadline:
            raise self.unavailable()
        answered: asyncio.Future[None] = self._loop.create_future()
        results = [request(self._kazoo) for request in requests]
        # Answers have the order of requests.
        self._expect(results[-1], answered)
        try:
            async with asyncio.timeout_at(deadline):
                await answered
        except TimeoutError:
            raise self.unavailable() from None
        return [self._value_of(result) for result in results]

    async def pause(self, deadline: float) -> None:
        """
        Wait until the next attempt is due.

        Raises:
            MetadataUnavailable: There is no time for another attempt.
        """
        if self._loop.time() + RETRY_S >= deadline:
            raise self.unavailable()
        await asyncio.sleep(RETRY_S)

    def unavailable(self) -> MetadataUnavailable:
        """Return the error for an operation that no member has answered."""
        reasons = "; ".join(
            f"{address}: {reason}"
            for address, reason in sorted(self._handler.reasons.items())
        )
        return MetadataUnavailable(
            "ZooKeeper does not answer; start it, or correct "
            f"metadata.zookeeper.endpoints ({reasons or 'no member answers in time'})"
        )

    def calling(self, callback: Callable[[], None]) -> Callable[[object], None]:
        """Return a watcher for kazoo that calls *callback* in the event loop."""

        def on_event(_: object) -> None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)

        return on_event

    async def leave_hung_members(self) -> None:
        """
        Leave each member that is silent for too long; runs beside the callers.

        Raises:
            MetadataUnavailable: kazoo has given up, which is a bug.
            InvalidConfig: ZooKeeper refuses the user.
        """
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self._handler.has_run and self._connection.connection_stopped.is_set():
                raise self._given_up()
            now, opened_at = time.monotonic(), self._handler.opened_at
            is_connected: bool = self._kazoo.connected
            if opened_at is None:
                continue
            if self._liveness.is_hung(
                now, opened_at=opened_at, is_connected=is_connected
            ):
                self._handler.drop(f"silent for {self._liveness.limit_s:.1f} s")
                self._liveness.on_left(now)
            elif is_connected and self._liveness.wants_ping(now):
                self._ping()

    def _given_up(self) -> Exception:
        if self._kazoo.client_state == KeeperState.AUTH_FAILED:
            return InvalidConfig(_REFUSED)
        return MetadataUnavailable(
            "the connection to ZooKeeper has failed; the log has the reason, and a new "
            "start of the broker connects again"
        )

    def _ping(self) -> None:
        self._expect(self._kazoo.exists_async("/"))

    def _expect(
        self, result: Any, answered: asyncio.Future[None] | None = None
    ) -> None:
        """Measure how long the member takes for *result*, and set *answered* then."""
        self._liveness.on_request(time.monotonic())
        calls = count()

        def on_result(_: object) -> None:
            # kazoo may call twice; and the loop may be closed when the client was
            # closed without an answer.
            if next(calls) == 0:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._on_answer, answered, result)

        result.rawlink(on_result)

    def _on_answer(self, answered: asyncio.Future[None] | None, result: Any) -> None:
        if isinstance(result.exception, _NO_ANSWER):
            self._liveness.on_failure()
        else:
            self._liveness.on_answer(time.monotonic())
            self._handler.on_answer()
        if answered is not None and not answered.done():
            answered.set_result(None)

    def _value_of(self, result: Any) -> Any:
        if not result.ready():
            raise NoAnswer("the connection is closed")
        error = result.exception
        if error is None:
            return result.value
        if isinstance(error, _NO_ANSWER):
            raise NoAnswer(type(error).__name__) from error
        if isinstance(error, _EXPECTED):
            raise error
        raise refusal_of(error) from error


def refusal_of(error: Exception) -> Exception:
    """Return the exception for a request that failed with *error* of kazoo."""
    if isinstance(error, failures.NoAuthError | failures.AuthFailedError):
        return InvalidConfig(_REFUSED)
    return MetadataUnavailable(
        f"ZooKeeper refuses a request: {type(error).__name__} {error}".rstrip()
    )


_REFUSED = (
    "ZooKeeper refuses the user: the nodes of the cluster belong to another one, or "
    "the password is wrong; see metadata.zookeeper.user and metadata.zookeeper.password"
)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types.
    """The connection of kazoo, which notes for how long ZooKeeper keeps the session."""

    session_s = 0.0

    def _connect(self, *args: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(*args)
        # kazoo reads for two thirds of the session's time.
        self.session_s = read_timeout_ms * 1.5 / 1000
        return read_timeout_ms, connect_timeout_ms


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # As above.
    """The threads of kazoo, with connections that can be dropped."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.opened_at: float | None = None
        """When connecting to the member began; None: there is no connection."""
        self.has_run = False
        """Whether the thread of the connection has begun to connect."""
        self.reasons: dict[str, str] = {}
        """Why each member that does not answer was left."""
        self._tls = tls
        self._address = ""
        self._socket: socket.socket | None = None

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float = CONNECT_TIMEOUT_S,
        **_: object,
    ) -> socket.socket:
        """Connect to a member, in the thread of the connection."""
        self._address = f"{hostname or address[0]}:{address[1]}"
        self._socket, self.opened_at, self.has_run = None, time.monotonic(), True
        timeout = min(timeout, CONNECT_TIMEOUT_S)
        try:
            connection = socket.create_connection(address, timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                try:
                    connection = self._tls.wrap_socket(
                        connection, server_hostname=hostname
                    )
                except OSError:
                    connection.close()
                    raise
        except OSError as error:
            self.reasons[self._address] = error.strerror or str(error)
            raise
        self._socket = connection
        return connection

    def select(
        self,
        read: list[Any],
        write: list[Any],
        other: list[Any],
        timeout: float | None = None,
    ) -> Any:
        """Return the sockets that are ready, also those with decrypted bytes."""
        pending = [
            each for each in read if isinstance(each, ssl.SSLSocket) and each.pending()
        ]
        if not pending:
            return super().select(read, write, other, timeout)
        ready, writable, others = super().select(read, write, other, 0)
        return [*{*ready, *pending}], writable, others

    def drop(self, reason: str = "") -> None:
        """Close the connection to the member; kazoo goes on to the next one."""
        connection, self.opened_at = self._socket, None
        if reason:
            if self._address not in self.reasons:
                log.warning(
                    "ZooKeeper at %s does not answer: %s; continuing with the next "
                    "member",
                    self._address,
                    reason,
                )
            self.reasons[self._address] = reason
        if connection is not None:
            # Not that of SSLSocket, which must not be used by two threads.
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def on_answer(self) -> None:
        """Note that the member answers."""
        if self.reasons.pop(self._address, None) is not None:
            log.info("ZooKeeper at %s answers again", self._address)


def _tls_of(config: ZookeeperConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        if config.certificate_file:
            context.load_cert_chain(config.certificate_file, config.key_file)
    except OSError as error:
        raise InvalidConfig(
            "metadata.zookeeper: the certificates of ca_file, certificate_file and "
            f"key_file cannot be used: {error}"
        ) from error
    return context
