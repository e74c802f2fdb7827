"""
The format ``danube-delta``: rows into a Delta table, without a jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.pure.table_options import TableOptions, parse_delta
from pydanube_spark.tables.table_data_source import LakeDataSource


class DeltaDataSource(LakeDataSource):
    """A Delta table as a data source to write to."""

    readers: ClassVar[str] = (
        "the package deltalake, with Polars, or with Delta's own connector for Spark"
    )

    @classmethod
    def name(cls) -> str:
        return "danube-delta"

    @staticmethod
    def parse(options: Mapping[str, str]) -> tuple[DeltaLakeTable, TableOptions]:
        """See the base class."""
        parsed = parse_delta(options)
        return DeltaLakeTable(parsed.table, parsed.connection), parsed


check = DeltaDataSource.check
