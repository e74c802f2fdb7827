"""
Writes whose executor is lost when it has staged its rows, and Spark does not know it.

    python spark_lost_executors.py MASTER URL SOURCE DIRECTORY TOPIC CATALOG

The messages of the topic SOURCE are written to TOPIC and to tables of Delta and Iceberg
in DIRECTORY, as a batch and as a stream, of which one is merged into each table.  Each
write has a task that kills its executor once; a file in DIRECTORY says which write.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pydanube_spark
from pydanube_spark.tables.delta import DeltaDataSource
from pydanube_spark.tables.iceberg import IcebergDataSource
from pydanube_spark.topic_sink import DanubeSink
from support.drivers.spark_starts import until_started

KEYS = 10
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # Short jobs end before the optimizing compiler is worth its time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # As for the session of other tests: the machine may be busy.
    "spark.python.authenticate.socketTimeout": "120s",
}


class LosingSink:
    """A sink whose last task ends its executor once for each write."""

    def __init__(self, sink, directory):
        self._sink = sink
        self._directory = directory

    def write(self, key, batches):
        written = self._sink.write(key, batches)
        if key.partition == 1:
            lose_executor(Path(self._directory, f"lost-{key.batch}"))
        return written

    def commit(self, key, outputs):
        self._sink.commit(key, outputs)

    def abort(self, key, outputs):
        self._sink.abort(key, outputs)


def losing(source, given):
    """The data source *source* with ``LosingSink``."""

    class Losing(source):
        @classmethod
        def name(cls):
            return f"{source.name()}-losing"

        def sink(self, schema):
            sink, identity = super().sink(schema)
            return LosingSink(sink, given), identity

    return Losing


def lose_executor(marker):
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in words_of(process):
        # The parent follows the name of the program, which is in parentheses.
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    # This attempt must not end before its executor does.
    signal.pause()


def words_of(process):
    return Path(f"/proc/{process}/cmdline").read_bytes()


def main(master, url, source, directory, topic, catalog):
    spark = pydanube_spark.session(master=master, config=CONFIG)
    for each in (DanubeSink, DeltaDataSource, IcebergDataSource):
        spark.dataSource.register(losing(each, directory))
    read = {"url": url, "subscribe": source}

    def rows_of(reader):
        numbers = reader.selectExpr("bigint(string(payload)) AS n")
        return numbers.selectExpr(f"n % {KEYS} AS id", "n").repartition(2)

    batch = rows_of(spark.read.format("danube").options(**read).load())
    stream = rows_of(
        spark.readStream.format("danube")
        .options(**read, startingOffsets="earliest")
        .load()
    )
    properties = {f"catalog.{name}": each for name, each in json.loads(catalog).items()}
    upsert = {"keyColumns": "id", "orderColumns": "n"}
    for kind, rows, merged in (
        ("batch", batch, "delta"),
        ("stream", stream, "iceberg"),
    ):
        payloads = rows.selectExpr("string(n) AS payload")
        write(kind, payloads, "danube", directory, {"url": url, "topic": topic})
        for name, options in (
            ("delta", {"path": f"{directory}/{kind}"}),
            ("iceberg", {"table": f"db.{kind}", **properties}),
        ):
            more = upsert if name == merged else {}
            write(kind, rows, f"danube-{name}", directory, options | more)
    spark.stop()


def write(kind, rows, name, directory, options):
    def run():
        if kind == "batch":
            made = rows.write.format(f"{name}-losing").options(**options)
            made.mode("append").save()
            return
        checkpoint = Path(directory, "checkpoints", name)
        made = rows.writeStream.format(f"{name}-losing").options(**options)
        made = made.option("checkpointLocation", str(checkpoint))
        made.trigger(availableNow=True).start().awaitTermination()

    until_started(run)


if __name__ == "__main__":
    main(*sys.argv[1:])
