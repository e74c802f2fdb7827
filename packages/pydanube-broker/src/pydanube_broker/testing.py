"""
A broker in memory for tests: it uses no ports and no disk.

    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer("/default/orders") as producer:
            await producer.send(b"hello")

``sync_memory_broker`` is for tests without ``await``.  While a broker runs,
``pydanube.connect(broker.url)`` connects to it from any thread of this process.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pydanube import sync
from pydanube.client.blocking import Facade, LoopThread, blocking_scope, loop_thread
from pydanube.client.client import Client
from pydanube.client.connections.connection import BrokerConnection
from pydanube.client.connections.redirects import Redirect, redirecting
from pydanube.client.connections.requester import (
    CLOSE_TIMEOUT_S,
    Requester,
    check_seconds,
)
from pydanube.client.connections.scopes import AsyncScope
from pydanube.client.connections.urls import parse_url
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.native.frames import batch_bytes_max
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.governance.access_control import IsSuperuser
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.in_process import dial_in_process
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import MemoryFiles
from pydanube_broker.storage.storage_opening import open_storage

_numbers = count(1)


class BrokerClock:
    """The clock of a broker, which ``MemoryBroker.advance`` sets forward."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self._loop_time = asyncio.get_running_loop().time

    def advance(self, seconds: float) -> None:
        """Set the clock forward by *seconds*."""
        check_seconds("seconds", seconds)
        self._offset_ns += round(seconds * 1_000_000_000)

    def now(self) -> float:
        """Return the time of the event loop, set forward."""
        return self._loop_time() + self._offset_ns / 1_000_000_000

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970, set forward."""
        return time.time_ns() + self._offset_ns

    def wall_us(self) -> int:
        """Return microseconds since 1970, set forward."""
        return self.wall_ns() // 1000


class MemoryBroker:
    """A broker in this process; made by ``memory_broker``."""

    def __init__(
        self, broker: Broker, server: NativeServer, clock: BrokerClock
    ) -> None:
        self.broker = broker
        self.server = server
        self.clock = clock
        self.url = f"danube://memory-{next(_numbers)}.test"
        """``pydanube.connect`` of this URL connects to the broker, in any thread."""
        self.is_open = True
        """False when the broker is closed, so clients cannot connect again."""
        self._loop = asyncio.get_running_loop()

    def connect(
        self, *, close_timeout_s: float = CLOSE_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Client]:
        """Connect a client to the broker, as ``pydanube.connect`` does."""
        requester = Requester(
            self._dial,
            url=self.url,
            close_timeout_s=close_timeout_s,
            wall_clock_ns=self.clock.wall_ns,
        )
        return AsyncScope(Client(requester).opened(), "broker.connect()", "client")

    def redirect(self, url: str | None = None) -> AbstractContextManager[None]:
        """
        Let ``pydanube.connect`` reach this broker while the body runs.

        It applies to this process, in all threads, and also to ``pydanube.sync``.

        Args:
            url: The URL with which the tested code connects; None: every URL.

        Raises:
            InvalidRequest: *url* is not of the form ``danube://host[:port]``.
        """
        address = None if url is None else parse_url(url)
        return redirecting(Redirect(address, self._dial, self.clock.wall_ns))

    def advance(self, seconds: float) -> None:
        """
        Set the clock of the broker and of its clients forward by *seconds*.

        Messages become due or expire, acknowledgements time out, and redeliveries
        begin, as if the time had passed.  The clock jumps once: a message whose
        acknowledgement times out is redelivered now, and its next timeout begins.
        Timeouts of client calls, such as ``timeout_s``, follow the real time.

        Raises:
            InvalidRequest: *seconds* is negative or not finite.
        """
        self.clock.advance(seconds)
        self.broker.wake_subscriptions()

    def disconnect_all(self) -> None:
        """Break every connection, as a network may; clients connect again."""
        for connection in list(self.server.connections):
            connection.abort()

    async def _dial(self, factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        if not self.is_open:
            raise ConnectionRefusedError
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            found: BrokerConnection = await dial_in_process(self.server)(factory)
            return found
        ours, theirs = socket.socketpair()
        try:
            accepting = self._accept(theirs)
            future = asyncio.run_coroutine_threadsafe(accepting, self._loop)
            await asyncio.wrap_future(future)
            _, connection = await loop.create_unix_connection(factory, sock=ours)
        except BaseException:
            # The broker notices it.
            ours.close()
            raise
        return connection

    async def _accept(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(
            lambda: NativeConnection(self.server), connection
        )


@asynccontextmanager
async def memory_broker(
    *,
    auto_create_topics: bool = True,
    storage: StorageConfig | None = None,
    listen: ListenConfig | None = None,
    is_superuser: IsSuperuser | None = None,
    audit_file: Path | None = None,
) -> AsyncIterator[MemoryBroker]:
    """
    Run a broker while the body runs.

    It is the real broker with its protocol and journal, but uses memory instead of
    sockets and files.  With *is_superuser*, it enforces its access policy.
    """
    failure: BaseException | None = None
    clock = BrokerClock()
    async with (
        open_sqlite(None) as store,
        open_storage(
            storage or StorageConfig(),
            files=MemoryFiles(),
            objects=MemoryObjects(),
            manifest=MetadataManifest(store),
            wall_clock=clock.wall_us,
        ) as opened,
        open_broker(
            store,
            opened,
            new_broker_id=lambda: uuid.uuid4().hex,
            wall_clock_us=clock.wall_us,
            clock=clock.now,
            auto_create_topics=auto_create_topics,
            batch_bytes_max=batch_bytes_max((listen or ListenConfig()).frame_bytes_max),
            is_superuser=is_superuser,
            audit_file=audit_file,
        ) as broker,
        open_native_server(broker, listen) as server,
    ):
        found = MemoryBroker(broker, server, clock)
        try:
            with found.redirect(found.url):
                yield found
        except BaseException as error:  # noqa: BLE001  # It is raised again below.
            # Raise it outside of the task groups, which would wrap it.
            failure = error
        finally:
            found.is_open = False
    if failure is not None:
        raise failure


class SyncMemoryBroker(Facade):
    """A broker in a thread of this process; made by ``sync_memory_broker``."""

    _wrapped: MemoryBroker

    def __init__(self, loop: LoopThread, broker: MemoryBroker) -> None:
        super().__init__(loop, broker)
        self.url = broker.url
        """``pydanube.connect`` of this URL connects to the broker, in any thread."""

    def connect(
        self, *, close_timeout_s: float = CLOSE_TIMEOUT_S
    ) -> AbstractContextManager[sync.Client]:
        """Connect a client to the broker, as ``pydanube.sync.connect`` does."""
        scope = self._wrapped.connect(close_timeout_s=close_timeout_s)

        entered = self._loop.entered(scope, partial(sync.Client, self._loop))
        return blocking_scope(scope, entered)

    def redirect(self, url: str | None = None) -> AbstractContextManager[None]:
        """Let ``connect`` reach this broker; see ``MemoryBroker.redirect``."""
        return self._wrapped.redirect(url)

    def advance(self, seconds: float) -> None:
        """Set the broker's clock forward; see ``MemoryBroker.advance``."""
        self._loop.wait(_call(self._wrapped.advance, seconds))

    def disconnect_all(self) -> None:
        """Break every connection, as a network may; clients connect again."""
        self._loop.wait(_call(self._wrapped.disconnect_all))


@contextmanager
def sync_memory_broker(**options: Any) -> Iterator[SyncMemoryBroker]:
    """
    Run a broker in a thread while the body runs.

    *options* are those of ``memory_broker``.
    """
    with (
        loop_thread() as loop,
        loop.entered(
            memory_broker(**options), partial(SyncMemoryBroker, loop)
        ) as broker,
    ):
        yield broker


async def _call(function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)
