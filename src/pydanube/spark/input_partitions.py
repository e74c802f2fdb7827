"""Spark partitions: each has a scan of one topic and how to decode its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pydanube.reader.decoding import VALUE
from pydanube.reader.decoding_planner import DecodingPlanner, check_columns
from pydanube.reader.scan_reader import DECODED_COLUMNS, read_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pydanube.reader.catalog import Catalog
    from pydanube.reader.decoding import Decoding
    from pydanube.reader.filters import Condition
    from pydanube.reader.offsets import ReaderSchema
    from pydanube.reader.read_options import ReadOptions
    from pydanube.reader.scans import Scan


class ScanPartition(InputPartition):  # type: ignore[misc]
    """One Spark partition: a scan of one topic, and how to decode its messages."""

    def __init__(self, scan: Scan, decoding: Decoding | None = None) -> None:
        super().__init__(scan)
        self.scan = scan
        self.decoding = decoding


def read_partition(
    partition: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    catalog: Catalog,
    conditions: Sequence[Condition] = (),
) -> Iterator[pa.RecordBatch]:
    """Read the messages of *partition* that meet *conditions*; see ``read_scan``."""
    # Without partitions, Spark passes a partition with the value None.
    if not isinstance(partition, ScanPartition):
        return iter(())
    return read_scan(
        partition.scan,
        schema,
        catalog,
        fail_on_data_loss=options.fail_on_data_loss,
        decoding=partition.decoding,
        conditions=conditions,
    )


def decoding_planner(
    options: ReadOptions,
    schema: pa.Schema,
    catalog: Catalog,
    planned: ReaderSchema | None,
) -> DecodingPlanner | None:
    """
    Return how the query decodes values, or None if it does not read values.

    Raises:
        InvalidConfig: *schema* has a column that the options do not enable.
    """
    check_columns(schema.names, options.values)
    if options.values is None or not set(schema.names).intersection(DECODED_COLUMNS):
        return None
    at = schema.get_field_index(VALUE)
    value_type = None if at < 0 else schema.field(at).type
    return DecodingPlanner(options.values, catalog, value_type, planned)
