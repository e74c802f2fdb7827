"""A client of ZooKeeper, with servers that hang or answer nonsense."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pydanube.model.errors import InvalidConfig, MetadataUnavailable
from pydanube_zookeeper.client import open_client
from pydanube_zookeeper.config import ZookeeperConfig
from support.servers.stream_server import stream_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PING_XID = -2


class Server:
    """A member of ZooKeeper on which no node exists."""

    def __init__(self) -> None:
        self.port = 0
        self.is_hung = False
        self.answer_of: Callable[[int], tuple[int, int]] = lambda xid: (xid, -101)
        """The number and the error of the answer to a request."""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._read(reader)
            if self.is_hung:
                await reader.read()
            self._write(writer, struct.pack("!iiqi16sB", 0, 8000, 1, 16, b"p" * 16, 0))
            while True:
                request = await self._read(reader)
                (xid,) = struct.unpack_from("!i", request)
                number, error = (xid, 0) if xid == PING_XID else self.answer_of(xid)
                self._write(writer, struct.pack("!iqi", number, 7, error))
        except (EOFError, OSError):
            pass

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        return await reader.readexactly(size)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(struct.pack("!i", len(data)) + data)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    async with stream_server(server.serve) as server.port:
        yield server


def config_of(*servers: Server, timeout_s: float = 20.0) -> ZookeeperConfig:
    endpoints = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return ZookeeperConfig(endpoints=endpoints, timeout_s=timeout_s)


async def test_the_client_knows_how_long_its_session_lasts() -> None:
    async with serving() as server, open_client(config_of(server), 4.0) as client:
        assert client.session_s == 0
        assert await client.ask(lambda kazoo: kazoo.exists_async("/a")) == [None]
        assert client.session_s == pytest.approx(8.0)


@pytest.mark.slow
async def test_a_member_that_accepts_connections_and_hangs_is_left() -> None:
    async with AsyncExitStack() as stack:
        hung, other = [await stack.enter_async_context(serving()) for _ in range(2)]
        hung.is_hung = True
        client = await stack.enter_async_context(
            open_client(config_of(hung, other), 4.0)
        )
        assert await client.ask(lambda kazoo: kazoo.exists_async("/a")) == [None]
        assert f"127.0.0.1:{hung.port}: silent for" in str(client.unavailable())


@pytest.mark.slow
async def test_an_error_names_the_members_that_do_not_answer() -> None:
    async with serving() as server:
        server.is_hung = True
        async with open_client(config_of(server, timeout_s=1.5), 4.0) as client:
            with pytest.raises(
                MetadataUnavailable, match=f":{server.port}: silent for"
            ):
                await client.ask(lambda kazoo: kazoo.exists_async("/a"))


async def test_an_answer_that_the_user_is_refused_names_the_settings() -> None:
    async with serving() as server, open_client(config_of(server), 4.0) as client:
        server.answer_of = lambda xid: (xid, -102)
        with pytest.raises(InvalidConfig, match=r"metadata\.zookeeper\.user"):
            await client.ask(lambda kazoo: kazoo.get_async("/a"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_connection_that_kazoo_gives_up_ends_the_store() -> None:
    async def use(server: Server) -> None:
        async with open_client(config_of(server), 4.0) as client:
            server.answer_of = lambda xid: (xid + 1, 0)
            with pytest.raises(MetadataUnavailable):
                await client.ask(lambda kazoo: kazoo.get_async("/a"))
            await asyncio.Future()

    async with serving() as server:
        with pytest.raises(ExceptionGroup) as failed:
            await use(server)
        assert failed.group_contains(MetadataUnavailable, match="has failed; the log")
