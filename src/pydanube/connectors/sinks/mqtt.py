"""A sink that publishes messages to an MQTT broker, 3.1.1 or 5."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.client.messages import Message
from pydanube.connectors.connector import Sink
from pydanube.connectors.failures import Rejected, Transient
from pydanube.connectors.mqtt_connection import (
    MqttConnection,
    Version,
    check_connection,
    connection_problems,
    mqtt_client,
)
from pydanube.connectors.sinks.templates import render

if TYPE_CHECKING:
    import aiomqtt  # An extra.

TOPIC_BYTES_MAX = 65_535
IN_FLIGHT_MAX = 200
"""How many messages the MQTT broker has not acknowledged."""


class MqttSinkOptions(MqttConnection, frozen=True, kw_only=True):
    """The options of ``MqttSink``."""

    topic: Annotated[
        str,
        Meta(
            description="The MQTT topic, in which `{key}` stands for the key of the "
            "message and `{topic}` for the name of its topic without its namespace."
        ),
    ]
    qos: Annotated[int, Meta(description="The quality of service: 0, 1 or 2.")] = 1
    retain: Annotated[
        bool,
        Meta(description="Whether the MQTT broker keeps the last message of a topic."),
    ] = False
    client_id: Annotated[
        str | None,
        Meta(
            description="The name of the client; by default the MQTT broker picks it."
        ),
    ] = None


class MqttSink(Sink):
    """
    Publishes messages to MQTT topics; with MQTT 5, attributes as user properties.

    Delivery: at least once with QoS 1 and 2. Messages of an MQTT topic keep their
    order.
    """

    Options = MqttSinkOptions
    extra = "mqtt"

    def __init__(self, options: MqttSinkOptions) -> None:
        super().__init__(options)
        self._connection = AsyncExitStack()
        self._client: aiomqtt.Client | None = None

    @classmethod
    def problems(cls, options: MqttSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = connection_problems(options)
        problem = _topic_problem(options.topic)
        if problem:
            found["topic"] = problem
        if options.qos not in {0, 1, 2}:
            found["qos"] = f"must be 0, 1 or 2, not {options.qos}"
        return found

    async def check(self) -> None:
        """Connect, with an identifier that the MQTT broker chooses."""
        await check_connection(self.options)

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        import aiomqtt  # noqa: PLC0415

        self._client = None
        connection, self._connection = self._connection, AsyncExitStack()
        # It may be broken.
        with suppress(aiomqtt.MqttError):
            await connection.aclose()

    async def write(self, messages: Sequence[Message]) -> None:
        """Publish *messages*; on return the MQTT broker has acknowledged them."""
        import aiomqtt  # noqa: PLC0415

        options: MqttSinkOptions = self.options
        try:
            if self._client is None:
                self._client = await self._connection.enter_async_context(
                    mqtt_client(
                        options,
                        identifier=options.client_id,
                        max_inflight_messages=IN_FLIGHT_MAX,
                        max_queued_outgoing_messages=0,
                    )
                )
            rejected = await self._publish(self._client, messages)
        except* aiomqtt.MqttError as group:
            await self._disconnect()
            error = group.exceptions[0]
            raise Transient(f"{options.address}: {error}") from error
        if rejected:
            raise Rejected(rejected)

    async def _publish(
        self, client: aiomqtt.Client, messages: Sequence[Message]
    ) -> dict[int, str]:
        """Publish *messages* in their order; return why some cannot be published."""
        options: MqttSinkOptions = self.options
        rejected = {}
        async with asyncio.TaskGroup() as tasks:
            for number, message in enumerate(messages):
                topic = render(options.topic, message)
                problem = _topic_problem(topic)
                if problem:
                    rejected[number] = f"the MQTT topic {topic!r} {problem}"
                    continue
                # Tasks begin in their order, and hand over the message at once.
                tasks.create_task(
                    client.publish(
                        topic,
                        message.payload,
                        qos=options.qos,
                        retain=options.retain,
                        properties=_properties(message, options.version),
                    )
                )
        return rejected


def _topic_problem(topic: str) -> str | None:
    if not topic:
        return "must not be empty"
    if set(topic) & set("+#\0"):
        return "must not have '+', '#' or a zero"
    if len(topic.encode()) > TOPIC_BYTES_MAX:
        return f"is longer than {TOPIC_BYTES_MAX:,} bytes"
    return None


def _properties(message: Message, version: Version) -> Any:
    if version is not Version.V5 or not message.attributes:
        return None
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    make: Any = Properties
    properties = make(PacketTypes.PUBLISH)
    properties.UserProperty = list(message.attributes.items())
    return properties
