"""
A producer of values, which it encodes by a version of a schema.

The header of a batch names the version, so a producer has one version of one subject
for its whole life.  The client looks it up, or registers it, before it opens the
producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, Unpack

from pydanube.aio.async_scopes import async_scope
from pydanube.client.connections.requester import Requester
from pydanube.client.messages.messages import MessageId, MessageIds
from pydanube.client.messages.options import ProducerOptions
from pydanube.client.messages.schema import Schema, schema_of
from pydanube.client.operations.schemas import Schemas, subject_of
from pydanube.client.producers.partitioned_producer import (
    PartitionedProducer,
    open_producer,
)
from pydanube.client.producers.producer import BatchData, Pending, Producer
from pydanube.client.pure.batching import (
    DeliveryOptions,
    Keys,
    ManyAttributes,
    SendOptions,
    check_are_many,
)
from pydanube.model.errors import (
    InvalidPayload,
    SchemaNotFound,
    TopicNotFound,
)
from pydanube.model.names import parse_subject
from pydanube.model.schemas import ProducerSchema, SchemaReference, SchemaVersion
from pydanube.schemas.language import Encoder, reason_of

T = TypeVar("T")


class TypedProducer(Generic[T]):
    """
    A producer of values; made by ``Client.producer`` with a schema or a subject.

    A value that does not conform to the schema raises ``InvalidPayload``, and nothing
    of its batch is sent.  Otherwise as ``Producer``.
    """

    def __init__(
        self,
        producer: Producer | PartitionedProducer,
        encode: Encoder,
        version: SchemaVersion,
    ) -> None:
        self.topic = producer.topic
        self.name = producer.name
        self.schema = version
        """The version of the subject that values are written with."""
        self._producer = producer
        self._encode = encode

    async def send(self, value: T, **options: Unpack[SendOptions]) -> MessageId:
        """
        Publish one value and return the message's id.

        Args, Durability, Cancellation: As ``Producer.send``.

        Raises:
            InvalidPayload: The value does not conform to the schema.
            BrokerError: As ``Producer.send``.
        """
        return await self._producer.send(self._payload(value), **options)

    def send_nowait(self, value: T, **options: Unpack[SendOptions]) -> Pending:
        """
        Publish one value soon, together with others; await the result for its id.

        Args, Raises: As ``send`` and ``Producer.send_nowait``.
        """
        return self._producer.send_nowait(self._payload(value), **options)

    async def send_batch(
        self,
        values: Sequence[T],
        *,
        keys: Keys = None,
        attributes: ManyAttributes = None,
        ids: Sequence[str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageIds:
        """
        Publish many values and return the messages' ids, in their order.

        Args:
            values: The values to publish.
            keys: The key of each value, if any.
            attributes: The attributes of each value, if any.
            ids: The id of each message, as for ``Producer.send_batch``.
            delivery: As for ``send``, for all of them.

        Durability, Cancellation: As ``Producer.send_batch``.

        Raises:
            InvalidPayload: A value does not conform to the schema; the error names its
                index, and nothing was sent.
            BrokerError: As ``Producer.send_batch``.
        """
        check_are_many("send_batch", "values", values)
        payloads = self._encode(values)
        return await self._producer.send_batch(
            payloads, keys=keys, attributes=attributes, ids=ids, **delivery
        )

    async def send_encoded(
        self,
        messages: BatchData,
        *,
        ids: Sequence[str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageIds:
        """
        Publish payloads that are already encoded by the schema, without checks.

        Args, Durability, Cancellation, Raises: As ``Producer.send_batch``.
        """
        return await self._producer.send_batch(messages, ids=ids, **delivery)

    async def flush(self) -> None:
        """
        Wait until all messages are acknowledged.

        Raises:
            BrokerError: A message that nobody awaited has failed.
        """
        await self._producer.flush()

    @property
    def is_connected(self) -> bool:
        """True if the channel is open at the moment."""
        return self._producer.is_connected

    @property
    def has_capacity(self) -> bool:
        """True if ``send_nowait`` accepts a message at the moment."""
        return self._producer.has_capacity

    async def wait_for_capacity(self) -> None:
        """Wait until ``send_nowait`` accepts a message."""
        await self._producer.wait_for_capacity()

    @property
    def pending_count(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return self._producer.pending_count

    def _payload(self, value: T) -> bytes:
        try:
            [payload] = self._encode([value])
        except InvalidPayload as error:
            raise InvalidPayload(reason_of(error)) from error
        return payload


@async_scope
async def open_typed_producer(
    client: Requester,
    topic: str,
    options: ProducerOptions,
    partitions: int | None,
    *,
    schema: Schema[T] | None,
    subject: str | None,
    version: int | None,
    version_min: int | None,
) -> AsyncIterator[TypedProducer[T]]:
    """
    Open a producer of values for a topic while the body runs.

    Without a *subject*, values are written with the subject that the topic is bound
    to, or the topic's default subject; without a *version*, with that of *schema*, or
    the latest if there is no *schema*.
    """
    schemas = Schemas(client)
    subject = subject or await default_subject(schemas, topic)
    if version is not None:
        found = await schemas.get(subject, version)
    elif schema is None:
        found = await schemas.latest(subject)
    else:
        found = await schemas.register(subject, schema)
    if found.version < (version_min or 0):
        raise SchemaNotFound(
            f"Schema not found: the version to write is {found.version} of {subject}, "
            f"and schema_version_min is {version_min}"
        )
    cls = None if schema is None else schema.cls
    # Parsing may take a while, and may need a process for a compiler.
    encode = await asyncio.to_thread(encoder_of, schema_of(found, cls))
    chosen = ProducerSchema(
        reference=SchemaReference(
            subject=found.subject,
            version=found.version,
            version_min=version_min,
        ),
        schema_id=found.schema_id,
        version=found.version,
    )
    options = replace(options, schema=chosen)
    async with open_producer(client, topic, options, partitions) as producer:
        yield TypedProducer(producer, encode, found)


async def default_subject(schemas: Schemas, topic: str) -> str:
    """Return the subject that *topic* is bound to, or the one of its name."""
    try:
        bound = await schemas.topic_schema(topic)
    except TopicNotFound:
        bound = None
    return parse_subject(subject_of(topic)) if bound is None else bound.subject


def encoder_of(schema: Schema[Any]) -> Encoder:
    """Return the function that encodes values by *schema*; it may take a while."""
    from pydanube.schemas.value_codecs import value_encoder  # noqa: PLC0415  # As needed.

    return value_encoder(schema.parse(), schema.cls)
