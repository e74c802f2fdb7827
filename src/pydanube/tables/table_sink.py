"""
A lakehouse table as a sink, in two phases.

``write`` runs in the tasks and writes files that no reader sees.  ``commit`` runs once
in the driver and adds them to the table.  If either fails, the files are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.tables.data_files import DataFile, write_files
from pydanube.tables.table import AppTransaction, LakeTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pydanube.spark.sink import BatchKey, TaskKey
    from pydanube.tables.data_files import TableLocation

JOB = "batch"
"""The part of the file names of batch writes that is the query's id in streams."""


class LakeSink:
    """Writes batches to a table; see ``spark.sink.Sink``."""

    def __init__(
        self,
        table: LakeTable,
        location: TableLocation,
        *,
        file_bytes_max: int,
        is_named: bool = False,
        is_overwrite: bool = False,
    ) -> None:
        """
        Create a sink.

        With *is_named*, the user has given an ``appId``.  With *is_overwrite*, each
        batch replaces all rows.
        """
        self._table = table
        self._location = location
        self._file_bytes_max = file_bytes_max
        self._is_named = is_named
        self._is_replacing = is_overwrite

    def overwriting(self) -> LakeSink:
        """Return the same sink for batches that each replace all rows."""
        return LakeSink(
            self._table,
            self._location,
            file_bytes_max=self._file_bytes_max,
            is_named=self._is_named,
            is_overwrite=True,
        )

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        """Write the rows of one task into new files."""
        batch = key.batch
        name = f"{batch.query or JOB}-{batch.number}-{key.partition}-{key.attempt}"
        return write_files(
            self._location, batches, name, file_bytes_max=self._file_bytes_max
        )

    def commit(self, key: BatchKey, outputs: Sequence[list[DataFile]]) -> None:
        """
        Add the files of all tasks to the table.

        A batch of a stream, or one that the user has numbered, is dropped if the table
        already has it.
        """
        files = [file for piece in outputs for file in piece]
        transactions: list[AppTransaction] = []
        note: dict[str, str] = {}
        if key.query or self._is_named:
            transactions = [AppTransaction(key.app, key.number)]
            note = {"danube.app": key.app, "danube.batch": str(key.number)}
        if not self._table.commit(
            files, transactions, replace=self._is_replacing, note=note
        ):
            self._discard(files)

    def abort(self, key: BatchKey, outputs: Sequence[list[DataFile]]) -> None:
        """Delete the files of the tasks."""
        self._discard([file for piece in outputs for file in piece])

    def _discard(self, files: Sequence[DataFile]) -> None:
        """
        Delete *files*, except those that are part of the table.

        Spark also aborts a batch if only the answer to its commit was lost.
        """
        for file in self._table.unreferenced(files) if files else ():
            self._location.delete(file.path)
