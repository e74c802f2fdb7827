"""
The Spark data source of a sink, whose writers pass Arrow batches to it.

Spark creates a writer two or three times for each batch, in different processes, and
pickles it into tasks.  Creating a writer does not connect.  The state of a batch is
in the commit messages of its tasks.
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
    """The batch key of a task and its output; None if the task had no rows."""

    def __init__(self, key: BatchKey, output: Any) -> None:
        self.key = key
        self.output = output


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
        sink, identity = self._plan(schema, overwrite, is_stream=False)
        rows = arrow_schema(schema)
        return BatchWriter(sink, identity, rows, is_overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        sink, identity = self._plan(schema, overwrite, is_stream=True)
        rows = arrow_schema(schema)
        return StreamWriter(sink, identity, rows, is_overwrite=overwrite)

    def _plan(
        self, schema: StructType, overwrite: bool, *, is_stream: bool
    ) -> tuple[Sink, BatchIdentity]:
        sink, identity = self.sink(schema)
        identity.check(is_stream=is_stream)
        return self.overwriting(sink) if overwrite else sink, identity

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
        *,
        is_overwrite: bool = False,
    ) -> None:
        self._sink = sink
        self._is_replacing = is_overwrite
        self._identity = identity
        self._schema = schema
        self._job = uuid.uuid4().hex
        """The query of a batch write."""


class BatchWriter(_SinkWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a batch write to a sink."""

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


class StreamWriter(_SinkWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the micro-batches of a stream to a sink."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        # The tasks of a stream always have a query id.
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
    """Write the rows of a task, if it has any."""
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
    Commit the outputs of the tasks of a batch, in the order of their numbers.

    A batch without rows is committed only if it overwrites the table.
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
    """Remove the outputs of a batch; *key* is used if there are no messages."""
    written = [message for message in messages if message is not None]
    key = written[0].key if written else key
    if key is not None:
        log.warning("batch %s failed; removing what its tasks have written", key)
        outputs = [message.output for message in written if message.output is not None]
        sink.abort(key, outputs)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast *batch* to *schema*; Spark's times are in the session's time zone."""
    return batch if batch.schema == schema else batch.cast(schema)
