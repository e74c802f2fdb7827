"""Topics as tables and sinks of a declarative pipeline."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
URL = spark.conf.get("danube.url") or "danube://127.0.0.1:6651"


@dp.table
def messages() -> DataFrame:
    """Return all messages of the topic."""
    return (
        spark.readStream.format("danube")
        .option("url", URL)
        .option("subscribe", "/default/orders")
        .option("startingOffsets", "earliest")
        .load()
        .select("offset", "key", F.col("payload").cast("string").alias("payload"))
    )


dp.create_sink("seen", "danube", {"url": URL, "topic": "/default/seen-orders"})


@dp.append_flow(target="seen")
def to_seen() -> DataFrame:
    """Write the messages to another topic."""
    return spark.readStream.table("messages").select("key", "payload")
