"""Where Spark finds ``format("danube-clickhouse")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows into a table of ClickHouse."""

    format = "danube-clickhouse"
    sink = "pydanube_spark.sinks.clickhouse:ClickHouseDataSource"
