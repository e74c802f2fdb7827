"""The common part of the data sources of Delta and of Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydanube.model.errors import InvalidRequest
from pydanube.spark.dataframe_columns import columns_of
from pydanube.spark.sink_data_source import SinkDataSource
from pydanube.tables.table_sink import LakeSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pydanube.spark.sink import BatchIdentity, Sink
    from pydanube.tables.table import LakeTable
    from pydanube.tables.table_options import WriteOptions


class LakeDataSource(SinkDataSource):
    """A lakehouse table as a data source to write to."""

    readers: ClassVar[str]
    """How such a table is read, for an error message."""

    @staticmethod
    def parse_options(
        options: Mapping[str, str],
    ) -> tuple[LakeTable, WriteOptions, BatchIdentity]:
        """
        Return the table, the write options and the batch identity in *options*.

        Raises:
            InvalidConfig: An option is missing, unknown or invalid.
        """
        raise NotImplementedError

    @classmethod
    def check(cls, options: Mapping[str, str], schema: StructType) -> list[str]:
        """Raise if rows of *schema* cannot be written."""
        table, write, _ = cls.parse_options(options)
        table.check(columns_of(schema), write)
        return []

    def schema(self) -> str:
        raise InvalidRequest(
            f"{self.name()} only writes; read the table with {self.readers}"
        )

    def sink(self, schema: StructType) -> tuple[LakeSink, BatchIdentity]:
        table, write, identity = self.parse_options(self.options)
        location = table.prepare(columns_of(schema), write)
        sink = LakeSink(
            table,
            location,
            file_bytes_max=write.file_bytes_max,
            is_named=identity.app is not None,
        )
        return sink, identity

    def overwriting(self, sink: Sink) -> Sink:
        assert isinstance(sink, LakeSink)
        return sink.overwriting()
