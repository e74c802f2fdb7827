"""
A driver that writes a topic into a Delta and an Iceberg table, and dies on the way.

    lake_driver.py DIRECTORY URL TOPIC POINT BATCH KEYS

With KEYS above 0, rows are upserted by the remainder of their offset by KEYS.
The two queries run at once.  When both have come to POINT in their micro-batch BATCH,
the whole process group is killed.  With the point "wait" they wait there for a file
called "go" instead, and end well.
"""

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamArrowWriter

import pydanube_spark
from pydanube_spark.sessions import QUERY_VARIABLES
from pydanube_spark.sink_data_source import current_batch_number
from pydanube_spark.tables.delta import DeltaDataSource
from pydanube_spark.tables.iceberg import IcebergDataSource

directory, url, topic, point, number, keys = sys.argv[1:]
place = (str(directory), os.getpgid(0), point, int(number))

SLOW_WORKER = "failed to connect back"
"""A query that fails with this is started again: Spark waits only ten seconds."""


class Dying(DataSourceStreamArrowWriter):
    """A sink's writer that dies at one point."""

    def __init__(self, kind, writer):
        self.kind = kind
        self.writer = writer
        self.place = place

    def write(self, iterator):
        self.reach("before the write", current_batch_number())
        return self.writer.write(iterator)

    def commit(self, messages, batchId):  # noqa: N803
        self.reach("after the write", batchId)
        self.reach("wait", batchId)
        self.writer.commit(messages, batchId)
        self.reach("after the commit", batchId)

    def abort(self, messages, batchId):  # noqa: N803
        self.writer.abort(messages, batchId)

    def reach(self, reached, batch):
        where, group, wanted, wanted_batch = self.place
        if (reached, batch) != (wanted, wanted_batch):
            return
        Path(where, f"{self.kind}-{reached}").touch()
        while not Path(where, "go").exists():
            both = (Path(where, f"{kind}-{reached}") for kind in ("delta", "iceberg"))
            if reached != "wait" and all(path.exists() for path in both):
                os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)


class DyingDelta(DeltaDataSource):
    @classmethod
    def name(cls):
        return "dying-delta"

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return Dying("delta", super().streamWriter(schema, overwrite))


class DyingIceberg(IcebergDataSource):
    @classmethod
    def name(cls):
        return "dying-iceberg"

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return Dying("iceberg", super().streamWriter(schema, overwrite))


UPSERT = {"keyColumns": "key", "orderColumns": "offset"}


def start(spark, kind, options):
    key = f"offset % {keys} AS key" if int(keys) else "offset AS key"
    return (
        spark.readStream.format("danube")
        .option("url", url)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .option("fetchOffset.numRetries", 240)
        .load()
        .selectExpr("offset", "payload", key)
        .writeStream.format(f"dying-{kind}")
        .options(**options, **(UPSERT if int(keys) else {}))
        .option("checkpointLocation", f"{directory}/checkpoint-{kind}")
        .trigger(availableNow=True)
        .start()
    )


def main():
    from support.drivers.lake_tables import catalog_of

    spark = pydanube_spark.session(
        "dying", master="local[4]", log_file=Path(directory, "log")
    )
    # Both queries add these to one map that has no lock, so they must be in it already.
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    variables = sources.lookupDataSource("danube").dataSourceCls().envVars()
    assert all(variables.containsKey(name) for name in QUERY_VARIABLES)
    spark.dataSource.register(DyingDelta)
    spark.dataSource.register(DyingIceberg)
    catalog = {f"catalog.{k}": v for k, v in catalog_of(directory).items()}
    going = {
        kind: (options, start(spark, kind, options))
        for kind, options in (
            ("delta", {"path": f"{directory}/table"}),
            ("iceberg", {"table": "db.table", **catalog}),
        )
    }
    while going:
        time.sleep(0.1)
        for kind, (options, query) in list(going.items()):
            if query.isActive:
                continue
            del going[kind]
            error = query.exception()
            if error is not None and SLOW_WORKER in str(error):
                going[kind] = options, start(spark, kind, options)
            elif error is not None:
                raise error
    spark.stop()


if __name__ == "__main__":
    main()
