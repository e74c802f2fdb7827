"""
``df.write.format("danube-iceberg")``: rows into an Iceberg table, without any jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.spark.lake.iceberg_table import IcebergLakeTable
from pydanube.spark.lake.options import parse_iceberg
from pydanube.spark.lake.sink import LakeSink
from pydanube.spark.sinks.columns import columns_of
from pydanube.spark.sinks.writers import SinkDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pydanube.spark.sinks.batches import Identity, Sink


class IcebergDataSource(SinkDataSource):
    """An Iceberg table to be written to."""

    @classmethod
    def name(cls) -> str:
        return "danube-iceberg"

    def schema(self) -> str:
        raise InvalidRequest(
            "danube-iceberg only writes; read the table with the package pyiceberg, "
            "with Polars, or with Iceberg's own connector for Spark"
        )

    def sink(self, schema: StructType) -> tuple[LakeSink, Identity]:
        options = parse_iceberg(self.options)
        table = IcebergLakeTable(options.table, options.catalog)
        place = table.prepare(columns_of(schema), options.write)
        sink = LakeSink(
            table,
            place,
            file_bytes_max=options.write.file_bytes_max,
            is_named=options.identity.app is not None,
        )
        return sink, options.identity

    def replacing(self, sink: Sink) -> Sink:
        assert isinstance(sink, LakeSink)
        return sink.replacing()


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """What would keep rows of *schema* from being written; empty if nothing."""
    try:
        parsed = parse_iceberg(options)
        table = IcebergLakeTable(parsed.table, parsed.catalog)
        table.check(columns_of(schema), parsed.write)
    except BrokerError as error:
        return [str(error)]
    return []
