"""
Conversion between frames and segments: Parquet files of messages sorted by offset.

Call these functions in a worker thread, because they use much processor time or wait
for a disk; Arrow releases the interpreter lock meanwhile.  ``docs/format/segment.md``
is the normative description.

Values that are constant in a frame (producer, schema) are run-end encoded first, and
columns of many frames are concatenated before they are converted, so that frames of one
message are cheap, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.arrow import pc
from pydanube.model.batch import Column, schema_of
from pydanube.model.envelope import FIELDS, TIME_TYPE
from pydanube.model.errors import CorruptSegment
from pydanube.model.segments import SegmentEntry
from pydanube.wire.batches import (
    BATCH_MESSAGES_MAX,
    MESSAGE_BYTES,
    BatchFrame,
    BatchHeader,
    encode_rows,
    first_at_or_after,
)
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    SegmentDamaged,
    SegmentIndex,
    is_refused_by_system,
)
from pydanube.wire.files.segment_format import (
    SCHEMA,
    SegmentIdentity,
    oldest_tombstone_of,
    writer_arguments,
)
from pydanube.wire.files.segment_ranges import Span
from pydanube.wire.small_batch import SmallBatch

FRAME_OFFSETS_MAX = 65_536
"""The largest offset range of a frame with gaps; readers plan by offsets."""

_TIME_COLUMNS = ["offset", "publish_time"]

_SCHEMA_COLUMNS = ("schema_id", "schema_version")

_HEADER_COLUMNS = frozenset({"producer", *_SCHEMA_COLUMNS})
"""The columns that are not decoded if all messages of a row group have one value."""

_OPTIONAL_COLUMNS = {
    "key": "key",
    "attributes.key_value.key": "attributes",
    "deliver_at": "deliver_at",
    "expires_at": "expires_at",
}
"""The columns that are not decoded if no message has a value, by their first leaf."""

JOINED_MESSAGES_MAX = 16
"""The most messages of a frame that is decoded without Arrow when it is sealed."""
JOINED_AT_ONCE = 4096
"""The number of messages of such frames that become one Arrow batch."""
JOINED_BYTES = 4 + MESSAGE_BYTES
"""The bytes that each of these messages takes in memory beside its payload."""

ROW_GROUP_MESSAGES_MAX = 131_072
"""
The most messages in a row group.

Even an empty message takes about a hundred bytes there, and its producer's name.
"""


def encode_segment(
    frames: Sequence[BatchFrame], identity: SegmentIdentity, *, row_group_bytes: int
) -> pa.Buffer:
    """Return consecutive *frames* as a Parquet file; see ``write_frames``."""
    sink = pa.BufferOutputStream()
    write_frames(sink, frames, identity, row_group_bytes=row_group_bytes)
    return sink.getvalue()


def write_frames(
    file: Any,
    frames: Sequence[BatchFrame],
    identity: SegmentIdentity,
    *,
    row_group_bytes: int,
) -> None:
    """
    Write consecutive *frames* without gaps to *file*, as a Parquet file.

    Bounds: One row group is decoded at a time, and encoded.  It has *row_group_bytes*,
        or a single larger frame, and at most ``ROW_GROUP_MESSAGES_MAX`` messages.

    Raises:
        CorruptBatch: The body of a frame differs from its header.
    """
    base, end = frames[0].base, frames[-1].end
    tombstones: list[int] = []
    tables = tables_of(frames, row_group_bytes)
    table: pa.Table | None = next(tables)
    with pq.ParquetWriter(file, SCHEMA, **writer_arguments(table)) as writer:
        while table is not None:
            writer.write_table(table, row_group_size=table.num_rows)
            oldest = oldest_tombstone_of(table)
            if oldest is not None:
                tombstones.append(oldest)
            # Free it before the next one is decoded.
            table = None
            table = next(tables, None)
        oldest = min(tombstones, default=None)
        writer.add_key_value_metadata(identity.metadata(base, end, end - base, oldest))


def publish_times_of(file: Any) -> tuple[int, int]:
    """Return the earliest and latest publish time in *file*, an open segment."""
    file.seek(0)
    times = publish_times_of_metadata(pq.read_metadata(file))
    assert times is not None
    return times


def publish_times_of_metadata(metadata: pq.FileMetaData) -> tuple[int, int] | None:
    """Return the earliest and latest publish time, if there is a message."""
    extremes = [
        _statistics(metadata.row_group(at), "publish_time")
        for at in range(metadata.num_row_groups)
    ]
    known = [each for each in extremes if each is not None]
    if not known:
        return None
    return min(each.min_raw for each in known), max(each.max_raw for each in known)


def _statistics(group: pq.RowGroupMetaData, column: str) -> pq.Statistics | None:
    """Return the statistics of a column, if they have the extremes."""
    found = group.column(SCHEMA.get_field_index(column)).statistics
    return found if found is not None and found.has_min_max else None


def tables_of(frames: Sequence[BatchFrame], row_group_bytes: int) -> Iterator[pa.Table]:
    """Yield *frames* as row groups with a segment's columns; see ``encode_segment``."""
    for group in _grouped(frames, row_group_bytes):
        yield _take_table(group)


class _Piece(NamedTuple):
    """The messages of one frame, or of several with few messages."""

    headers: Sequence[BatchHeader]
    rows: pa.RecordBatch
    columns: int
    """The columns of *rows*, as in a header."""


def _grouped(frames: Sequence[BatchFrame], bytes_max: int) -> Iterator[list[_Piece]]:
    """Decode *frames* row group by row group; see ``encode_segment``."""
    group: list[_Piece] = []
    joined = _Joined()
    memory_bytes = count = 0
    for frame in frames:
        small = None
        if frame.count <= JOINED_MESSAGES_MAX:
            small = frame.decode_small_batch()
        size = frame.memory_bytes
        if small is not None:
            # Most of such a frame is its header, which takes no memory here.
            size = len(small.data) + JOINED_BYTES * frame.count
        if count and (
            memory_bytes + size > bytes_max
            or count + frame.count > ROW_GROUP_MESSAGES_MAX
        ):
            joined.flush(group)
            yield group
            group, memory_bytes, count = [], 0, 0
        if small is not None:
            joined.add(frame.header, small, group)
        else:
            joined.flush(group)
            group.append(_Piece([frame.header], frame.arrow(), frame.header.columns))
        memory_bytes += size
        count += frame.count
    joined.flush(group)
    yield group


class _Joined:
    """
    Frames of few messages, which are decoded without Arrow and become one piece.

    Arrow would take longer for each of them than for all of their messages together.
    """

    _columns = Column.PUBLISH_TIME | Column.PAYLOAD

    def __init__(self) -> None:
        self._headers: list[BatchHeader] = []
        self._times: list[int] = []
        self._payloads: list[bytes] = []

    def add(self, header: BatchHeader, small: SmallBatch, group: list[_Piece]) -> None:
        """Add the frame with *header*, perhaps as the last one of a piece."""
        self._headers.append(header)
        self._times += small.times or [header.first_publish_time] * header.count
        self._payloads += small.payloads()
        if len(self._payloads) >= JOINED_AT_ONCE:
            self.flush(group)

    def flush(self, group: list[_Piece]) -> None:
        """Append the frames to *group* as one piece, if there are any."""
        if not self._headers:
            return
        times = pa.array(self._times, pa.int64()).view(TIME_TYPE)
        payloads = pa.array(self._payloads, FIELDS[Column.PAYLOAD].type)
        schema = schema_of(self._columns)
        rows = pa.RecordBatch.from_arrays([times, payloads], schema=schema)
        group.append(_Piece(self._headers, rows, self._columns))
        self._headers, self._times, self._payloads = [], [], []


def _take_table(pieces: list[_Piece]) -> pa.Table:
    """Return *pieces* as one table; clear the list, to free what was decoded."""
    table = _table_of(pieces)
    pieces.clear()
    return table


def _table_of(pieces: list[_Piece]) -> pa.Table:
    headers = list(chain.from_iterable(piece.headers for piece in pieces))
    ends = list(accumulate(header.count for header in headers))
    end = ends[-1]
    runs = pa.array(ends, pa.int32())

    def spread(values: list[Any], type_: pa.DataType) -> pa.Array:
        """Repeat each of *values* for the length of its frame."""
        encoded = pa.RunEndEncodedArray.from_arrays(runs, pa.array(values, type_))
        return pc.run_end_decode(encoded)

    def column(
        which: Column, otherwise: Callable[[], pa.Array] | None = None
    ) -> pa.Array:
        nulls = partial(pa.nulls, end, FIELDS[which].type)
        return _column(pieces, which, otherwise or nulls)

    first_times = [each.first_publish_time for each in headers]
    producers = [each.producer or None for each in headers]
    arrays = [
        _count_from(headers[0].base_offset, end),
        column(Column.PUBLISH_TIME, lambda: spread(first_times, TIME_TYPE)),
        column(Column.KEY),
        column(Column.PAYLOAD),
        column(Column.ATTRIBUTES),
        column(Column.PRODUCER, lambda: spread(producers, pa.string())),
        spread([each.schema_id for each in headers], pa.int64()),
        spread([each.schema_version for each in headers], pa.int32()),
        column(Column.DELIVER_AT),
        column(Column.EXPIRES_AT),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _column(
    pieces: list[_Piece], which: Column, otherwise: Callable[[], pa.Array]
) -> pa.Array:
    """
    Return one column of all *pieces*.

    *otherwise* returns the column for pieces that do not have it.
    """
    name = FIELDS[which].name
    has = [bool(piece.columns & which) for piece in pieces]
    if not any(has):
        return otherwise()
    if all(has):
        return _together([piece.rows.column(name) for piece in pieces])
    whole = otherwise()
    chunks, at = [], 0
    for piece, is_there in zip(pieces, has, strict=True):
        count = piece.rows.num_rows
        chunks.append(piece.rows.column(name) if is_there else whole.slice(at, count))
        at += count
    return _together(chunks)


def _together(chunks: list[pa.Array]) -> pa.Array:
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _count_from(base: int, count: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.cumulative_sum(ones, start=pa.scalar(base - 1, pa.int64()))


class SegmentReader:
    """
    An open segment: the offsets of its row groups, and methods to decode them.

    All decoded bytes are verified with the checksums of the manifest, if it has any.

    Threads: Several threads may decode at the same time; each opens the object again.
    """

    def __init__(
        self, entry: SegmentEntry, source: Callable[[], Any], *, frame_bytes: int
    ) -> None:
        """
        Read the footer of the object that *source* opens.

        Raises:
            CorruptSegment: The object is missing, cannot be read, or is not the segment
                that *entry* describes.
        """
        self.entry = entry
        self._source = source
        self._frame_bytes = frame_bytes
        try:
            with source() as file:
                self._index = SegmentIndex(file, entry)
                self._metadata = self._index.metadata
                schema = self._index.open(file).schema_arrow
            self._bases, self._ends = self._check(schema)
            self._spans: dict[int, Span] = {}
        except UNREADABLE as error:
            raise self._corrupt(error) from error

    def _check(self, schema: pa.Schema) -> tuple[list[int], list[int]]:
        """Return the bases and ends of the row groups; raise if they are invalid."""
        entry, metadata = self.entry, self._metadata
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        if entry.has_gaps:
            # Groups without statistics get borders out of order, which are refused.
            limits = [_statistics(group, "offset") for group in groups]
            bases = [-1 if each is None else each.min for each in limits]
            ends = [0 if each is None else each.max + 1 for each in limits]
        else:
            counts = [group.num_rows for group in groups]
            bases = list(accumulate(counts, initial=entry.base))
            ends = bases[1:]
            del bases[-1]
        borders = [entry.base, *chain.from_iterable(zip(bases, ends, strict=True))]
        if (
            not schema.equals(SCHEMA)
            or metadata.num_rows != entry.count
            or borders != sorted(borders)
            or borders[-1] > entry.end
        ):
            raise SegmentDamaged(
                "expected the columns of a segment and "
                f"{entry.count} messages of {entry.base} to {entry.end}, it has "
                f"{metadata.num_rows} of {borders[0]} to {borders[-1]}"
            )
        return bases, ends

    @property
    def row_group_count(self) -> int:
        """The number of row groups."""
        return len(self._bases)

    @property
    def last_offset(self) -> int | None:
        """The offset of the last message; None if there is none."""
        return self._ends[-1] - 1 if self._ends else None

    def row_group_of(self, offset: int) -> int | None:
        """
        Return the index of the row group with the first message from *offset* on.

        Returns None if all later offsets of the segment are missing.
        """
        assert self.entry.base <= offset < self.entry.end
        index = bisect_right(self._ends, offset)
        return index if index < len(self._ends) else None

    def row_group_span(self, index: int) -> Span:
        """Return the positions ``begin … end`` of a row group in the object."""
        span = self._spans.get(index)
        if span is None:
            chunks = self._index.chunk_spans(index)
            span = min(begin for begin, _ in chunks), max(end for _, end in chunks)
            # Reading ahead asks again and again, and Arrow takes long to answer.
            self._spans[index] = span
        return span

    def times_span(self, index: int) -> Span:
        """Return the positions of the columns of a row group that find_time() reads."""
        spans = self._index.chunk_spans(index)
        offset, time = (spans[SCHEMA.get_field_index(name)] for name in _TIME_COLUMNS)
        return min(offset[0], time[0]), max(offset[1], time[1])

    def read_row_group(
        self, index: int, source: Callable[[], Any] | None = None
    ) -> list[BatchFrame]:
        """
        Return the messages of one row group as frames, in order.

        *source* opens the object; at least the row group can be read from it.

        Raises:
            CorruptSegment: The object is damaged or gone.
        """
        base, end = self._bases[index], self._ends[index]
        frames: list[BatchFrame] = []
        with self._reading(index, source) as file:
            constants = self._constants(index)
            for rows in self._decode(file, index, constants):
                frames += frames_of(
                    rows,
                    constants,
                    epoch=self.entry.epoch,
                    frame_bytes=self._frame_bytes,
                )
            found = frames[0].base, frames[-1].end
            if found != (base, end):
                raise SegmentDamaged(f"the column offset has {found[0]} to {found[1]}")
        return frames

    def _decode(
        self, file: Any, index: int, constants: Mapping[str, Any]
    ) -> list[pa.RecordBatch]:
        """Return the columns of a row group that are not *constants*."""
        columns = [name for name in SCHEMA.names if name not in constants]
        table = self._index.read_row_group(file, index, columns)
        # Without checksums the lengths inside may be wrong, and reading values would
        # leave the buffers.
        if not self._index.is_verified:
            table.validate(full=True)
        return table.combine_chunks().to_batches()  # type: ignore[no-any-return]

    def _constants(self, index: int) -> dict[str, Any]:
        """
        Return the columns of a row group that need not be decoded, with their values.

        All messages have the same value there.  Without checksums the statistics may
        be wrong, so there are none.
        """
        if not self._index.is_verified:
            return {}
        group = self._metadata.row_group(index)
        found: dict[str, Any] = {}
        for chunk in map(group.column, range(group.num_columns)):
            leaf = chunk.path_in_schema
            name = _OPTIONAL_COLUMNS.get(leaf)
            if name is None and leaf not in _HEADER_COLUMNS:
                continue
            statistics = chunk.statistics
            if statistics is None or not statistics.has_null_count:
                continue
            if statistics.null_count == group.num_rows:
                found[name or leaf] = None
            elif (
                name is None
                and not statistics.null_count
                and statistics.has_min_max
                and statistics.min == statistics.max
            ):
                found[leaf] = statistics.min
        return found

    def find_time(
        self, publish_time: int, source: Callable[[], Any] | None = None
    ) -> int | None:
        """
        Return the offset of the first message published at *publish_time* or later.

        Raises:
            CorruptSegment: The object is damaged or gone.
        """
        for index in self.row_groups_from(publish_time):
            found = self.find_time_in(index, publish_time, source)
            if found is not None:
                return found
        return None

    def row_groups_from(self, publish_time: int) -> list[int]:
        """Return the row groups that may have a message of *publish_time* or later."""
        found = []
        for index in range(self.row_group_count):
            times = _statistics(self._metadata.row_group(index), "publish_time")
            if times is None or times.max_raw >= publish_time:
                found.append(index)
        return found

    def find_time_in(
        self, index: int, publish_time: int, source: Callable[[], Any] | None = None
    ) -> int | None:
        """
        Search a row group like find_time().

        *source* opens the object; at least ``times_span(index)`` can be read from it.
        """
        with self._reading(index, source) as file:
            rows = self._index.open(file).read_row_group(
                index, _TIME_COLUMNS, use_threads=False
            )
        at = first_at_or_after(rows.column("publish_time"), publish_time)
        return None if at is None else int(rows.column("offset")[at].as_py())

    @contextmanager
    def _reading(
        self, index: int, source: Callable[[], Any] | None = None
    ) -> Iterator[Any]:
        """Open the object; attribute errors to the row group *index*."""
        try:
            with (source or self._source)() as file:
                yield file
        except UNREADABLE as error:
            raise self._corrupt(error, index) from error

    def _corrupt(self, error: Exception, index: int | None = None) -> CorruptSegment:
        """Return the exception for *error* in the footer or the row group *index*."""
        base, end = self.entry.base, self.entry.end
        name = f"segment {self.entry.object_name}"
        if index is not None:
            base, end = self._bases[index], self._ends[index]
            name = f"{name}, row group {index}"
        if isinstance(error, FileNotFoundError):
            problem = "the object is missing"
            if self.entry.is_uploaded:
                problem += "; it was uploaded, so check storage.remote.url"
        elif is_refused_by_system(error):
            problem = f"the object cannot be read: {error}"
        else:
            problem = f"the object is damaged: {error}"
        return CorruptSegment(
            f"{name}, offsets {base} to {end}: {problem}",
            offsets=(base, end),
            is_damaged=not is_refused_by_system(error),
        )


def topic_id_of(source: Callable[[], Any]) -> int | None:
    """Return the topic of the segment that *source* opens; None for other objects."""
    try:
        with pq.ParquetFile(source()) as file:
            metadata = file.metadata.metadata or {}
            return int(metadata[b"danube.topic_id"])
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None


def frames_of(
    rows: pa.RecordBatch,
    constants: Mapping[str, Any],
    *,
    epoch: int,
    frame_bytes: int,
) -> Iterator[BatchFrame]:
    """
    Yield *rows*, messages with a segment's columns, as frames.

    They lack the columns of *constants*, in which all messages have the same value.

    A frame has one schema and about *frame_bytes*, or one message.  It has at most
    ``BATCH_MESSAGES_MAX`` messages and, if offsets are missing, a range of at most
    ``FRAME_OFFSETS_MAX`` offsets.
    """
    offsets = rows.column("offset")
    base = offsets[0].as_py()
    has_gaps = offsets[-1].as_py() - base + 1 != rows.num_rows
    for begin, end, schema_id, schema_version in _schema_runs(rows, constants):
        run = _envelope(rows.slice(begin, end - begin), with_offsets=has_gaps)
        for at, piece in _pieces(run, frame_bytes):
            yield _frame(
                piece,
                BatchHeader(
                    base_offset=base + begin + at,
                    epoch=epoch,
                    first_publish_time=0,
                    last_publish_time=0,
                    schema_id=schema_id,
                    schema_version=schema_version,
                    producer=constants.get("producer") or "",
                ),
            )


def _schema_runs(
    rows: pa.RecordBatch, constants: Mapping[str, Any]
) -> list[tuple[int, int, int, int]]:
    """Return the row ranges ``begin … end`` of each schema, with its id and version."""
    bounds = {0}
    for name in _SCHEMA_COLUMNS:
        if name in constants:
            continue
        column = rows.column(name)
        limits = pc.min_max(column)
        if limits["min"] == limits["max"]:
            continue
        encoded = pc.run_end_encode(column)
        bounds.update(encoded.run_ends.to_pylist()[:-1])
    begins = sorted(bounds)
    ends = [*begins[1:], rows.num_rows]
    ids, versions = (
        repeat(constants[name])
        if name in constants
        else rows.column(name).take(pa.array(begins)).to_pylist()
        for name in _SCHEMA_COLUMNS
    )
    return list(zip(begins, ends, ids, versions, strict=False))


def _envelope(rows: pa.RecordBatch, *, with_offsets: bool) -> pa.RecordBatch:
    columns = Column.PUBLISH_TIME | Column.PAYLOAD
    if with_offsets:
        columns |= Column.OFFSET
    for column, field in FIELDS.items():
        if (
            field.nullable
            and field.name in rows.schema.names
            and rows.column(field.name).null_count < rows.num_rows
        ):
            columns |= column
    schema = schema_of(columns)
    arrays = [rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(
    rows: pa.RecordBatch, bytes_max: int, at: int = 0
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield *rows* in pieces of at most *bytes_max* or one row, with their indexes."""
    size, count, reach = rows.nbytes, rows.num_rows, _reach(rows)
    if count == 1 or (
        size <= bytes_max and count <= BATCH_MESSAGES_MAX and reach <= FRAME_OFFSETS_MAX
    ):
        yield at, rows
        return
    # Cut into nearly equal numbers of rows first; pieces that are too large again.
    pieces = max(
        -(-size // bytes_max),
        -(-count // BATCH_MESSAGES_MAX),
        -(-reach // FRAME_OFFSETS_MAX),
    )
    step = max(1, -(-count // pieces))
    for begin in range(0, count, step):
        yield from _pieces(rows.slice(begin, step), bytes_max, at + begin)


def _reach(rows: pa.RecordBatch) -> int:
    """Return the length of the offset range of *rows*; 0 if none can be missing."""
    at = rows.schema.get_field_index("offset")
    if at < 0:
        return 0
    offsets = rows.column(at)
    return int(offsets[-1].as_py() - offsets[0].as_py() + 1)


def _frame(rows: pa.RecordBatch, header: BatchHeader) -> BatchFrame:
    assert rows.schema.names[0] == FIELDS[Column.PUBLISH_TIME].name
    times = rows.column(0).view(pa.int64())
    first, last = times[0].as_py(), times[-1].as_py()
    header.first_publish_time, header.last_publish_time = first, last
    if first == last and (limits := pc.min_max(times))["min"] == limits["max"]:
        # The header has the time of all messages.
        rows = rows.remove_column(0)
    return encode_rows(rows, header)
