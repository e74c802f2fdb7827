"""What Spark sees of a sink."""

import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, TaskKey
from pydanube_spark.sink_data_source import (
    BatchWriter,
    SinkDataSource,
    StreamWriter,
    conform,
    write_task,
)

KEY = BatchKey("app", 3, "query")
SCHEMA = pa.schema({"x": pa.int64()})
ROWS = StructType().add("x", LongType())


class RecordingSink:
    """Remembers what it is told."""

    def __init__(self):
        self.told = []

    def write(self, key, batches):
        rows = [row for batch in batches for row in batch.column("x").to_pylist()]
        self.told.append(("write", key, rows))
        return rows

    def commit(self, key, outputs):
        self.told.append(("commit", key, outputs))

    def abort(self, key, outputs):
        self.told.append(("abort", key, outputs))


class Source(SinkDataSource):
    """A sink that cannot replace what is there."""

    @classmethod
    def name(cls):
        return "recording"

    def sink(self, schema):
        return RecordingSink(), BatchIdentity()


def batch(*values):
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def stream(sink, *arguments):
    return StreamWriter(sink, BatchIdentity(), SCHEMA, *arguments)


def piece(sink, partition, *batches):
    return write_task(sink, TaskKey(KEY, partition, 0), SCHEMA, iter(batches))


def test_the_rows_of_a_task_reach_the_sink_without_empty_batches():
    sink = RecordingSink()
    piece(sink, 0, batch(), batch(1), batch(), batch(2, 3))
    assert sink.told == [("write", TaskKey(KEY, 0, 0), [1, 2, 3])]


def test_task_without_rows_does_not_call_the_sink():
    sink = RecordingSink()
    stream(sink).commit([piece(sink, 0), piece(sink, 1, batch())], 3)
    assert sink.told == []


def test_batch_without_rows_still_overwrites():
    sink = RecordingSink()
    stream(sink, True).commit([piece(sink, 0)], 3)
    BatchWriter(sink, BatchIdentity("app", 3), SCHEMA, True).commit([])
    batch_write = BatchKey("app", 3, "")
    assert sink.told == [("commit", KEY, []), ("commit", batch_write, [])]


def test_a_batch_is_committed_in_the_order_of_its_tasks():
    sink = RecordingSink()
    messages = [piece(sink, 0, batch(1)), piece(sink, 1), piece(sink, 2, batch(2))]
    stream(sink).commit(messages, 3)
    assert sink.told[-1] == ("commit", KEY, [[1], [2]])


def test_abort_passes_the_outputs_to_the_sink():
    sink = RecordingSink()
    stream(sink).abort([None, piece(sink, 1, batch(7)), None], 3)
    assert sink.told[-1] == ("abort", KEY, [[7]])
    stream(sink).abort([None], 3)
    assert len(sink.told) == 2


def test_times_in_the_session_time_zone_become_utc():
    there = pa.record_batch({"at": pa.array([0], pa.timestamp("us", "Europe/Paris"))})
    schema = pa.schema({"at": pa.timestamp("us", "UTC")})
    assert conform(there, schema).schema == schema


def test_overwrite_is_refused_by_default():
    with pytest.raises(InvalidConfig, match="recording cannot overwrite"):
        Source({}).writer(ROWS, overwrite=True)
    with pytest.raises(InvalidConfig, match="recording cannot overwrite"):
        Source({}).streamWriter(schema=ROWS, overwrite=True)


def test_writers_can_be_pickled():
    for writer in (
        Source({}).writer(ROWS, overwrite=False),
        Source({}).streamWriter(schema=ROWS, overwrite=False),
    ):
        assert pickle.loads(pickle.dumps(writer))


def test_batch_abort_without_messages_still_calls_the_sink():
    sink = RecordingSink()
    BatchWriter(sink, BatchIdentity("app", 3), SCHEMA).abort([None, None])
    assert sink.told == [("abort", BatchKey("app", 3, ""), [])]
