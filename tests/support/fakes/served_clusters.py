"""Clusters of whole brokers with the native protocol, for clients in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydanube.client.connections.redirects import Redirect, redirecting
from pydanube_broker.metadata.cluster_records import BrokerMode
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.native.in_process import dial_in_process
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from support.fakes.broker_clusters import BrokerCluster, Member

PORT = 6651


class ServedCluster:
    """A cluster that ``pydanube.connect`` reaches at ``danube://a``, ``danube://b``…"""

    def __init__(
        self, authenticator: Authenticator | None = None, **options: Any
    ) -> None:
        """*options* are those of ``open_broker``."""
        self.cluster = BrokerCluster(**options)
        self._authenticator = authenticator
        self.servers: dict[str, NativeServer] = {}
        """The servers of the brokers that can be reached."""
        self.connects: list[str] = []
        """The brokers to which clients connected, in order."""
        self.refusals = 0
        """The number of times that a client could not connect."""

    @asynccontextmanager
    async def running(self, *broker_ids: str) -> AsyncIterator[ServedCluster]:
        """Run brokers while the body runs."""
        async with AsyncExitStack() as stack:
            for each in broker_ids:
                member = await stack.enter_async_context(self.cluster.broker(each))
                await stack.enter_async_context(self._served(each, member))
            await self.cluster.settled(*broker_ids)
            yield self

    @asynccontextmanager
    async def _served(self, broker_id: str, member: Member) -> AsyncIterator[None]:
        async def dial(factory):
            if broker_id not in self.servers:
                self.refusals += 1
                raise ConnectionRefusedError
            self.connects.append(broker_id)
            return await dial_in_process(self.servers[broker_id])(factory)

        async with open_native_server(
            member.broker, None, self._authenticator
        ) as server:
            self.servers[broker_id] = server
            with redirecting(Redirect((broker_id, PORT), dial, time.time_ns)):
                yield
            self.servers.pop(broker_id, None)

    def owner_of(self, shard: int) -> str:
        """Return the broker that serves a shard."""
        members = self.cluster.members
        (owner,) = [each for each in members if shard in self.cluster.served(each)]
        return owner

    def lose(self, broker_id: str) -> None:
        """End the session of a broker, which still answers."""
        self.cluster.lose(broker_id)

    def kill(self, broker_id: str) -> None:
        """Cut a broker off from clients and from the metadata store."""
        self.cut_off(broker_id)
        self.cluster.lose(broker_id)

    def silence(self, broker_id: str) -> None:
        """Let a broker read nothing more from its present connections."""
        for connection in self.servers[broker_id].connections:
            connection._transport.pause_reading()

    def cut_off(self, broker_id: str) -> None:
        """Disconnect the clients of a broker, and let none connect again."""
        for connection in list(self.servers.pop(broker_id).connections):
            connection.abort()

    async def drain(self, broker_id: str) -> None:
        """Move all shards of a broker to the others."""
        await self.cluster.set_mode(broker_id, BrokerMode.DRAINING)
        await self.cluster.settled(*(set(self.cluster.members) - {broker_id}))

    async def activate(self, broker_id: str) -> None:
        """Let a drained broker serve shards again."""
        await self.cluster.set_mode(broker_id, BrokerMode.ACTIVE)
