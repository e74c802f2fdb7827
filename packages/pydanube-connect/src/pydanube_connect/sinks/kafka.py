"""A sink that publishes messages to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.kafka_records import TOMBSTONE, headers_of
from pydanube_connect.connector import Sink
from pydanube_connect.kafka_options import (
    NOT_IN_NAMES,
    REQUEST_S,
    KafkaConnection,
    failure_of,
    problems_of,
    settings_of,
)
from pydanube_connect.option_problems import duration_problems
from pydanube_connect.pure.failures import Rejected

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer  # An extra.

REJECTIONS = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG"})
"""Errors of single messages, which would occur again."""


class KafkaSinkOptions(KafkaConnection, frozen=True, kw_only=True):
    """The options of ``KafkaSink``."""

    topic: Annotated[
        str,
        Meta(
            description="The topic of Kafka, in which `{topic}` stands for the name of "
            "the message's topic without its namespace."
        ),
    ]
    timeout: Annotated[
        str, Meta(description="How long Kafka may take to store a batch.")
    ] = "30s"


class KafkaSink(Sink):
    """
    Publishes messages to Kafka, with their keys, and their attributes as headers.

    Delivery: at least once. Messages with the same key keep their order.
    """

    Options = KafkaSinkOptions
    extra = "kafka-connectors"

    def __init__(self, options: KafkaSinkOptions) -> None:
        super().__init__(options)
        self._producer: Producer

    @classmethod
    def problems(cls, options: KafkaSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = problems_of(options)
        if not options.topic or NOT_IN_NAMES.search(
            options.topic.replace("{topic}", "t")
        ):
            found["topic"] = "has letters, digits, '.', '_', '-' and {topic}"
        return found | duration_problems(options, "timeout")

    async def __aenter__(self) -> Self:
        """Create the producer, which connects when it is used."""
        from confluent_kafka import Producer  # noqa: PLC0415

        options: KafkaSinkOptions = self.options
        milliseconds = int(parse_duration(options.timeout) * 1000)
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "delivery.timeout.ms": milliseconds,
                "linger.ms": 5,
                # Keys have the same partition as with Java's clients.
                "partitioner": "murmur2_random",
                **settings_of(options),
            }
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Forget what was not sent; it comes again."""
        self._producer.purge()
        await asyncio.to_thread(self._producer.flush, 1.0)

    async def check(self) -> None:
        """Ask Kafka for the topic, if its name is fixed."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        name = None if "{" in self.options.topic else self.options.topic
        try:
            await asyncio.to_thread(self._producer.list_topics, name, REQUEST_S)
        except KafkaException as error:
            text = f"Kafka at {self.options.servers}"
            raise failure_of(error.args[0], text) from error

    async def write(self, messages: Sequence[Message]) -> None:
        """Publish *messages*; on return Kafka has stored them."""
        errors: dict[int, KafkaError] = {}
        await asyncio.to_thread(self._write, messages, errors)
        servers = self.options.servers
        for error in errors.values():
            if error.name() not in REJECTIONS:
                raise failure_of(error, f"Kafka at {servers}")
        if errors:
            raise Rejected({number: each.str() for number, each in errors.items()})

    def _write(
        self, messages: Sequence[Message], errors: dict[int, KafkaError]
    ) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        for number, message in enumerate(messages):
            name = message.topic.rpartition("/")[2]
            while True:
                try:
                    self._producer.produce(
                        self.options.topic.replace("{topic}", name),
                        value=_value_of(message),
                        key=message.key_bytes,
                        headers=list(headers_of(message.attributes)),
                        timestamp=int(message.publish_time.timestamp() * 1000),
                        on_delivery=partial(_note, errors, number),
                    )
                except BufferError:
                    # The queue of the producer is full.
                    self._producer.poll(0.1)
                except KafkaException as error:
                    errors[number] = error.args[0]
                    break
                else:
                    break
        # Messages that are not stored in time get an error.
        self._producer.flush()


def _value_of(message: Message) -> bytes | None:
    """Return the value; null deletes a key, as an empty message with a key does."""
    deletes = message.key_bytes is not None or TOMBSTONE in message.attributes
    return None if deletes and not message.payload else message.payload


def _note(
    errors: dict[int, KafkaError], number: int, error: KafkaError | None, _: Any
) -> None:
    if error is not None:
        errors[number] = error
