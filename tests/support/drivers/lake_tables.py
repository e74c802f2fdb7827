"""Tables of a lakehouse in a directory, and other people's eyes to read them with."""

import os
from contextlib import closing

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pydanube_spark.tables.data_files import write_files
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.pure.table_options import WriteOptions, parse_partition_by

# Its own planner is not installed, and it warns of that.
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"

KINDS = ("delta", "iceberg")


def catalog_of(directory):
    """The properties of an Iceberg catalog in *directory*."""
    return {
        "type": "sql",
        "name": "lake",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/warehouse",
    }


def table_in(directory, kind, name="table"):
    """A table of that kind, which does not exist yet."""
    if kind == "delta":
        return DeltaLakeTable(str(directory / name), {}, wait=lambda _: None)
    return IcebergLakeTable(f"db.{name}", catalog_of(directory), wait=lambda _: None)


def options(partition_by="", *, merge=False):
    """How to write."""
    return WriteOptions(
        partition_by=parse_partition_by(partition_by), merge_schema=merge
    )


def stage(table, rows, partition_by="", *, merge=False, file_bytes_max=1 << 27):
    """Files of *rows* that are not part of *table* yet, and their place."""
    place = table.prepare(rows.schema, options(partition_by, merge=merge))
    files = write_files(place, rows.to_batches(), "test", file_bytes_max=file_bytes_max)
    return place, files


def read(table):
    """All rows, as another program sees them."""
    if isinstance(table, DeltaLakeTable):
        return plain(DeltaTable(table.name).to_pyarrow_table())
    with opened(table) as found:
        return plain(found.scan().to_arrow())


def read_with_polars(table):
    """The same by Polars."""
    if isinstance(table, DeltaLakeTable):
        return pl.read_delta(table.name).to_arrow()
    with opened(table) as found:
        return pl.scan_iceberg(found).collect().to_arrow()


def plain(rows):
    """*rows* without large types, so that they can be compared."""
    from pydanube_spark.tables.pure.schema_evolution import plain_schema

    return pa.table(rows).cast(plain_schema(rows.schema))


class opened:  # noqa: N801  # It reads as a function.
    """The Iceberg table itself, for a while."""

    def __init__(self, table):
        properties = dict(table.connection)
        self._catalog = load_catalog(properties.pop("name"), **properties)
        self._identifier = table.name

    def __enter__(self):
        return self._catalog.load_table(self._identifier)

    def __exit__(self, *_):
        closing(self._catalog).__exit__(None, None, None)


def data_files(directory):
    """The names of all Parquet files that were written below *directory*."""
    return sorted(path.name for path in directory.rglob("danube-*.parquet"))
