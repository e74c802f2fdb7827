"""
The Spark data source of a sink, whose writers pass Arrow batches to it.

Spark creates a writer two or three times for each batch, in different processes, and
pickles it into tasks.  Creating a writer does not connect.  The state of a batch is
in the commit messages of its tasks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig
from pydanube_spark.dataframe_columns import arrow_schema
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, Sink, TaskKey

log = logging.getLogger(__name__)


@dataclass
class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """The batch key of a task and its output; None if the task had no rows."""

    key: BatchKey
    output: Any


class SinkDataSource(DataSource):  # type: ignore[misc]
    """A sink as a data source; subclasses implement ``sink()``."""

    def sink(self, schema: StructType) -> tuple[Sink, BatchIdentity]:
        """
        Return the sink of these options, for rows of *schema*.

        Raises:
            InvalidConfig: The options contradict each other or the columns.
        """
        raise NotImplementedError

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(*self._plan(schema, overwrite, is_stream=False))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(*self._plan(schema, overwrite, is_stream=True))

    def _plan(
        self, schema: StructType, overwrite: bool, *, is_stream: bool
    ) -> tuple[Sink, BatchIdentity, pa.Schema, bool]:
        sink, identity = self.sink(schema)
        identity.check(is_stream=is_stream)
        if overwrite:
            sink = self.overwriting(sink)
        return sink, identity, arrow_schema(schema), overwrite

    def overwriting(self, sink: Sink) -> Sink:
        """
        Return a sink whose batches each overwrite all rows.

        Raises:
            InvalidConfig: The sink does not support this.
        """
        raise InvalidConfig(
            f'{self.name()} cannot overwrite all rows: use mode("append") or '
            'outputMode("append")'
        )


class _SinkWriter:
    """The part of both writers that Spark pickles into tasks."""

    def __init__(
        self,
        sink: Sink,
        identity: BatchIdentity,
        schema: pa.Schema,
        is_overwrite: bool = False,
    ) -> None:
        self._sink = sink
        self._identity = identity
        self._schema = schema
        self._is_overwrite = is_overwrite

    def _write(
        self, key: BatchKey, batches: Iterator[pa.RecordBatch]
    ) -> TaskCommitMessage:
        context = _task_context()
        # Files are named after the attempt id, which is unique among all tasks.
        task = TaskKey(key, context.partitionId(), context.taskAttemptId())
        return write_task(self._sink, task, self._schema, batches)

    def _commit(self, messages: list[Any], key: BatchKey | None = None) -> None:
        """
        Commit the outputs of the tasks of a batch, in the order of their numbers.

        A batch without rows is committed only if it overwrites the table.  Without
        messages its key is *key*.
        """
        key, outputs = _outputs(messages, key)
        if key is not None and (outputs or self._is_overwrite):
            self._sink.commit(key, outputs)

    def _abort(self, messages: list[Any], key: BatchKey | None = None) -> None:
        key, outputs = _outputs(messages, key)
        if key is not None:
            log.warning("batch %s failed; removing what its tasks have written", key)
            self._sink.abort(key, outputs)


class BatchWriter(_SinkWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a batch write to a sink."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._key = self._identity.key(uuid.uuid4().hex, 0, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        return self._write(self._key, iterator)

    def commit(self, messages: list[Any]) -> None:
        self._commit(messages, self._key)

    def abort(self, messages: list[Any]) -> None:
        self._abort(messages, self._key)


class StreamWriter(_SinkWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """
    Writes the micro-batches of a stream to a sink.

    Spark repeats a whole micro-batch if the driver was killed before its end.  The
    query id, which comes from the checkpoint, and the batch number are then the same.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        query = _task_context().getLocalProperty("sql.streaming.queryId")
        number = current_batch_number()
        return self._write(self._identity.key(query, number, is_stream=True), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._commit(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._abort(messages)


def current_batch_number() -> int:
    """Return the number of the micro-batch whose task calls this."""
    return int(_task_context().getLocalProperty("streaming.sql.batchId"))


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes in a task"
    return context


def write_task(
    sink: Sink, key: TaskKey, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    """Write the rows of a task, if it has any."""
    rows = (conform(batch, schema) for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return TaskCommitMessage(key.batch, None)
    return TaskCommitMessage(key.batch, sink.write(key, chain([first], rows)))


def _outputs(
    messages: Sequence[TaskCommitMessage | None], key: BatchKey | None
) -> tuple[BatchKey | None, list[Any]]:
    """Return the key and the outputs of a batch; tasks that failed have no message."""
    written = [message for message in messages if message is not None]
    outputs = [message.output for message in written if message.output is not None]
    return written[0].key if written else key, outputs


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast *batch* to *schema*; Spark's times are in the session's time zone."""
    return batch if batch.schema == schema else batch.cast(schema)
