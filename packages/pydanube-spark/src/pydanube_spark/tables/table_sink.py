"""
A lakehouse table as a sink, in two phases.

``write`` runs in the tasks and writes files that no reader sees.  ``commit`` runs once
in the driver and adds them to the table, or merges their rows into it.  If either
fails, the files are deleted.  The driver also merges small files, if the user wants it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

import pyarrow as pa

from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.upserts import INSERT_ONLY, UpsertColumns
from pydanube_spark.tables.data_files import (
    DataFile,
    TableLocation,
    for_each_file,
    write_files,
)
from pydanube_spark.tables.merge_runners import LOCAL_BYTES_MAX, MergeRunners
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.table_options import UpkeepPolicy
from pydanube_spark.tables.staged_rows import (
    StagedChanges,
    StagedFile,
    StagingLocation,
    small_changes,
    stage_rows,
)
from pydanube_spark.tables.table import LakeTable

log = logging.getLogger(__name__)

UPKEEP_BATCHES = 10
"""How many batches are between two that look for small files."""

JOB = "batch"
"""The part of the file names of batch writes that is the query's id in streams."""


@dataclass(frozen=True)
class LakeSink:
    """Writes batches to a table; see ``spark.sink.Sink``."""

    table: LakeTable
    location: TableLocation | StagingLocation
    file_bytes_max: int
    is_named: bool = False
    """True if the user has given an ``appId``."""
    is_overwrite: bool = False
    """True if each batch replaces all rows."""
    upsert: UpsertColumns = INSERT_ONLY
    """With keys, *location* is a ``StagingLocation``."""
    upkeep: UpkeepPolicy | None = None
    local_bytes_max: int = LOCAL_BYTES_MAX
    """See ``MergeRunners``."""

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        """Write the rows of one task into new files."""
        batch = key.batch
        name = f"{batch.query or JOB}-{batch.number}-{key.partition}-{key.attempt}"
        if isinstance(self.location, StagingLocation):
            columns, size = self.upsert, self.file_bytes_max
            staged = stage_rows(
                self.location, batches, name, columns, file_bytes_max=size
            )
            return [*staged]
        return write_files(
            self.location, batches, name, file_bytes_max=self.file_bytes_max
        )

    def commit(self, key: BatchKey, outputs: Sequence[list[DataFile]]) -> None:
        """
        Add the files of all tasks to the table, or merge their rows into it.

        A batch of a stream, or one that the user has numbered, is dropped if the table
        already has it.
        """
        files = list(chain.from_iterable(outputs))
        transactions: list[AppTransaction] = []
        note: dict[str, str] = {}
        if key.query or self.is_named:
            transactions = [AppTransaction(key.app, key.number)]
            note = {"danube.app": key.app, "danube.batch": str(key.number)}
        if isinstance(self.location, StagingLocation):
            self._merge(self.location, files, transactions, note)
        elif not self.table.commit(
            files, transactions, replace=self.is_overwrite, note=note
        ):
            self.table.discard(self.location, files)
        if self.upkeep is not None and key.number % UPKEEP_BATCHES == 0:
            self._maintain(self.upkeep)

    def abort(self, key: BatchKey, outputs: Sequence[list[DataFile]]) -> None:
        """
        Delete the files of the tasks, except those that are part of the table.

        Spark also aborts a batch if only the answer to its commit was lost.
        """
        files = list(chain.from_iterable(outputs))
        if isinstance(self.location, StagingLocation):
            self._delete(files)
        else:
            self.table.discard(self.location, files)

    def _merge(
        self,
        location: StagingLocation,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        note: Mapping[str, str],
    ) -> None:
        staged = StagedChanges(
            location,
            tuple(cast("Sequence[StagedFile]", files)),
            # Truncations are no staged rows.
            replace(self.upsert, truncate=None),
        )
        if staged.truncation is None:
            self._merge_rows(staged, transactions, note)
        else:
            self._replace_rows(staged, transactions, note)
        self._delete(files)

    def _merge_rows(
        self,
        staged: StagedChanges,
        transactions: Sequence[AppTransaction],
        note: Mapping[str, str],
    ) -> None:
        with MergeRunners(self.local_bytes_max) as runners:
            self.table.merge(
                small_changes(staged),
                staged.columns,
                transactions,
                note=note,
                file_bytes_max=self.file_bytes_max,
                runners=runners,
            )

    def _replace_rows(
        self,
        staged: StagedChanges,
        transactions: Sequence[AppTransaction],
        note: Mapping[str, str],
    ) -> None:
        """Replace all rows of the table by those after a truncation."""
        place = staged.location.table
        files = write_files(
            place, staged.inserted(), "truncated", file_bytes_max=self.file_bytes_max
        )
        try:
            is_new = self.table.commit(files, transactions, replace=True, note=note)
        except BaseException:
            # The commit may have succeeded although an error was raised.
            self.table.discard(place, files)
            raise
        if not is_new:
            self.table.discard(place, files)

    def _maintain(self, policy: UpkeepPolicy) -> None:
        """Merge small files if there are many; the batch is committed in any case."""
        size = self.file_bytes_max
        try:
            planned = self.table.compact(file_bytes=size, plan_only=True)
            if planned.files_before < policy.files_min:
                return
            self.table.compact(file_bytes=size)
            if policy.clean_older_than_s is not None:
                self.table.clean(
                    older_than_s=policy.clean_older_than_s, now=time.time_ns() / 1e9
                )
        except Exception:  # Libraries have errors of their own.
            log.warning(
                "%s was not compacted; a later batch tries again",
                self.table.name,
                exc_info=True,
            )

    def _delete(self, files: Sequence[DataFile]) -> None:
        """Delete staged files, which are never part of the table."""
        for_each_file(files, lambda file: self.location.delete(file.path))
