"""
The Spark source and sink for topics, and what all sinks of Spark share.

``format("danube")`` works in any Spark session whose Python has this package.
``session()`` starts a session with suitable settings.
"""

from typing import TYPE_CHECKING

from pydanube.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pydanube_spark.java import JavaNotFound as JavaNotFound
    from pydanube_spark.package_archive import ship_by_value as ship_by_value
    from pydanube_spark.pure.query_lag import lag as lag
    from pydanube_spark.sessions import configure as configure
    from pydanube_spark.sessions import session as session
    from pydanube_spark.topic_table import table as table

# `danube --help` imports this package, and needs nothing of it.
_HOMES = {
    "JavaNotFound": "pydanube_spark.java",
    "configure": "pydanube_spark.sessions",
    "lag": "pydanube_spark.pure.query_lag",
    "session": "pydanube_spark.sessions",
    "ship_by_value": "pydanube_spark.package_archive",
    "table": "pydanube_spark.topic_table",
}

__all__ = list(_HOMES)  # They are imported when they are used.

__getattr__ = lazy_exports(__name__, _HOMES)
