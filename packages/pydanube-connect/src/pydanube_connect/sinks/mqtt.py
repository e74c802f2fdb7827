"""A sink that publishes messages to an MQTT broker, 3.1.1 or 5."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.connector import Sink
from pydanube_connect.mqtt_connection import (
    MqttConnection,
    Version,
    check_connection,
    connection_problems,
    mqtt_client,
)
from pydanube_connect.pure.failures import ConnectorFailed, Rejected, Transient
from pydanube_connect.sinks.templates import render

if TYPE_CHECKING:
    import aiomqtt  # An extra.

TOPIC_BYTES_MAX = 65_535
IN_FLIGHT_MAX = 200
"""How many messages the MQTT broker has not acknowledged."""
CONFIRM_S = 30.0
"""How long the MQTT broker may take to acknowledge a batch."""
SHOWN_MAX = 100
REFUSED_MIN = 0x80
"""Reason codes from here on say that a message is refused."""
BUSY = frozenset({0x80, 0x83, 0x91, 0x97})
"""Those after which the same message may be accepted later."""
NOT_AUTHORIZED = 0x87


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

    Attributes that MQTT cannot have, such as control characters, are left out.

    Delivery: at least once with QoS 1 and 2. Messages of an MQTT topic keep their
    order.
    """

    Options = MqttSinkOptions
    extra = "mqtt-connectors"

    def __init__(self, options: MqttSinkOptions) -> None:
        super().__init__(options)
        self._connection = AsyncExitStack()
        self._publisher: _Publisher | None = None

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

        self._publisher = None
        connection, self._connection = self._connection, AsyncExitStack()
        # It may be broken.
        with suppress(aiomqtt.MqttError):
            await connection.aclose()

    async def write(self, messages: Sequence[Message]) -> None:
        """Publish *messages*; on return the MQTT broker has acknowledged them."""
        import aiomqtt  # noqa: PLC0415

        options: MqttSinkOptions = self.options
        try:
            if self._publisher is None:
                client = await self._connection.enter_async_context(
                    mqtt_client(
                        options,
                        identifier=options.client_id,
                        max_inflight_messages=IN_FLIGHT_MAX,
                        max_queued_outgoing_messages=0,
                    )
                )
                self._publisher = _Publisher(client)
            rejected = await self._publish(self._publisher, messages)
        except (aiomqtt.MqttError, TimeoutError) as error:
            await self._disconnect()
            reason = str(error) or "it does not acknowledge the messages"
            raise Transient(f"{options.address}: {reason}") from error
        except BaseException:
            await self._disconnect()
            raise
        if rejected:
            raise Rejected(rejected)

    async def _publish(
        self, publisher: _Publisher, messages: Sequence[Message]
    ) -> dict[int, str]:
        """Publish *messages* in their order; return why some cannot be published."""
        options: MqttSinkOptions = self.options
        rejected = {}
        waiting: dict[int, asyncio.Future[int]] = {}
        for number, message in enumerate(messages):
            topic = render(options.topic, message)
            problem = _topic_problem(topic)
            if problem:
                rejected[number] = f"the MQTT topic {topic[:SHOWN_MAX]!r} {problem}"
                continue
            waiting[number] = publisher.publish(
                topic,
                message.payload,
                qos=options.qos,
                retain=options.retain,
                properties=_properties(message, options.version),
            )
        async with asyncio.timeout(CONFIRM_S):
            for number, answer in waiting.items():
                problem = self._problem_of(await answer)
                if problem:
                    rejected[number] = problem
        return rejected

    def _problem_of(self, code: int) -> str | None:
        """
        Return why the MQTT broker refuses a message, from the reason *code*; or None.

        Raises:
            Transient, ConnectorFailed: The message is not the reason.
        """
        options: MqttSinkOptions = self.options
        if code < REFUSED_MIN:
            return None
        text = f"{options.address} refuses the message with the reason {code:#x}"
        if code in BUSY:
            raise Transient(text)
        if code == NOT_AUTHORIZED and "{" not in options.topic:
            raise ConnectorFailed(f"{text}: it does not allow the topic")
        return text


class _Publisher:
    """
    Publishes messages, and reports the reason codes of the answers.

    ``aiomqtt`` itself takes a message for published that the MQTT broker has refused.
    """

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client._client  # noqa: SLF001
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._client.on_publish = self._on_publish

    def publish(
        self, topic: str, payload: bytes, **options: Any
    ) -> asyncio.Future[int]:
        """Send a message; the future has the reason code of the answer."""
        import aiomqtt  # noqa: PLC0415

        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        info = self._client.publish(topic, payload, **options)
        if info.rc:
            raise aiomqtt.MqttCodeError(info.rc, "the message is not sent")
        if info.is_published():
            answer.set_result(0)
        else:
            self._waiting[info.mid] = answer
        return answer

    def _on_publish(self, _: Any, __: Any, mid: int, code: Any, ___: Any) -> None:
        answer = self._waiting.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result(code.value)


def _topic_problem(topic: str) -> str | None:
    if not topic:
        return "must not be empty"
    if len(topic.encode()) > TOPIC_BYTES_MAX:
        return f"is longer than {TOPIC_BYTES_MAX:,} bytes"
    if set(topic) & set("+#"):
        return "must not have '+' or '#'"
    if topic.startswith("$"):
        return "must not begin with '$', which is for the MQTT broker itself"
    if not is_mqtt_text(topic):
        return "must not have control characters"
    return None


def _properties(message: Message, version: Version) -> Any:
    if version is not Version.V5 or not message.attributes:
        return None
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    make: Any = Properties
    properties = make(PacketTypes.PUBLISH)
    properties.UserProperty = [
        each for each in message.attributes.items() if all(map(is_mqtt_text, each))
    ]
    return properties


def is_mqtt_text(text: str) -> bool:
    """
    Return whether MQTT can have *text*.

    An MQTT broker may close the connection if it gets another one.
    """
    # Control characters, halves of characters and code points that are none.
    return len(text.encode(errors="replace")) <= TOPIC_BYTES_MAX and not any(
        unicodedata.category(each) in {"Cc", "Cs"} or ord(each) & 0xFFFE == 0xFFFE
        for each in text
    )
