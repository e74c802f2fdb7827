"""
The queries of the demo, which write topics into Delta tables exactly once.

Spark repeats a micro-batch if it cannot know that it was completed.  The commit of a
batch therefore records the batch in an application transaction of Delta, and a repeated
batch changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import functions as F  # noqa: N812

from pydanube.demo.inputs import POSITION_MODULUS
from pydanube.demo.publishing import (
    LINES,
    LINES_SUBSCRIPTION,
    TELEMETRY,
    TELEMETRY_SUBSCRIPTION,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LINES_PER_TRIGGER = 250_000
WINDOW = "2 seconds"

TELEMETRY_JSON = "source string, name string, cpu_s double, memory_bytes bigint"


@dataclass(slots=True)
class BatchLog:
    """The sizes and durations of a query's micro-batches."""

    rows: list[int] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)


def start_lines_query(
    spark: SparkSession,
    url: str,
    directory: Path,
    on_batch: Callable[[int], None],
    rows_max: int = LINES_PER_TRIGGER,
) -> StreamingQuery:
    """Start counting lines, bytes and fingerprints of each file in the topic."""

    def sink(batch: DataFrame, batch_id: int) -> None:
        counted = count_lines(batch).toArrow()
        _append_once(directory / "lines", counted, "demo-lines", batch_id)
        on_batch(sum(counted.column("lines").to_pylist()))

    lines = (
        _read(spark, url, LINES, LINES_SUBSCRIPTION)
        .option("maxOffsetsPerTrigger", rows_max)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .schema("offset bigint, key string, payload binary")
        .load()
    )
    return (
        lines.writeStream.queryName("lines")
        .foreachBatch(sink)
        .option("checkpointLocation", str(directory / "lines-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def count_lines(batch: DataFrame) -> DataFrame:
    """Return the totals of a batch of lines by file."""
    return batch.groupBy(F.col("key").alias("file")).agg(
        F.count("*").alias("lines"),
        F.sum(F.length("payload")).alias("bytes"),
        _fingerprint(),
        F.count_distinct("offset").alias("offsets"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def start_telemetry_query(
    spark: SparkSession, url: str, directory: Path
) -> StreamingQuery:
    """Start summing up every source's counters in windows, for each micro-batch."""

    def sink(batch: DataFrame, batch_id: int) -> None:
        windows = count_windows(batch).toArrow()
        _append_once(directory / "telemetry", windows, "demo-telemetry", batch_id)

    messages = (
        _read(spark, url, TELEMETRY, TELEMETRY_SUBSCRIPTION)
        .schema("offset bigint, publish_time timestamp, payload binary")
        .load()
    )
    return (
        messages.writeStream.queryName("telemetry")
        .foreachBatch(sink)
        .option("checkpointLocation", str(directory / "telemetry-checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def count_windows(batch: DataFrame) -> DataFrame:
    """Return the totals of a batch of counters by window and source."""
    counters = F.from_json(F.col("payload").cast("string"), TELEMETRY_JSON)
    return (
        batch.select("*", counters.alias("counters"))
        .groupBy(
            F.window("publish_time", WINDOW)["start"].alias("window_start"),
            F.col("counters.source").alias("source"),
            F.col("counters.name").alias("name"),
        )
        .agg(
            F.count("*").alias("messages"),
            _fingerprint(),
            F.min("counters.cpu_s").alias("cpu_s_first"),
            F.max("counters.cpu_s").alias("cpu_s_last"),
            F.max("counters.memory_bytes").alias("memory_bytes"),
        )
    )


def batch_log(query: StreamingQuery) -> BatchLog:
    """Return the sizes and durations of the query's last hundred batches."""
    found = BatchLog()
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            found.rows.append(int(progress["numInputRows"]))
            found.duration_s.append(progress["durationMs"]["triggerExecution"] / 1000)
    return found


def _read(spark: SparkSession, url: str, topic: str, subscription: str) -> Any:
    return spark.readStream.format("danube").options(
        url=url, subscribe=topic, subscription=subscription, startingOffsets="earliest"
    )


def _fingerprint() -> Any:
    """Return the sum that ``inputs.fingerprint`` computes."""
    position = F.col("offset") % POSITION_MODULUS + 1
    return F.sum(F.crc32("payload") * position).alias("fingerprint")


def _append_once(path: Path, rows: pa.Table, application: str, batch_id: int) -> None:
    """Append *rows*, unless the table has this batch."""
    try:
        last = DeltaTable(path).transaction_version(application)
    except TableNotFoundError:
        last = None
    if last is None or last < batch_id:
        transaction = Transaction(app_id=application, version=batch_id)
        properties = CommitProperties(app_transactions=[transaction])
        write_deltalake(path, rows, mode="append", commit_properties=properties)
