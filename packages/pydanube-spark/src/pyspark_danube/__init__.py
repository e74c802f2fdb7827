"""
Where Spark finds ``format("danube")`` without being told.

Spark imports every top-level module whose name begins with ``pyspark_`` when a
Python data source is first used, and one that fails to import breaks all of
them; so this one, and those of the other formats, import nothing of
``pydanube`` until they are asked something.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LazyDataSource(DataSource):  # type: ignore[misc]
    """Delegates to data sources that are imported when they are first used."""

    format: ClassVar[str]
    sink: ClassVar[str]
    """The module and class that write, separated by a colon."""
    source: ClassVar[str] = ""
    """The module and class that read; empty: those that write, which refuse."""

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> Any:
        return self._make(self.source or self.sink).schema()

    def reader(self, schema: StructType) -> Any:
        return self._make(self.source or self.sink).reader(schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        return self._make(self.source or self.sink).streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return self._make(self.sink).writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return self._make(self.sink).streamWriter(schema, overwrite)

    def _make(self, place: str) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(self.options)


class DefaultSource(LazyDataSource):
    """Topics of a Danube broker."""

    format = "danube"
    source = "pydanube_spark.source:DanubeDataSource"
    sink = "pydanube_spark.topic_sink:DanubeSink"
