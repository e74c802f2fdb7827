"""
Readers of a topic that stop after they have read something, and go on when told.

    patient_readers.py URL DIRECTORY

The program says on standard output that all have read something, goes on when it reads
a line, and writes the offsets that each has read in the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pydanube
from pydanube import sync
from pydanube_cli.administration.definitions.exporting import export_definitions
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.source import DanubeDataSource
from pydanube_spark.tables.export.exporter import Exporter, ExportOptions
from pydanube_spark.tables.export.zero_copy import ZeroCopyExporter
from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain
from support.drivers.lake_tables import read, table_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    Pause = Callable[[], None]

TOPIC = "/default/orders"
RETRY_S = 120.0
WAIT_S = 300
"""The longest that anything may take on a busy machine."""


def read_with_a_client(url: str, _: Path, pause: Pause) -> list[int]:
    offsets: list[int] = []
    with sync.connect(url, retry_s=RETRY_S) as client:
        for batch in client.read(TOPIC, prefetch_bytes=1):
            if not offsets:
                pause()
            offsets += batch.offsets
    return offsets


def source(url: str, read_through: str = "always") -> DanubeDataSource:
    return DanubeDataSource(
        {
            "url": url,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            # Always: each scan is read from the broker; never: from files.
            "readThrough": read_through,
            "minPartitions": "8",
        }
    )


def offsets_of(reader, partitions) -> list[int]:
    return [
        offset
        for partition in partitions
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]


def read_a_batch_of_spark(
    url: str, _: Path, pause: Pause, read_through: str = "always"
) -> list[int]:
    planned = source(url, read_through)
    reader = planned.reader(planned.schema())
    first, *others = reader.partitions()
    offsets = offsets_of(reader, [first])
    pause()
    return offsets + offsets_of(reader, others)


def read_files_in_spark(url: str, directory: Path, pause: Pause) -> list[int]:
    return read_a_batch_of_spark(url, directory, pause, "never")


def plan_a_batch_of_spark(url: str, _: Path, pause: Pause) -> list[int]:
    planned = source(url)
    reader = planned.reader(planned.schema())
    assert reader.partitions()
    pause()
    return offsets_of(reader, reader.partitions())


def read_a_stream_of_spark(url: str, _: Path, pause: Pause) -> list[int]:
    planned = source(url)
    reader = planned.streamReader(planned.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    offsets = offsets_of(reader, reader.partitions(start, end))
    pause()
    start, end = end, reader.latestOffset(end, ReadAllAvailable())
    return offsets + offsets_of(reader, reader.partitions(start, end))


def export_to_a_table(url: str, directory: Path, pause: Pause) -> list[int]:
    table = table_in(directory, "delta", "exported")
    options = ExportOptions(url=url, topic=TOPIC, round_bytes_max=1)
    exporter = Exporter(options, table, ThreadRunner(1))
    assert not exporter.export_round().is_last
    pause()
    while not exporter.export_round().is_last:
        pass
    return read(table)["offset"].to_pylist()


def register_in_a_table(url: str, directory: Path, pause: Pause) -> list[int]:
    table = table_in(directory, "iceberg", "registered")
    exporter = ZeroCopyExporter(url, TOPIC, table)
    assert exporter.plan()
    pause()
    exporter.export_round()
    return read(table)["offset"].to_pylist()


def verify_segments(url: str, _: Path, pause: Pause) -> list[int]:
    work = MaintenanceOptions(is_verifying=True)
    with sync.connect(url, retry_s=RETRY_S) as client:
        report = maintain(client, TOPIC, work, ThreadRunner(1), tell=lambda _: pause())
    assert report.error is None
    assert not report.problems
    return list(range(report.messages_before))


def read_definitions(url: str, _: Path, pause: Pause) -> list[int]:
    async def export():
        async with pydanube.connect(url, retry_s=RETRY_S) as client:
            end = (await client.topics.describe(TOPIC)).end_offset
            await asyncio.to_thread(pause)
            assert TOPIC in (await export_definitions(client)).topics
            return list(range(end))

    return asyncio.run(export())


READERS = {
    each.__name__: each
    for each in (
        read_with_a_client,
        read_a_batch_of_spark,
        read_files_in_spark,
        plan_a_batch_of_spark,
        read_a_stream_of_spark,
        export_to_a_table,
        register_in_a_table,
        verify_segments,
        read_definitions,
    )
}
"""Each returns the offsets that it has read."""

SEALED_ONLY = {"register_in_a_table", "verify_segments"}
"""Those that read segments only."""


def read_with_librdkafka(address: str, topic: str, pause: Pause, end: int) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
            # It asks for one batch at a time, when its queue is empty.
            "fetch.max.bytes": 1000,
            "message.max.bytes": 1000,
            "queued.min.messages": 1,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    while len(offsets) < end:
        message = consumer.poll(1.0)
        if message is None or message.error():
            assert message is None or message.error().retriable(), message.error()
            continue
        if not offsets:
            pause()
        offsets.append(message.offset())
    consumer.close()
    return offsets


class Pauses:
    """The pauses of several readers, which end together."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._may_go_on = threading.Event()

    def pause(self) -> None:
        self._arrived.release()
        assert self._may_go_on.wait(WAIT_S)

    def wait(self, readings: Collection[Future[list[int]]]) -> None:
        """Wait until all readers pause; raise if one has failed before."""
        for _ in readings:
            while not self._arrived.acquire(timeout=0.1):
                for each in readings:
                    if each.done():
                        each.result()

    def end(self) -> None:
        self._may_go_on.set()


def start_readers(
    threads: ThreadPoolExecutor, url: str, directory: Path, pauses: Pauses
) -> dict[str, Future[list[int]]]:
    return {
        name: threads.submit(reader, url, directory, pauses.pause)
        for name, reader in READERS.items()
    }


def main() -> None:
    url, directory = sys.argv[1:]
    pauses = Pauses()
    with ThreadPoolExecutor(len(READERS)) as threads:
        try:
            readings = start_readers(threads, url, Path(directory), pauses)
            pauses.wait(readings.values())
            sys.stdout.write("read\n")
            sys.stdout.flush()
            sys.stdin.readline()
        finally:
            pauses.end()
        found = {name: each.result() for name, each in readings.items()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
