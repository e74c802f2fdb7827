"""
The formats of ``df.write.format(…)`` that come with this package.

Each is a module with a data source for Spark and a function ``check``, which
finds what is wrong with options and columns before anything is started.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

SINKS = {
    "danube": "pydanube.spark.topic_sink",
    "danube-delta": "pydanube.tables.delta",
    "danube-iceberg": "pydanube.tables.iceberg",
    "danube-postgres": "pydanube.sinks.postgres",
    "danube-clickhouse": "pydanube.sinks.clickhouse",
    "danube-lancedb": "pydanube.sinks.lancedb",
    "danube-http": "pydanube.sinks.http",
}
"""Where each format is written."""


def check_sink(name: str, options: Mapping[str, str], schema: StructType) -> list[str]:
    """
    What would keep rows of *schema* from being written so; empty if nothing.

    A format that is Spark's own is not looked into.  The server, table or topic is
    asked what it is like where the format has one.
    """
    module = SINKS.get(name)
    if module is None:
        return []
    found: list[str] = import_module(module).check(options, schema)
    return found
