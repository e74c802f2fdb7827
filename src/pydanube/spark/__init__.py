"""
The Spark source and sink for topics, and what all sinks of Spark share.

``format("danube")`` works in any Spark session whose Python has this package.
``session()`` starts a session with suitable settings.
"""

from pydanube.spark.java import JavaNotFound
from pydanube.spark.package_archive import ship_by_value
from pydanube.spark.query_lag import lag
from pydanube.spark.session import configure, session

__all__ = ["JavaNotFound", "configure", "lag", "session", "ship_by_value"]
