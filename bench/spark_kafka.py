"""
Reading with Spark beside Spark's own source for Kafka, on the same messages.

``python -m bench.spark_kafka`` starts a broker of this checkout with its listener for
Kafka clients, and Apache Kafka if its jars are there.  It publishes the same messages
to both, and reads them in one session with ``format("danube")``, with
``pydanube_spark.table``, and with ``format("kafka")``: as a table, as a table of
which only the payloads are read, and as a stream of one micro-batch.

It prints the processor seconds of Spark with its Python processes, and of the server,
medians of alternating rounds, as a Markdown table.  ``tools/kafka`` fetches the jars.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException

import pydanube.sync
from bench.scale import tell
from bench.servers import HOST, accepts, free_port, running
from bench.systems.kafka_broker import find_jars, prepare
from bench.usage import ProcessorTimes, processor_s
from pydanube_cli.bench.broker_process import running_broker
from pydanube_spark import session, table
from pydanube_spark.pipelines.spark_errors import is_slow_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[[SparkSession], DataFrame]

TOPIC = "rows"
OURS = f"/default/{TOPIC}"
BATCH = 10_000
SEAL_BYTES = 8 * 1024 * 1024
SEAL_TIMEOUT_S = 120.0


class Way(NamedTuple):
    """A way to read the messages."""

    name: str
    server: int
    """The process that serves them."""
    read: Read
    stream: Read | None
    payloads: Read
    """The same, of which only the payloads are wanted."""


class Use(NamedTuple):
    """Processor seconds."""

    spark: float
    server: float


def main() -> None:
    """Measure with the numbers that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark-jars", type=Path, default=Path(".venv/spark-kafka"))
    parser.add_argument("--kafka-jars", type=Path, default=Path(".venv/kafka"))
    asked = parser.parse_args()
    jars = sorted(map(str, asked.spark_jars.resolve().glob("*.jar")))
    if not jars:
        parser.error(f"{asked.spark_jars} has no jars: run tools/kafka")
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kafka-"))
        directory = Path(place)
        ways = _start_servers(stack, directory, asked)
        config = {"spark.jars": ",".join(jars)}
        log = directory / "spark.log"
        spark = stack.enter_context(
            session("bench", master="local[2]", config=config, log_file=log)
        )
        jvm = spark.sparkContext._jvm  # noqa: SLF001
        used = stack.enter_context(
            ProcessorTimes(jvm.java.lang.ProcessHandle.current().pid())
        )
        _measure(spark, used, directory, ways, asked)


def _start_servers(
    stack: ExitStack, directory: Path, asked: argparse.Namespace
) -> list[Way]:
    """Start the brokers, publish the messages, and return the ways to read them."""
    port = free_port()
    settings = {
        "DANUBE_KAFKA__PORT": str(port),
        "DANUBE_KAFKA__PARTITIONS": str(asked.partitions),
        # Most messages are in segments, as in a topic that is longer.
        "DANUBE_STORAGE__SEAL_BYTES": str(SEAL_BYTES),
    }
    broker = stack.enter_context(
        running_broker(directory / "data", directory / "log", settings)
    )
    url = broker.url()
    rng = random.Random(1)  # noqa: S311
    payloads = [_payload(rng, asked.bytes) for _ in range(BATCH)]
    _publish(f"{HOST}:{port}", payloads, asked)
    _wait_for_segments(url)
    options = {"url": url, "subscribe": OURS}
    more = {**options, "startingOffsets": "earliest"}
    ways = [
        Way(
            'format("danube")',
            broker.pid,
            lambda spark: spark.read.format("danube").options(**options).load(),
            lambda spark: spark.readStream.format("danube").options(**more).load(),
            lambda spark: (
                spark.read.schema("payload binary")
                .format("danube")
                .options(**options)
                .load()
            ),
        ),
        Way(
            "pydanube_spark.table",
            broker.pid,
            lambda spark: table(spark, OURS, url),
            None,
            lambda spark: table(spark, OURS, url).select("payload"),
        ),
        _of_kafka("from this broker", broker.pid, port),
    ]
    jars = find_jars() or asked.kafka_jars.resolve()
    if not any(jars.glob("kafka_2.*.jar")):
        tell(f"{jars} has no jars of Kafka: run tools/kafka\n")
        return ways
    own = free_port()
    place = directory / "kafka"
    place.mkdir()
    command = prepare(place, own, jars, {})
    pid = stack.enter_context(
        running(command, place / "log", is_ready=lambda: accepts(own))
    )
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{own}"})
    admin.create_topics([NewTopic(TOPIC, asked.partitions, 1)])[TOPIC].result(60)
    _publish(f"{HOST}:{own}", payloads, asked)
    return [*ways, _of_kafka("from Apache Kafka", pid, own)]


def _payload(rng: random.Random, size: int) -> bytes:
    """Return JSON of *size* bytes, half of which is text that does not compress."""
    text = rng.randbytes(size // 4).hex()
    made = f'{{"id": {rng.randrange(10**9)}, "text": "{text}", "more": "'
    return made.ljust(size - 2, "x").encode()[: size - 2] + b'"}'


def _publish(servers: str, payloads: list[bytes], asked: argparse.Namespace) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * BATCH,
        }
    )
    for number in range(asked.messages):
        if not number % BATCH:
            producer.flush()
        value = payloads[number % BATCH]
        producer.produce(TOPIC, value, b"%d" % number)
    assert not producer.flush(60), "not all messages were published"


def _wait_for_segments(url: str) -> None:
    """Wait until the broker has sealed what it will seal of its own accord."""
    give_up_at = time.monotonic() + SEAL_TIMEOUT_S
    with pydanube.sync.connect(url) as client:
        for topic in client.topics.partitions(OURS):
            while not client.topics.describe(topic).segment_count:
                if time.monotonic() > give_up_at:
                    tell("The broker has sealed no segment; publish more messages.\n")
                    return
                time.sleep(0.1)


def _of_kafka(name: str, server: int, port: int) -> Way:
    options = {
        "kafka.bootstrap.servers": f"{HOST}:{port}",
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }
    return Way(
        f'format("kafka") {name}',
        server,
        lambda spark: spark.read.format("kafka").options(**options).load(),
        lambda spark: spark.readStream.format("kafka").options(**options).load(),
        lambda spark: (
            spark.read.format("kafka").options(**options).load().select("value")
        ),
    )


def _measure(
    spark: SparkSession,
    used: ProcessorTimes,
    directory: Path,
    ways: list[Way],
    asked: argparse.Namespace,
) -> None:
    tell(f"{asked.messages:,} messages; processor seconds of Spark + of the server\n")
    names = ("all columns", "payloads", "stream")
    found: dict[tuple[str, str], list[Use]] = {}
    for number in range(asked.rounds + 1):
        for index, way in enumerate(ways):
            if not number:
                assert way.read(spark).count() == asked.messages, way.name
            uses = [
                _use(used, way, partial(_drop, way.read, spark)),
                _use(used, way, partial(_drop, way.payloads, spark)),
            ]
            if way.stream is not None:
                place = str(directory / f"checkpoint-{number}-{index}")
                uses.append(_use(used, way, partial(_copy, way.stream, spark, place)))
            # The first round warms up.
            for name, use in zip(names, uses, strict=False):
                if number:
                    found.setdefault((way.name, name), []).append(use)
    tell("| | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for way in ways:
        shown = [_shown(found.get((way.name, name), [])) for name in names]
        tell(f"| {way.name} | " + " | ".join(shown) + " |")


def _drop(read: Read, spark: SparkSession) -> None:
    read(spark).write.format("noop").mode("overwrite").save()


def _copy(read: Read, spark: SparkSession, place: str) -> None:
    writer = read(spark).writeStream.format("noop")
    query = writer.option("checkpointLocation", place).trigger(availableNow=True)
    query.start().awaitTermination()


def _use(used: ProcessorTimes, way: Way, work: Callable[[], object]) -> Use:
    """Return what *work* takes; it is repeated if Spark starts Python too slowly."""
    while True:
        before = used.total_s(), processor_s([way.server])
        try:
            work()
        except PySparkException as error:
            if not is_slow_start(error):
                raise
            continue
        return Use(used.total_s() - before[0], processor_s([way.server]) - before[1])


def _shown(uses: list[Use]) -> str:
    if not uses:
        return ""
    spark = median(each.spark for each in uses)
    return f"{spark:.2f} + {median(each.server for each in uses):.2f}"


if __name__ == "__main__":
    main()
