"""
Topics as tables and streams of Apache Spark.

``format("danube")`` works in any Spark session in whose Python this package is
installed; ``session()`` makes one with settings that suit it.
"""

from pydanube.spark.java import JavaNotFound
from pydanube.spark.session import session

__all__ = ["JavaNotFound", "session"]
