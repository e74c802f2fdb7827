"""
Where Spark finds ``format("danube-iceberg")`` without being told.

It imports nothing of ours until it is asked something: a module of this kind that
cannot be imported would break all Python data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """Rows into an Iceberg table; see ``pydanube.tables.iceberg``."""

    @classmethod
    def name(cls) -> str:
        return "danube-iceberg"

    def schema(self) -> Any:
        return self._sink().schema()

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return self._sink().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return self._sink().streamWriter(schema, overwrite)

    def _sink(self) -> Any:
        from pydanube.tables.iceberg import IcebergDataSource  # noqa: PLC0415

        return IcebergDataSource(self.options)
