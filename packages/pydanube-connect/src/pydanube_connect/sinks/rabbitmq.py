"""A sink that publishes messages to an exchange of RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.connector import Sink
from pydanube_connect.pure.failures import Rejected
from pydanube_connect.rabbitmq_connection import (
    RabbitmqConnection,
    connection_problems,
    rabbitmq_channel,
    translated,
)
from pydanube_connect.sinks.templates import render

if TYPE_CHECKING:
    from aio_pika.abc import AbstractExchange  # An extra.

CONFIRM_S = 30.0
SHORT_TEXT_BYTES_MAX = 255
"""The maximum size of routing keys and of the names of headers."""
HEADERS_BYTES_MAX = 96 * 1024
"""All headers are in one frame, of 128 KiB by default."""


class RabbitmqSinkOptions(RabbitmqConnection, frozen=True, kw_only=True):
    """The options of ``RabbitmqSink``."""

    exchange: Annotated[
        str,
        Meta(
            description="The exchange, which exists; empty: the default one, whose "
            "routing keys are names of queues."
        ),
    ] = ""
    routing_key: Annotated[
        str,
        Meta(
            description="The routing key, in which `{topic}` stands for the name of "
            "the message's topic without its namespace, `{key}` for its key."
        ),
    ]


class RabbitmqSink(Sink):
    """
    Publishes messages to an exchange of RabbitMQ, with their attributes as headers.

    Delivery: at least once, in the order of the topic; a repeated message has the same
    `message_id`. RabbitMQ confirms each message, and returns those that no queue gets.
    """

    Options = RabbitmqSinkOptions
    extra = "rabbitmq"

    def __init__(self, options: RabbitmqSinkOptions) -> None:
        super().__init__(options)
        self._connection = AsyncExitStack()
        self._exchange: AbstractExchange | None = None

    @classmethod
    def problems(cls, options: RabbitmqSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = connection_problems(options)
        if not options.routing_key and not options.exchange:
            found["routing_key"] = "must not be empty for the default exchange"
        return found

    async def check(self) -> None:
        """Connect, and look for the exchange, or for the queue of a fixed name."""
        options: RabbitmqSinkOptions = self.options
        async with rabbitmq_channel(options) as channel:
            if options.exchange:
                await channel.get_exchange(options.exchange)
            elif "{" not in options.routing_key:
                await channel.get_queue(options.routing_key)

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        self._exchange = None
        connection, self._connection = self._connection, AsyncExitStack()
        await connection.aclose()

    async def write(self, messages: Sequence[Message]) -> None:
        """Publish *messages*; on return RabbitMQ has confirmed them."""
        try:
            async with translated(self.options):
                if self._exchange is None:
                    self._exchange = await self._open()
                rejected = await self._publish(self._exchange, messages)
        except BaseException:
            await self._disconnect()
            raise
        if rejected:
            raise Rejected(rejected)

    async def _open(self) -> AbstractExchange:
        channel = await self._connection.enter_async_context(
            rabbitmq_channel(self.options, on_return_raises=True)
        )
        if self.options.exchange:
            return await channel.get_exchange(self.options.exchange)
        return channel.default_exchange

    async def _publish(
        self, exchange: AbstractExchange, messages: Sequence[Message]
    ) -> dict[int, str]:
        """Publish *messages* in their order; return why some cannot be published."""
        from aio_pika.exceptions import PublishError  # noqa: PLC0415

        rejected: dict[int, str] = {}

        async def publish(number: int, message: Message, key: str) -> None:
            try:
                await exchange.publish(_to_amqp(message), key, timeout=CONFIRM_S)
            except PublishError:
                rejected[number] = (
                    f"no queue gets messages with the routing key {key!r}"
                )

        try:
            async with asyncio.TaskGroup() as tasks:
                for number, message in enumerate(messages):
                    key = render(self.options.routing_key, message)
                    problem = _problem_of(message, key)
                    if problem:
                        rejected[number] = problem
                        continue
                    # Tasks begin in their order, and hand over the message at once.
                    tasks.create_task(publish(number, message, key))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        return rejected


def _problem_of(message: Message, key: str) -> str | None:
    """Return why RabbitMQ cannot get *message*; it would close the connection."""
    if len(key.encode()) > SHORT_TEXT_BYTES_MAX:
        return "its routing key is longer than 255 bytes"
    size = 0
    for name, value in message.attributes.items():
        if len(name.encode()) > SHORT_TEXT_BYTES_MAX:
            return f"the name of the attribute {name[:100]!r} is longer than 255 bytes"
        size += len(name.encode()) + len(value.encode())
    if size > HEADERS_BYTES_MAX:
        return f"its attributes have more than {HEADERS_BYTES_MAX:,} bytes"
    return None


def _to_amqp(message: Message) -> Any:
    from aio_pika import DeliveryMode  # noqa: PLC0415
    from aio_pika import Message as AmqpMessage  # noqa: PLC0415

    topic, offset = message.id
    return AmqpMessage(
        message.payload,
        headers=dict(message.attributes),
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=f"{topic}:{offset}",
        timestamp=message.publish_time,
    )
