"""
Commits of micro-batches with very many parts, without Spark.

``python -m bench.spark_commits`` writes batches as the tasks of a stage do, each with a
few rows, and commits them as Spark's driver does: to a topic exactly once, to Delta and
Iceberg tables, and as upserts into such tables.  It prints the time, the processor time
and the memory of each step as a Markdown table.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import pydanube.sync
from bench.scale import Broker, Table, tell
from bench.usage import processor_s
from pydanube_spark.pure.sink import BatchKey, Sink, TaskKey
from pydanube_spark.pure.upserts import INSERT_ONLY, UpsertColumns
from pydanube_spark.pure.write_options import parse_write_options
from pydanube_spark.sink_data_source import TaskCommitMessage
from pydanube_spark.tables.data_files import TableLocation
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.pure.table_options import WriteOptions
from pydanube_spark.tables.staged_rows import StagingLocation
from pydanube_spark.tables.table_sink import LakeSink
from pydanube_spark.topic_sink import TopicSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube_spark.tables.table import LakeTable

    Rows = Callable[[int], pa.RecordBatch]

TOPIC = "/default/commits"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("amount", pa.float64()), ("name", pa.string())]
)
FILE_BYTES = 32 * 1024 * 1024
MIB = 1024 * 1024
KINDS = ("topic", "delta", "iceberg", "delta upserts", "iceberg upserts")


class Measuring:
    """The time and memory of this process, and the processor time of a broker."""

    def __init__(self, broker: Broker | None = None) -> None:
        self._pids = [] if broker is None else [broker.process.pid]
        self._table = Table()

    def step(self, what: str, work: Callable[[], Any]) -> None:
        """Do *work*, and add a row with what it took."""
        before = _memory_mib("VmRSS")
        # The peak of the memory, which Linux counts from here.
        Path("/proc/self/clear_refs").write_text("5")
        began, used, server = time.perf_counter(), time.process_time(), self._server()
        work()
        took, used = time.perf_counter() - began, time.process_time() - used
        server = self._server() - server
        grown = _memory_mib("VmHWM") - before
        self._table.row(
            what,
            f"{used:.2f} s of processors, {server:.2f} s broker, {took:.2f} s in all, "
            f"{grown:.0f} MiB more at the peak",
        )

    def _server(self) -> float:
        return processor_s(self._pids)


def measure(
    measuring: Measuring, what: str, sink: Sink, rows: Rows, count: int
) -> None:
    """Write two batches of *count* tasks, commit one, and drop the other."""
    for number, ends in enumerate(("commit", "abort")):
        key = BatchKey("bench", number, "bench")
        outputs: list[Any] = []

        def write(key: BatchKey = key, outputs: list[Any] = outputs) -> None:
            for task in range(count):
                output = sink.write(TaskKey(key, task, task), iter([rows(task)]))
                # As Spark brings it to the driver.
                message = pickle.dumps(TaskCommitMessage(key, output))
                outputs.append(pickle.loads(message).output)  # noqa: S301

        def end(
            key: BatchKey = key, outputs: list[Any] = outputs, ends: str = ends
        ) -> None:
            getattr(sink, ends)(key, outputs)

        if ends == "commit":
            measuring.step(f"{what}: {count:,} tasks write", write)
        else:
            write()
        measuring.step(f"{what}: {ends} of {count:,} parts", end)


def _topic_rows(task: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"payload": f"{task}".encode()} for _ in range(3)]
    )


def _table_rows(task: int) -> pa.RecordBatch:
    ids = range(3 * task, 3 * task + 3)
    return pa.RecordBatch.from_pylist(
        [{"id": each, "amount": each / 3, "name": f"name {each}"} for each in ids],
        SCHEMA,
    )


def _lake_sink(directory: Path, kind: str) -> LakeSink:
    name, _, upserts = kind.partition(" ")
    columns = UpsertColumns(keys=("id",)) if upserts else INSERT_ONLY
    table: LakeTable = DeltaLakeTable(str(directory / "table"), {})
    if name == "iceberg":
        catalog = {
            "type": "sql",
            "name": "bench",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }
        table = IcebergLakeTable("db.bench", catalog)
    place: TableLocation = table.prepare(SCHEMA, WriteOptions(upsert=columns))
    location = StagingLocation(place, SCHEMA) if upserts else place
    return LakeSink(table, location, file_bytes_max=FILE_BYTES, upsert=columns)


def _memory_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(each for each in lines if each.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Measure the kinds that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--parts", type=int, default=10_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    asked = parser.parse_args()
    logging.getLogger("pydanube_spark").setLevel(logging.ERROR)
    for kind in asked.kind or KINDS:
        with tempfile.TemporaryDirectory(prefix="spark-commits-") as place:
            directory = Path(place)
            if kind == "topic":
                _measure_topic(directory, asked.parts)
                continue
            sink = _lake_sink(directory, kind)
            measure(Measuring(), kind, sink, _table_rows, asked.parts)
            tell("")


def _measure_topic(directory: Path, count: int) -> None:
    broker = Broker(directory)
    broker.start()
    try:
        with pydanube.sync.connect(broker.url) as client:
            client.topics.create(TOPIC)
        options = {"url": broker.url, "topic": TOPIC}
        sink = TopicSink(parse_write_options(options))
        measure(Measuring(broker), "topic", sink, _topic_rows, count)
    finally:
        broker.stop()
    tell("")


if __name__ == "__main__":
    main()
