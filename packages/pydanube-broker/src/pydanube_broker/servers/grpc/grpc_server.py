"""A gRPC server: its connections, tasks and common limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pydanube.aio.tasks import TaskScope
from pydanube_broker.broker.broker import Broker
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.grpc.forwarding import Forwarding
from pydanube_broker.servers.grpc.services import Method, Service
from pydanube_broker.servers.settings.security_config import SecurityConfig

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The maximum size of a request.  It is far above the limit for messages, so that the
error for a message that is too large can name its topic's limit."""
RECEIVE_BYTES_MAX = 256 * 1024 * 1024
KEEPALIVE_S = 10.0
"""A client that is silent for this time gets a PING, and is disconnected if it does not
answer within the same time again.  Its messages then go to other consumers.  The
preface must arrive in this time, and the SETTINGS ACK in twice this time."""
CREDENTIAL_CHECK_S = 1.0
"""The interval at which the credentials of running calls are checked."""


class Connection(Protocol):
    """A connection as the server uses it."""

    held_bytes: int
    calls: dict[int, asyncio.Task[None]]

    @property
    def is_answering(self) -> bool:
        """Whether calls without a task are not answered yet."""

    async def all_answered(self) -> None:
        """Wait until they are answered."""

    def end_invalid_calls(self) -> None:
        """End the calls whose credentials are not valid any more."""

    def go_away(self) -> None:
        """Accept no more calls."""

    def refuse(self, reason: str) -> None:
        """Close the connection, and tell the client why."""

    def close(self) -> None:
        """Close the connection."""


class GrpcServer:
    """All connections of one gRPC server."""

    def __init__(
        self,
        services: Sequence[Service],
        tasks: TaskScope,
        *,
        broker: Broker | None = None,
        counts: ConnectionCounts | None = None,
        receive_bytes_max: int = RECEIVE_BYTES_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        keepalive_s: float = KEEPALIVE_S,
        authenticator: Authenticator | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        """
        *broker* decides on calls; without it, every client may make every call.

        *forwarding* makes the calls that other brokers of the cluster answer.
        """
        self.broker = broker
        self.forwarding = forwarding
        self.authenticator = authenticator or Authenticator(SecurityConfig())
        self.counts = counts or ConnectionCounts(listener="grpc")
        self.held_bytes = 0
        """The received bytes of all unanswered requests."""
        self._receive_bytes_max = receive_bytes_max
        self.methods: dict[str, Method] = {
            path: method
            for service in services
            for path, method in service.methods.items()
        }
        self.message_bytes_max = message_bytes_max
        self.public = frozenset(
            path for path, method in self.methods.items() if method.service.is_public
        )
        """The methods whose callers need no credentials."""
        self.keepalive_s = keepalive_s
        self.connections: dict[Connection, None] = {}
        self.run = tasks.run
        self.is_closed = False
        """Whether connections are refused that were accepted before the end."""
        if self.authenticator.is_enabled:
            self.run(self._end_invalid_calls())

    async def _end_invalid_calls(self) -> None:
        """End calls whose credentials have expired or were revoked, regularly."""
        while True:
            await asyncio.sleep(CREDENTIAL_CHECK_S)
            for connection in list(self.connections):
                connection.end_invalid_calls()

    def count_held(self, change: int) -> None:
        """
        Add *change* to the bytes of unanswered requests.

        Beyond the maximum, the server closes the connection that holds most.
        """
        self.held_bytes += change
        if change > 0 and self.held_bytes > self._receive_bytes_max:
            largest = max(self.connections, key=lambda each: each.held_bytes)
            largest.refuse(f"requests take more than {self._receive_bytes_max} bytes")

    async def close(self, grace_s: float) -> None:
        """
        Accept no more calls, and close every connection.

        Running calls have *grace_s* to end.
        """
        self.is_closed = True
        connections = list(self.connections)
        for connection in connections:
            connection.go_away()
        calls = [task for each in connections for task in each.calls.values()]
        calls += [
            self.run(each.all_answered()) for each in connections if each.is_answering
        ]
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        for connection in connections:
            connection.close()
