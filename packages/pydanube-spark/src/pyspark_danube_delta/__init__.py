"""Where Spark finds ``format("danube-delta")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows into a Delta table."""

    format = "danube-delta"
    sink = "pydanube_spark.tables.delta:DeltaDataSource"
