"""
A batch and a stream whose tasks fail, and run twice at the same time.

    python spark_speculation.py MASTER URL SOURCE TOPIC STREAM DIRECTORY

The messages of the topic SOURCE are written to TOPIC and to a Delta table as a batch,
and to STREAM as a stream.  In each job one task fails the first time, and one waits
until Spark runs a copy of it; files in DIRECTORY say which attempts began.
"""

import sys
import time
from pathlib import Path

import pydanube_spark

WAIT_S = 60

CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.minTaskRuntime": "100ms",
}


def main(master, url, source, topic, stream, directory):
    spark = pydanube_spark.session(master=master, config=CONFIG)
    rows = (
        spark.read.format("danube")
        .options(url=url, subscribe=source)
        .load()
        .select("payload")
        .repartition(4)
    )
    unsteady(rows, directory, "topic").write.format("danube").options(
        url=url, topic=topic
    ).mode("append").save()
    table = {"path": f"{directory}/table"}
    unsteady(rows, directory, "table").write.format("danube-delta").options(
        **table
    ).mode("append").save()
    query = (
        unsteady(
            spark.readStream.format("danube")
            .options(url=url, subscribe=source, startingOffsets="earliest")
            .load()
            .select("payload")
            .repartition(4),
            directory,
            "stream",
        )
        .writeStream.format("danube")
        .options(url=url, topic=stream, checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
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
