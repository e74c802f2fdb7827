"""
One scan as Arrow batches, in exactly the schema that Spark asked for.

Segments are read straight from where they are stored: only the row groups that
the scan needs, by their statistics, and only the columns that are wanted.  The
tail comes from the broker.  A scan is planned a while before it is read, so a
segment may have been replaced meanwhile, or the tail sealed: then the broker is
asked once more where the messages are.

The offsets of what is read are compared with those of the plan, batch by batch:
whatever a file or a broker does, a scan never yields other messages than its
own, nor fewer, nor one twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pydanube.model.batch import ATTRIBUTES_TYPE, TIME_TYPE
from pydanube.model.errors import CorruptSegment, InvalidRequest, OffsetDropped
from pydanube.spark.decoding import ERROR, VALUE, ValueDecoder
from pydanube.spark.offsets import Position, losses, refuse
from pydanube.spark.planning import TopicRange, plan_scans

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pydanube.spark.catalog import Catalog
    from pydanube.spark.decoding import Decoding
    from pydanube.spark.planning import Scan, Slice

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Spark holds a batch in the JVM as a whole; a few of these fit any heap."""

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
}

SCHEMA = pa.schema(_TYPES)
"""The columns of a topic."""

DECODED_COLUMNS = (VALUE, ERROR)
"""Columns that are made here, of the payload and what the header says of it."""

DECODED_FROM = ("payload", "schema_id", "schema_version")

TEXT_COLUMNS = ("key", "payload")
"""Columns of bytes that may also be read as strings."""


def check_schema(schema: pa.Schema) -> None:
    """
    Refuse a schema that no topic can be read with.

    Raises:
        InvalidRequest: It has a column that topics do not have, or one of
            another type.
    """
    for field in schema:
        if field.name == ERROR and field.type != pa.string():
            raise InvalidRequest(f"the column {ERROR} is string, not {field.type}")
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
            raise InvalidRequest(f"the column {field.name} is {has}, not {field.type}")


def read_scan(
    scan: Scan,
    schema: pa.Schema,
    catalog: Catalog,
    *,
    fail_on_data_loss: bool,
    decoding: Decoding | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    The messages of *scan*, in order, each once, in batches of *schema*.

    Bounds: A batch has at most BATCH_BYTES_MAX bytes, unless one message alone
        has more.

    Raises:
        OffsetDropped: Some of them are gone, and *fail_on_data_loss*.
        CorruptSegment: A segment does not hold what the manifest says.
        InvalidPayload: A message has no value, and the plan is to fail then.
    """
    decoder = None
    if decoding is not None:
        at = schema.get_field_index(VALUE)
        decoder = ValueDecoder(decoding, None if at < 0 else schema.field(at).type)
    position = scan.base
    try:
        for batch in _batches(scan, schema, catalog):
            yield from conform(batch, scan.topic, schema, decoder)
            position += batch.num_rows
    except (FileNotFoundError, OffsetDropped) as moved:
        log.info("%s: asking again where %d is: %s", scan.topic, position, moved)
    for rest in _resolve_again(scan, position, catalog, fail_on_data_loss):
        for batch in _batches(rest, schema, catalog):
            yield from conform(batch, rest.topic, schema, decoder)


def conform(
    batch: pa.RecordBatch,
    topic: str,
    schema: pa.Schema,
    decoder: ValueDecoder | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    *batch*, a piece of *topic*, as batches of exactly *schema*.

    Raises:
        InvalidRequest: A column of bytes was asked for as a string and is not
            UTF-8.
        InvalidPayload: *decoder* found a message that has no value.
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


def _batches(
    scan: Scan, schema: pa.Schema, catalog: Catalog
) -> Iterator[pa.RecordBatch]:
    """Batches that together hold exactly the offsets of *scan*, in order."""
    position = scan.base
    sources: Iterator[pa.RecordBatch]
    if scan.slices:
        names = set(schema.names)
        if names.intersection(DECODED_COLUMNS):
            names.update(DECODED_FROM)
        sources = (batch for piece in scan.slices for batch in _segment(piece, names))
    else:
        sources = catalog.read(scan.topic, scan.base, scan.end)
    for source in sources:
        batch = _between(source, position, scan.end, scan)
        position += batch.num_rows
        if batch.num_rows:
            yield batch
    if position != scan.end:
        raise CorruptSegment(
            f"{scan.topic}: messages {position} … {scan.end} are missing from "
            f"{_origin(scan)}"
        )


def _segment(piece: Slice, names: Container[str]) -> Iterator[pa.RecordBatch]:
    """The row groups of a segment that may hold some of the slice."""
    filesystem, path = fs.FileSystem.from_uri(piece.url)
    with filesystem.open_input_file(path) as file, pq.ParquetFile(file) as segment:
        has = segment.schema_arrow.names
        wanted = [name for name in has if name in names or name == "offset"]
        groups = [
            index
            for index in range(segment.metadata.num_row_groups)
            if _may_hold(segment.metadata.row_group(index), piece)
        ]
        # Spark already runs a task on every core.
        yield from segment.iter_batches(
            BATCH_ROWS_MAX, row_groups=groups, columns=wanted, use_threads=False
        )


def _may_hold(group: pq.RowGroupMetaData, piece: Slice) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset":
            limits: Any = column.statistics
            return limits is None or bool(
                limits.min < piece.end and limits.max >= piece.base
            )
    return True


def _between(
    batch: pa.RecordBatch, position: int, end: int, scan: Scan
) -> pa.RecordBatch:
    """The messages ``position … end`` of *batch*, which must not begin later."""
    if not batch.num_rows:
        return batch
    offsets = batch.column("offset")
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if last - first + 1 != batch.num_rows:
        raise CorruptSegment(
            f"{scan.topic}: the offsets {first} … {last + 1} in {_origin(scan)} have "
            "gaps"
        )
    if last < position or first >= end:
        return batch.slice(0, 0)
    if first > position:
        raise CorruptSegment(
            f"{scan.topic}: messages {position} … {first} are missing from "
            f"{_origin(scan)}"
        )
    return batch.slice(position - first, min(end, last + 1) - position)


def _resolve_again(
    scan: Scan, position: int, catalog: Catalog, fail_on_data_loss: bool
) -> list[Scan]:
    """Where the rest of *scan*, from *position* on, is now."""
    if position == scan.end:
        return []
    head, layout = catalog.layout(scan.topic, position, scan.end)
    lost = losses({scan.topic: Position(scan.topic_id, position)}, {scan.topic: head})
    if fail_on_data_loss:
        refuse(lost)
    for loss in lost:
        log.warning("skipping what is lost: %s", loss)
    if head.topic_id != scan.topic_id:
        return []
    base, end = max(position, head.base), min(scan.end, head.end)
    if base >= end:
        return []
    rest = TopicRange(scan.topic, scan.topic_id, base, end, layout.segments)
    return plan_scans([rest], scan_bytes_max=max(1, scan.byte_count))


def _column(batch: pa.RecordBatch, topic: str, field: Any) -> Any:
    if field.name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)
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
    # Messages differ in size, so the halves are measured again.
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def _origin(scan: Scan) -> str:
    urls = [piece.url for piece in scan.slices]
    return ", ".join(urls) if urls else "the broker's answer"
