"""
A broker in memory for tests: it uses no ports and no disk.

    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer("/default/orders") as producer:
            await producer.send(b"hello")
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pydanube.broker.broker import Broker, open_broker
from pydanube.broker.manifest import MetadataManifest
from pydanube.client.client import Client
from pydanube.client.requester import CLOSE_TIMEOUT_S
from pydanube.client.scopes import AsyncScope
from pydanube.metadata.sqlite import open_sqlite
from pydanube.objects.memory import MemoryObjects
from pydanube.servers.config import ListenConfig
from pydanube.servers.native.in_process import dial_in_process
from pydanube.servers.native.server import NativeServer, open_native_server
from pydanube.storage.config import StorageConfig
from pydanube.storage.files import MemoryFiles
from pydanube.storage.storage_opening import open_storage
from pydanube.wire.native.frames import batch_bytes_max


class MemoryBroker:
    """A broker in this process; made by ``memory_broker``."""

    def __init__(self, broker: Broker, server: NativeServer) -> None:
        self.broker = broker
        self.server = server

    def connect(
        self, *, close_timeout_s: float = CLOSE_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Client]:
        """Connect a client to the broker, as ``pydanube.connect`` does."""
        client = Client(
            dial_in_process(self.server),
            url="danube://in-process",
            close_timeout_s=close_timeout_s,
        )
        return AsyncScope(client.opened(), "broker.connect()", "client")

    def disconnect_all(self) -> None:
        """Break every connection, as a network may; clients connect again."""
        for connection in list(self.server.connections):
            connection.abort()


@asynccontextmanager
async def memory_broker(
    *,
    auto_create_topics: bool = True,
    storage: StorageConfig | None = None,
    listen: ListenConfig | None = None,
) -> AsyncIterator[MemoryBroker]:
    """
    Run a broker while the body runs.

    It is the real broker with its protocol and journal, but uses memory instead of
    sockets and files.
    """
    failure: BaseException | None = None
    async with (
        open_sqlite(None) as store,
        open_storage(
            storage or StorageConfig(),
            files=MemoryFiles(),
            objects=MemoryObjects(),
            manifest=MetadataManifest(store),
        ) as opened,
        open_broker(
            store,
            opened,
            new_broker_id=lambda: uuid.uuid4().hex,
            wall_clock_us=lambda: time.time_ns() // 1000,
            auto_create_topics=auto_create_topics,
            batch_bytes_max=batch_bytes_max((listen or ListenConfig()).frame_bytes_max),
        ) as broker,
        open_native_server(broker, listen) as server,
    ):
        try:
            yield MemoryBroker(broker, server)
        except BaseException as error:  # noqa: BLE001  # It is raised again below.
            # Raise it outside of the task groups, which would wrap it.
            failure = error
    if failure is not None:
        raise failure
