"""A client's connection to its broker, the requests on it, and their retries."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from time import time_ns
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import Message as ControlMessage

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.connection import BrokerConnection
from pydanube.client.counters import ClientCounters
from pydanube.client.telemetry import Telemetry
from pydanube.model.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    InvalidRequest,
    ProtocolViolation,
    Remedy,
    TimedOut,
)
from pydanube.model.names import TopicName
from pydanube.model.redaction import mask
from pydanube.model.retry import RetryPolicy
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.kinds import is_repeatable

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 10.0
REQUEST_RETRY_S = 30.0
"""The default time for which a client repeats a repeatable request."""
_POLICY = RetryPolicy(first_s=0.05, max_s=2.0)

T = TypeVar("T")
Dial = Callable[[Callable[[], BrokerConnection]], Awaitable[BrokerConnection]]
"""Opens a transport for a new connection."""


class Requester:
    """
    One connection to a broker, which is opened again when it breaks.

    The classes that derive from it add the operations; ``Client`` has all of them.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        url: str,
        token: str = "",
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        retry_s: float = REQUEST_RETRY_S,
        wall_clock_ns: Callable[[], int] = time_ns,
        on_connected: Callable[[], None] | None = None,
        on_disconnected: Callable[[BrokerError], None] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        check_seconds("close_timeout_s", close_timeout_s)
        check_seconds("retry_s", retry_s)
        self.url = url
        self.tasks: TaskScope
        """The background tasks of the client, its producers and its consumers."""
        self.close_timeout_s = close_timeout_s
        """The time for which closing waits without an answer from the broker."""
        self.retry_s = retry_s
        """The time for which requests are repeated, and channels are opened again."""
        self.wall_clock_ns = wall_clock_ns
        """The clock of publish times and delivery windows."""
        self.live_counters = ClientCounters()
        """The counters that producers and consumers change; ``counters()`` copies."""
        self.telemetry = telemetry
        """Traces and measures the client; None: nothing does."""
        self._secrets = [token, urlsplit(url).password or ""]
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._dial = dial
        self._token = token
        self._connect_timeout_s = connect_timeout_s
        self._connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False
        # Whether there was a connection, and whether the next one has failed.
        self._was_connected = False
        self._has_failed = False
        # Closing something on this connection has timed out.
        self._has_close_timed_out = False

    @asynccontextmanager
    async def _opened(self, wait_s: float = 0.0) -> AsyncIterator[Self]:
        """
        Connect, and stay connected while the body runs.

        While no broker answers, the client tries again, for *wait_s*.
        """
        async with task_scope() as self.tasks, AsyncExitStack() as stack:
            if self.telemetry is not None:
                stack.enter_context(self.telemetry.watching(self))
            if wait_s:
                await retry(self.connection, wait_s)
            else:
                await self.connection()
            try:
                yield self
            finally:
                await self.aclose()

    def counters(self) -> ClientCounters:
        """Return what the client has done since it was opened."""
        return replace(self.live_counters)

    def shown(self, text: object) -> str:
        """Return *text* as one line for logs, without the client's credentials."""
        return " ".join(mask(str(text), self._secrets).split())

    async def send_request(
        self,
        message: ControlMessage,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        Send the request *message* and return the answer.

        A repeatable request is sent again, for ``retry_s``, if the broker
        cannot be reached or is busy.  FETCHED batches go to *on_batch*.
        """

        async def attempt() -> Any:
            connection = await self.connection()
            return await connection.request(message, on_batch=on_batch)

        if is_repeatable(message):
            return await retry(attempt, self.retry_s)
        return await attempt()

    async def send_reply(
        self,
        request: Any,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None,
        error: str | None,
    ) -> None:
        """Publish the reply to a message, for other modules; ``Client`` can do it."""
        raise NotImplementedError

    async def request_topic(self, topic: str, message: Any) -> Any:
        """Send the request *message* about *topic*, as ``send_request`` does."""
        message.topic = str(TopicName.parse(topic))
        return await self.send_request(message)

    async def connection(self) -> BrokerConnection:
        """
        Return the connection to the broker; open it again if it broke.

        Raises:
            ConnectionLost: The broker cannot be reached at the moment.
            Closed: The client was closed.
        """
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        async with self._connecting:
            if self._is_closed:
                raise Closed("the client is closed")
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._connect_and_log()
                self._has_close_timed_out = False
            return self._connection

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[asyncio.Timeout]:
        """
        Run the body, which closes something, for ``close_timeout_s`` at most.

        A timeout aborts the connection.  Closing anything else after that does not
        wait, unless there is a new connection.

        Raises:
            TimeoutError: The body took longer.
        """
        timeout_s = 0.0 if self._has_close_timed_out else self.close_timeout_s
        async with asyncio.timeout(timeout_s) as timeout:
            try:
                yield timeout
            except asyncio.CancelledError:
                if timeout.expired():
                    self._has_close_timed_out = True
                    if self._connection is not None:
                        self._connection.abort(
                            ConnectionLost(
                                f"the broker at {self.url} did not answer within "
                                f"{self.close_timeout_s:g} s of closing"
                            )
                        )
                raise

    async def aclose(self) -> None:
        """Close the connection, after what was written is sent if that is possible."""
        self._is_closed = True
        if self._connection is None:
            return
        self._connection.close()
        with suppress(TimeoutError):
            async with self.closing():
                await self._connection.wait_closed()

    async def _connect_and_log(self) -> BrokerConnection:
        try:
            connection = await self._connect()
        except BrokerError as error:
            # The first connection is opened for a caller, who gets the error.
            if self._was_connected and not self._has_failed:
                log.warning("cannot connect again: %s", self.shown(error))
                self._has_failed = True
            raise
        again = " again" if self._was_connected else ""
        log.info("connected%s to the broker at %s", again, self.shown(self.url))
        self.live_counters.reconnects += self._was_connected
        self._was_connected, self._has_failed = True, False
        connection.on_lost = self._on_lost
        self._call_back(self._on_connected)
        return connection

    def _on_lost(self, reason: BrokerError) -> None:
        if self._is_closed:
            log.info("disconnected from the broker at %s", self.shown(self.url))
        else:
            log.warning(
                "lost the connection to the broker at %s: %s",
                *(self.shown(self.url), self.shown(reason)),
            )
        self._call_back(self._on_disconnected, reason)

    def _call_back(self, callback: Callable[..., None] | None, *arguments: Any) -> None:
        if callback is not None:
            try:
                callback(*arguments)
            except Exception:
                log.exception("a callback of the client has failed")

    async def _connect(self) -> BrokerConnection:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await self._dial(BrokerConnection)
        except (OSError, TimeoutError) as error:
            raise self._connect_error(error) from error
        try:
            await connection.handshake(
                f"pydanube pid {os.getpid()}", self._token, self._connect_timeout_s
            )
        except TimedOut as error:
            raise ConnectionLost(f"no broker answers at {self.url}") from error
        except ProtocolViolation as error:
            raise ProtocolViolation(f"{self.url}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_error(self, error: OSError) -> ConnectionLost:
        """Return the error of a connection that could not be opened, for users."""
        if isinstance(error, socket.gaierror):
            # Its number is not one of the operating system's errors.
            return ConnectionLost(
                f"the host name in {self.url} cannot be resolved ({error.strerror}): "
                "check its spelling, and that this machine's DNS knows it"
            )
        reason = os.strerror(error.errno) if error.errno else str(error)
        return ConnectionLost(
            f"no broker answers at {self.url} ({reason or 'timed out'}); "
            "`danube broker` starts one"
        )


def check_seconds(name: str, value: float) -> None:
    """Raise unless *value*, the argument *name*, is finite and not negative."""
    if not 0 <= value < float("inf"):
        raise InvalidRequest(
            f"{name} is {value}: it must be a finite number of seconds, at least 0"
        )


class Backoff:
    """Waits between attempts, shortened at random."""

    def __init__(self) -> None:
        self._failures = 0

    async def wait(self) -> None:
        """Wait after a failed attempt."""
        self._failures += 1
        await asyncio.sleep(_POLICY.delay_s(self._failures, random.random))

    def reset(self) -> None:
        """Note that an attempt succeeded: the next wait is short again."""
        self._failures = 0


async def retry(attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """
    Return the result of *attempt*, which is repeated while its errors allow that.

    Raises: The error of the last attempt, if it is final or *timeout_s* has passed.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return await attempt()
        except BrokerError as error:
            if error.remedy is Remedy.GIVE_UP or loop.time() > give_up_at:
                raise
        await backoff.wait()
