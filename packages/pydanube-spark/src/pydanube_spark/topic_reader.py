"""The part that the batch reader and the stream reader of topics share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pydanube_spark.reader import topics
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import Decoding, value_type_of
from pydanube_spark.reader.decoding_planner import DecodingPlanner, check_columns
from pydanube_spark.reader.json_decoding import JsonDecoding
from pydanube_spark.reader.json_decoding_planner import planner_for
from pydanube_spark.reader.pure.filters import Condition
from pydanube_spark.reader.pure.query_positions import Head, Positions, ReaderSchema
from pydanube_spark.reader.pure.read_options import ReadOptions
from pydanube_spark.reader.pure.scans import (
    MESSAGE_BYTES_MIN,
    Scan,
    group_scans,
    plan_scans,
    tasks_for,
)
from pydanube_spark.reader.scan_reader import DECODED_COLUMNS, check_schema, read_scan
from pydanube_spark.reader.segment_access import SegmentAccess


class ScanPartition(InputPartition):  # type: ignore[misc]
    """One Spark partition: scans of topics, and how to decode their messages."""

    def __init__(
        self,
        scans: tuple[Scan, ...],
        decoding: Decoding | JsonDecoding | None = None,
    ) -> None:
        super().__init__(None)
        self.scans = scans
        self.decoding = decoding


class TopicReader:
    """A query's options and columns, from which partitions are planned and read."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog],
        planned: ReaderSchema | None,
    ) -> None:
        """
        Prepare to read the columns of *schema*.

        Raises:
            InvalidRequest: Topics do not have these columns.
            InvalidConfig: *schema* has a column that the options do not enable.
        """
        check_schema(schema)
        check_columns(schema.names, options.values)
        self._options = options
        self._schema = schema
        self._catalog = connect(options)
        self._access = SegmentAccess(options.read_through)
        self._conditions: tuple[Condition, ...] = ()
        self._values: DecodingPlanner | None = None
        """How values are decoded; None if they are not read."""
        if options.values is not None and {*schema.names} & {*DECODED_COLUMNS}:
            self._values = planner_for(
                options.values, self._catalog, value_type_of(schema), planned
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of *partition*; see ``read_scan``."""
        # Without partitions, Spark passes a partition with the value None.
        if not isinstance(partition, ScanPartition):
            return iter(())
        return (
            batch
            for scan in partition.scans
            for batch in read_scan(
                scan,
                self._schema,
                self._catalog,
                fail_on_data_loss=self._options.fail_on_data_loss,
                decoding=partition.decoding,
                conditions=self._conditions,
                access=self._access,
            )
        )

    def _plan(
        self,
        start: Positions,
        end: Positions,
        heads: Mapping[str, Head],
        decoding: Decoding | JsonDecoding | None,
        *,
        parallelism: int = 1,
    ) -> list[Any]:
        """
        Return the Spark partitions of ``start … end``; see ``find_ranges``.

        There are enough for *parallelism* tasks, unless an option sets their number.
        Scans of small partitions share a task.
        """
        options = self._options
        conditions = self._conditions
        ranges = topics.find_ranges(
            options, self._catalog, start, end, heads=heads, conditions=conditions
        )
        self._access.check(ranges.values())
        wanted = list(ranges.values())
        tasks_min = options.partitions_min or tasks_for(wanted, parallelism)
        scans = plan_scans(
            wanted,
            scans_min=tasks_min,
            scan_bytes_max=options.partition_bytes_max,
            scan_rows_max=options.partition_rows_max,
            message_bytes_min=MESSAGE_BYTES_MIN,
        )
        tasks = group_scans(
            scans,
            tasks_min=tasks_min,
            task_bytes_max=options.partition_bytes_max,
            task_rows_max=options.partition_rows_max,
            message_bytes_min=MESSAGE_BYTES_MIN,
        )
        return [ScanPartition(task, decoding) for task in tasks]
