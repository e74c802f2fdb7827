"""
Topics as tables and streams of Apache Spark.

``format("danube")`` works in any Spark session in whose Python this package is
installed; ``session()`` makes one with settings that suit it.
"""

from pydanube.spark.java import JavaNotFound
from pydanube.spark.package_archive import ship_by_value
from pydanube.spark.progress import lag
from pydanube.spark.session import configure, session

__all__ = ["JavaNotFound", "configure", "lag", "session", "ship_by_value"]
