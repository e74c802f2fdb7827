"""
A user's script that reads and writes topics; the tests run it on all kinds of Spark.

    python spark_script.py PLACE URL SOURCE TABLE STREAM CHECKPOINT [ship]

*PLACE* is a master, or ``sc://…``.  The script counts the topic SOURCE as a table,
writes it to the topic TABLE as a table, and copies it to the topic STREAM as a stream.
It prints its results as JSON.
"""

import json
import os
import sys

from pyspark.sql import functions as F  # noqa: N812

import pydanube_spark


def main(*words):
    place, url, source, table, stream, checkpoint, *how = words
    if place.startswith("sc://"):
        spark = pydanube_spark.session(remote=place)
    else:
        config = {"spark.executor.memory": "512m"}
        spark = pydanube_spark.session(master=place, config=config)
    if how:
        pydanube_spark.ship_by_value(spark)
    rows = (
        spark.read.format("danube")
        .options(url=url, subscribe=source, minPartitions=4)
        .load()
    )
    found = rows.agg(
        F.count("*").alias("rows"), F.count_distinct("offset").alias("offsets")
    ).first()
    rows.where("offset % 2 = 0").select("key", "payload").write.format(
        "danube"
    ).options(url=url, topic=table).mode("append").save()
    query = (
        spark.readStream.format("danube")
        .options(url=url, subscribe=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", 600)
        .option("minPartitions", 2)
        .load()
        .select("key", "payload")
        .writeStream.format("danube")
        .options(url=url, topic=stream, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    workers = spark.range(0, 40, 1, 4).mapInArrow(who, "home string")
    homes = workers.distinct().collect()
    done = {
        "rows": found.rows,
        "offsets": found.offsets,
        "batches": query.lastProgress["batchId"] + 1,
        "spark_home": os.environ.get("SPARK_HOME"),
        "homes": sorted({row.home for row in homes}),
        "settings": {
            name: spark.conf.get(name, None)
            for name in ("spark.sql.session.timeZone", "spark.master")
        },
    }
    sys.stdout.write(f"{json.dumps(done)}\n")
    spark.stop()


def who(batches):
    """Where a task runs: an executor has a directory of its own."""
    from pathlib import Path

    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch({"home": [str(Path.cwd())]})


if __name__ == "__main__":
    main(*sys.argv[1:])
