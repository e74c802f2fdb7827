"""Where Spark finds ``format("danube-iceberg")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows into an Iceberg table."""

    format = "danube-iceberg"
    sink = "pydanube_spark.tables.iceberg:IcebergDataSource"
