"""
The rows of a sink, as a DataFrame.

Tasks read tables in Python with the libraries that wrote them, so Spark needs no jar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pydanube_spark.pure.sink_options import parse_sink_options
from pydanube_spark.reader.pure.spark_types import converter, spark_type
from pydanube_spark.sinks.option_tables import POSTGRES_OPTIONS
from pydanube_spark.sinks.postgres_database import connect
from pydanube_spark.sinks.pure.postgres_sql import TableName, all_rows
from pydanube_spark.tables.pure.table_options import parse_delta, parse_iceberg
from pydanube_spark.tables.table import LakeTable


class StoredRows(Protocol):
    """The rows of one table at one moment; can be pickled."""

    def describe(self) -> tuple[pa.Schema, int]:
        """Return the columns, and the number of parts that tasks read."""
        ...

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        ...


def stored_rows(format_name: str, options: Mapping[str, str]) -> StoredRows | None:
    """
    Return the rows that the table of a sink has now; None if they cannot be read here.

    Raises:
        NotFound: There is no table.
    """
    table: LakeTable
    if format_name == "danube-delta":
        from pydanube_spark.tables.delta_table import DeltaLakeTable  # noqa: PLC0415

        delta = parse_delta(options)
        table = DeltaLakeTable(delta.table, delta.connection)
    elif format_name == "danube-iceberg":
        from pydanube_spark.tables.iceberg_table import IcebergLakeTable  # noqa: PLC0415

        iceberg = parse_iceberg(options)
        table = IcebergLakeTable(iceberg.table, iceberg.connection)
    elif format_name == "danube-postgres":
        given = parse_sink_options(options, POSTGRES_OPTIONS)
        return PostgresRows(given.text("uri"), TableName.parse(given.text("table")))
    else:
        return None
    return LakeRows(table, table.data_version())


def read_rows(spark: SparkSession, rows: StoredRows) -> DataFrame:
    """Return *rows*; each part is read by a task."""
    schema, count = rows.describe()
    wanted = pa.schema([(each.name, spark_type(each.type)) for each in schema])
    columns = StructType(
        [StructField(each.name, from_arrow_type(each.type)) for each in wanted]
    )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                for found in rows.read(part):
                    yield _converted(found, wanted)

    if not count:
        return spark.createDataFrame([], columns)
    return spark.range(0, count, 1, count).mapInArrow(read, columns)


def _converted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for each in wanted:
        if each.name in batch.schema.names:
            column = batch.column(each.name)
            convert = converter(column.type, each.type, allows_missing=True)
            arrays.append(convert(column))
        else:
            arrays.append(pa.nulls(len(batch), each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


@dataclass(frozen=True)
class LakeRows:
    """The rows of one version of a lakehouse table; a part is a file."""

    table: LakeTable
    version: int | None

    def describe(self) -> tuple[pa.Schema, int]:
        schema = self.table.schema()
        assert schema is not None
        if self.version is None:
            return schema, 0
        return schema, self.table.file_count(self.version)

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        assert self.version is not None
        return self.table.read_file(self.version, part)


@dataclass(frozen=True)
class PostgresRows:
    """The rows of a table in PostgreSQL, in one part."""

    uri: str = field(repr=False)
    table: TableName

    def describe(self) -> tuple[pa.Schema, int]:
        with closing(connect(self.uri)) as database:
            empty, *_ = database.read(all_rows(self.table, is_empty=True))
        return empty.schema, 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        with closing(connect(self.uri)) as database:
            yield from database.read(all_rows(self.table))
