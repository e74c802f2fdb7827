"""
Latency from topic to topic through a stream of Spark, in real-time mode and without it.

``python -m bench.spark_realtime`` starts a broker of this checkout with its listener
for Kafka clients.  A producer publishes its clock at a steady rate, a stream of Spark
copies the messages into a second topic, and a consumer of that topic takes the time.
The streams are Spark's source and sink for Kafka in real-time mode, the same with
micro-batches that follow each other, and ``format("danube")``.

It prints the median and the 99th percentile in milliseconds, as a Markdown table.
Messages of the first seconds warm up.  ``tools/kafka`` fetches the jars.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pydanube.sync
from bench.scale import tell
from bench.servers import HOST, free_port
from pydanube_cli.bench.broker_process import running_broker
from pydanube_spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_S_MAX = 120.0
"""The longest that a stream may take until its first message is copied."""
LAST_S_MAX = 60.0
"""The longest that the last message may take."""
PERCENT = 100


class Way(NamedTuple):
    """A way to copy messages from topic to topic."""

    name: str
    is_kafka: bool
    is_realtime: bool


WAYS = (
    Way('format("kafka"), real-time mode', is_kafka=True, is_realtime=True),
    Way('format("kafka"), micro-batches', is_kafka=True, is_realtime=False),
    Way('format("danube"), micro-batches', is_kafka=False, is_realtime=False),
)


class Servers(NamedTuple):
    """Where clients find the broker."""

    url: str
    kafka: str


def main() -> None:
    """Measure with the numbers that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    add = parser.add_argument
    add("--seconds", type=float, default=20.0, help="how long each way is measured")
    add("--warm-up", type=float, default=10.0, help="seconds that are not counted")
    add("--rate", type=float, default=50.0, help="messages for each second")
    add("--cores", type=int, default=4, help="tasks that may run at the same time")
    add("--spark-jars", type=Path, default=Path(".venv/spark-kafka"))
    asked = parser.parse_args()
    if min(asked.seconds, asked.rate) <= 0 or asked.warm_up < 0 or asked.cores < 1:
        parser.error(
            "seconds, rate and cores are positive, and warm-up is not negative"
        )
    jars = sorted(map(str, asked.spark_jars.resolve().glob("*.jar")))
    if not jars:
        parser.error(f"{asked.spark_jars} has no jars: run tools/kafka")
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="realtime-"))
        directory = Path(place)
        port = free_port()
        settings = {"DANUBE_KAFKA__PORT": str(port), "DANUBE_KAFKA__PARTITIONS": "1"}
        broker = stack.enter_context(
            running_broker(directory / "data", directory / "log", settings)
        )
        servers = Servers(broker.url(), f"{HOST}:{port}")
        config = {"spark.jars": ",".join(jars)}
        master = f"local[{asked.cores}]"
        log = directory / "spark.log"
        spark = stack.enter_context(
            session("bench", master=master, config=config, log_file=log)
        )
        tell(f"{asked.rate:g} messages/s for {asked.seconds:g} s; milliseconds\n")
        tell("| | messages | median | 99th percentile |\n|---|---|---|---|")
        for number, way in enumerate(WAYS):
            found = sorted(
                _measure(spark, servers, way, directory / f"way-{number}", asked)
            )
            median, last = found[len(found) // 2], found[len(found) * 99 // PERCENT]
            tell(f"| {way.name} | {len(found):,} | {median:.1f} | {last:.1f} |")


def _measure(
    spark: SparkSession,
    servers: Servers,
    way: Way,
    place: Path,
    asked: argparse.Namespace,
) -> list[float]:
    """Return the milliseconds that each message takes, after those that warm up."""
    source, target = f"/default/{place.name}", f"/default/{place.name}-copy"
    with ExitStack() as stack:
        client = stack.enter_context(pydanube.sync.connect(servers.url))
        for topic in (source, target):
            client.topics.create(topic)
        consumer = stack.enter_context(
            client.consumer(target, subscription="bench", start="earliest")
        )
        query = stack.enter_context(
            _running(
                _rows(spark, servers, way, source), servers, way, target, str(place)
            )
        )
        producer = stack.enter_context(client.producer(source))
        producer.send(b"0")
        first = _receive(consumer, query, START_S_MAX)
        assert [each for each, _ in first] == [0], first
        warm, count = (int(s * asked.rate) for s in (asked.warm_up, asked.seconds))
        total = warm + max(1, count)
        publisher = threading.Thread(
            target=_publish, args=(producer, total, asked.rate), daemon=True
        )
        publisher.start()
        found: list[float] = []
        while len(found) < total:
            for sent_at, received_at in _receive(consumer, query, LAST_S_MAX):
                found.append((received_at - sent_at) / 1e6)
        publisher.join()
        assert len(found) == total, "a message was copied twice"
        return found[warm:]


def _rows(spark: SparkSession, servers: Servers, way: Way, source: str) -> DataFrame:
    """Return a stream of the payloads of *source*, as the sink names them."""
    if not way.is_kafka:
        options = {"url": servers.url, "subscribe": source}
        reader = spark.readStream.format("danube").options(**options)
        return reader.option("startingOffsets", "earliest").load().select("payload")
    options = {
        "kafka.bootstrap.servers": servers.kafka,
        "subscribe": source.rpartition("/")[2],
        "startingOffsets": "earliest",
    }
    return spark.readStream.format("kafka").options(**options).load().select("value")


@contextmanager
def _running(
    rows: DataFrame, servers: Servers, way: Way, target: str, checkpoint: str
) -> Iterator[StreamingQuery]:
    """Copy *rows* to the topic *target* while the body runs."""
    if way.is_kafka:
        options = {
            "kafka.bootstrap.servers": servers.kafka,
            "topic": target.rpartition("/")[2],
        }
        writer = rows.writeStream.format("kafka").options(**options)
    else:
        options = {"url": servers.url, "topic": target}
        writer = rows.writeStream.format("danube").options(**options)
    writer = writer.option("checkpointLocation", checkpoint)
    if way.is_realtime:
        # Spark starts a new batch, and stores its offsets, in these intervals.
        writer = writer.outputMode("update").trigger(realTime="5 minutes")
    else:
        writer = writer.trigger(processingTime="0 seconds")
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def _publish(producer: pydanube.sync.Producer, count: int, rate: float) -> None:
    """Publish the clock *count* times; a message that is late delays no other."""
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        producer.send(b"%d" % time.time_ns())


def _receive(
    consumer: pydanube.sync.Consumer[Any], query: StreamingQuery, timeout_s: float
) -> list[tuple[int, int]]:
    """Return when the next messages were sent and received, in nanoseconds."""
    messages = consumer.receive_batch(timeout_s=timeout_s)
    if not messages:
        raise SystemExit(f"no message for {timeout_s:g} s: {query.exception()}")
    now = time.time_ns()
    found = [(int(each.payload), now) for each in messages]
    for each in messages:
        consumer.ack(each)
    return found


if __name__ == "__main__":
    main()
