"""
The jobs of an export: each writes messages of a topic to data files of a table.

Segments are read and files are written in the same process.  The files are not part of
the table until the round is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import Decoding
from pydanube_spark.reader.pure.scans import Scan
from pydanube_spark.reader.scan_reader import read_scan
from pydanube_spark.reader.segment_access import SegmentAccess
from pydanube_spark.tables.data_files import DataFile, FileWriter, TableLocation
from pydanube_spark.tables.export.table_columns import TableColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """The pickled input of a task."""

    scan: Scan
    catalog: Catalog
    fail_on_data_loss: bool
    access: SegmentAccess
    columns: TableColumns
    decoding: Decoding | None
    location: TableLocation
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


def export(job: ExportJob) -> ExportResult:
    """
    Run *job*.

    Cancellation: If an error is raised, no file is left behind.

    Raises:
        OffsetDropped: Messages of the job are gone.
        CorruptSegment: A segment does not have what the manifest says.
        InvalidPayload: A message cannot be decoded, and the policy is FAIL.
    """
    message_count = byte_count = 0
    writer = FileWriter(job.location, job.name, job.file_bytes_max)
    # Nothing is ever written without a table for dead letters.
    dead_letter_location = job.dead_letter_location or job.location
    dead = FileWriter(dead_letter_location, job.name, job.file_bytes_max)
    try:
        for batch in read_scan(
            job.scan,
            job.columns.read_schema(),
            job.catalog,
            fail_on_data_loss=job.fail_on_data_loss,
            decoding=job.decoding,
            access=job.access,
        ):
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
