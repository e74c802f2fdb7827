"""The MQTT listener as a plug-in of the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydanube_broker.servers.connections.listeners import ListenerParts, ListenerState
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.connection import listen_mqtt
from pydanube_mqtt.samples import of_mqtt
from pydanube_mqtt.server import open_mqtt_server


@asynccontextmanager
async def open_mqtt(
    config: MqttConfig, parts: ListenerParts
) -> AsyncIterator[ListenerState]:
    """Serve clients of MQTT at the port of *config* during the body."""
    assert config.port is not None
    async with (
        open_mqtt_server(config, parts) as server,
        listen_mqtt(server, parts.host, config.port, parts.tls) as port,
    ):
        yield ListenerState(port=port, samples=lambda: of_mqtt(server))
