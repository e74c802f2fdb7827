"""A source of messages in queues of RabbitMQ, acknowledged when they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube_connect.channel import take_arrived
from pydanube_connect.connector import Source
from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.records import Batch, Record, Refusals
from pydanube_connect.rabbitmq_connection import (
    RabbitmqConnection,
    connection_problems,
    rabbitmq_channel,
)

if TYPE_CHECKING:
    from aio_pika.abc import AbstractIncomingMessage  # An extra.
    from aiormq.abc import AbstractChannel

BATCH_MESSAGES_MAX = 1000

Received = tuple[str, "AbstractIncomingMessage"]


class RabbitmqOptions(RabbitmqConnection, frozen=True, kw_only=True):
    """The options of ``RabbitmqSource``."""

    queues: Annotated[
        dict[str, str | None],
        Meta(
            description="The queues, which exist, each with the topic to publish to; "
            "empty: the topic of the connector."
        ),
    ]
    prefetch: Annotated[
        int,
        Meta(description="How many messages RabbitMQ sends before they are stored."),
    ] = 5000


class RabbitmqSource(Source):
    """
    Publishes the messages of queues of RabbitMQ; the keys are the routing keys.

    Delivery: at least once; once within the window of `deduplicate`, if the messages
    have a `message_id`.
    """

    Options = RabbitmqOptions
    extra = "rabbitmq"
    has_positions = False

    @classmethod
    def problems(cls, options: RabbitmqOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = connection_problems(options)
        if not options.queues or not all(options.queues):
            found["queues"] = "has no queue, such as 'orders:'"
        for topic in filter(None, options.queues.values()):
            try:
                TopicName.parse(topic)
            except InvalidName as error:
                found["queues"] = str(error)
        if not 1 <= options.prefetch <= 65535:
            found["prefetch"] = "must be 1 to 65535"
        return found

    async def check(self) -> None:
        """Connect, and look for the queues."""
        async with rabbitmq_channel(self.options) as channel:
            for name in self.options.queues:
                await channel.get_queue(name)

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Consume the queues, and yield what arrives."""
        del position
        options: RabbitmqOptions = self.options
        # RabbitMQ limits its size.
        incoming: asyncio.Queue[Received] = asyncio.Queue()
        async with (
            rabbitmq_channel(options, publisher_confirms=False) as channel,
            task_scope() as tasks,
        ):
            await channel.set_qos(prefetch_count=options.prefetch)
            underlay: AbstractChannel = await channel.get_underlay_channel()
            ended = asyncio.get_running_loop().create_future()
            tasks.run(_end_when_closed(underlay, ended))
            underlay.on_consumer_cancel_callbacks.add(partial(_cancelled, ended))
            for name in options.queues:
                queue = await channel.get_queue(name)
                # The tag is how RabbitMQ names the consumer of a deleted queue.
                await queue.consume(partial(_put, incoming, name), consumer_tag=name)
            while True:
                first = tasks.start(incoming.get())
                both: list[asyncio.Future[Any]] = [first, ended]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    raise Transient(ended.result())
                messages = [await first]
                messages += await take_arrived(incoming, BATCH_MESSAGES_MAX)
                yield Batch(
                    [self._record(*each) for each in messages],
                    on_stored=partial(_acknowledge, tasks, underlay, messages),
                )

    def _record(self, queue: str, message: AbstractIncomingMessage) -> Record:
        attributes = {
            name: value.decode(errors="replace")
            if isinstance(value, bytes)
            else str(value)
            for name, value in message.headers.items()
        }
        facts = {
            "rabbitmq.queue": queue,
            "rabbitmq.exchange": message.exchange,
            "rabbitmq.routing_key": message.routing_key,
            "rabbitmq.content_type": message.content_type,
            "rabbitmq.message_id": message.message_id,
            "rabbitmq.correlation_id": message.correlation_id,
        }
        attributes |= {name: value for name, value in facts.items() if value}
        return Record(
            value=message.body,
            key=message.routing_key,
            id=message.message_id,
            attributes=attributes,
            topic=self.options.queues[queue],
        )


async def _put(
    incoming: asyncio.Queue[Received], queue: str, message: AbstractIncomingMessage
) -> None:
    incoming.put_nowait((queue, message))


async def _end_when_closed(
    channel: AbstractChannel, ended: asyncio.Future[str]
) -> None:
    """Set why *channel* is closed, when it is."""
    reason = "RabbitMQ has closed the channel"
    try:
        await asyncio.shield(channel.closing)
    except Exception as error:  # noqa: BLE001  # It is the reason.
        reason += f": {error}"
    if not ended.done():
        ended.set_result(reason)


def _cancelled(ended: asyncio.Future[str], frame: Any) -> None:
    """Set that RabbitMQ has ended a consumer, for example with its queue."""
    if not ended.done():
        ended.set_result(
            f"RabbitMQ does not deliver from the queue {frame.consumer_tag!r} any "
            "more: it was deleted, or its node has failed"
        )


def _acknowledge(
    tasks: TaskScope,
    channel: AbstractChannel,
    messages: Sequence[Received],
    _: Refusals,
) -> None:
    if channel.is_closed:
        return  # They come again.
    # Batches are stored in the order in which their messages came.
    last = messages[-1][1].delivery_tag
    assert last is not None

    async def acknowledge() -> None:
        from aio_pika.exceptions import AMQPError  # noqa: PLC0415

        # They come again if the channel is closed.
        with suppress(AMQPError, OSError):
            await channel.basic_ack(last, multiple=True, wait=False)

    tasks.run(acknowledge())
