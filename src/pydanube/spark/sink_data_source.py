"""
What Spark sees of a sink: a data source whose writers hand Arrow batches on.

Spark makes a writer two or three times for each batch, in different processes, and
sends it into its tasks by pickle; so making one costs nothing and connects to nobody.
The state of a batch travels in the messages of its tasks.
"""

from __future__ import annotations

import logging
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pydanube.model.errors import InvalidConfig
from pydanube.spark.dataframe_columns import arrow_schema
from pydanube.spark.sink import TaskKey
from pydanube.spark.task_ids import current_task_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pydanube.spark.sink import BatchIdentity, BatchKey, Sink

log = logging.getLogger(__name__)


class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task has to say: what it has written, if anything, of which batch."""

    def __init__(self, key: BatchKey, piece: Any) -> None:
        self.key = key
        self.output = piece


class SinkDataSource(DataSource):  # type: ignore[misc]
    """A sink as a data source; what differs from sink to sink is ``sink()``."""

    def sink(self, schema: StructType) -> tuple[Sink, BatchIdentity]:
        """
        The sink of these options, for rows of *schema*.

        Raises:
            InvalidConfig: The options contradict each other or the columns.
        """
        raise NotImplementedError

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        sink, identity = self.sink(schema)
        identity.check(is_stream=False)
        sink = self.overwriting(sink) if overwrite else sink
        rows = arrow_schema(schema)
        return BatchWriter(sink, identity, rows, is_overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        sink, identity = self.sink(schema)
        identity.check(is_stream=True)
        sink = self.overwriting(sink) if overwrite else sink
        rows = arrow_schema(schema)
        return StreamWriter(sink, identity, rows, is_overwrite=overwrite)

    def overwriting(self, sink: Sink) -> Sink:
        """
        *sink* as one whose batches each replace everything that was there.

        Raises:
            InvalidConfig: This one cannot.
        """
        raise InvalidConfig(
            f"{self.name()} adds rows and does not replace them all: use "
            'mode("append") or outputMode("append")'
        )


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a table to a sink."""

    def __init__(
        self,
        sink: Sink,
        identity: BatchIdentity,
        schema: pa.Schema,
        *,
        is_overwrite: bool = False,
    ) -> None:
        self._sink = sink
        self._is_replacing = is_overwrite
        self._identity = identity
        self._schema = schema
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        place = current_task_id(self._job)
        key = self._identity.key(self._job, 0, is_stream=False)
        piece = TaskKey(key, place.partition, place.attempt)
        return write_task(self._sink, piece, self._schema, iterator)

    def commit(self, messages: list[Any]) -> None:
        key = self._identity.key(self._job, 0, is_stream=False)
        commit_batch(self._sink, messages, key, is_overwrite=self._is_replacing)

    def abort(self, messages: list[Any]) -> None:
        key = self._identity.key(self._job, 0, is_stream=False)
        abort_batch(self._sink, messages, key)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the micro-batches of a stream to a sink."""

    def __init__(
        self,
        sink: Sink,
        identity: BatchIdentity,
        schema: pa.Schema,
        *,
        is_overwrite: bool = False,
    ) -> None:
        self._sink = sink
        self._is_replacing = is_overwrite
        self._identity = identity
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        # A stream's tasks always know their query.
        place = current_task_id("")
        key = self._identity.key(place.query, place.batch, is_stream=True)
        piece = TaskKey(key, place.partition, place.attempt)
        return write_task(self._sink, piece, self._schema, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        commit_batch(self._sink, messages, is_overwrite=self._is_replacing)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        abort_batch(self._sink, messages)


def write_task(
    sink: Sink, key: TaskKey, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Write the rows of a task; a sink is not troubled where there are none."""
    rows = (conform(batch, schema) for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return TaskCommitMessage(key.batch, None)
    return TaskCommitMessage(key.batch, sink.write(key, chain([first], rows)))


def commit_batch(
    sink: Sink,
    messages: Sequence[TaskCommitMessage | None],
    key: BatchKey | None = None,
    *,
    is_overwrite: bool,
) -> None:
    """
    Commit what the tasks of a batch have written, in the order of their numbers.

    A batch without rows is nothing to commit, unless nothing is to be left by it.
    """
    written = [message for message in messages if message is not None]
    outputs = [message.output for message in written if message.output is not None]
    key = written[0].key if written else key
    if key is not None and (outputs or is_overwrite):
        sink.commit(key, outputs)


def abort_batch(
    sink: Sink,
    messages: Sequence[TaskCommitMessage | None],
    key: BatchKey | None = None,
) -> None:
    """Remove what is left of batch *key*, which the messages know if there are any."""
    written = [message for message in messages if message is not None]
    key = written[0].key if written else key
    if key is not None:
        log.warning("batch %s is given up; what is written of it is removed", key)
        outputs = [message.output for message in written if message.output is not None]
        sink.abort(key, outputs)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """*batch* with the types of *schema*: Spark's times come in its session's zone."""
    return batch if batch.schema == schema else batch.cast(schema)
