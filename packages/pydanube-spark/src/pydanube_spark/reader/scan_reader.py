"""
Reading a scan as Arrow batches of exactly the schema that Spark requests.

Segments are read from the object store: only the row groups that the scan needs, by
their statistics, and only the requested columns.  The tail is read from the broker.  A
segment may have been replaced, or the tail sealed, since the scan was planned; then the
reader asks the broker again where the messages are, as often as that happens.

The reader compares the offsets of every batch with the plan.  Whatever a file or a
broker returns, a scan yields exactly its own messages, each once.  Only a segment that
is known to have gaps may lack messages, and its file must have as many as the manifest
says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.envelope import ATTRIBUTES_TYPE, TIME_TYPE
from pydanube.model.errors import CorruptSegment, InvalidRequest, OffsetDropped
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import (
    ERROR,
    VALUE,
    Decoding,
    ValueDecoder,
    value_type_of,
)
from pydanube_spark.reader.json_decoding import JsonDecoding, decoder_for
from pydanube_spark.reader.pure import filters
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.filters import Condition
from pydanube_spark.reader.pure.query_positions import Position
from pydanube_spark.reader.pure.read_options import ReadThrough
from pydanube_spark.reader.pure.scans import Scan, SegmentRange, plan_scans
from pydanube_spark.reader.segment_access import SegmentAccess, remedy_of
from pydanube_spark.reader.segment_files import NoAccess, open_segment, reading_segment
from pydanube_spark.reader.topics import find_range

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Spark keeps whole batches in the JVM's heap, so they must be small."""

BATCH_ROWS_MAX = 65_536

_TYPES: dict[str, Any] = {
    "topic": pa.string(),
    "offset": pa.int64(),
    "publish_time": TIME_TYPE,
    "key": pa.binary(),
    "payload": pa.binary(),
    "attributes": ATTRIBUTES_TYPE,
    "producer": pa.string(),
    "schema_id": pa.int64(),
    "schema_version": pa.int32(),
    "partition": pa.int32(),
    "deliver_at": TIME_TYPE,
    "expires_at": TIME_TYPE,
}

SCHEMA = pa.schema(_TYPES)
"""The columns of a topic."""

SCHEMA_DEFAULT = pa.schema(list(SCHEMA)[:-2])
"""The default columns: all but the last two, which few messages use."""

DECODED_COLUMNS = (VALUE, ERROR)
"""Columns that the reader decodes from the columns in DECODED_FROM."""

DECODED_FROM = ("payload", "schema_id", "schema_version")

TEXT_COLUMNS = ("key", "payload")
"""Binary columns that may also be read as strings."""


def check_schema(schema: pa.Schema) -> None:
    """
    Raise if topics cannot be read with *schema*.

    Raises:
        InvalidRequest: *schema* has a column that topics do not have, or a column
            with another type.
    """
    for field in schema:
        if field.name == ERROR and field.type != pa.string():
            raise InvalidRequest(f"the column {ERROR} must be string, not {field.type}")
        if field.name in DECODED_COLUMNS:
            continue
        if field.name not in SCHEMA.names:
            raise InvalidRequest(
                f"topics have no column {field.name!r}; they have "
                f"{', '.join(SCHEMA.names)}"
            )
        has = SCHEMA.field(field.name).type
        is_text = field.name in TEXT_COLUMNS and field.type == pa.string()
        if field.type != has and not is_text:
            raise InvalidRequest(
                f"the column {field.name} must be {has}, not {field.type}"
            )


def read_scan(
    scan: Scan,
    schema: pa.Schema,
    catalog: Catalog,
    *,
    fail_on_data_loss: bool,
    decoding: Decoding | JsonDecoding | None = None,
    conditions: Sequence[Condition] = (),
    access: SegmentAccess | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    Read the messages of *scan* that meet all *conditions*, as batches of *schema*.

    Bounds: A batch has at most BATCH_BYTES_MAX bytes, unless one message alone has
        more.
    Ordering: Messages are in the order of offsets, each once.

    Raises:
        OffsetDropped: Messages are gone, and *fail_on_data_loss*.
        CorruptSegment: A segment does not have what the manifest says.
        NoAccess: This process cannot read a segment, and *access* does not allow to
            read it through the broker.
        InvalidPayload: A message cannot be decoded, and ``onUndecodable`` is ``fail``.
    """
    decoder = None
    if decoding is not None:
        decoder = decoder_for(decoding, value_type_of(schema))
    reading = _ScanReader(catalog, _names(schema, conditions), conditions)
    access = access or SegmentAccess()
    stop = Position(scan.topic_id, scan.end)
    planned: tuple[int, list[str]] | None = None
    left = [scan]
    while left:
        part = left[0]
        position = part.base
        try:
            for batch, next_offset in reading.batches(_reachable(part, access)):
                yield from conform(batch, scan.topic, schema, decoder)
                position = next_offset
        except NoAccess as error:
            left[0] = _without_segments(part, position, access, error)
            continue
        except (FileNotFoundError, OffsetDropped) as moved:
            if position == scan.end:
                return
            found = find_range(
                catalog, scan.topic, position, stop, fail_on_data_loss=fail_on_data_loss
            )
            if found is None:
                return
            plan = found.base, [each.object_name for each in found.segments]
            if plan == planned:
                # The broker still lists what cannot be read.
                if isinstance(moved, OffsetDropped):
                    raise
                left[0] = _without_segments(part, position, access, moved)
                continue
            log.info("%s: planned again from %d: %s", scan.topic, found.base, moved)
            planned = plan
            left = plan_scans([found], scan_bytes_max=max(1, scan.byte_count))
        else:
            del left[0]


def _reachable(scan: Scan, access: SegmentAccess) -> Scan:
    """Return *scan*, without segments if it is to be read through the broker."""
    if access.reads_directly(each.segment for each in scan.segments):
        return scan
    return replace(scan, segments=())


def _without_segments(
    scan: Scan, position: int, access: SegmentAccess, error: Exception
) -> Scan:
    """
    Return the rest of *scan* from *position* on, to read it through the broker.

    Raises:
        NoAccess: The options do not allow that.
        CorruptSegment: They do not, and a segment's file does not exist.
    """
    at = max(position, scan.base)
    found = [each.segment for each in scan.segments if at < each.end]
    assert found, "only reading segments raises this"
    if access.mode is ReadThrough.AUTO:
        access.deny(found[0], error)
        return replace(scan, base=at, segments=())
    if isinstance(error, NoAccess):
        raise NoAccess(
            f"{scan.topic}: {error}. {remedy_of(found[0])}, or set readThrough to auto"
        ) from error
    raise CorruptSegment(
        f"{scan.topic}: offsets {at} to {scan.end}: the broker lists a segment whose "
        f"file does not exist on this machine: {error}. {remedy_of(found[0])}, or set "
        "readThrough to auto",
        offsets=(at, scan.end),
    ) from error


def conform(
    batch: pa.RecordBatch,
    topic: str,
    schema: pa.Schema,
    decoder: ValueDecoder | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    Convert *batch*, messages of *topic*, to batches of exactly *schema*.

    Raises:
        InvalidRequest: A binary column was requested as a string and is not UTF-8.
        InvalidPayload: A message cannot be decoded, and ``onUndecodable`` is ``fail``.
    """
    decoded: dict[str, Any] = {}
    if decoder is not None:
        values, errors = decoder.decode(batch, topic)
        decoded = {VALUE: values, ERROR: errors}
    columns = [
        decoded[field.name] if field.name in decoded else _column(batch, topic, field)
        for field in schema
    ]
    yield from _cut(pa.RecordBatch.from_arrays(columns, schema=schema))


def _names(schema: pa.Schema, conditions: Sequence[Condition]) -> set[str]:
    """Return the columns of a segment that are needed."""
    names = {"offset", *schema.names, *(each.column for each in conditions)}
    if names.intersection(DECODED_COLUMNS):
        names.update(DECODED_FROM)
    return names


Part = tuple[pa.RecordBatch, int]
"""Messages in order, and the offset after them."""


class _ScanReader:
    """Reads the scans of one task."""

    def __init__(
        self, catalog: Catalog, names: set[str], conditions: Sequence[Condition]
    ) -> None:
        self._catalog = catalog
        self._names = names
        self._conditions = conditions

    def batches(self, scan: Scan) -> Iterator[Part]:
        """Yield the messages of *scan* that meet the conditions."""
        parts = (
            (part for piece in scan.segments for part in self._segment(piece, scan))
            if scan.segments
            else self._unsealed(scan)
        )
        for batch, next_offset in parts:
            wanted = filters.select(self._conditions, batch, scan.topic)
            if wanted.num_rows:
                yield wanted, next_offset

    def _segment(self, piece: SegmentRange, scan: Scan) -> Iterator[Part]:
        """Yield exactly the messages ``piece.base … piece.end`` of a segment."""
        segment = piece.segment
        has_gaps = segment.has_gaps
        with (
            reading_segment(scan.topic, segment, (piece.base, piece.end)),
            open_segment(segment) as file,
        ):
            position = piece.base
            runs = list(self._runs(file.parquet, piece))
            groups_read = [index for groups, _ in runs for index in groups]
            file.expect(groups_read, self._columns(file.parquet))
            for groups, end in runs:
                for batch in self._read_groups(file.parquet, groups):
                    part = _between(batch, position, piece.end, scan, has_gaps=has_gaps)
                    if part.num_rows:
                        position = part.column("offset")[-1].as_py() + 1
                        yield part, position
                # Row groups that were skipped are not missing.
                position = max(position, min(end, piece.end))
            if position != piece.end and not has_gaps:
                raise _missing(scan, position, piece.end)

    def _runs(
        self, file: pq.ParquetFile, piece: SegmentRange
    ) -> Iterator[tuple[list[int], int]]:
        """
        Yield runs of row groups to read, and the offset where each run ends.

        The row groups up to that offset that are not in a run need not be read.
        """
        groups: list[int] = []
        position = piece.base
        for index in range(file.metadata.num_row_groups):
            columns = _statistics(file.metadata.row_group(index))
            offsets: Any = columns.get("offset")
            is_known = offsets is not None and offsets.has_min_max
            if is_known and not (offsets.min < piece.end and offsets.max >= piece.base):
                continue
            may_match = all(
                filters.may_match(self._conditions, name, columns.get(name))
                for name in filters.COLUMNS
            )
            # A row group may be skipped only if it follows the last one without a gap.
            is_next = is_known and (piece.segment.has_gaps or offsets.min <= position)
            if may_match or not is_next:
                groups.append(index)
                position = offsets.max + 1 if is_known else position
                continue
            position = offsets.max + 1
            yield groups, position
            groups = []
        yield groups, piece.base

    def _read_groups(
        self, file: pq.ParquetFile, groups: list[int]
    ) -> Iterator[pa.RecordBatch]:
        wanted = self._columns(file)
        for group in groups:
            # One at a time: for a batch of several row groups, Arrow would read each
            # column of all of them.  Remote files expect the order of the file, and
            # would be requested twice.  No threads: Spark runs a task on every core.
            yield from file.iter_batches(
                BATCH_ROWS_MAX, row_groups=[group], columns=wanted, use_threads=False
            )

    def _columns(self, file: pq.ParquetFile) -> list[str]:
        return [name for name in file.schema_arrow.names if name in self._names]

    def _unsealed(self, scan: Scan) -> Iterator[Part]:
        """Yield exactly the messages of *scan*, read from the broker."""
        position = scan.base
        for batch in self._catalog.read(scan.topic, scan.base, scan.end):
            # Messages that were sealed since the plan may have been compacted.
            part = _between(batch, position, scan.end, scan, has_gaps=True)
            if not part.num_rows:
                continue
            offsets = part.column("offset")
            next_offset = offsets[-1].as_py() + 1
            if part.num_rows != next_offset - position:
                self._check_gaps(scan, offsets, position)
            yield part, next_offset
            position = next_offset
        if position != scan.end:
            self._check_gaps(scan, pa.array([scan.end], pa.int64()), position)

    def _check_gaps(self, scan: Scan, offsets: pa.Array, position: int) -> None:
        """
        Make sure that no message is missing but those that compaction has removed.

        Raises:
            CorruptSegment: One is.
        """
        layouts = self._catalog.layouts({scan.topic: (scan.base, scan.end)})
        segments = [part for each in layouts.values() for part in each.range.segments]
        gappy = [each for each in segments if each.has_gaps]
        for offset in offsets.to_pylist():
            while position < offset:
                over = [each.end for each in gappy if each.base <= position < each.end]
                if not over:
                    raise _missing(scan, position, offset)
                position = min(offset, *over)
            position = offset + 1


def _statistics(group: pq.RowGroupMetaData) -> dict[str, Any]:
    """Return the statistics of each column of a row group."""
    columns = (group.column(index) for index in range(group.num_columns))
    return {each.path_in_schema: each.statistics for each in columns}


def _between(
    batch: pa.RecordBatch, position: int, end: int, scan: Scan, *, has_gaps: bool
) -> pa.RecordBatch:
    """Return the messages ``position … end`` of *batch*, which must not begin later."""
    if not batch.num_rows:
        return batch
    offsets = batch.column("offset").to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    steps = offsets[1:] - offsets[:-1]
    if (steps < 1).any() or (not has_gaps and (steps > 1).any()):
        raise CorruptSegment(
            f"{scan.topic}: the offsets {first} … {last + 1} in {_origin(scan)} "
            f"{'are not in order' if has_gaps else 'have gaps'}"
        )
    if first > position and not has_gaps and first < end:
        raise _missing(scan, position, first)
    base, stop = offsets.searchsorted([position, end])
    return batch.slice(int(base), int(stop - base))


def _missing(scan: Scan, base: int, end: int) -> CorruptSegment:
    return CorruptSegment(
        f"{scan.topic}: messages {base} … {end} are missing from {_origin(scan)}"
    )


def _column(batch: pa.RecordBatch, topic: str, field: Any) -> Any:
    if field.name in ("topic", "partition"):
        base, number = split_name(topic)
        value = base if field.name == "topic" else number
        return pa.repeat(pa.scalar(value, field.type), batch.num_rows)
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"{topic}: the column {field.name} cannot be read as {field.type}; read "
            f"it as {SCHEMA.field(field.name).type}: {error}"
        ) from error


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BATCH_BYTES_MAX or batch.num_rows == 1:
        yield batch
        return
    # Messages differ in size, so each half is measured again.
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def _origin(scan: Scan) -> str:
    return (
        ", ".join(each.segment.url for each in scan.segments) or "the broker's answer"
    )
