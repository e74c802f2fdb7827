"""Descriptions of the content of journal files and segments, for diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.errors import CorruptJournal, CorruptSegment
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.files.journal_format import (
    FILE_HEADER_BYTES,
    Batch,
    CursorSaved,
    Entry,
    decode_entry,
    decode_file_header,
    find_entries,
    is_reserved,
)
from pydanube.wire.files.segment_checksums import UNREADABLE, file_checksum
from pydanube_broker.storage.files import DirectoryFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDescription:
    """An entry of a journal file, or a damaged range of it."""

    position: int
    kind: str
    """``file_header``, the name of an entry's kind, or ``damaged``."""
    byte_count: int
    details: dict[str, Any]
    """Plain values, ready for JSON."""


def inspect_journal(path: Path) -> Iterator[EntryDescription]:
    """
    Yield the content of the journal file at *path*, in order, without changing it.

    Damaged ranges are described as such, and the search continues after them.

    Raises:
        CorruptJournal: The file's header is damaged, so nothing can be read.
        OSError: The file cannot be read.
    """
    view = DirectoryFiles(path.parent).map(path.name)
    header = decode_file_header(view)
    yield EntryDescription(
        position=0,
        kind="file_header",
        byte_count=FILE_HEADER_BYTES,
        details={
            "version": header.version,
            "number": header.number,
            "journal_id": header.journal_id.hex(),
        },
    )
    at = FILE_HEADER_BYTES
    while at < len(view):
        try:
            decoded = decode_entry(view, at, header.seed)
        except CorruptJournal as error:
            if is_reserved(view, at):
                return
            following = next(find_entries(view, at, header.seed), None)
            end = len(view) if following is None else following[0]
            details: dict[str, Any] = {"reason": str(error)}
            if following is not None:
                details["was_synced"] = following[1] > at
            yield EntryDescription(
                position=at, kind="damaged", byte_count=end - at, details=details
            )
            at = end
        else:
            # The two kinds of cursors differ only in how they store ranges.
            kind = decoded.kind.name.lower().removesuffix("_maps")
            details = {**_describe(decoded.entry), "synced": decoded.synced}
            yield EntryDescription(
                position=at, kind=kind, byte_count=decoded.end - at, details=details
            )
            at = decoded.end


def _describe(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, Batch):
        frame = entry.frame
        header = frame.header
        return {
            "topic_id": entry.topic_id,
            "base": frame.base,
            "end": frame.end,
            "epoch": header.epoch,
            "producer": header.producer,
            "producer_id": header.producer_id,
            "base_sequence": header.base_sequence,
            "codec": header.codec.name.lower(),
            "frame_bytes": frame.byte_count,
        }
    if isinstance(entry, CursorSaved):
        return {
            "topic_id": entry.topic_id,
            "subscription": entry.subscription,
            "cursor": {
                "offset": entry.cursor.offset,
                "ranges": tuple(entry.cursor.done),
            },
        }
    return asdict(entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupDescription:
    """One row group of a segment."""

    index: int
    base: int | None
    end: int | None
    """The half-open offset range; None if the file has no statistics of offsets."""
    count: int
    byte_count: int
    """Before compression."""
    compressed_bytes: int
    problem: str | None
    """The error of reading it, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """The content of a segment."""

    count: int
    byte_count: int
    columns: dict[str, str]
    """Arrow types by name."""
    metadata: dict[str, str]
    """The key-value metadata of the file."""
    checksum: int
    """CRC-32C of the file, to compare with the manifest's."""
    row_groups: tuple[RowGroupDescription, ...]


def describe_segment(path: Path) -> SegmentDescription:
    """
    Read all of the segment at *path*, verify its page checksums, and describe it.

    Raises:
        CorruptSegment: The file is not a Parquet file.
        OSError: The file cannot be read.
    """
    with pa.OSFile(str(path)) as file:
        checksum, byte_count = file_checksum(file)
        try:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            metadata, schema = parquet.metadata, parquet.schema_arrow
        except UNREADABLE as error:
            raise CorruptSegment(f"{path} is not a segment: {error}") from error
        row_groups = tuple(
            _describe_row_group(metadata.row_group(at), at, _problem_of(parquet, at))
            for at in range(metadata.num_row_groups)
        )
    own = metadata.metadata or {}
    return SegmentDescription(
        count=metadata.num_rows,
        byte_count=byte_count,
        columns={field.name: str(field.type) for field in schema},
        metadata={
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in own.items()
            if key.startswith(b"danube.")
        },
        checksum=checksum,
        row_groups=row_groups,
    )


def _problem_of(file: pq.ParquetFile, index: int) -> str | None:
    """Return why the row group *index* cannot be read, or None."""
    problems = []
    for column in dict.fromkeys(file.schema_arrow.names):
        try:
            table = file.read_row_group(index, [column], use_threads=False)
            table.validate(full=True)
        except UNREADABLE as error:
            problems.append(f"column {column}: {error}")
    return "; ".join(problems) or None


def _describe_row_group(
    group: Any, index: int, problem: str | None
) -> RowGroupDescription:
    columns = [group.column(at) for at in range(group.num_columns)]
    offsets = next(
        (c.statistics for c in columns if c.path_in_schema == "offset"), None
    )
    if offsets is not None and not offsets.has_min_max:
        offsets = None
    return RowGroupDescription(
        index=index,
        base=None if offsets is None else offsets.min,
        end=None if offsets is None else offsets.max + 1,
        count=group.num_rows,
        byte_count=group.total_byte_size,
        compressed_bytes=sum(column.total_compressed_size for column in columns),
        problem=problem,
    )
