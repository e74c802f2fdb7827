"""The server for Kafka clients: its connections and what they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube_broker.operations.authorization import follow_access
from pydanube_broker.servers.connections.listeners import ListenerParts
from pydanube_kafka.authenticating import AUTHENTICATING
from pydanube_kafka.brokers import Brokers
from pydanube_kafka.calls import Handler
from pydanube_kafka.committing import COMMITTING
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.configuring import CONFIGURING
from pydanube_kafka.consumer_grouping import CONSUMER_GROUPING
from pydanube_kafka.coordinating import SHARES, Groups
from pydanube_kafka.deleting import DELETING
from pydanube_kafka.encoded_batches import EncodedBatches
from pydanube_kafka.fetching import FETCHING
from pydanube_kafka.grouping import GROUPING
from pydanube_kafka.naming import NAMING
from pydanube_kafka.producing import PRODUCING, ProducerSessions
from pydanube_kafka.pure.names import TopicNames
from pydanube_kafka.schema_prefixes import SchemaPrefixes
from pydanube_kafka.topic_facts import NamesByTopicId, TopicsByName
from pydanube_kafka.transacting import TRANSACTING, Transactions
from pydanube_kafka.wire.apis import Api

if TYPE_CHECKING:
    from pydanube_kafka.connection import KafkaConnection

log = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0
HANDLERS: Mapping[Api, Handler] = {
    **AUTHENTICATING,
    **COMMITTING,
    **CONFIGURING,
    **CONSUMER_GROUPING,
    **DELETING,
    **FETCHING,
    **GROUPING,
    **NAMING,
    **PRODUCING,
    **TRANSACTING,
}
assert set(HANDLERS) == set(Api)


class KafkaServer:
    """All Kafka clients."""

    handlers = HANDLERS

    def __init__(
        self, config: KafkaConfig, parts: ListenerParts, tasks: TaskScope
    ) -> None:
        self.config = config
        self.parts = parts
        self.broker = parts.broker
        self.tasks = tasks
        self.names = TopicNames(config.namespaces)
        self.brokers = Brokers(parts.broker, parts.address or config.advertised_address)
        self.sessions = ProducerSessions(parts.broker, config.producers_max)
        self.transactions = Transactions(
            parts.broker,
            self.brokers,
            tasks,
            config.producers_max,
            parts.wall_clock_us,
        )
        shares = SHARES if parts.broker.access.is_enforced else 1
        self.groups = Groups(config, tasks, shares)
        self.topics = TopicsByName(
            parts.broker, self.names, config.group_heartbeat_interval_s
        )
        self.topic_ids = NamesByTopicId(parts.broker, self.names)
        self.prefixes = SchemaPrefixes(
            parts.broker.registry, asyncio.get_running_loop().time
        )
        self.encoded = EncodedBatches(self.prefixes)
        self._connections: dict[KafkaConnection, None] = {}
        self._is_closing = False

    def on_connected(self, connection: KafkaConnection) -> bool:
        """Add a connection that was made; return whether to keep it."""
        self._connections[connection] = None
        return self.parts.counts.admit() and not self._is_closing

    def on_lost(self, connection: KafkaConnection) -> None:
        """Remove a connection that was lost."""
        self._connections.pop(connection, None)
        self.parts.counts.lose()

    async def run(self) -> None:
        """Do what is due from time to time, for ever."""
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.groups.sweep(self.brokers.is_coordinator)
            self.sessions.sweep()
            self.transactions.sweep()
            for connection in list(self._connections):
                connection.check_identity()

    async def follow_policy(self) -> None:
        """Look at the clients again when the access policy changes, for ever."""
        await follow_access(
            self.broker,
            lambda: self._connections,
            lambda connection: connection.check_identity(),
        )

    def close(self) -> None:
        """Disconnect all clients, also those that were accepted just before."""
        self._is_closing = True
        for connection in list(self._connections):
            connection.abort()
        self.sessions.close()


@asynccontextmanager
async def open_kafka_server(
    config: KafkaConfig, parts: ListenerParts
) -> AsyncIterator[KafkaServer]:
    """Open the server; it has no connections yet."""
    async with task_scope() as tasks:
        server = KafkaServer(config, parts, tasks)
        tasks.run(server.run())
        if parts.broker.access.is_enforced:
            tasks.run(server.follow_policy())
        try:
            yield server
        finally:
            server.close()
