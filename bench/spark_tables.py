"""
Native tables beside Spark's own Parquet source on the same segment files.

``python -m bench.spark_tables`` starts a broker of this checkout, publishes messages
of random bytes with keys, and reads what is sealed with ``pydanube_spark.table``, with
``spark.read.parquet``, and with ``format("danube")``, in turns in one session: all
columns, offsets and payloads, and ``count()``.  Then it starts a new process for each
way, and measures the first and the second query of its session.

It prints seconds of processors, of the JVM, its Python processes and the driver in
Python, and seconds of time in brackets; medians of all rounds, as Markdown tables.

With ``--s3-jars DIRECTORY``, the segments are in an S3 server only.  It needs
``versitygw`` (see ``bench.remote_reads``), and the jars that ``tools/jars DIRECTORY
org.apache.hadoop:hadoop-aws:VERSION`` fetches, for the version of Spark's Hadoop.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException

import pydanube.sync
from bench.remote_reads import BUCKET, KEY, s3_server
from bench.scale import tell
from bench.usage import ProcessorTimes
from pydanube_cli.bench.broker_process import running_broker
from pydanube_spark import session, table
from pydanube_spark.pipelines.spark_errors import is_slow_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[[SparkSession, "Sealed", bool], DataFrame]

TOPIC = "/default/rows"
BATCH = 10_000
KEYS = 1_000
SEAL_TIMEOUT_S = 120.0
SEAL_AGE_S = 5
"""The age at which the rest is sealed, so that nearly everything is read."""
TWO = ("offset", "payload")


class Sealed(NamedTuple):
    """What is read: the part of the topic that is in segments."""

    url: str
    files: tuple[str, ...]
    message_count: int

    @property
    def options(self) -> dict[str, str]:
        """The options of a table of exactly these messages."""
        ends = json.dumps({TOPIC: self.message_count})
        return {"endingOffsets": ends, "includeAttributes": "true"}


class Use(NamedTuple):
    """What one query takes, in seconds."""

    processor: float
    wall: float


def _of_table(spark: SparkSession, sealed: Sealed, is_narrow: bool) -> DataFrame:
    rows = table(spark, TOPIC, sealed.url, options=sealed.options)
    return rows.select(*TWO) if is_narrow else rows


def _of_parquet(spark: SparkSession, sealed: Sealed, is_narrow: bool) -> DataFrame:
    rows = spark.read.parquet(*sealed.files)
    return rows.select(*TWO) if is_narrow else rows


def _of_source(spark: SparkSession, sealed: Sealed, is_narrow: bool) -> DataFrame:
    reader = spark.read.format("danube").options(**sealed.options)
    if is_narrow:
        reader = reader.option("columns", ",".join(TWO))
    return reader.option("url", sealed.url).option("subscribe", TOPIC).load()


WAYS: dict[str, Read] = {
    "table": _of_table,
    "Parquet": _of_parquet,
    'format("danube")': _of_source,
}
"""The ways to read; the second one is the yardstick."""


def main() -> None:
    """Measure with the numbers that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    add = parser.add_argument
    add("--messages", type=int, default=2_000_000)
    add("--bytes", type=int, default=200, help="the size of a payload")
    add("--rounds", type=int, default=5, help="turns of each way that count")
    add("--master", default="local[2]")
    add("--s3-jars", type=Path, help="read from an S3 server, with these jars")
    add("--versitygw", default=shutil.which("versitygw"))
    add("--queries-of", choices=WAYS, help=argparse.SUPPRESS)
    add("--sealed", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if min(asked.messages, asked.bytes, asked.rounds) < 1:
        parser.error("messages, bytes and rounds are positive")
    if asked.queries_of is not None:
        url, files, count = json.loads(asked.sealed)
        _measure_queries(Sealed(url, tuple(files), count), asked)
        return
    is_remote = asked.s3_jars is not None
    if is_remote and not any(asked.s3_jars.glob("hadoop-aws-*.jar")):
        parser.error(f"{asked.s3_jars} has no jar of hadoop-aws: run tools/jars")
    if is_remote and asked.versitygw is None:
        parser.error("versitygw is not installed; name it with --versitygw")
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-tables-"))
        directory = Path(place)
        settings = {"DANUBE_STORAGE__SEAL_AGE_S": str(SEAL_AGE_S)}
        if is_remote:
            os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
            options = stack.enter_context(s3_server(asked.versitygw, directory))
            os.environ["AWS_ENDPOINT_URL_S3"] = options["endpoint"]
            settings["DANUBE_STORAGE__REMOTE__URL"] = f"s3://{BUCKET}/history"
            settings["DANUBE_STORAGE__REMOTE__OPTIONS"] = json.dumps(options)
        broker = stack.enter_context(
            running_broker(directory / "data", directory / "log", settings)
        )
        sealed = _publish(broker.url(), asked, is_remote=is_remote)
        tell(
            f"{sealed.message_count:,} messages of {asked.bytes} bytes in "
            f"{len(sealed.files)} segments, {asked.master}; "
            "processor seconds (wall seconds)\n"
        )
        _measure_reads(sealed, asked)
        _compare_queries(sealed)


def _publish(url: str, asked: argparse.Namespace, *, is_remote: bool) -> Sealed:
    """Publish the messages, and wait until they are sealed."""
    rng = random.Random(1)  # noqa: S311
    keys = pa.array([b"key-%d" % (number % KEYS) for number in range(BATCH)])
    with pydanube.sync.connect(url) as client:
        with client.producer(TOPIC) as producer:
            for begin in range(0, asked.messages, BATCH):
                count = min(BATCH, asked.messages - begin)
                payloads = [rng.randbytes(asked.bytes) for _ in range(count)]
                columns = {"payload": pa.array(payloads), "key": keys[:count]}
                producer.send_batch(pa.record_batch(columns))
        if is_remote:
            client.storage.upload(TOPIC)
            client.storage.evict(TOPIC)
        give_up_at = time.monotonic() + SEAL_TIMEOUT_S
        while True:
            found = client.storage.segments(TOPIC)
            if found.sealed_offset == asked.messages:
                break
            if time.monotonic() > give_up_at:
                raise SystemExit("the broker has not sealed the messages")
            time.sleep(0.1)
    files = [each.url.replace("s3://", "s3a://") for each in found.segments]
    return Sealed(url, tuple(files), found.sealed_offset)


@contextmanager
def _spark(asked: argparse.Namespace) -> Iterator[tuple[SparkSession, ProcessorTimes]]:
    config = {}
    if asked.s3_jars is not None:
        bucket = f"spark.hadoop.fs.s3a.bucket.{BUCKET}"
        config = {
            # Without copies of a jar of 690 MB for each session.
            "spark.driver.extraClassPath": f"{asked.s3_jars.resolve()}/*",
            f"{bucket}.endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
            f"{bucket}.endpoint.region": "us-east-1",
            f"{bucket}.path.style.access": "true",
        }
    with (
        tempfile.TemporaryDirectory(prefix="spark-tables-") as name,
        session(
            "bench",
            master=asked.master,
            config=config,
            log_file=Path(name) / "spark.log",
        ) as spark,
    ):
        jvm = spark.sparkContext._jvm  # noqa: SLF001
        with ProcessorTimes(jvm.java.lang.ProcessHandle.current().pid()) as used:
            yield spark, used


def _measure_reads(sealed: Sealed, asked: argparse.Namespace) -> None:
    works: dict[str, Callable[..., None]] = {
        "all columns": partial(_drop, is_narrow=False),
        "offset and payload": partial(_drop, is_narrow=True),
        "`count()`": _count,
    }
    found: dict[tuple[str, str], list[Use]] = {}
    with _spark(asked) as (spark, used):
        # The first round warms up.
        for number in range(asked.rounds + 1):
            for work_name, work in works.items():
                for way, read in WAYS.items():
                    use = _use(used, partial(work, spark, sealed, read))
                    if number:
                        found.setdefault((work_name, way), []).append(use)
    tell("| | " + " | ".join(WAYS) + " | `table` to Parquet |")
    tell("|" + "---|" * (len(WAYS) + 2))
    for work_name in works:
        uses = [_median(found[work_name, way]) for way in WAYS]
        ours, theirs = uses[0], uses[1]
        ratio = Use(ours.processor / theirs.processor, ours.wall / theirs.wall)
        cells = [_shown(each) for each in [*uses, ratio]]
        tell(f"| {work_name} | " + " | ".join(cells) + " |")


def _drop(spark: SparkSession, sealed: Sealed, read: Read, *, is_narrow: bool) -> None:
    rows = read(spark, sealed, is_narrow)
    rows.write.format("noop").mode("overwrite").save()


def _count(spark: SparkSession, sealed: Sealed, read: Read) -> None:
    found = read(spark, sealed, False).count()
    assert found == sealed.message_count, (
        f"{found} of {sealed.message_count} messages were read"
    )


def _compare_queries(sealed: Sealed) -> None:
    """Measure each way in processes of their own."""
    tell("\n| query | first of a session | second |\n|---|---|---|")
    for way in WAYS:
        given = ["--queries-of", way, "--sealed", json.dumps(sealed), *sys.argv[1:]]
        command = [sys.executable, "-m", "bench.spark_tables", *given]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        uses = [_shown(Use(*each)) for each in json.loads(done.stdout)]
        tell(f"| {way} | " + " | ".join(uses) + " |")


def _measure_queries(sealed: Sealed, asked: argparse.Namespace) -> None:
    """Print what the first and the second query of this process take."""
    with _spark(asked) as (spark, used):
        work = partial(_query, spark, sealed, WAYS[asked.queries_of])
        tell(json.dumps([_use(used, work) for _ in range(2)]))


def _query(spark: SparkSession, sealed: Sealed, read: Read) -> None:
    """Aggregate one column that is small."""
    rows = read(spark, sealed, False)
    [row] = rows.groupBy("producer").count().collect()
    assert row["count"] == sealed.message_count


def _use(used: ProcessorTimes, work: Callable[[], object]) -> Use:
    """Return what *work* takes; it is repeated if Spark starts Python too slowly."""
    while True:
        before = used.total_s() + time.process_time()
        began = time.perf_counter()
        try:
            work()
        except PySparkException as error:
            if not is_slow_start(error):
                raise
            continue
        wall = time.perf_counter() - began
        return Use(used.total_s() + time.process_time() - before, wall)


def _median(uses: list[Use]) -> Use:
    processor = median(each.processor for each in uses)
    return Use(processor, median(each.wall for each in uses))


def _shown(use: Use) -> str:
    return f"{use.processor:.2f} ({use.wall:.2f})"


if __name__ == "__main__":
    main()
