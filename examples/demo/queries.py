"""
The queries of the demo, which write topics into Delta tables exactly once.

Spark repeats a micro-batch if it cannot know that it was completed.  The sink drops a
batch whose number the table already has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from examples.demo.inputs import POSITION_MODULUS
from examples.demo.publishing import LINES, NAMES, TELEMETRY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LINES_PER_TRIGGER = 250_000
WINDOW = "2 seconds"

TELEMETRY_JSON = "source string, name string, cpu_s double, memory_bytes bigint"


def start_lines_query(
    spark: SparkSession, url: str, table: Path, rows_max: int
) -> StreamingQuery:
    """Start counting lines, bytes and fingerprints of each file in the topic."""
    lines = (
        _read(spark, url, LINES)
        .option("maxOffsetsPerTrigger", rows_max)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .schema("offset bigint, key string, payload binary")
        .load()
    )
    return _start(lines, _count_lines, table, availableNow=True)


def start_telemetry_query(spark: SparkSession, url: str, table: Path) -> StreamingQuery:
    """Start summing up every source's counters in windows, for each micro-batch."""
    messages = (
        _read(spark, url, TELEMETRY)
        .schema("offset bigint, publish_time timestamp, payload binary")
        .load()
    )
    return _start(messages, _count_windows, table, processingTime="1 second")


def batch_log(query: StreamingQuery) -> list[tuple[int, float]]:
    """Return the rows and seconds of the query's last hundred micro-batches."""
    return [
        (each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000)
        for each in query.recentProgress
        if each["numInputRows"]
    ]


def _read(spark: SparkSession, url: str, topic: str) -> Any:
    return spark.readStream.format("danube").options(
        url=url, subscribe=topic, subscription=NAMES[topic], startingOffsets="earliest"
    )


def _start(
    messages: DataFrame,
    count: Callable[[DataFrame], DataFrame],
    table: Path,
    **trigger: Any,
) -> StreamingQuery:
    def sink(batch: DataFrame, batch_id: int) -> None:
        write = count(batch).coalesce(1).write.format("danube-delta")
        write = write.options(path=str(table), appId=table.name, batchId=batch_id)
        write.mode("append").save()

    return (
        messages.writeStream.queryName(table.name)
        .foreachBatch(sink)
        .option("checkpointLocation", f"{table}-checkpoint")
        .trigger(**trigger)
        .start()
    )


def _count_lines(batch: DataFrame) -> DataFrame:
    return batch.groupBy(F.col("key").alias("file")).agg(
        F.count("*").alias("lines"),
        F.sum(F.length("payload")).alias("bytes"),
        _fingerprint(),
        F.count_distinct("offset").alias("offsets"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def _count_windows(batch: DataFrame) -> DataFrame:
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


def _fingerprint() -> Any:
    """Return the sum that ``inputs.fingerprint`` computes."""
    position = F.col("offset") % POSITION_MODULUS + 1
    return F.sum(F.crc32("payload") * position).alias("fingerprint")
