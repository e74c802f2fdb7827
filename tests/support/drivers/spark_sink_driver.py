"""
A program that copies a topic to another with Spark, and is killed at given points.

    python spark_sink_driver.py URL SOURCE TARGET CHECKPOINT

``DIE_AT`` names points of micro-batches, such as ``after-write-1``.  The process that
reaches one kills the program and its JVM.  With ``VICTIM_FILE`` it kills the process
whose id is in that file instead, and the program restarts the query as a supervisor
would.  The program wraps the writers of the data source to insert these points.
``WORKER_PYTHON`` is the interpreter of Spark's Python processes.
"""

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException

import pydanube_spark
from pydanube_spark.sink_data_source import current_batch_number
from pydanube_spark.topic_sink import DanubeSink

QUERY_STARTS_MAX = 5
SHORT_JOBS = "-XX:TieredStopAtLevel=1"
"""Short jobs end before the optimizing compiler is worth its time."""


class DyingSink(DanubeSink):
    """The topic sink with points at which it kills a process."""

    die_at: tuple[str, ...] = ()
    victims: tuple[int, ...] = ()
    victim_file: str | None = None
    directory = ""
    """The directory that records kills, so that each happens once."""

    @classmethod
    def name(cls):
        return "danube-dying"

    def streamWriter(self, schema, overwrite):  # noqa: N802
        writer, reach = super().streamWriter(schema, overwrite), type(self).reach
        write, commit = writer.write, writer.commit

        class Wrapped(type(writer)):
            def __init__(self):
                pass

            def write(self, iterator):
                batch = current_batch_number()
                reach(f"before-write-{batch}")
                written = write(iterator)
                reach(f"after-write-{batch}")
                return written

            def commit(self, messages, batchId):  # noqa: N803
                reach(f"before-commit-{batchId}")
                commit(messages, batchId)
                reach(f"after-commit-{batchId}")

        return Wrapped()

    @classmethod
    def reach(cls, point):
        if point not in cls.die_at:
            return
        try:
            died = open(f"{cls.directory}/{point}", "x")  # noqa: PTH123, SIM115
        except FileExistsError:
            return
        with died:
            for victim in cls.find_victims():
                os.kill(victim, signal.SIGKILL)
            died.write(f"{victim}")

    @classmethod
    def find_victims(cls):
        if cls.victim_file is None:
            return cls.victims
        dead = {each.read_text() for each in Path(cls.directory).iterdir()}
        while (victim := Path(cls.victim_file).read_text()) in dead:
            time.sleep(0.02)
        return (int(victim),)


def main(url, source, target, checkpoint):
    spark = pydanube_spark.session(
        "kill",
        master="local[2]",
        config={
            "spark.pyspark.python": os.environ["WORKER_PYTHON"],
            "spark.driver.extraJavaOptions": SHORT_JOBS,
        },
        log_file=Path(f"{checkpoint}.log"),
    )
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    DyingSink.die_at = tuple(os.environ.get("DIE_AT", "").split(","))
    DyingSink.directory = f"{checkpoint}.points"
    DyingSink.victims = (jvm, os.getpid())
    DyingSink.victim_file = os.environ.get("VICTIM_FILE")
    Path(DyingSink.directory).mkdir(exist_ok=True)
    spark.dataSource.register(DyingSink)
    for _ in range(QUERY_STARTS_MAX):
        query = start(spark, url, source, target, checkpoint)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            sys.stderr.write(f"{error}\n")
        else:
            return
    sys.exit("the query fails again and again")


def start(spark, url, source, target, checkpoint):
    rows = (
        spark.readStream.format("danube")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .option("minPartitions", 2)
        .load()
    )
    return (
        rows.select("key", "payload")
        .writeStream.format("danube-dying")
        .option("url", url)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
