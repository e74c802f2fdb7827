"""
A batch and a stream whose tasks fail, and run twice at the same time.

    python spark_speculation.py MASTER URL SOURCE TOPIC STREAM DIRECTORY CATALOG

The messages of the topic SOURCE are written to TOPIC and to a Delta table as a batch,
and to STREAM and to tables of Delta and Iceberg as streams.  In each job one task fails
the first time, and one waits until Spark runs a copy of it; files in DIRECTORY say
which attempts began.
"""

import json
import sys
import time
from pathlib import Path

import pydanube_spark
from support.drivers.spark_starts import until_started

WAIT_S = 60

CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    # Short jobs end before the optimizing compiler is worth its time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # As for the session of other tests: the machine may be busy.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.minTaskRuntime": "100ms",
}


def main(master, url, source, topic, stream, directory, catalog):
    spark = pydanube_spark.session(master=master, config=CONFIG)
    rows = (
        spark.read.format("danube")
        .options(url=url, subscribe=source)
        .load()
        .select("payload")
        .repartition(4)
    )
    changes = (
        spark.readStream.format("danube")
        .options(url=url, subscribe=source, startingOffsets="earliest")
        .load()
        .select("payload")
        .repartition(4)
    )

    def write(job, name, **options):
        made = unsteady(rows, directory, job).write.format(name)
        until_started(lambda: made.options(**options).mode("append").save())

    def write_stream(job, name, **options):
        options["checkpointLocation"] = f"{directory}/checkpoint-{job}"
        made = unsteady(changes, directory, job).writeStream.format(name)
        made = made.options(**options).trigger(availableNow=True)
        until_started(lambda: made.start().awaitTermination())

    properties = {f"catalog.{name}": each for name, each in json.loads(catalog).items()}
    write("topic", "danube", url=url, topic=topic)
    write("table", "danube-delta", path=f"{directory}/table")
    write_stream("stream", "danube", url=url, topic=stream)
    write_stream("delta", "danube-delta", path=f"{directory}/delta")
    write_stream("iceberg", "danube-iceberg", table="db.iceberg", **properties)
    spark.stop()


def unsteady(rows, directory, job):
    """*rows*, through tasks of which one fails at first, and one is slow at first."""

    def pass_on(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        number, attempt = task.partitionId(), task.attemptNumber()
        marker = Path(directory) / f"{job}-{number}-{attempt}"
        marker.touch()
        yield from batches
        if attempt == 0 and number == 1:
            raise ValueError("the first attempt fails")
        if attempt == 0 and number == 2:
            # Its rows are written; it ends with or after the copy.
            give_up_at = time.monotonic() + WAIT_S
            copy = Path(directory) / f"{job}-{number}-1"
            while not copy.exists() and time.monotonic() < give_up_at:
                time.sleep(0.05)

    return rows.mapInArrow(pass_on, rows.schema)


if __name__ == "__main__":
    main(*sys.argv[1:])
