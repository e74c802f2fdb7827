"""Where Spark finds ``format("danube-lancedb")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows into a table of LanceDB."""

    format = "danube-lancedb"
    sink = "pydanube_spark.sinks.lancedb:LanceDataSource"
