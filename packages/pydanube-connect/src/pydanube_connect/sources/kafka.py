"""
A source of Kafka's messages.

The offsets are kept with the messages that are published, not in a consumer group of
Kafka, so each message is published exactly once.  Partitions are assigned by the source
itself: it reads all of them, and finds new ones every ``DISCOVERY_S``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.model.errors import InvalidName
from pydanube.model.kafka_records import attributes_of
from pydanube.model.names import TopicName
from pydanube_connect.connector import Source
from pydanube_connect.kafka_options import (
    NOT_IN_NAMES,
    REQUEST_S,
    KafkaConnection,
    failure_of,
    problems_of,
    settings_of,
)
from pydanube_connect.option_problems import http_problems
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record, RecordSchema
from pydanube_connect.registry_schemas import RegistrySchemas, open_registry_schemas

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message  # An extra.

BATCH_MESSAGES_MAX = 2000
POLL_S = 0.1
DISCOVERY_S = 30.0
PARTITIONS_MAX = 10_000

Offsets = dict[str, dict[str, int]]
"""The next offset of each partition, by topic and number; as a position, in JSON."""


class Start(Enum):
    """The beginning of a partition that was not read before."""

    EARLIEST = "earliest"
    LATEST = "latest"


class MissingOffsets(Enum):
    """The reaction to messages that Kafka has deleted before they were read."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


class KafkaOptions(KafkaConnection, frozen=True, kw_only=True):
    """The options of ``KafkaSource``."""

    topics: Annotated[
        dict[str, str | None],
        Meta(
            description="The topics of Kafka, each with the topic to publish to, in "
            "which `{topic}` stands for its name; empty: the topic of the connector. A "
            "name that begins with `^` is a regular expression."
        ),
    ]
    start: Annotated[
        Start, Meta(description="Where to begin in partitions that are read first.")
    ] = Start.EARLIEST
    missing_offsets: Annotated[
        MissingOffsets,
        Meta(
            description="What to do if Kafka has deleted messages that were not read."
        ),
    ] = MissingOffsets.FAIL
    schema_registry: Annotated[
        str | None,
        Meta(
            description="The URL of the schema registry whose ids values begin with. "
            "Their messages get the schemas instead; by default values keep the ids."
        ),
    ] = None
    schema_registry_username: Annotated[
        str | None, Meta(description="The user name for the registry.")
    ] = None
    schema_registry_password: Annotated[
        str | None, Meta(description="The password for the registry.")
    ] = None


class KafkaSource(Source):
    """
    Reads topics of Kafka, and keeps their offsets with the published messages.

    Delivery: exactly once. Messages of a partition keep their order.
    """

    Options = KafkaOptions
    extra = "kafka-connectors"

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options)
        self._lag: int | None = None

    @classmethod
    def problems(cls, options: KafkaOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = problems_of(options)
        if not options.topics:
            found["topics"] = "has no topic, such as 'orders'"
        for name, target in options.topics.items():
            try:
                re.compile(name)
                if target:
                    TopicName.parse(target.replace("{topic}", "t"))
            except (re.error, InvalidName) as error:
                found["topics"] = f"{name}: {error}"
        if options.schema_registry is not None:
            for text in http_problems(options.schema_registry).values():
                found["schema_registry"] = text
        user, password = (
            options.schema_registry_username,
            options.schema_registry_password,
        )
        if (user is None) != (password is None):
            found["schema_registry_password"] = "goes with a username"  # noqa: S105
        elif user is not None and options.schema_registry is None:
            found["schema_registry_username"] = "needs 'schema_registry'"
        return found

    @classmethod
    def finds_schemas(cls, options: KafkaOptions) -> bool:
        """Return whether values begin with ids of a registry."""
        return options.schema_registry is not None

    def lag(self) -> int | None:
        """Return how many messages wait in Kafka."""
        return self._lag

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the messages after the offsets in *position*."""
        from confluent_kafka import Consumer  # noqa: PLC0415

        options: KafkaOptions = self.options
        loop = asyncio.get_running_loop()
        # The client must not be closed while it is used, also if this is cancelled.
        with (
            ThreadPoolExecutor(1, thread_name_prefix="kafka") as thread,
            _open_schemas(options) as schemas,
        ):
            consumer = Consumer(_consumer_settings(options))
            reader = _Reader(options, consumer, position or {}, schemas)
            try:
                discover_at = loop.time()
                while True:
                    if loop.time() >= discover_at:
                        if await loop.run_in_executor(thread, reader.discover):
                            # Where partitions begin is decided once.
                            yield Batch([], reader.position())
                        discover_at = loop.time() + DISCOVERY_S
                    batch = await loop.run_in_executor(thread, reader.read)
                    self._lag = reader.lag
                    if batch.records:
                        yield batch
            finally:
                if schemas is not None:
                    schemas.stop()
                await loop.run_in_executor(thread, consumer.close)


class _Reader:
    """The partitions that are read; its methods block."""

    def __init__(
        self,
        options: KafkaOptions,
        consumer: Consumer,
        offsets: Offsets,
        schemas: RegistrySchemas | None,
    ) -> None:
        self._options = options
        self._schemas = schemas
        self._consumer = consumer
        self._next = {
            (topic, int(number)): offset
            for topic, partitions in offsets.items()
            for number, offset in partitions.items()
        }
        self._targets: dict[str, str | None] = {}
        self._last_schemas: dict[str, RecordSchema | None] = {}
        self._assigned: set[tuple[str, int]] = set()
        self.lag = 0
        """How many messages of the assigned partitions were not read."""

    def discover(self) -> bool:
        """Assign the partitions that are not read yet; return whether there are any."""
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415

        try:
            listed = self._consumer.list_topics(timeout=REQUEST_S).topics
            present = {
                (topic, number)
                for topic, facts in listed.items()
                if is_read(topic, self._options.topics)
                for number in facts.partitions
            }
            if len(present | self._assigned) > PARTITIONS_MAX:
                raise ConnectorFailed(
                    f"the topics have {len(present)} partitions, and at most "
                    f"{PARTITIONS_MAX} are read by one connector"
                )
            new = present - self._assigned
            if not new:
                return False
            for topic, number in new - self._next.keys():
                self._next[topic, number] = self._first_offset(topic, number)
            self._assigned |= new
            self._targets = {
                topic: target_of(topic, self._options.topics)
                for topic, _ in self._assigned
            }
            self._consumer.assign(
                [
                    TopicPartition(topic, number, self._next[topic, number])
                    for topic, number in sorted(self._assigned)
                ]
            )
        except KafkaException as error:
            text = f"Kafka at {self._options.servers}"
            raise failure_of(error.args[0], text) from error
        return True

    def _first_offset(self, topic: str, number: int) -> int:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        low: int
        high: int
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=REQUEST_S
        )
        return low if self._options.start is Start.EARLIEST else high

    def read(self) -> Batch:
        """Return the next messages; none if none arrive for ``POLL_S``."""
        records = []
        for message in self._consumer.consume(BATCH_MESSAGES_MAX, POLL_S):
            if (error := message.error()) is not None:
                if error.name() == "_AUTO_OFFSET_RESET":
                    raise ConnectorFailed(
                        f"Kafka has deleted messages that were not read yet "
                        f"({error.str()}): set 'missing_offsets' to earliest or "
                        "latest to go on without them"
                    )
                raise failure_of(error, f"Kafka at {self._options.servers}")
            records.append(self._record(message))
        if records:
            self.lag = self._find_lag()
        return Batch(records, self.position())

    def _record(self, message: Message) -> Record:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert number is not None
        assert offset is not None
        self._next[topic, number] = offset + 1
        kind, created_at = message.timestamp()
        value, headers = message.value(), message.headers() or ()
        attributes = attributes_of(
            value, [(name, _bytes(each)) for name, each in headers]
        )
        attributes |= {
            "kafka.topic": topic,
            "kafka.partition": str(number),
            "kafka.offset": str(offset),
        }
        if kind:
            attributes["kafka.timestamp"] = str(created_at)
        record = Record(
            value=value or b"",
            key=message.key(),
            attributes=attributes,
            topic=self._targets[topic],
        )
        if self._schemas is None:
            return record
        if value is not None:
            record = self._schemas.decoded(record, topic)
            self._last_schemas[topic] = record.schema
            return record
        # Deletions between values do not divide their batch.
        schema = None if message.key() is None else self._last_schemas.get(topic)
        return record.replace(schema=schema)

    def position(self) -> Offsets:
        """Return the offsets to continue at."""
        found: Offsets = {}
        for (topic, number), offset in sorted(self._next.items()):
            found.setdefault(topic, {})[str(number)] = offset
        return found

    def _find_lag(self) -> int:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        waiting = 0
        for topic, number in self._assigned:
            partition = TopicPartition(topic, number)
            _, high = self._consumer.get_watermark_offsets(partition, cached=True)
            waiting += max(0, high - self._next[topic, number])
        return waiting


def is_read(topic: str, topics: Mapping[str, str | None]) -> bool:
    """Return whether *topics* names *topic*; patterns name none of Kafka itself."""
    return topic in topics or (
        not topic.startswith("__") and any(_matches(each, topic) for each in topics)
    )


def target_of(topic: str, topics: Mapping[str, str | None]) -> str | None:
    """Return the topic to publish to; None: that of the connector."""
    name = next((each for each in topics if _matches(each, topic)), topic)
    target = topics[topic if topic in topics else name]
    return target and target.replace("{topic}", NOT_IN_NAMES.sub("_", topic))


def _matches(pattern: str, topic: str) -> bool:
    return pattern.startswith("^") and re.match(pattern, topic) is not None


def _open_schemas(
    options: KafkaOptions,
) -> AbstractContextManager[RegistrySchemas | None]:
    if options.schema_registry is None:
        return nullcontext()
    return open_registry_schemas(
        options.schema_registry,
        username=options.schema_registry_username,
        password=options.schema_registry_password,
        ca_file=options.ca_file,
    )


def _consumer_settings(options: KafkaOptions) -> dict[str, Any]:
    reset = {MissingOffsets.FAIL: "error"}.get(
        options.missing_offsets, options.missing_offsets.value
    )
    return {
        # Required, and without effect: offsets are not committed to Kafka.
        "group.id": "pydanube",
        "enable.auto.commit": False,
        "auto.offset.reset": reset,
        "isolation.level": "read_committed",
        **settings_of(options),
    }


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
