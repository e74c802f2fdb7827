"""
A producer of values: it writes them as its schema says, and says which one it was.

What a batch was written with stands in its header, so a producer has one version of
one subject for its whole life.  That is found, or registered, before it is opened.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydanube.client.batching import check_attributes, to_bytes
from pydanube.client.partitioned_producer import open_producer
from pydanube.client.schema import Schema
from pydanube.client.schemas import Schemas, schema_of, subject_of
from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    InvalidPayload,
    InvalidRequest,
    SchemaNotFound,
    TopicNotFound,
)
from pydanube.model.names import parse_subject
from pydanube.model.schemas import ProducerSchema, SchemaReference
from pydanube.schemas.language import reason_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Unpack

    from pydanube.client.batching import DeliveryOptions
    from pydanube.client.messages import MessageId, MessageIds
    from pydanube.client.partitioned_producer import PartitionedProducer
    from pydanube.client.pending import Pending
    from pydanube.client.producer import BatchData, Producer
    from pydanube.client.producer_options import ProducerOptions
    from pydanube.client.topics import TopicRequests
    from pydanube.model.schemas import SchemaVersion
    from pydanube.schemas.language import Encoder

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions(Generic[T]):
    """What a producer is to write."""

    schema: Schema[T] | None
    """None: whatever the subject has."""
    subject: str | None
    """None: what the topic is bound to, or the subject that is named like it."""
    version: int | None
    """None: the one that *schema* is, or without one the latest."""
    version_min: int | None


class TypedProducer(Generic[T]):
    """
    A producer of values; made by ``Client.producer`` where it gets a schema.

    A value that does not keep to the schema is refused with ``InvalidPayload``, and
    nothing of its batch is sent.  Otherwise as ``Producer``.
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
        """What is written: which version of which subject."""
        self._producer = producer
        self._encode = encode

    async def send(
        self,
        value: T,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        """
        Publish one value and return the message's id.

        Args, Durability, Cancellation: As ``Producer.send``.

        Raises:
            InvalidPayload: The value does not keep to the schema.
            BrokerError: As ``Producer.send``.
        """
        payload = self._payload(value)
        return await self._producer.send(
            payload, key=key, attributes=attributes, **delivery
        )

    def send_nowait(
        self,
        value: T,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        """
        Publish one value soon, together with others; await the result for its id.

        Args, Raises: As ``send`` and ``Producer.send_nowait``.
        """
        payload = self._payload(value)
        return self._producer.send_nowait(
            payload, key=key, attributes=attributes, **delivery
        )

    async def send_batch(
        self,
        values: Sequence[T],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        attributes: Sequence[Mapping[str, str] | None] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageIds:
        """
        Publish many values and return the messages' ids, in their order.

        Args:
            values: What to write.
            keys: The key of each, if they have some.
            attributes: The attributes of each, if they have some.
            delivery: As for ``send``, for all of them.

        Durability, Cancellation: As ``Producer.send_batch``.

        Raises:
            InvalidPayload: A value does not keep to the schema; its index is named,
                and nothing was sent.
            BrokerError: As ``Producer.send_batch``.
        """
        payloads = self._encode(values)
        for what, given in (("keys", keys), ("attributes", attributes)):
            if given is not None and len(given) != len(payloads):
                raise InvalidRequest(f"{len(given)} {what} for {len(payloads)} values")
        if not payloads or (keys is None and attributes is None):
            return await self._producer.send_batch(payloads, **delivery)
        encoded = None
        if keys is not None:
            encoded = [None if key is None else to_bytes("key", key) for key in keys]
        for each in attributes or ():
            check_attributes(each or {})
        return await self._producer.send_batch(
            batch_of(payloads, keys=encoded, attributes=attributes), **delivery
        )

    async def send_encoded(
        self, messages: BatchData, **delivery: Unpack[DeliveryOptions]
    ) -> MessageIds:
        """
        Publish payloads that are of the schema already; nobody looks at them here.

        Args, Durability, Cancellation, Raises: As ``Producer.send_batch``.
        """
        return await self._producer.send_batch(messages, **delivery)

    async def flush(self) -> None:
        """
        Wait until everything that was sent is acknowledged.

        Raises:
            BrokerError: What a message that nobody awaited has run into.
        """
        await self._producer.flush()

    @property
    def is_connected(self) -> bool:
        """Whether the broker has the producer open at the moment."""
        return self._producer.is_connected

    @property
    def has_capacity(self) -> bool:
        """Whether ``send_nowait`` takes a message at the moment."""
        return self._producer.has_capacity

    async def wait_for_capacity(self) -> None:
        """Wait until ``send_nowait`` takes a message."""
        await self._producer.wait_for_capacity()

    @property
    def pending_count(self) -> int:
        """How many messages are not acknowledged yet."""
        return self._producer.pending_count

    def _payload(self, value: T) -> bytes:
        try:
            [payload] = self._encode([value])
        except InvalidPayload as error:
            raise InvalidPayload(reason_of(error)) from error
        return payload


@asynccontextmanager
async def open_typed_producer(
    client: TopicRequests,
    topic: str,
    options: ProducerOptions,
    *,
    partitions: int | None,
    schema_options: SchemaOptions[T],
) -> AsyncIterator[TypedProducer[T]]:
    """A producer of values for whatever *topic* is, open while the body runs."""
    client.require(2, "schemas")
    version = await _resolve_version(client, topic, schema_options)
    cls = None if schema_options.schema is None else schema_options.schema.cls
    # A definition takes its time, and a compiler even a process.
    encode = await asyncio.to_thread(_encoder_of, schema_of(version, cls))
    chosen = ProducerSchema(
        reference=SchemaReference(
            subject=version.subject,
            version=version.version,
            version_min=schema_options.version_min,
        ),
        schema_id=version.schema_id,
        version=version.version,
    )
    options = replace(options, schema=chosen)
    async with open_producer(client, topic, options, partitions) as producer:
        yield TypedProducer(producer, encode, version)


async def _resolve_version(
    client: TopicRequests, topic: str, schema_options: SchemaOptions[Any]
) -> SchemaVersion:
    """
    The version that is to be written, which is registered if it is new.

    Raises:
        SchemaNotFound: There is no such subject or version.
        IncompatibleSchema: It does not go with the versions that are there.
    """
    schemas = Schemas(client)
    subject = schema_options.subject or await _default_subject(client, topic)
    if schema_options.version is not None:
        version = await schemas.get(subject, schema_options.version)
    elif schema_options.schema is None:
        version = await schemas.latest(subject)
    else:
        version = await schemas.register(subject, schema_options.schema)
    if version.version < (schema_options.version_min or 0):
        raise SchemaNotFound(
            f"Schema not found: what is to be written is version {version.version} of "
            f"{subject}, and {schema_options.version_min} or a later one is wanted"
        )
    return version


async def _default_subject(client: TopicRequests, topic: str) -> str:
    try:
        bound = await Schemas(client).topic_schema(topic)
    except TopicNotFound:
        bound = None
    return parse_subject(subject_of(topic)) if bound is None else bound.subject


def _encoder_of(schema: Schema[Any]) -> Encoder:
    from pydanube.schemas.value_codecs import value_encoder  # noqa: PLC0415  # As needed.

    return value_encoder(schema.parse(), schema.cls)
