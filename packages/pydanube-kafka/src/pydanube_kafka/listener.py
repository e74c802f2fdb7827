"""The listener for Kafka clients as a plug-in of the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from pydanube_broker.servers.connections.listeners import ListenerParts, ListenerState
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import listen_kafka
from pydanube_kafka.samples import of_kafka
from pydanube_kafka.server import open_kafka_server


@asynccontextmanager
async def open_kafka(
    config: KafkaConfig, parts: ListenerParts
) -> AsyncIterator[ListenerState]:
    """Serve Kafka clients at the port of *config* during the body."""
    assert config.port is not None
    async with (
        open_kafka_server(config, parts) as server,
        listen_kafka(
            server, parts.host, config.port, parts.tls, parts.own_port
        ) as port,
    ):
        yield ListenerState(
            port=port,
            samples=partial(of_kafka, server),
            problems=server.transactions.problems,
        )
