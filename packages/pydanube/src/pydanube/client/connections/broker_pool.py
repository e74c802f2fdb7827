"""The connections of a client to the brokers of a cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from pydanube.client.connections.connection import BrokerConnection, Dial
from pydanube.client.connections.credentials import Credentials
from pydanube.client.connections.tls import ClientTls
from pydanube.client.connections.urls import dial_of, parse_url
from pydanube.model.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    ProtocolViolation,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from pydanube.model.version import __version__

log = logging.getLogger(__name__)

RENEWAL_SHARE = 0.8
"""A token is renewed after this share of the time until it expires."""
RENEWAL_RETRY_S = 0.5
RENEWAL_RETRY_S_MAX = 30.0
OTHERS_MAX = 100
"""The most brokers without a connection that a client remembers from lookups."""


class BrokerPool:
    """
    One connection to each broker that the client uses, opened when it is needed.

    Outside of a cluster there is one broker.

    Bounds: Of the brokers that other brokers have named, it remembers *others_max*,
        and those that are connected.
    """

    def __init__(
        self,
        dials: Mapping[str, Dial],
        credentials: Credentials,
        connect_timeout_s: float,
        *,
        tls: ClientTls | None = None,
        shown: Callable[[object], str],
        on_connected: Callable[[BrokerConnection, bool], None] | None = None,
        on_lost: Callable[[BrokerConnection, BrokerError], None] | None = None,
        on_silent: Callable[[BrokerConnection], None] | None = None,
        others_max: int = OTHERS_MAX,
    ) -> None:
        """
        *dials* has the brokers that the user named, by URL, and how to reach them.

        *tls* is for all brokers, also those that other brokers name.  *shown* removes
        credentials from texts for the log.

        *on_connected* is called with a new connection, and whether the broker was
        connected before; *on_lost* and *on_silent* as ``BrokerConnection`` says.
        """
        self.is_closed = False
        self.is_clustered = False
        """True if the last broker that answered is one of a cluster."""
        self.connect_timeout_s = connect_timeout_s
        self._credentials = credentials
        self._tls = tls
        self._shown = shown
        self._others_max = others_max
        self._on_connected, self._on_lost = on_connected, on_lost
        self._on_silent = on_silent
        # Those that the user named come first.
        self._named = tuple(dials)
        self._links = {url: _Link(self, url, dial) for url, dial in dials.items()}
        # The brokers that all other ones are preferred to.
        self._doubted: set[str] = set()

    async def connection(self, url: str) -> BrokerConnection:
        """
        Return the connection to the broker at *url*; open it if necessary.

        Raises:
            ConnectionLost: The broker cannot be reached at the moment.
            Closed: The client was closed.
            InvalidRequest: Credentials would be sent to it readable.
        """
        link = self._links.get(url)
        if link is None:
            if self._tls is None:
                self._credentials.check_recipient(url)
            self._forget_one()
            link = self._links[url] = _Link(self, url, dial_of(url, self._tls))
        return await link.get()

    async def any_connection(self) -> BrokerConnection:
        """
        Return an open connection, or open one, if possible to a broker the user named.

        It is the same connection until it breaks or ``doubt`` is called.

        Raises:
            ConnectionLost: None of them can be reached at the moment.
            Closed: The client was closed.
        """
        if self.is_closed:
            raise Closed("the client is closed")
        links = self._links
        failures = []
        for url in sorted(
            links, key=lambda url: (url in self._doubted, not links[url].is_open)
        ):
            if url in self._doubted:
                # The others are no better.
                self._doubted.clear()
            try:
                return await self.connection(url)
            except Unavailable as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise ConnectionLost("; ".join(map(str, failures)))

    def same_url(self, url: str) -> str:
        """
        Return the URL by which the client knows the broker at *url*.

        Raises:
            InvalidRequest: *url* is not of the form ``danube://host[:port]``.
        """
        if url in self._links:
            return url
        address = parse_url(url)
        return next((each for each in self._links if parse_url(each) == address), url)

    def doubt(self, url: str) -> None:
        """
        Prefer other brokers to the one at *url*, which does not answer.

        When no other one is left, all are equal again.
        """
        self._doubted.add(url)

    def close(self) -> list[BrokerConnection]:
        """Close all connections, after what was written is sent; return them."""
        self.is_closed = True
        connections = self.connections
        for each in connections:
            each.close()
        return connections

    def clear(self) -> None:
        """Forget what refers to the client and the pool, to break the cycles."""
        self._links.clear()
        self._on_connected = self._on_lost = self._on_silent = None

    @property
    def connections(self) -> list[BrokerConnection]:
        """The last connection to each broker; some may be lost."""
        found = [link.connection for link in self._links.values()]
        return [each for each in found if each is not None]

    def _forget_one(self) -> None:
        """Forget a broker that the user did not name, if there are too many."""
        if len(self._links) >= len(self._named) + self._others_max:
            others = list(self._links)[len(self._named) :]
            closed = [each for each in others if not self._links[each].is_open]
            if closed:
                del self._links[closed[0]]
                self._doubted.discard(closed[0])

    async def open(
        self, url: str, dial: Dial, *, was_connected: bool
    ) -> BrokerConnection:
        """Open a connection, for ``_Link``."""
        connection = await self._connect(url, dial)
        again = " again" if was_connected else ""
        self.is_clustered = connection.welcome.is_clustered
        log.info("connected%s to the broker at %s", again, self._shown(url))
        if self._on_connected is not None:
            self._on_connected(connection, was_connected)
        return connection

    def _on_connection_lost(
        self, connection: BrokerConnection, reason: BrokerError
    ) -> None:
        url = self._shown(connection.url)
        if self.is_closed:
            log.info("disconnected from the broker at %s", url)
        else:
            log.warning(
                "lost the connection to the broker at %s: %s", url, self._shown(reason)
            )
        if self._on_lost is not None:
            self._on_lost(connection, reason)

    def renewal_of(
        self, connection: BrokerConnection
    ) -> Coroutine[Any, Any, None] | None:
        """Return the work that renews the token of a connection, if there is any."""
        expires_in_s = connection.welcome.identity.expires_in_s
        if not self._credentials.is_renewed or not expires_in_s:
            return None
        return self._renew(connection, expires_in_s)

    async def _renew(self, connection: BrokerConnection, expires_in_s: float) -> None:
        """Renew the token of *connection* before it expires, until it is lost."""
        backoff_s = RENEWAL_RETRY_S
        wait_s = expires_in_s * RENEWAL_SHARE
        while expires_in_s:
            await asyncio.sleep(wait_s)
            if connection.is_lost:
                return
            try:
                async with asyncio.timeout(self.connect_timeout_s):
                    expires_in_s = await connection.authenticate(
                        await self._credentials.get()
                    )
            except Exception as error:  # noqa: BLE001  # The user's function raises any.
                log.warning(
                    "cannot renew the token for the broker at %s: %s",
                    self._shown(connection.url),
                    self._shown(error),
                )
                wait_s, backoff_s = backoff_s, min(backoff_s * 2, RENEWAL_RETRY_S_MAX)
            else:
                wait_s, backoff_s = expires_in_s * RENEWAL_SHARE, RENEWAL_RETRY_S

    def warn_of(self, error: BrokerError) -> None:
        """Log that a broker that was connected cannot be reached."""
        log.warning("cannot connect again: %s", self._shown(error))

    async def _connect(self, url: str, dial: Dial) -> BrokerConnection:
        factory = partial(BrokerConnection, self._on_connection_lost, self._on_silent)
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                connection = await dial(factory)
        except (OSError, TimeoutError) as error:
            raise _connect_error(url, error) from error
        except (ProtocolViolation, Unauthenticated) as error:
            raise type(error)(f"{url}: {error}") from error
        connection.url = url
        try:
            token = await self._credentials.get()
            await connection.handshake(
                f"pydanube {__version__} pid {os.getpid()}",
                token,
                self.connect_timeout_s,
            )
        except TimedOut as error:
            raise ConnectionLost(f"no broker answers at {url}") from error
        except Unauthenticated as error:
            connection.close()
            raise Unauthenticated(
                f"{url}: {self._credentials.refused(error)}"
            ) from error
        except ProtocolViolation as error:
            connection.close()
            raise ProtocolViolation(f"{url}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection


class _Link:
    """The connection to one broker, which is opened again when it breaks."""

    def __init__(self, pool: BrokerPool, url: str, dial: Dial) -> None:
        self.connection: BrokerConnection | None = None
        self._pool = pool
        self._url = url
        self._dial = dial
        self._connecting = asyncio.Lock()
        # The number of failed attempts, and why the last one failed.
        self._failures = 0
        self._failure: BrokerError | None = None
        # Whether a failure after the last connection was logged.
        self._is_logged = False

    @property
    def is_open(self) -> bool:
        return self.connection is not None and not self.connection.is_lost

    async def get(self) -> BrokerConnection:
        """Return the connection; open it again if it broke."""
        if self.connection is not None and not self.connection.is_lost:
            return self.connection
        failures = self._failures
        async with self._connecting:
            if self._pool.is_closed:
                raise Closed("the client is closed")
            if self.connection is not None and not self.connection.is_lost:
                return self.connection
            if self._failure is not None and self._failures != failures:
                # Another caller has just tried it, while this one waited.
                raise self._failure
            return await self._open()

    async def _open(self) -> BrokerConnection:
        was_connected = self.connection is not None
        try:
            self.connection = await self._pool.open(
                self._url, self._dial, was_connected=was_connected
            )
        except BrokerError as error:
            self._failures += 1
            self._failure = error
            # The first connection is opened for a caller, who gets the error.
            if was_connected and not self._is_logged:
                self._pool.warn_of(error)
                self._is_logged = True
            raise
        self._is_logged = False
        return self.connection


def _connect_error(url: str, error: OSError) -> ConnectionLost:
    """Return the error of a connection that could not be opened, for users."""
    if isinstance(error, socket.gaierror):
        # Its number is not one of the operating system's errors.
        return ConnectionLost(
            f"the host name in {url} cannot be resolved ({error.strerror}): "
            "check its spelling, and that this machine's DNS knows it"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConnectionLost(
        f"no broker answers at {url} ({reason or 'timed out'}); "
        "`danube broker` starts one"
    )
