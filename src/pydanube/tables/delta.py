"""
The format ``danube-delta``: rows into a Delta table, without a jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydanube.tables.delta_table import DeltaLakeTable
from pydanube.tables.table_data_source import LakeDataSource
from pydanube.tables.table_options import parse_delta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.spark.sink import BatchIdentity
    from pydanube.tables.table_options import WriteOptions


class DeltaDataSource(LakeDataSource):
    """A Delta table as a data source to write to."""

    readers: ClassVar[str] = (
        "the package deltalake, with Polars, or with Delta's own connector for Spark"
    )

    @classmethod
    def name(cls) -> str:
        return "danube-delta"

    @staticmethod
    def parse_options(
        options: Mapping[str, str],
    ) -> tuple[DeltaLakeTable, WriteOptions, BatchIdentity]:
        """See the base class."""
        parsed = parse_delta(options)
        table = DeltaLakeTable(parsed.path, parsed.storage)
        return table, parsed.write, parsed.identity


check = DeltaDataSource.check
