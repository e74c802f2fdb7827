"""
Reading topics in Spark, compared with Spark's own Parquet source.

Both read all columns of the same segment files into a sink that drops them.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydanube.sync
from pydanube.bench.workloads import Figures, LostMessages
from pydanube.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUNDS = 3
"""The number of measured reads, whose median counts; a warm-up precedes them."""
SEAL_TIMEOUT_S = 120.0
TAIL_BYTES_MAX = 80 * 1024 * 1024
"""The most that a broker keeps unsealed, with a margin."""


def read_tables(url: str, topic: str, *, message_bytes: int) -> Figures:
    """
    Measure the messages per second of each way to read *topic*.

    Raises:
        LostMessages: A read did not return every message.
    """
    files, sealed, end = _wait_for_segments(url, topic, message_bytes)
    with tempfile.TemporaryDirectory(prefix="danube-bench-") as name:
        spark = session("danube bench", log_file=Path(name) / "spark.log")
        try:
            source = spark.read.format("danube").options(url=url, subscribe=topic)
            figures = {
                "topic": _rate(source.load(), end),
                "topic_messages": float(end),
                "segments_messages": float(sealed),
            }
            if files:
                # The broker may seal more during the measurement.
                ends = json.dumps({topic: sealed})
                segments = source.options(tail="none", endingOffsets=ends).load()
                figures["segments"] = _rate(segments, sealed)
                figures["parquet"] = _rate(spark.read.parquet(*files), sealed)
        finally:
            spark.stop()
    return figures


def _wait_for_segments(
    url: str, topic: str, message_bytes: int
) -> tuple[list[str], int, int]:
    """Return the files of *topic*, their number of messages, and the topic's."""
    give_up_at = time.monotonic() + SEAL_TIMEOUT_S
    with pydanube.sync.connect(url) as client:
        while True:
            found = client.segments(topic)
            tail = found.end_offset - found.sealed_offset
            if tail * message_bytes <= TAIL_BYTES_MAX or time.monotonic() > give_up_at:
                files = [each.url for each in found.segments]
                return files, found.sealed_offset, found.end_offset
            time.sleep(0.1)


def _rate(rows: DataFrame, messages: int) -> float:
    count = rows.count()
    if count != messages:
        raise LostMessages(f"Spark has read {count} of {messages} messages")
    seconds = [_read(rows) for _ in range(ROUNDS)]
    return messages / statistics.median(seconds)


def _read(rows: Any) -> float:
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
