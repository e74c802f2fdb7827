"""
Topics as a sink: Spark's tasks write messages, and the driver commits them.

By default messages are written exactly once.  The tasks of a batch stage their messages
at the broker, invisible to consumers, and the commit publishes all of them or none.
The broker stores the last batch number of each query.  A batch that Spark repeats
after a crash of the driver, an executor or the broker changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig, Refused, Unavailable
from pydanube.model.schemas import SchemaReference
from pydanube.model.staging import StagedPart
from pydanube.schemas.pure.value_limits import check_values, counted, years_limits
from pydanube.sync import Client, Staging
from pydanube_spark.dataframe_columns import arrow_schema
from pydanube_spark.pure.message_rows import BYTES, check_columns, split_by_topic
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, Sink, TaskKey
from pydanube_spark.pure.write_options import (
    Delivery,
    WriteOptions,
    parse_write_options,
)
from pydanube_spark.reader.catalog import process_client
from pydanube_spark.reader.decoding import value_type_of
from pydanube_spark.reader.pure.read_options import BROKER_RETRY_S
from pydanube_spark.sink_data_source import SinkDataSource
from pydanube_spark.topic_encoding import TopicEncoding, TopicEncodings, require_topic

log = logging.getLogger(__name__)

SEND_BYTES = 4 * 1024 * 1024
"""How much of a topic is sent at once with delivery at-least-once."""


LIMITS = years_limits("a message")
"""The times and texts that JSON and the schema languages can represent."""

patient_client = partial(process_client, retry_s=BROKER_RETRY_S)
"""Return this process's client for writing, which outlasts a restart of the broker."""


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """
    Return the problems of writing rows of *schema* to topics.

    If all rows are for one topic, the check asks the broker about it.
    """
    parsed = parse_write_options(options)
    columns = arrow_schema(schema)
    found = check_columns(columns, parsed)
    if not found and parsed.topic is not None:
        check_topic(process_client(parsed.url), parsed, columns)
    return found


def check_topic(client: Client, options: WriteOptions, columns: pa.Schema) -> None:
    """
    Raise if the topic of all rows does not take rows with *columns*.

    Raises:
        TopicNotFound: The topic does not exist.
        InvalidRequest: The topic is non-reliable, or the column ``value`` does not fit
            its schema.
        SchemaNotFound: Its subject does not have the version in ``schemaVersion``.
    """
    assert options.topic is not None
    require_topic(client, options.topic)
    TopicEncodings(client, options, value_type_of(columns)).of(options.topic)


class DanubeSink(SinkDataSource):
    """Topics of a Danube broker as a sink."""

    @classmethod
    def name(cls) -> str:
        return "danube"

    def sink(self, schema: StructType) -> tuple[Sink, BatchIdentity]:
        options = parse_write_options(dict(self.options))
        found = check_columns(arrow_schema(schema), options)
        if found:
            raise InvalidConfig("; ".join(found))
        return TopicSink(options), options.identity

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Create the writer; a batch is planned once, so the topic is checked here."""
        made = super().writer(schema, overwrite)
        options = parse_write_options(dict(self.options))
        if options.topic is not None:
            check_topic(patient_client(options.url), options, arrow_schema(schema))
        return made

    def overwriting(self, sink: Sink) -> Sink:
        """Refuse to replace a topic."""
        raise InvalidConfig(
            "a topic is a log: messages are added to it and never replaced. Use "
            'mode("append"), for a stream outputMode("append"); to start over, write '
            "to a new topic"
        )


class TopicSink:
    """A sink that writes messages to topics; see ``spark.sink.Sink``."""

    def __init__(
        self,
        options: WriteOptions,
        connect: Callable[[str], Client] = patient_client,
    ) -> None:
        self._options = options
        self._connect = connect

    def write(
        self, key: TaskKey, batches: Iterator[pa.RecordBatch]
    ) -> StagedPart | None:
        """
        Stage or publish the rows of one task.

        Durability: On return staged messages are on the broker's disk, invisible to
            consumers; published messages are as durable as their topic promises.

        Raises:
            BrokerError: A message cannot be written.
        """
        client = self._connect(self._options.url)
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            self._publish(client, batches)
            return None
        return self._stage(client, key, batches)

    def commit(self, key: BatchKey, outputs: Sequence[StagedPart]) -> None:
        """
        Publish all messages that the tasks of a batch have staged, exactly once.

        Durability: On return every message is on disk in its topic.

        Raises:
            BrokerError: The batch may be published or not; committing again is safe.
        """
        self._staging(key).commit(outputs)

    def abort(self, key: BatchKey, outputs: Sequence[StagedPart]) -> None:
        """
        Drop the staged messages; the same batch may be staged again.

        If the broker cannot be reached or refuses this, it drops them when the batch is
        repeated, or when they expire.
        """
        if self._options.delivery is not Delivery.EXACTLY_ONCE:
            return
        try:
            self._staging(key).abort()
        except (Unavailable, Refused) as error:
            log.warning("cannot drop the staged messages of batch %s: %s", key, error)

    def _staging(self, key: BatchKey) -> Staging:
        client = self._connect(self._options.url)
        return client.staging(key.app, key.number)

    def _stage(
        self, client: Client, key: TaskKey, batches: Iterator[pa.RecordBatch]
    ) -> StagedPart | None:
        staging = self._staging(key.batch)
        if staging.is_committed():
            # Spark repeats the batch because it does not know about the commit.
            return None
        part = staging.part(f"{key.partition}-{key.attempt}")
        try:
            for topic, messages, encoding in self._messages(client, batches):
                part.write(topic, messages, schema=encoding.reference)
            return part.finish()
        except BaseException:
            part.abort()
            raise

    def _publish(self, client: Client, batches: Iterator[pa.RecordBatch]) -> None:
        with ExitStack() as producers:
            by_topic: dict[str, _TopicProducer] = {}
            for topic, messages, encoding in self._messages(client, batches):
                if topic not in by_topic:
                    require_topic(client, topic)
                    by_topic[topic] = _TopicProducer(
                        client, topic, encoding.reference, producers
                    )
                by_topic[topic].add(messages)
            for producer in by_topic.values():
                producer.send()

    def _messages(
        self, client: Client, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[str, pa.RecordBatch, TopicEncoding]]:
        """Yield the rows of *batches* as messages, with their topic and encoding."""
        encodings: TopicEncodings | None = None
        for first, batch in counted(batches):
            check_values(batch, LIMITS, first, unchecked=BYTES)
            if encodings is None:
                value_type = value_type_of(batch.schema)
                encodings = TopicEncodings(client, self._options, value_type)
            for topic, rows in split_by_topic(batch, self._options.topic):
                encoding = encodings.of(topic)
                # Rows of one topic stay in place; those of several are counted anew.
                number = first if rows.num_rows == batch.num_rows else 0
                yield topic, encoding.messages(rows, topic, number), encoding


class _TopicProducer:
    """The producer of one topic, and the messages that wait to be sent."""

    def __init__(
        self,
        client: Client,
        topic: str,
        reference: SchemaReference | None,
        producers: ExitStack,
    ) -> None:
        self._send: Callable[[pa.Table], Any]
        if reference is None:
            producer = producers.enter_context(client.producer(topic))
            self._send = producer.send_batch
        else:
            assert reference.version is not None
            typed = producers.enter_context(
                client.producer(
                    topic,
                    subject=reference.subject,
                    schema_version=reference.version,
                )
            )
            self._send = typed.send_encoded
        self._waiting: list[pa.RecordBatch] = []
        self._byte_count = 0

    def add(self, messages: pa.RecordBatch) -> None:
        """Add *messages*, and send all that wait if they are SEND_BYTES or more."""
        self._waiting.append(messages)
        self._byte_count += messages.nbytes
        if self._byte_count >= SEND_BYTES:
            self.send()

    def send(self) -> None:
        """Send the messages that wait, and wait for their receipts."""
        if self._waiting:
            self._send(pa.Table.from_batches(self._waiting))
        self._waiting, self._byte_count = [], 0
