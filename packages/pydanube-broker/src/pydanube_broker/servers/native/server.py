"""The server of the native protocol: its connections, tasks and common limits."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import BrokerError, QuotaExceeded
from pydanube.model.histograms import NO_EXEMPLARS, Exemplar, Histogram
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import error_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.dispatch.shared_counts import ONE_PROCESS, SharedCounts
from pydanube_broker.operations.authorization import follow_access
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.receive_memory import ReceiveMemory, Receiver
from pydanube_broker.servers.native.plain_batches import PlainBatches
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.servers.settings.security_config import SecurityConfig

HANDSHAKING_MAX = 1024
"""
The maximum number of connections without HELLO; the server closes the oldest beyond it.
"""
SWEEP_INTERVAL_S_MAX = 1.0
SWEEPS_PER_TIMEOUT_MIN = 4
"""The minimum number of sweeps within the idle timeout."""
CHECKS_MAX = 2
"""The maximum number of batches that threads check at a time."""


class Connection(Receiver, Protocol):
    """A connection as the server uses it."""

    def abort(self) -> None:
        """Close it at once."""

    def sweep(self, sweeps_max: int) -> None:
        """Close it if the client was silent for more than *sweeps_max* sweeps."""

    def check_channels(self) -> None:
        """Close the channels that the access policy permits no longer."""

    async def say_goodbye(self, reason: str) -> None:
        """Send GOODBYE and everything written before it, and close it."""


class NativeServer:
    """All connections of the native protocol."""

    def __init__(
        self,
        broker: Broker,
        tasks: TaskScope,
        limits: ListenConfig,
        authenticator: Authenticator | None = None,
        exemplars: Mapping[int, Exemplar] = NO_EXEMPLARS,
        *,
        shared: SharedCounts = ONE_PROCESS,
        http_port: int = 0,
    ) -> None:
        """
        *exemplars* are batches whose storing was traced.

        *shared* has what the other processes of the broker count.
        """
        self.http_port = http_port
        """The HTTP port of the broker, for its clients; 0: it has none."""
        self.broker = broker
        self.authenticator = authenticator or Authenticator(SecurityConfig())
        self.limits = limits
        self.connections: dict[Connection, None] = {}
        """In the order in which they were made."""
        self.handshaking: dict[Connection, None] = {}
        """The connections that have not sent HELLO."""
        self.connections_total = 0
        self._counts = ConnectionCounts(
            listener="stream", connections_max=limits.connections_max, shared=shared
        )
        # The connections whose clients have sent HELLO.
        self._admitted: set[Connection] = set()
        self._strangers_refused = 0
        self.timed_out_total = 0
        """Connections that were closed because the client was silent."""
        self.plain_batches = PlainBatches()
        self.receive_memory = ReceiveMemory(limits.receive_bytes_max)
        self.fetched = 0
        self.fetched_bytes = 0
        self.errors: Counter[str] = Counter()
        """The number of errors sent, by code."""
        self.publish_seconds = Histogram(exemplars)
        """The time from each batch until its receipt."""
        self.request_seconds: defaultdict[Kind, Histogram] = defaultdict(Histogram)
        """The time from each request until its answer."""
        self._checks = asyncio.Semaphore(CHECKS_MAX)
        self.run = tasks.run
        self._is_closed = False

    def on_connected(self, connection: Connection) -> None:
        """Add a connection that was made."""
        self.connections_total += 1
        self.connections[connection] = None
        self.handshaking[connection] = None
        if self._is_closed:
            # It was accepted just before.
            del self.handshaking[connection]
            connection.abort()
        elif len(self.handshaking) > HANDSHAKING_MAX:
            self._strangers_refused += 1
            oldest = next(iter(self.handshaking))
            del self.handshaking[oldest]
            oldest.abort()

    def on_handshake(self, connection: Connection) -> None:
        """
        Admit a connection whose client has sent HELLO.

        Raises:
            QuotaExceeded: The number of connections is at its limit.
        """
        self.handshaking.pop(connection, None)
        self._admitted.add(connection)
        if not self._counts.admit():
            raise QuotaExceeded(
                f"the broker has {self.limits.connections_max} connections of the "
                "native protocol, as many as listen.connections_max allows; close "
                "some or raise the setting"
            )

    def on_lost(self, connection: Connection) -> None:
        """Remove a connection that was lost."""
        self.connections.pop(connection, None)
        self.handshaking.pop(connection, None)
        if connection in self._admitted:
            self._admitted.remove(connection)
            self._counts.lose()
        self.receive_memory.release(connection)

    @property
    def refused_total(self) -> int:
        """The connections that were closed because there were too many."""
        return self._strangers_refused + self._counts.refused_total

    def error(self, error: BrokerError) -> pb.Error:
        """Count *error*, and return the message for the client."""
        self.errors[error.code] += 1
        return error_to_wire(error)

    async def verify(self, topic: Topic, batch: BatchFrame) -> None:
        """
        Check a large batch in a thread; see ``Topic.verify``.

        Bounds: ``CHECKS_MAX`` batches are decoded at a time.
        """
        async with self._checks:
            await asyncio.to_thread(topic.verify, batch)

    async def sweep_regularly(self) -> None:
        """Close connections of silent clients, until the server is closed."""
        timeout_s = self.limits.idle_timeout_s
        interval_s = min(SWEEP_INTERVAL_S_MAX, timeout_s / SWEEPS_PER_TIMEOUT_MIN)
        sweeps_max = math.ceil(timeout_s / interval_s)
        while True:
            await asyncio.sleep(interval_s)
            self.sweep(sweeps_max)

    def sweep(self, sweeps_max: int) -> None:
        """Close connections that were silent for more than *sweeps_max* sweeps."""
        for connection in list(self.connections):
            connection.sweep(sweeps_max)

    async def follow_access(self) -> None:
        """Close channels that the access policy permits no longer, when it changes."""
        await follow_access(
            self.broker, lambda: self.connections, lambda each: each.check_channels()
        )

    async def close(self) -> None:
        """Close every connection after sending GOODBYE."""
        self._is_closed = True
        async with asyncio.TaskGroup() as goodbyes:
            for connection in list(self.connections):
                goodbyes.create_task(connection.say_goodbye("the broker is stopping"))


@asynccontextmanager
async def open_native_server(
    broker: Broker,
    limits: ListenConfig | None = None,
    authenticator: Authenticator | None = None,
    exemplars: Mapping[int, Exemplar] = NO_EXEMPLARS,
    shared: SharedCounts = ONE_PROCESS,
    *,
    http_port: int = 0,
) -> AsyncIterator[NativeServer]:
    """
    Open a server of the native protocol over *broker*, without a listener.

    Without *authenticator*, clients need no credentials.  *exemplars* are batches whose
    storing was traced, and *shared* has what the other processes of the broker count.
    Clients are told *http_port*, unless it is 0.
    """
    async with task_scope() as tasks:
        server = NativeServer(
            broker,
            tasks,
            limits or ListenConfig(),
            authenticator,
            exemplars,
            shared=shared,
            http_port=http_port,
        )
        server.run(server.sweep_regularly())
        if broker.access.is_enforced:
            server.run(server.follow_access())
        try:
            yield server
        finally:
            await server.close()
