"""Where Spark finds ``format("danube-http")``; see ``pyspark_danube``."""

from pyspark_danube import LazyDataSource


class DefaultSource(LazyDataSource):
    """Rows to a web server."""

    format = "danube-http"
    sink = "pydanube.sinks.http:HttpDataSource"
