"""
Writing topics with Spark: rows per second, and the latency of a stream between topics.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydanube
import pydanube.sync
from pydanube.aio.loops import new_loop
from pydanube.bench.workloads import (
    RECEIVE_TIMEOUT_S,
    Figures,
    LostMessages,
    percentiles_of,
)
from pydanube.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pydanube.client.client import Client

MODES = ("exactly-once", "at-least-once")
WARM_UP_ROWS = 50_000
RATE_PER_S = 50
"""The rate at which messages are published, however fast the stream is."""
WARM_UP_S = 5.0
"""The time before the measurement begins: the first micro-batches are slow."""


def write_table(url: str, topic: str, *, messages: int, message_bytes: int) -> Figures:
    """
    Measure the rows per second that Spark generates and writes, in each mode.

    Raises:
        LostMessages: The topic does not have every message.
    """
    with tempfile.TemporaryDirectory(prefix="danube-bench-") as name:
        spark = session("danube bench", log_file=Path(name) / "spark.log")
        try:
            figures = {}
            for mode in MODES:
                options = {"url": url, "topic": topic, "mode": mode}
                _write(spark, WARM_UP_ROWS, message_bytes, options)
                before = _end(url, topic)
                began = time.perf_counter()
                _write(spark, messages, message_bytes, options)
                figures[mode] = messages / (time.perf_counter() - began)
                if _end(url, topic) != before + messages:
                    raise LostMessages(f"the topic does not have {messages} messages")
        finally:
            spark.stop()
    return figures


def stream_latency(url: str, topic: str, *, messages: int) -> Figures:
    """
    Measure the latency from a producer through Spark to a consumer.

    A stream copies *topic* to another one.  The latency of a message counts from its
    due time, so that it includes any backlog of the producer.
    """
    copy = f"{topic}-copy"
    with (
        tempfile.TemporaryDirectory(prefix="danube-bench-") as name,
        pydanube.sync.connect(url) as client,
    ):
        client.create_topic(copy)
        spark = session("danube bench", log_file=Path(name) / "spark.log")
        try:
            query = _copy(spark, url, topic, copy, Path(name) / "checkpoint")
            with asyncio.Runner(loop_factory=new_loop) as runner:
                times = runner.run(_measure(url, topic, copy, messages))
            query.stop()
        finally:
            spark.stop()
            client.delete_topic(copy, force=True)
    return percentiles_of(times)


def _write(
    spark: SparkSession, rows: int, message_bytes: int, options: dict[str, str]
) -> None:
    payload = f"rpad(string(id), {message_bytes}, 'x') AS payload"
    made = spark.range(rows).selectExpr(payload)
    made.write.format("danube").options(**options).mode("append").save()


def _end(url: str, topic: str) -> int:
    with pydanube.sync.connect(url) as client:
        return client.describe_topic(topic).end_offset


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


async def _measure(url: str, topic: str, copy: str, messages: int) -> list[float]:
    count = messages + round(WARM_UP_S * RATE_PER_S)
    async with pydanube.connect(url) as client:
        # The stream is ready when it has copied one message.
        async with client.producer(topic) as producer:
            await producer.send(b"%d" % time.time_ns())
        await _receive(client, copy, 1)
        return await _measure_open(client, topic, copy, messages, count)


async def _measure_open(
    client: Client, topic: str, copy: str, messages: int, count: int
) -> list[float]:
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


async def _receive(client: Client, topic: str, count: int) -> list[float]:
    times: list[float] = []
    async with client.consumer(
        topic, subscription="bench", start="earliest"
    ) as consumer:
        while len(times) < count:
            batch = await consumer.receive_batch(timeout_s=RECEIVE_TIMEOUT_S)
            if not batch:
                raise LostMessages(f"only {len(times)} of {count} messages came")
            now = time.time_ns()
            times += [(now - int(payload)) / 1e9 for payload in batch.payloads]
            await consumer.ack(batch)
    return times
