"""
The format ``danube-iceberg``: rows into an Iceberg table, without a jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.pure.table_options import TableOptions, parse_iceberg
from pydanube_spark.tables.table_data_source import LakeDataSource


class IcebergDataSource(LakeDataSource):
    """An Iceberg table as a data source to write to."""

    readers: ClassVar[str] = (
        "the package pyiceberg, with Polars, or with Iceberg's own connector for Spark"
    )

    @classmethod
    def name(cls) -> str:
        return "danube-iceberg"

    @staticmethod
    def parse(options: Mapping[str, str]) -> tuple[IcebergLakeTable, TableOptions]:
        """See the base class."""
        parsed = parse_iceberg(options)
        return IcebergLakeTable(parsed.table, parsed.connection), parsed


check = IcebergDataSource.check
