"""
``df.write.format("danube-delta")``: rows into a Delta table, without any jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.spark.lake.delta_table import DeltaLakeTable
from pydanube.spark.lake.options import parse_delta
from pydanube.spark.lake.sink import LakeSink
from pydanube.spark.sinks.columns import columns_of
from pydanube.spark.sinks.writers import SinkDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pydanube.spark.sinks.batches import Identity, Sink


class DeltaDataSource(SinkDataSource):
    """A Delta table to be written to."""

    @classmethod
    def name(cls) -> str:
        return "danube-delta"

    def schema(self) -> str:
        raise InvalidRequest(
            "danube-delta only writes; read the table with the package deltalake, with "
            "Polars, or with Delta's own connector for Spark"
        )

    def sink(self, schema: StructType) -> tuple[LakeSink, Identity]:
        options = parse_delta(self.options)
        table = DeltaLakeTable(options.path, options.storage)
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
        parsed = parse_delta(options)
        table = DeltaLakeTable(parsed.path, parsed.storage)
        table.check(columns_of(schema), parsed.write)
    except BrokerError as error:
        return [str(error)]
    return []
