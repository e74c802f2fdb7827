"""
The format ``danube-iceberg``: rows into an Iceberg table, without a jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydanube.tables.iceberg_table import IcebergLakeTable
from pydanube.tables.table_data_source import LakeDataSource
from pydanube.tables.table_options import parse_iceberg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.spark.sink import BatchIdentity
    from pydanube.tables.table_options import WriteOptions


class IcebergDataSource(LakeDataSource):
    """An Iceberg table as a data source to write to."""

    readers: ClassVar[str] = (
        "the package pyiceberg, with Polars, or with Iceberg's own connector for Spark"
    )

    @classmethod
    def name(cls) -> str:
        return "danube-iceberg"

    @staticmethod
    def parse_options(
        options: Mapping[str, str],
    ) -> tuple[IcebergLakeTable, WriteOptions, BatchIdentity]:
        """See the base class."""
        parsed = parse_iceberg(options)
        table = IcebergLakeTable(parsed.table, parsed.catalog)
        return table, parsed.write, parsed.identity


check = IcebergDataSource.check
