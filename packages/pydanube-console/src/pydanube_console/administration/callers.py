"""
The callers of the tools: a client for the credentials of each of them.

A request over HTTP may have credentials for the broker, an API key or a token.  All
other requests use the credentials of this process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from os import environ

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.client import Client
from pydanube.client.connections.credentials import credentials_of
from pydanube.client.connections.urls import options_of
from pydanube.client.held_client import HeldClient
from pydanube.model.errors import Unauthenticated

CLIENTS_MAX = 64
"""How many callers are connected; the least recently used one is disconnected."""
RETRY_S = 5.0
"""How long a request waits for a broker that does not answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, by its credentials."""

    client: Client
    credentials: str
    """For the HTTP port of the broker; empty: none."""


async def _check_identity(client: Client) -> None:
    if (await client.security.who_am_i()).method == "anonymous":
        raise Unauthenticated(
            "the broker does not check credentials, so they prove nothing; start the "
            "server with --token-file"
        )


class Callers:
    """The clients of all callers; made by ``open_callers``."""

    def __init__(self, url: str, tasks: TaskScope) -> None:
        self._url = url
        self._tasks = tasks
        # By the hash of the credentials; "" has those of the process.
        self._connections: OrderedDict[str, HeldClient] = OrderedDict()

    async def own(self) -> Caller:
        """
        Return the caller with the credentials of this process.

        Raises:
            BrokerError: The broker cannot be reached, or refuses them.
        """
        options = options_of(self._url)
        given = credentials_of("", "", options, environ, may_be_plain=True)
        return Caller(await self._client(""), await given.get() if given else "")

    async def identified(self, credentials: str) -> Caller:
        """
        Return the caller that presents an API key or a token of the broker.

        Raises:
            Unauthenticated: The broker does not check credentials.
            BrokerError: The broker cannot be reached, or refuses them.
        """
        return Caller(await self._client(credentials), credentials)

    async def _client(self, credentials: str) -> Client:
        key = sha256(credentials.encode()).hexdigest() if credentials else ""
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = HeldClient(
                self._url,
                credentials,
                check=_check_identity if credentials else None,
                retry_s=RETRY_S,
            )
            if len(self._connections) > CLIENTS_MAX:
                _, oldest = self._connections.popitem(last=False)
                oldest.release()
            self._tasks.run(connection.run(), "caller")
        self._connections.move_to_end(key)
        try:
            return await connection.get()
        except Exception:
            # The next request connects again.
            if self._connections.get(key) is connection:
                del self._connections[key]
            raise


@asynccontextmanager
async def open_callers(url: str) -> AsyncIterator[Callers]:
    """Open the clients of callers; each connects with its first request."""
    async with task_scope() as tasks:
        yield Callers(url, tasks)
