"""
A source of MQTT messages, 3.1.1 or 5.

A message with QoS 1 is acknowledged after it is on the broker's disk.  The session has
the name ``client_id`` and outlives connections: the MQTT broker keeps what arrives
meanwhile, and sends again what was not acknowledged.  Subscriptions have QoS 1 at most,
because the client library keeps messages of QoS 2 in memory only after it has promised
not to lose them; a message that was published with QoS 2 arrives with QoS 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube_connect.channel import take_arrived
from pydanube_connect.connector import Source
from pydanube_connect.mqtt_connection import (
    MqttConnection,
    Version,
    check_connection,
    connection_problems,
    mqtt_client,
)
from pydanube_connect.option_problems import duration_problems
from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.records import Batch, Record, Refusals
from pydanube_connect.sources.pure.mqtt_topics import MqttFilter, MqttTopics

if TYPE_CHECKING:
    import aiomqtt  # An extra.

log = logging.getLogger("pydanube_connect")

QUEUED_MAX = 10_000
"""How many messages wait; further ones of QoS 0 are dropped."""
BATCH_MESSAGES_MAX = 1000


class MqttOptions(MqttConnection, frozen=True, kw_only=True):
    """The options of ``MqttSource``."""

    client_id: Annotated[
        str,
        Meta(
            description="Names the session at the MQTT broker; no other client may "
            "have it."
        ),
    ]
    filters: Annotated[
        dict[str, str | None],
        Meta(
            description="The filters of MQTT topics, each with the topic to publish "
            "to, in which `{1}` stands for the level of the first `+`; empty: the "
            "topic of the connector. The first filter that matches counts."
        ),
    ]
    qos: Annotated[
        int, Meta(description="The quality of service of the subscriptions: 0 or 1.")
    ] = 1
    session_expiry: Annotated[
        str,
        Meta(
            description="How long the MQTT broker keeps the session without a "
            "connection; only version 5."
        ),
    ] = "7d"
    in_flight: Annotated[
        int,
        Meta(
            description="How many messages of QoS 1 the MQTT broker may send before "
            "they are acknowledged; only version 5."
        ),
    ] = 1000


class MqttSource(Source):
    """
    Subscribes to MQTT topics, and acknowledges messages when they are on disk.

    Delivery: at least once with QoS 1, at most once with QoS 0.
    """

    Options = MqttOptions
    extra = "mqtt-connectors"
    has_positions = False

    @classmethod
    def problems(cls, options: MqttOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        for text, target in options.filters.items():
            try:
                MqttFilter(text, target or None)
            except (InvalidConfig, InvalidName) as error:
                found["filters"] = str(error)
        if not options.filters:
            found["filters"] = "has no filter, such as 'sensors/#'"
        if not options.client_id:
            found["client_id"] = "must not be empty"
        if options.qos not in {0, 1}:
            found["qos"] = f"must be 0 or 1, not {options.qos}"
        if not 1 <= options.in_flight <= 65535:
            found["in_flight"] = "must be 1 to 65535"
        found |= duration_problems(options, "session_expiry")
        return found | connection_problems(options)

    async def check(self) -> None:
        """Connect, with an identifier that the MQTT broker chooses."""
        await check_connection(self.options)

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Connect, subscribe, and yield what arrives."""
        import aiomqtt  # noqa: PLC0415

        del position
        options: MqttOptions = self.options
        topics = MqttTopics(
            {text: target or None for text, target in options.filters.items()}
        )
        queue = _Incoming()
        client = _client(options, queue)
        try:
            async with client:
                await _subscribe(client, options, topics.subscriptions)
                async for message in client.messages:
                    messages = [message]
                    messages += await take_arrived(queue, BATCH_MESSAGES_MAX)
                    yield Batch(
                        [_record(each, topics) for each in messages],
                        on_stored=partial(_acknowledge, client, messages),
                    )
        except aiomqtt.MqttError as error:
            raise Transient(f"{options.address}: {error}") from error


class _Incoming(asyncio.Queue["aiomqtt.Message"]):
    """
    The messages that wait to be published.

    The MQTT broker limits those of QoS 1, because they are not acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dropped = 0

    def put_nowait(self, item: aiomqtt.Message) -> None:
        if item.qos == 0 and self.qsize() >= QUEUED_MAX:
            self._dropped += 1
            if self._dropped.bit_count() == 1:
                log.warning("%d messages of QoS 0 are dropped", self._dropped)
            return
        super().put_nowait(item)


def _client(options: MqttOptions, queue: _Incoming) -> aiomqtt.Client:
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    if options.version is Version.V5:
        make: Any = Properties
        properties = make(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = int(parse_duration(options.session_expiry))
        properties.ReceiveMaximum = options.in_flight
        session = {"clean_start": False, "properties": properties}
    else:
        session = {"clean_session": False}
    client = mqtt_client(
        options,
        identifier=options.client_id,
        queue_type=lambda **_: queue,
        **session,
    )
    # Before it connects: a session resumes at once.  aiomqtt has no option for it.
    client._client.manual_ack_set(on=True)  # noqa: SLF001
    return client


async def _subscribe(
    client: aiomqtt.Client, options: MqttOptions, filters: Sequence[str]
) -> None:
    import aiomqtt  # noqa: PLC0415
    from paho.mqtt.subscribeoptions import SubscribeOptions  # noqa: PLC0415

    for text in filters:
        if options.version is Version.V5:
            # Retained messages come with the first subscription of the session only.
            chosen = SubscribeOptions(
                qos=options.qos,
                retainAsPublished=True,
                retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
            )
            answers: Any = await client.subscribe(text, options=chosen)
        else:
            answers = await client.subscribe(text, qos=options.qos)
        for each in answers:
            if getattr(each, "value", each) >= 0x80:
                raise aiomqtt.MqttError(f"it refuses the filter {text}: {each}")


def _acknowledge(
    client: aiomqtt.Client, messages: list[aiomqtt.Message], _: Refusals
) -> None:
    for each in messages:
        if each.qos:
            client._client.ack(each.mid, each.qos)  # noqa: SLF001


def _record(message: aiomqtt.Message, topics: MqttTopics) -> Record:
    name = str(message.topic)
    attributes = {
        "mqtt.topic": name,
        "mqtt.qos": str(message.qos),
        "mqtt.retain": str(message.retain).lower(),
    }
    if message.properties is not None:
        properties: Any = message.properties
        found: dict[str, Any] = properties.json()
        for field, attribute in (
            ("ContentType", "mqtt.content_type"),
            ("ResponseTopic", "mqtt.response_topic"),
        ):
            if field in found:
                attributes[attribute] = found[field]
        for user_name, value in found.get("UserProperty", ()):
            attributes[f"mqtt.user.{user_name}"] = value
    return Record(
        value=message.payload,
        key=name,
        attributes=attributes,
        topic=topics.topic_of(name),
    )
