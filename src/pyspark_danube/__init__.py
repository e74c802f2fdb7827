"""
Where Spark finds ``format("danube")`` without being told.

Spark imports every top-level module whose name begins with ``pyspark_`` when a
Python data source is first used, and one that fails to import breaks all of
them; so this one imports nothing of ours until it is asked something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """Topics of a Danube broker; see ``pydanube.spark.source`` and ``writer``."""

    @classmethod
    def name(cls) -> str:
        return "danube"

    def schema(self) -> Any:
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return self._sink().writer(schema, overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        return self._sink().streamWriter(schema, overwrite)

    def _sink(self) -> DataSource:
        from pydanube.spark.topic_sink import DanubeSink  # noqa: PLC0415

        return DanubeSink(self.options)

    def _source(self) -> DataSource:
        from pydanube.spark.source import DanubeDataSource  # noqa: PLC0415

        return DanubeDataSource(self.options)
