"""What a test holds of the brokers of a world: one that looks like a broker alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import TaskScope
from pydanube.client.connections.connection import BrokerConnection
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import Need
from pydanube_broker.servers.native.server import NativeServer
from pydanube_broker.testing import BrokerClock, MemoryBroker
from support.worlds.chance import Chance
from support.worlds.steps import Step, SteppedConnection, Steps, dial_in_steps


class WorldBroker(MemoryBroker, Steps):
    """A ``MemoryBroker`` for which the brokers of a world stand in."""

    def __init__(self, clock: BrokerClock, tasks: TaskScope, chance: Chance) -> None:
        # Subclasses have ``broker`` and ``server`` as properties.
        self.__dict__["is_open"] = True
        MemoryBroker.__init__(self, None, None, clock)  # type: ignore[arg-type]
        Steps.__init__(self)
        self._tasks = tasks
        self._chance = chance

    async def find_server(self) -> NativeServer:
        """Return a server to which a client may connect; wait for one."""
        raise NotImplementedError

    @property
    def servers(self) -> Iterable[NativeServer]:
        """All servers that run."""
        raise NotImplementedError

    @property
    def server(self) -> NativeServer:
        """One of the servers, for tests that look inside."""
        return next(iter(self.servers))

    @server.setter
    def server(self, _: NativeServer) -> None:
        pass

    @property
    def broker(self) -> Broker:
        """One of the brokers, for tests that look inside."""
        return self.server.broker

    @broker.setter
    def broker(self, _: Broker) -> None:
        pass

    def advance(self, seconds: float) -> None:
        """See ``MemoryBroker.advance``."""
        self.clock.advance(seconds)
        for each in self.servers:
            each.broker.wake_subscriptions()

    def disconnect_all(self) -> None:
        """See ``MemoryBroker.disconnect_all``."""
        for server in self.servers:
            for connection in list(server.connections):
                connection.abort()

    def redirect(self, url: str | None = None) -> AbstractContextManager[None]:
        """See ``MemoryBroker.redirect``."""
        return super().redirect(url)

    async def before_call(
        self, kind: Kind, request: Message, targets: Sequence[Need]
    ) -> None:
        """Let a call be a step that another listener gets and that needs *targets*."""
        step = Step.of_call(kind, request, targets)
        await self.on_step(await self.find_server(), step)

    async def _dial(self, factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        if not self.is_open:
            raise ConnectionRefusedError
        return await self._connect(self.find_server, factory)

    async def _connect(self, find_server: Any, factory: Any) -> BrokerConnection:
        """Connect a client, which may be in any thread."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            dial = dial_in_steps(await find_server(), self._tasks, self)
            found: BrokerConnection = await dial(factory)
            return found
        ours, theirs = socket.socketpair()
        try:
            accepting = self._accept_in_steps(find_server, theirs)
            future = asyncio.run_coroutine_threadsafe(accepting, self._loop)
            await asyncio.wrap_future(future)
            _, connection = await loop.create_unix_connection(factory, sock=ours)
        except BaseException:
            # The broker notices it.
            ours.close()
            raise
        return connection

    async def _accept_in_steps(self, find_server: Any, accepted: socket.socket) -> None:
        try:
            server = await find_server()
        except BaseException:
            accepted.close()
            raise
        await self._loop.connect_accepted_socket(
            lambda: SteppedConnection(server, self._tasks, self), accepted
        )
