"""The Python steps of pipeline.yaml."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ORDER = "number BIGINT, customer STRING, amount DOUBLE"


def parse_orders(orders: DataFrame, at_least: float) -> DataFrame:
    """Return orders of at least this amount, with customers in lower case."""
    parsed = orders.select(
        F.from_json(F.col("payload").cast("string"), ORDER).alias("o")
    )
    return (
        parsed.select("o.*")
        .where(F.col("amount") >= at_least)
        .withColumn("customer", F.lower("customer"))
    )
