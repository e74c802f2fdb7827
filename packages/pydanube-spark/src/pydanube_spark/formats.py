"""
The sink formats of this package, for ``df.write.format(…)``.

The module of each format has a Spark data source and a function ``check``, which
validates options and columns before a query starts: it returns all problems, or raises
the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from pydanube.model.errors import BrokerError
from pydanube.model.extras import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pydanube_spark.reader.pure.option_parsing import Option

SINKS = {
    "danube": "pydanube_spark.topic_sink",
    "danube-delta": "pydanube_spark.tables.delta",
    "danube-iceberg": "pydanube_spark.tables.iceberg",
    "danube-postgres": "pydanube_spark.sinks.postgres",
    "danube-clickhouse": "pydanube_spark.sinks.clickhouse",
    "danube-lancedb": "pydanube_spark.sinks.lancedb",
}
"""The module of each format."""


OPTIONS = {
    "danube": ("pydanube_spark.pure.write_options", "OPTIONS"),
    "danube-delta": ("pydanube_spark.tables.pure.table_options", "DELTA_OPTIONS"),
    "danube-iceberg": ("pydanube_spark.tables.pure.table_options", "ICEBERG_OPTIONS"),
    "danube-postgres": ("pydanube_spark.sinks.option_tables", "POSTGRES_OPTIONS"),
    "danube-clickhouse": ("pydanube_spark.sinks.option_tables", "CLICKHOUSE_OPTIONS"),
    "danube-lancedb": ("pydanube_spark.sinks.option_tables", "LANCEDB_OPTIONS"),
}
"""The module and the name of the table of options of each format."""


def declared_options(name: str) -> tuple[Option, ...]:
    """Return the options of the format *name* of this package, without PySpark."""
    module, table = OPTIONS[name]
    found: tuple[Option, ...] = getattr(import_module(module), table)
    return found


def check_sink(name: str, options: Mapping[str, str], schema: StructType) -> list[str]:
    """
    Return the problems of writing rows of *schema* with the format *name*.

    The check connects to the server, table or topic if the format has one.  It returns
    no problems for formats that are not of this package.
    """
    module = SINKS.get(name)
    if module is None:
        return []
    try:
        found: list[str] = import_module(module).check(options, schema)
    except (BrokerError, MissingExtra, OSError) as error:
        return [str(error)]
    return found
