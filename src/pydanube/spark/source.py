"""
The data source ``danube``: topics as tables and as streams.

Spark runs these classes in several processes.  ``schema`` and the construction
of readers happen in short planning processes; offsets, ``partitions`` and
``commit`` of a stream in one long-lived process for each query; ``read`` in the
tasks, which get the reader by pickle.  So readers carry values only, and connect
when they are first asked something.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StringType, StructField, StructType

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    InvalidRequest,
    TopicNotFound,
)
from pydanube.spark import offsets
from pydanube.spark.catalog import Catalog, broker_catalog
from pydanube.spark.decoding import ERROR, VALUE
from pydanube.spark.offsets import Head, Position, Positions
from pydanube.spark.options import Mode, OnUndecodable, ReadOptions, parse_options
from pydanube.spark.planning import Scan, SegmentFile, TopicRange, plan_scans
from pydanube.spark.read import DECODED_COLUMNS, SCHEMA, check_schema, read_scan
from pydanube.spark.subjects import Values, check_columns, from_metadata, to_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pydanube.spark.decoding import Decoding
    from pydanube.spark.offsets import ReadAs

log = logging.getLogger(__name__)

SCHEMA_DDL = (
    "topic string, offset bigint, publish_time timestamp, key binary, payload binary, "
    "attributes map<string,string>, producer string, schema_id bigint, "
    "schema_version int"
)

IDLE_WAIT_S = 0.05
"""
How long a stream that has nothing to read waits before it looks once more.

Spark asks for the latest offsets some eighty times a second while there are
none; with this wait a query without data asks the broker forty times.
"""


class DanubeDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Danube broker as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "danube"

    def schema(self) -> str | StructType:
        """The columns; where messages are decoded, the broker is asked for them."""
        if "decode" not in {name.lower() for name in self.options}:
            return SCHEMA_DDL
        options = parse_options(dict(self.options), None)
        return schema_of(options, broker_catalog(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(dict(self.options), Mode.BATCH)
        return BatchReader(options, _arrow_schema(schema), planned=_planned(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = parse_options(dict(self.options), Mode.STREAM)
        return StreamReader(options, _arrow_schema(schema), planned=_planned(schema))


def schema_of(options: ReadOptions, catalog: Catalog) -> str | StructType:
    """
    The columns of a query without a schema of its own.

    Raises:
        TopicNotFound: A topic does not exist.
        InvalidRequest: The messages are to be decoded, and their topics are not all
            bound to the same subject.
        SchemaNotFound: The subject does not have the version that is wanted.
    """
    if options.values is None:
        return SCHEMA_DDL
    heads = find_heads(options, catalog)
    _require_topics(options, heads)
    values = Values(options.values, catalog)
    read_as = values.plan(heads)
    value_type = from_arrow_type(values.column_type(read_as))
    schema = StructType(
        [StructField(field.name, from_arrow_type(field.type)) for field in SCHEMA]
    )
    schema.add(StructField(VALUE, value_type, metadata=to_metadata(read_as)))
    if options.values.on_undecodable is OnUndecodable.NULL:
        schema.add(StructField(ERROR, StringType()))
    return schema


class ScanPartition(InputPartition):  # type: ignore[misc]
    """One Spark partition: a scan of one topic, and how to decode its messages."""

    def __init__(self, scan: Scan, decoding: Decoding | None = None) -> None:
        super().__init__(scan)
        self.scan = scan
        self.decoding = decoding


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads a fixed range of some topics."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog] = broker_catalog,
        planned: ReadAs | None = None,
    ) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._catalog = connect(options)
        self._values = _values(options, schema, self._catalog, planned)

    def partitions(self) -> list[InputPartition]:
        """
        The scans of everything between the starting and the ending offsets.

        The ends are looked up here, once, so a query reads the same messages
        however often its tasks are repeated.
        """
        heads = find_heads(self._options, self._catalog)
        _require_topics(self._options, heads)
        start = offsets.resolve(self._options.starting, heads, "startingOffsets")
        end = offsets.resolve(self._options.ending, heads, "endingOffsets")
        decoding = None
        if self._values is not None:
            decoding = self._values.decoding(heads, self._values.plan(heads))
        scans = plan_read(self._options, self._catalog, start, end)
        return [ScanPartition(scan, decoding) for scan in scans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema, self._catalog)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """
    Reads some topics as an endless stream of micro-batches.

    Spark's checkpoint says which messages a micro-batch has: ``start … end`` of
    every topic.  The same range is read again after a crash, so whether results
    are exactly once is up to the sink alone.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog] = broker_catalog,
        wait: Callable[[float], None] = time.sleep,
        planned: ReadAs | None = None,
    ) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._catalog = connect(options)
        self._values = _values(options, schema, self._catalog, planned)
        self._wait = wait
        self._heads: dict[str, Head] = {}
        self._target: dict[str, Head] | None = None
        """Where Trigger.AvailableNow ends, if that is the trigger."""
        self._reported: dict[str, int] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        heads = self._find_heads()
        _require_topics(self._options, heads)
        start = offsets.resolve(self._options.starting, heads, "startingOffsets")
        read_as = None if self._values is None else self._values.plan(heads)
        return offsets.to_json(start, read_as)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most maxOffsetsPerTrigger messages in a micro-batch."""
        rows_max = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is now: the query ends when that is read."""
        self._target = self._find_heads()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """
        Where the micro-batch that begins at *start* ends.

        Raises:
            OffsetDropped: Messages behind *start* are gone, and failOnDataLoss.
            TopicNotFound: A topic is deleted, and failOnDataLoss.
        """
        begin = offsets.from_json(start)
        # Spark asks from the end of a batch only when that batch is done, and it
        # asks once more before Trigger.AvailableNow ends: unlike commit(), this
        # sees the last batch too.
        self._report(begin)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._advance(begin, rows_max)
        if end == begin and self._target is None:
            self._wait(IDLE_WAIT_S)
            end = self._advance(begin, rows_max)
        read_as = recorded = offsets.read_as_in(start)
        # Equal positions must be equal text, or Spark runs an empty batch: another
        # version is recorded with the first messages that are read as it.
        if end != begin:
            read_as = self._read_as(end, recorded)
        return offsets.to_json(end, read_as)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the topics ended when they were last looked at; lag shows by it."""
        if not self._heads:
            return None
        return offsets.to_json(
            {
                topic: Position(head.topic_id, head.end)
                for topic, head in self._heads.items()
            }
        )

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """
        The scans of ``start … end``: the same messages whenever it is asked, and the
        same values, for it is in *end* what they are read as.
        """
        begin, stop = offsets.from_json(start), offsets.from_json(end)
        decoding = None
        if self._values is not None:
            read_as = offsets.read_as_in(end) or self._values.plan(stop)
            decoding = self._values.decoding(stop, read_as)
        scans = plan_read(self._options, self._catalog, begin, stop)
        return [ScanPartition(scan, decoding) for scan in scans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options, self._schema, self._catalog)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the broker's tools show how far the query is."""
        self._report(offsets.from_json(end))

    def _find_heads(self) -> dict[str, Head]:
        self._heads = find_heads(self._options, self._catalog)
        return self._heads

    def _advance(self, begin: Positions, rows_max: int | None) -> Positions:
        heads = self._find_heads()
        target = heads if self._target is None else self._target
        begin = offsets.join(begin, target)
        lost = offsets.losses(begin, heads)
        if self._options.fail_on_data_loss:
            offsets.refuse(lost)
        # What is lost is skipped here and named where the batch is planned.
        begin = offsets.skip(begin, lost)
        return offsets.advance(begin, target, rows_max=rows_max)

    def _read_as(self, end: Positions, recorded: ReadAs | None) -> ReadAs | None:
        return None if self._values is None else self._values.go_on(end, recorded)

    def _report(self, done: Positions) -> None:
        """Progress is for people to see; nothing depends on it, so it may fail."""
        if self._options.subscription is None:
            return
        for topic, position in done.items():
            if self._reported.get(topic) == position.offset:
                continue
            try:
                self._catalog.report_progress(
                    topic, self._options.subscription, position.offset
                )
            except BrokerError as error:
                log.warning("%s: progress was not reported: %s", topic, error)
                continue
            self._reported[topic] = position.offset


def find_heads(options: ReadOptions, catalog: Catalog) -> dict[str, Head]:
    """The topics that *options* select and that exist, by name, with their heads."""
    if options.pattern is None:
        names = list(options.topics)
    else:
        names = [
            name for name in catalog.topics() if re.fullmatch(options.pattern, name)
        ]
    heads = {}
    for name in sorted(names):
        try:
            heads[name] = catalog.head(name)
        except TopicNotFound:
            # Deleted, perhaps just now; whoever needs it says so.
            continue
        except InvalidRequest:
            # A pattern means the topics that can be read.
            if options.pattern is None:
                raise
    return heads


def plan_read(
    options: ReadOptions, catalog: Catalog, start: Positions, end: Positions
) -> list[Scan]:
    """
    The scans that read ``start … end`` of every topic in *end*.

    Raises:
        OffsetDropped: Some of it is gone, and failOnDataLoss.
        TopicNotFound: A topic is deleted, and failOnDataLoss.
    """
    ranges = []
    for topic, stop in end.items():
        begin = start.get(topic)
        # A new topic, or one that was created again, is read from its beginning.
        is_new = begin is None or begin.topic_id != stop.topic_id
        base = 0 if begin is None or is_new else begin.offset
        if base >= stop.offset:
            continue
        found = _find_layout(options, catalog, topic, base, stop, is_new=is_new)
        if found is not None:
            ranges.append(found)
    return plan_scans(
        ranges,
        scans_min=options.partitions_min,
        scan_bytes_max=options.partition_bytes_max,
    )


def _find_layout(
    options: ReadOptions,
    catalog: Catalog,
    topic: str,
    base: int,
    stop: Position,
    *,
    is_new: bool,
) -> TopicRange | None:
    """What there is of ``base … stop``, or None if nothing is left of it."""
    heads: dict[str, Head] = {}
    segments: tuple[SegmentFile, ...] = ()
    try:
        heads[topic], layout = catalog.layout(topic, base, stop.offset)
        segments = layout.segments
    except TopicNotFound:
        pass
    head = heads.get(topic)
    if is_new and head is not None:
        # Nobody misses what retention dropped before the query knew the topic.
        base = max(base, head.base)
    begin = Position(stop.topic_id, base)
    lost = offsets.losses({topic: begin}, heads) or offsets.losses({topic: stop}, heads)
    if options.fail_on_data_loss:
        offsets.refuse(lost)
    for loss in lost:
        log.warning("skipping what is lost: %s", loss)
    if head is None or head.topic_id != stop.topic_id:
        return None
    base, end = max(base, head.base), min(stop.offset, head.end)
    if base >= end:
        return None
    return TopicRange(topic, stop.topic_id, base, end, segments)


def _read(
    partition: InputPartition, options: ReadOptions, schema: pa.Schema, catalog: Catalog
) -> Iterator[pa.RecordBatch]:
    # Spark makes up a partition of None where there are none to read.
    if not isinstance(partition, ScanPartition):
        return iter(())
    return read_scan(
        partition.scan,
        schema,
        catalog,
        fail_on_data_loss=options.fail_on_data_loss,
        decoding=partition.decoding,
    )


def _require_topics(options: ReadOptions, heads: Mapping[str, Head]) -> None:
    missing = sorted(set(options.topics) - set(heads))
    if missing:
        raise TopicNotFound(f"no such topic: {', '.join(missing)}")


def _values(
    options: ReadOptions, schema: pa.Schema, catalog: Catalog, planned: ReadAs | None
) -> Values | None:
    """How the query reads values; None if it reads none."""
    check_columns(schema.names, options.values)
    if options.values is None or not set(schema.names).intersection(DECODED_COLUMNS):
        return None
    at = schema.get_field_index(VALUE)
    value_type = None if at < 0 else schema.field(at).type
    return Values(options.values, catalog, value_type, planned)


def _planned(schema: StructType) -> ReadAs | None:
    """What the values are read as, if that was decided with the columns."""
    metadata = [field.metadata for field in schema if field.name == VALUE]
    return from_metadata(metadata[0] or {}) if metadata else None


def _arrow_schema(schema: StructType) -> pa.Schema:
    if not len(schema):
        raise InvalidConfig("the schema has no columns")
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found
