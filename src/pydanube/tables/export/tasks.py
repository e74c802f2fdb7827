"""
One task of an export: some messages of a topic into files of a table.

Bytes go from the segment to the file in this process.  What it writes counts for
nothing until the round is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pydanube.model.errors import BrokerError
from pydanube.reader.catalog import broker_catalog
from pydanube.reader.scan_reader import read_scan
from pydanube.tables.data_files import DataFile, FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pydanube.reader.catalog import Catalog
    from pydanube.reader.decoding import Decoding
    from pydanube.reader.read_options import ReadOptions
    from pydanube.reader.scans import Scan
    from pydanube.tables.data_files import TableLocation
    from pydanube.tables.export.table_columns import TableColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """All that a task needs; it travels by pickle."""

    scan: Scan
    read: ReadOptions
    columns: TableColumns
    decoding: Decoding | None
    place: TableLocation
    file_bytes_max: int
    name: str
    """What the names of its files begin with."""
    dead_letter_location: TableLocation | None = None
    dead_letters_from: int = 0
    """Dead letters before this offset are in their table already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What a task has done."""

    files: tuple[DataFile, ...]
    dead_letter_files: tuple[DataFile, ...]
    message_count: int
    byte_count: int
    """Of the messages, as they are in memory."""


@dataclass(frozen=True, slots=True)
class ExportFailure:
    """Why a task could not do its job."""

    error: BrokerError


ExportOutcome = ExportResult | ExportFailure


def export(job: ExportJob) -> ExportOutcome:
    """
    Do *job*, or say why it cannot be done.

    An error is an answer and not raised, so that the files of the other tasks come to
    be known, and removed.
    """
    try:
        return export_from(job, broker_catalog(job.read))
    except BrokerError as error:
        return ExportFailure(error)


def export_from(job: ExportJob, catalog: Catalog) -> ExportResult:
    """
    Do *job* with messages of *catalog*.

    Cancellation: If anything is raised, no file is left behind.

    Raises:
        OffsetDropped: Messages are gone that were to be exported.
        CorruptSegment: A segment does not hold what the manifest says.
        InvalidPayload: A message has no value, and the export is to fail then.
    """
    counted = _Counted()
    writer = _writer(job, job.place)
    dead = _writer(job, job.dead_letter_location)
    try:
        for batch in counted.all(_read(job, catalog)):
            rows, letters = job.columns.split_dead_letters(batch)
            if rows.num_rows:
                writer.write(rows)
            if letters is not None:
                new = letters.filter(
                    pc.greater_equal(letters.column("offset"), job.dead_letters_from)
                )
                if new.num_rows:
                    dead.write(new)
        return ExportResult(
            files=tuple(writer.finish()),
            dead_letter_files=tuple(dead.finish()),
            message_count=counted.message_count,
            byte_count=counted.byte_count,
        )
    except BaseException:
        writer.abort()
        dead.abort()
        raise


def _read(job: ExportJob, catalog: Catalog) -> Iterator[pa.RecordBatch]:
    return read_scan(
        job.scan,
        job.columns.read_schema(),
        catalog,
        fail_on_data_loss=job.read.fail_on_data_loss,
        decoding=job.decoding,
    )


def _writer(job: ExportJob, place: TableLocation | None) -> FileWriter:
    # Without a place of its own nothing is ever written to it.
    return FileWriter(place or job.place, job.name, file_bytes_max=job.file_bytes_max)


@dataclass(slots=True)
class _Counted:
    message_count: int = 0
    byte_count: int = 0

    def all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.message_count += batch.num_rows
            self.byte_count += batch.nbytes
            yield batch
