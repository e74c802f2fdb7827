"""The common part of the data sources of Delta and of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_spark.dataframe_columns import columns_of
from pydanube_spark.pure.sink import BatchIdentity, Sink
from pydanube_spark.sink_data_source import SinkDataSource
from pydanube_spark.tables.pure.merging import check_upsert
from pydanube_spark.tables.pure.schema_evolution import rows_schema
from pydanube_spark.tables.pure.table_options import TableOptions, WriteOptions
from pydanube_spark.tables.staged_rows import StagingLocation
from pydanube_spark.tables.table import LakeTable
from pydanube_spark.tables.table_sink import LakeSink


class LakeDataSource(SinkDataSource):
    """A lakehouse table as a data source to write to."""

    readers: ClassVar[str]
    """How such a table is read, for an error message."""

    @staticmethod
    def parse(options: Mapping[str, str]) -> tuple[LakeTable, TableOptions]:
        """
        Return the table that *options* name, and the parsed options.

        Raises:
            InvalidConfig: An option is missing, unknown or invalid.
        """
        raise NotImplementedError

    @classmethod
    def check(cls, options: Mapping[str, str], schema: StructType) -> list[str]:
        """Raise if rows of *schema* cannot be written."""
        table, parsed = cls.parse(options)
        table.check(_stored(columns_of(schema), parsed.write), parsed.write)
        return []

    def schema(self) -> str:
        raise InvalidRequest(
            f"{self.name()} only writes; read the table with {self.readers}"
        )

    def sink(self, schema: StructType) -> tuple[LakeSink, BatchIdentity]:
        table, parsed = self.parse(self.options)
        columns = columns_of(schema)
        place = table.prepare(_stored(columns, parsed.write), parsed.write)
        is_merged = bool(parsed.write.upsert.keys)
        # With the types of the table, whose numbers may be wider.
        stored = {each.name: each for each in place.schema}
        staged = pa.schema(
            [
                stored.get(each.name, each)
                for each in columns
                if each.name != parsed.write.upsert.truncate
            ]
        )
        location = StagingLocation(place, rows_schema(staged)) if is_merged else place
        sink = LakeSink(
            table,
            location,
            file_bytes_max=parsed.write.file_bytes_max,
            is_named=parsed.identity.app is not None,
            upsert=parsed.write.upsert,
            upkeep=parsed.write.upkeep,
        )
        return sink, parsed.identity

    def overwriting(self, sink: Sink) -> Sink:
        assert isinstance(sink, LakeSink)
        if sink.upsert.keys:
            raise InvalidConfig(
                "keyColumns: all rows are overwritten; omit the option, or use "
                'mode("append") or outputMode("append")'
            )
        return replace(sink, is_overwrite=True)


def _stored(columns: pa.Schema, options: WriteOptions) -> pa.Schema:
    """Return those of *columns* that the table has."""
    if options.upsert.keys:
        check_upsert(columns, options.upsert)
    return pa.schema(
        [each for each in columns if each.name not in options.upsert.not_written]
    )
