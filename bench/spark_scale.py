"""
What Spark's driver does with many partitions and many small segments, without Spark.

``python -m bench.spark_scale`` starts a broker of this checkout, records topics with
many partitions, and one with many small segments, in its metadata store, and restarts
it.  It then calls the readers of ``pydanube_spark`` as Spark's driver does, and prints
the processor time of the driver and the broker for each step, as a Markdown table.
The segments have no files: planning reads none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pydanube.sync
from bench.scale import Broker, Table, tell
from bench.usage import processor_s
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import OPERATIONS_MAX, Put
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.scan_reader import SCHEMA_DEFAULT
from pydanube_spark.source import BatchReader
from pydanube_spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

WIDE = "/default/wide"
SMALL = "/default/small"
MESSAGES = 100
"""The messages of a segment."""
SEGMENT_BYTES = 20_000
PARTITIONS_MAX = 4000
"""The most partitions of one topic."""
POLLS = 20
PARALLELISM = 200
"""The cores of 100 executors."""


class Measuring:
    """The processor time of the driver, which is this process, and of the broker."""

    def __init__(self, broker: Broker, table: Table) -> None:
        self._broker = broker
        self._table = table

    def step(self, what: str, work: Callable[[], T], *, times: int = 1) -> T:
        """Do *work*, and add a row with what it took; with *times*, each time."""
        pid = self._broker.process.pid
        began, driver, server = time.perf_counter(), time.process_time(), self._cpu(pid)
        for _ in range(times - 1):
            work()
        found = work()
        took = time.perf_counter() - began
        driver = time.process_time() - driver
        server = self._cpu(pid) - server
        self._table.row(
            what,
            f"{driver / times:.3f} s driver, {server / times:.3f} s broker, "
            f"{took / times:.3f} s in all",
        )
        return found

    def tell(self, what: str, figure: str) -> None:
        """Add a row."""
        self._table.row(what, figure)

    def _cpu(self, pid: int) -> float:
        return processor_s([pid])


def measure(broker: Broker, partitions: int, segments: int, data: Path) -> None:
    """Record the topics, restart the broker, and print the table."""
    wide = [
        (f"{WIDE}-{number}", min(PARTITIONS_MAX, partitions - first))
        for number, first in enumerate(range(0, partitions, PARTITIONS_MAX))
    ]
    with pydanube.sync.connect(broker.url) as client:
        for name, count in wide:
            client.topics.create(name, partitions=count)
        client.topics.create(SMALL)
    broker.stop()
    asyncio.run(_record(data / "metadata.sqlite", 0, segments))
    broker.start()
    measuring = Measuring(broker, Table())
    _measure_partitions(measuring, broker.url, [name for name, _ in wide], partitions)
    _measure_segments(measuring, broker.url, segments)
    _measure_catalog(measuring, broker, data / "metadata.sqlite", segments)


def _measure_partitions(
    measuring: Measuring, url: str, topics: list[str], count: int
) -> None:
    options = {"url": url, "subscribe": ",".join(topics)}
    batch = _batch(options)
    plan = measuring.step(f"first plan, {count:,} partitions", batch.partitions)
    measuring.tell("its tasks", f"{len(plan):,}, {_pickled(plan):,} bytes")
    measuring.step("the same plan again", _batch(options).partitions)
    stream = StreamReader(
        parse_read_options(options | {"startingoffsets": "earliest"}, Mode.STREAM),
        SCHEMA_DEFAULT,
        wait=lambda _: None,
    )
    start = measuring.step("first offsets of a stream", stream.initialOffset)
    limit = stream.getDefaultReadLimit()
    end = measuring.step(
        "end of the first micro-batch", lambda: stream.latestOffset(start, limit)
    )
    measuring.tell("offsets in the checkpoint", f"{len(json.dumps(end)):,} bytes")
    tasks = measuring.step(
        "plan of the first micro-batch", lambda: stream.partitions(start, end)
    )
    measuring.tell("its tasks", f"{len(tasks):,}, {_pickled(tasks):,} bytes")
    measuring.step(
        f"a poll with nothing new (of {POLLS})",
        lambda: stream.latestOffset(end, limit),
        times=POLLS,
    )
    with (
        pydanube.sync.connect(url) as client,
        client.producer(f"{topics[0]}-part-7") as producer,
    ):

        def publish_and_poll() -> dict[str, Any]:
            nonlocal end
            producer.send(b"x")
            begin, end = end, stream.latestOffset(end, limit)
            assert begin != end
            assert len(stream.partitions(begin, end)) == 1
            return end

        publish_and_poll()
        measuring.step(
            f"a message in one partition: poll and plan (of {POLLS})",
            publish_and_poll,
            times=POLLS,
        )


def _measure_segments(measuring: Measuring, url: str, count: int) -> None:
    options = {"url": url, "subscribe": SMALL}
    reader = _batch(options)
    plan = measuring.step(f"first plan, {count:,} small segments", reader.partitions)
    measuring.tell("its tasks", f"{len(plan):,}, {_pickled(plan):,} bytes")
    again = _batch(options | {"minpartitions": str(PARALLELISM)})
    plan = measuring.step(f"plan for {PARALLELISM} tasks", again.partitions)
    measuring.tell("its tasks", f"{len(plan):,}, {_pickled(plan):,} bytes")


def _measure_catalog(
    measuring: Measuring, broker: Broker, store: Path, count: int
) -> None:
    """Load the Iceberg table of SMALL; it changes while the broker is stopped."""
    table = "/iceberg/v1/namespaces/default/tables/small"
    measuring.step("Iceberg table, first state", lambda: broker.get(table))
    measuring.step("Iceberg table, the same state", lambda: broker.get(table))
    broker.stop()
    asyncio.run(_record(store, count, count + 1))
    broker.start()
    measuring.step(
        "Iceberg table with one segment more, after a restart",
        lambda: broker.get(table),
    )


def _batch(options: dict[str, str]) -> BatchReader:
    return BatchReader(parse_read_options(options, Mode.BATCH), SCHEMA_DEFAULT)


def _pickled(plan: list[Any]) -> int:
    """Return the size of *plan* as Spark's driver receives it."""
    import cloudpickle  # noqa: PLC0415

    return sum(len(cloudpickle.dumps(each)) for each in plan)


async def _record(path: Path, begin: int, end: int) -> None:
    """Record the segments *begin* to *end* of SMALL; the first also of partitions."""
    async with open_sqlite(path) as store:
        puts: list[Any] = []
        for key, stored in await store.scan(keys.TOPICS):
            name, topic_id = keys.TOPICS.name_of(key), TopicId(stored.value.topic_id)
            puts += _puts(topic_id, begin, end if f"/{name}" == SMALL else 1)
        for first in range(0, len(puts), OPERATIONS_MAX):
            await store.transaction([], puts[first : first + OPERATIONS_MAX])


def _puts(topic_id: TopicId, begin: int, end: int) -> Iterator[Put[SegmentEntry]]:
    for base in range(begin * MESSAGES, end * MESSAGES, MESSAGES):
        entry = SegmentEntry(
            base=base,
            end=base + MESSAGES,
            epoch=1,
            count=MESSAGES,
            byte_count=SEGMENT_BYTES,
            object_name=f"{topic_id:06}/{base:020}-{base + MESSAGES:020}-1.parquet",
            first_publish_time=base,
            last_publish_time=base + MESSAGES,
            sealed_at=0,
            checksum=base,
            part_checksums=bytes(4 * 14),
        )
        yield Put(keys.segment(topic_id, base), entry)


def main() -> None:
    """Measure with the numbers that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    # The driver would warn that it cannot read the files.
    logging.getLogger("pydanube_spark").setLevel(logging.ERROR)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--segments", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-scale-") as place:
        directory = Path(place)
        broker = Broker(directory)
        broker.start()
        try:
            measure(broker, asked.partitions, asked.segments, directory / "data")
        finally:
            broker.stop()
        tell("")


if __name__ == "__main__":
    main()
