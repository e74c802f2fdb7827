"""Where Spark finds ``format("danube-postgres")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows into a table of PostgreSQL."""

    format = "danube-postgres"
    sink = "pydanube_spark.sinks.postgres:PostgresDataSource"
