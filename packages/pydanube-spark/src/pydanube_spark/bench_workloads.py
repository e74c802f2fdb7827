"""
Spark and topics: reading, writing, and the latency of a stream between topics.

Reading is compared with Spark's own Parquet source; both read all columns of the same
segment files into a sink that drops them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydanube
import pydanube.sync
from pydanube.aio.loops import new_loop
from pydanube_cli.bench.figures import latency_figures
from pydanube_cli.bench.native_workloads import LostMessages, receive_batches
from pydanube_cli.bench.workloads import Arrivals
from pydanube_spark import session, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pydanube.client.client import Client
    from pydanube.client.messages.messages import MessageBatch
    from pydanube_cli.bench.figures import Figures

ROUNDS = 3
"""The number of measured reads, whose median counts; a warm-up precedes them."""
SEAL_TIMEOUT_S = 120.0
TAIL_BYTES_MAX = 80 * 1024 * 1024
"""The most that a broker keeps unsealed, with a margin."""
MODES = ("exactly-once", "at-least-once")
WARM_UP_ROWS = 50_000
RATE_PER_S = 50
"""The rate at which messages are published, however fast the stream is."""
WARM_UP_S = 5.0
"""The time before the measurement begins: the first micro-batches are slow."""


def read_tables(
    url: str, topic: str, *, message_bytes: int
) -> dict[str, tuple[int, float]]:
    """
    Measure each way to read *topic*: the number of messages and the seconds.

    Raises:
        LostMessages: A read did not return every message.
    """
    files, sealed, end = _wait_for_segments(url, topic, message_bytes)
    with _spark() as (spark, _):
        source = spark.read.format("danube").options(
            url=url, subscribe=topic, includeAttributes="true"
        )
        measured = {"Spark reads a topic": _read(source.load(), end)}
        # There may be too few messages for a segment.
        if files:
            # The broker may seal more during the measurement.
            ends = json.dumps({topic: sealed})
            segments = source.options(tail="none", endingOffsets=ends).load()
            measured["Spark reads its segments"] = _read(segments, sealed)
            native = table(
                spark,
                topic,
                url,
                include_attributes=True,
                options={"tail": "none", "endingOffsets": ends},
            )
            measured["Spark reads a native table of them"] = _read(native, sealed)
            parquet = spark.read.parquet(*files)
            name = "Spark's Parquet source reads the same files"
            measured[name] = _read(parquet, sealed)
    return measured


def write_table(
    url: str, topic: str, *, messages: int, message_bytes: int
) -> dict[str, float]:
    """
    Measure the seconds in which Spark generates and writes *messages*, in each mode.

    Raises:
        LostMessages: The topic does not have every message.
    """
    measured = {}
    with _spark() as (spark, _), pydanube.sync.connect(url) as client:
        for mode in MODES:
            options = {"url": url, "topic": topic, "delivery": mode}
            _write(spark, WARM_UP_ROWS, message_bytes, options)
            end = client.topics.describe(topic).end_offset + messages
            began = time.perf_counter()
            _write(spark, messages, message_bytes, options)
            measured[mode] = time.perf_counter() - began
            if client.topics.describe(topic).end_offset != end:
                raise LostMessages(f"the topic does not have {messages} messages")
    return measured


def stream_latency(url: str, topic: str, *, messages: int) -> Figures:
    """
    Measure the latency from a producer through Spark to a consumer.

    A stream copies *topic* to another one.  The latency of a message counts from its
    due time, so that it includes any backlog of the producer.
    """
    copy = f"{topic}-copy"
    with pydanube.sync.connect(url) as client:
        client.topics.create(copy)
        try:
            with _spark() as (spark, directory):
                query = _copy(spark, url, topic, copy, directory / "checkpoint")
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    times = runner.run(_measure(url, topic, copy, messages))
                query.stop()
        finally:
            client.topics.delete(copy, force=True)
    return latency_figures(sorted(times))


@contextmanager
def _spark() -> Iterator[tuple[SparkSession, Path]]:
    """Yield a session and a temporary directory."""
    with (
        tempfile.TemporaryDirectory(prefix="danube-bench-") as name,
        session("danube bench", log_file=Path(name) / "spark.log") as spark,
    ):
        yield spark, Path(name)


def _wait_for_segments(
    url: str, topic: str, message_bytes: int
) -> tuple[list[str], int, int]:
    """Return the files of *topic*, their number of messages, and the topic's."""
    give_up_at = time.monotonic() + SEAL_TIMEOUT_S
    with pydanube.sync.connect(url) as client:
        while True:
            found = client.storage.segments(topic)
            tail = found.end_offset - found.sealed_offset
            if tail * message_bytes <= TAIL_BYTES_MAX or time.monotonic() > give_up_at:
                files = [each.url for each in found.segments]
                return files, found.sealed_offset, found.end_offset
            time.sleep(0.1)


def _read(rows: DataFrame, messages: int) -> tuple[int, float]:
    """Return *messages* and the seconds in which Spark reads them."""
    count = rows.count()
    if count != messages:
        raise LostMessages(f"Spark has read {count} of {messages} messages")
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - began)
    return messages, statistics.median(times)


def _write(
    spark: SparkSession, rows: int, message_bytes: int, options: dict[str, str]
) -> None:
    payload = f"rpad(string(id), {message_bytes}, 'x') AS payload"
    made = spark.range(rows).selectExpr(payload)
    made.write.format("danube").options(**options).mode("append").save()


def _copy(
    spark: SparkSession, url: str, topic: str, copy: str, checkpoint: Path
) -> StreamingQuery:
    rows = (
        spark.readStream.format("danube")
        .options(url=url, subscribe=topic, startingOffsets="earliest")
        .load()
    )
    writer: Any = rows.select("payload").writeStream.format("danube")
    query: StreamingQuery = (
        writer.options(url=url, topic=copy, checkpointLocation=str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    return query


async def _measure(url: str, topic: str, copy: str, messages: int) -> list[int]:
    count = messages + round(WARM_UP_S * RATE_PER_S)
    async with pydanube.connect(url) as client:
        # The stream is ready when it has copied one message.
        async with client.producer(topic) as producer:
            await producer.send(b"%d" % time.time_ns())
        await _receive(client, copy, 1)
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(_receive(client, copy, count))
            tasks.create_task(_publish(client, topic, count))
    # In the order of arrival, which is that of the topic.
    return receiving.result()[-messages:]


async def _publish(client: Client, topic: str, count: int) -> None:
    async with client.producer(topic) as producer:
        began = time.time_ns()
        for number in range(count):
            due = began + number * 1_000_000_000 // RATE_PER_S
            await asyncio.sleep((due - time.time_ns()) / 1e9)
            producer.send_nowait(b"%d" % due)


async def _receive(client: Client, topic: str, count: int) -> list[int]:
    times: list[int] = []

    def keep(batch: MessageBatch, _: int) -> None:
        now = time.time_ns()
        times.extend(now - int(payload) for payload in batch.payloads)

    async with client.consumer(
        topic, subscription="bench", start="earliest"
    ) as consumer:
        await receive_batches(Arrivals(count), consumer, keep)
    if len(times) < count:
        raise LostMessages(f"only {len(times)} of {count} messages came")
    return times
