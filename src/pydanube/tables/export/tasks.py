"""
The task of an export: it writes messages of a topic to data files of a table.

Segments are read and files are written in the same process.  The files are not part of
the table until the round is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pydanube.model.errors import BrokerError
from pydanube.reader.catalog import Catalog
from pydanube.reader.scan_reader import read_scan
from pydanube.tables.data_files import DataFile, FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pydanube.reader.decoding import Decoding
    from pydanube.reader.read_options import ReadOptions
    from pydanube.reader.scans import Scan
    from pydanube.tables.data_files import TableLocation
    from pydanube.tables.export.table_columns import TableColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """The pickled input of a task."""

    scan: Scan
    read: ReadOptions
    columns: TableColumns
    decoding: Decoding | None
    place: TableLocation
    file_bytes_max: int
    name: str
    """The prefix of the names of its files."""
    dead_letter_location: TableLocation | None = None
    dead_letters_from: int = 0
    """Dead letters before this offset are already in their table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The result of a task."""

    files: tuple[DataFile, ...]
    dead_letter_files: tuple[DataFile, ...]
    message_count: int
    byte_count: int
    """The size of the messages in memory."""


ExportOutcome = ExportResult | BrokerError


def export(job: ExportJob) -> ExportOutcome:
    """
    Run *job*.

    An error is returned instead of raised, so that the driver also gets the results of
    the other tasks and can delete their files.
    """
    try:
        return export_from(job, Catalog(job.read))
    except BrokerError as error:
        return error


def export_from(job: ExportJob, catalog: Catalog) -> ExportResult:
    """
    Run *job* with the messages of *catalog*.

    Cancellation: If an error is raised, no file is left behind.

    Raises:
        OffsetDropped: Messages of the job are gone.
        CorruptSegment: A segment does not have what the manifest says.
        InvalidPayload: A message cannot be decoded, and the policy is FAIL.
    """
    message_count = byte_count = 0
    writer = _writer(job, job.place)
    dead = _writer(job, job.dead_letter_location)
    try:
        for batch in _read(job, catalog):
            message_count += batch.num_rows
            byte_count += batch.nbytes
            rows, dead_rows = job.columns.split_dead_letters(batch)
            if rows.num_rows:
                writer.write(rows)
            if dead_rows is not None:
                new = dead_rows.filter(
                    pc.greater_equal(dead_rows.column("offset"), job.dead_letters_from)
                )
                if new.num_rows:
                    dead.write(new)
        return ExportResult(
            files=tuple(writer.finish()),
            dead_letter_files=tuple(dead.finish()),
            message_count=message_count,
            byte_count=byte_count,
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
