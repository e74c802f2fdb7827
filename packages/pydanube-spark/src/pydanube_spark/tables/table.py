"""
The operations of a lakehouse table, and its idempotent writes.

An application's version is committed in the same transaction as the rows that it stands
for.  A writer that repeats a commit after a crash finds the version there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from pydanube.model.errors import Conflict, NotFound
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import DataFile, TableLocation, for_each_file
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.table_options import FILE_BYTES_MAX, WriteOptions
from pydanube_spark.tables.staged_rows import Changes

T = TypeVar("T")

COMMIT_ATTEMPTS_MAX = 10
"""The number of attempts of a transaction that conflicts with others."""
RETRY_WAIT_S = 0.1
"""The wait before the second attempt; it grows linearly with each attempt."""


class JobRunners(Protocol):
    """The runners of the jobs of a merge."""

    def of(self, byte_count: int) -> Any:
        """Return the ``jobs.Runner`` of jobs that read *byte_count* in all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The effect of a compaction, or of a planned one."""

    files_before: int
    """The number of small files that were merged."""
    files_after: int
    bytes_before: int
    bytes_after: int

    @classmethod
    def planned(
        cls, groups: Sequence[Sequence[int]], file_bytes: int
    ) -> CompactionResult:
        """Return the expected result for *groups* of files with these sizes."""
        byte_count = sum(map(sum, groups))
        return cls(
            files_before=sum(map(len, groups)),
            files_after=sum(-(-sum(sizes) // file_bytes) for sizes in groups),
            bytes_before=byte_count,
            bytes_after=byte_count,
        )


@dataclass(frozen=True)
class LakeTable:
    """
    The name of a table, which can be pickled.

    Every method loads the table anew, so it sees the commits of other writers.
    Subclasses access the tables of one format; to this class a loaded table is an
    object of any type.
    """

    name: str
    connection: Mapping[str, str]
    """The options of the object store, or the properties of the catalog."""
    wait: Callable[[float], None]
    """Waits for some seconds."""

    conflicts: ClassVar[tuple[type[Exception], ...]]
    """The errors of a commit that comes after another one."""

    def schema(self) -> pa.Schema | None:
        """Return the table's columns, or None if it does not exist."""
        with self._opened() as table:
            return None if table is None else self._schema_of(table)

    def properties(self) -> Mapping[str, str]:
        """Return the table's properties."""
        with self._opened() as table:
            return {} if table is None else self._properties_of(table)

    def data_version(self) -> int | None:
        """
        Return what identifies the rows that the table has now; None if it has none.

        Raises:
            NotFound: There is no table.
        """
        raise NotImplementedError

    def file_count(self, version: int) -> int:
        """Return the number of data files with the rows of *version*."""
        raise NotImplementedError

    def read_file(self, version: int, index: int) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of one of the data files of *version*.

        A file may lack columns that were added later.

        Raises:
            InvalidRequest: The table has files of a kind that is not supported.
        """
        raise NotImplementedError

    def app_versions(self, apps: Iterable[str]) -> dict[str, int | None]:
        """Return the version of each of *apps*; None if it has not written."""
        with self._opened() as table:
            if table is None:
                return dict.fromkeys(apps)
            return {app: self._app_version(table, app) for app in apps}

    def check(self, schema: pa.Schema, options: WriteOptions) -> None:
        """
        Check that ``prepare`` would accept rows of *schema*; change nothing.

        Raises:
            InvalidRequest: The rows do not fit; the message names the columns.
        """
        with self._opened() as table:
            self._check(table, schema, options)

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> TableLocation:
        """
        Create the table with *properties* or add missing columns; return its location.

        The call is idempotent.

        Raises:
            InvalidRequest: Rows of *schema* do not fit the table.
        """
        raise NotImplementedError

    def commit(
        self,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool = False,
        note: Mapping[str, str] | None = None,
    ) -> bool:
        """
        Add *files* to the table and record *transactions*, in one table commit.

        With *replace*, the files replace all others.  *note* is metadata of the commit.
        Return False, and change nothing, if a transaction's version was reached before.

        Durability: That of the table's storage, on return.

        Raises:
            Conflict: An application is not at the version it must have, or every
                attempt conflicted with other commits.
        """

        def write(table: Any) -> None:
            self._commit(
                table, files, transactions, replace=replace, note=dict(note or {})
            )

        return self._commit_once(transactions, write)

    def merge(
        self,
        changes: Changes,
        columns: UpsertColumns,
        transactions: Sequence[AppTransaction],
        *,
        note: Mapping[str, str] | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        runners: JobRunners | None = None,
    ) -> bool:
        """
        Upsert *changes* and record *transactions*, in one table commit.

        A changed row replaces or deletes the row of the table that has its key, unless
        that one is later by the order columns.  Return False, and change nothing, if a
        transaction's version was reached before.  Without *runners*, all jobs of the
        merge run in this process.

        Durability, errors: As of ``commit``.
        """

        def write(table: Any) -> None:
            self._merge(
                table,
                changes,
                columns,
                transactions,
                note=dict(note or {}),
                file_bytes_max=file_bytes_max,
                runners=runners,
            )

        return self._commit_once(transactions, write)

    def unreferenced(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return those of *files* that the table does not reference."""
        with self._opened() as table:
            known = () if table is None else self._referenced(table)
            return [each for each in files if each.path not in known]

    def discard(self, location: TableLocation, files: Sequence[DataFile]) -> None:
        """Delete *files* at *location*, except those that the table references."""
        if files:
            unused = self.unreferenced(files)
            for_each_file(unused, lambda file: location.delete(file.path))

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        """
        Merge files that are much smaller than *file_bytes*; the rows stay the same.

        Raises:
            Conflict: Every attempt conflicted with other commits.
        """
        raise NotImplementedError

    def clean(
        self, *, older_than_s: float, now: float, plan_only: bool = False
    ) -> list[str]:
        """
        Delete files that the table does not reference, and return their paths.

        Failed attempts leave such files, and in a Delta table so do replaced ones.

        Bounds: Only files that are older than *older_than_s*: younger ones may
            belong to a writer that has not committed yet.
        """
        raise NotImplementedError

    @contextmanager
    def _required(self) -> Iterator[Any]:
        with self._opened() as table:
            if table is None:
                raise NotFound(f"there is no table {self.name}")
            yield table

    def _commit_once(
        self, transactions: Sequence[AppTransaction], write: Callable[[Any], None]
    ) -> bool:
        """Call *write* with the table, unless a version was reached before."""

        def attempt() -> bool:
            with self._required() as table:
                # Check all of them: each may raise.
                reached = [
                    each.is_reached(self._app_version(table, each.app))
                    for each in transactions
                ]
                if any(reached):
                    return False
                write(table)
                return True

        return self._retry_conflicts(attempt)

    def _retry_conflicts(self, attempt: Callable[[], T]) -> T:
        """
        Return the result of *attempt*, which is repeated while it conflicts.

        Raises:
            Conflict: COMMIT_ATTEMPTS_MAX attempts conflicted.
        """
        last: Exception | None = None
        for number in range(COMMIT_ATTEMPTS_MAX):
            self.wait(RETRY_WAIT_S * number)
            try:
                return attempt()
            except self.conflicts as error:
                last = error
        raise Conflict(
            f"{self.name}: {COMMIT_ATTEMPTS_MAX} attempts to commit conflicted with "
            f"other writers, the last one with: {last}"
        )

    # What differs between formats.

    def _opened(self) -> AbstractContextManager[Any]:
        """Load the table; None if it does not exist."""
        raise NotImplementedError

    def _schema_of(self, table: Any) -> pa.Schema:
        raise NotImplementedError

    def _properties_of(self, table: Any) -> Mapping[str, str]:
        raise NotImplementedError

    def _app_version(self, table: Any, app: str) -> int | None:
        raise NotImplementedError

    def _check(self, table: Any, schema: pa.Schema, options: WriteOptions) -> None:
        """Check rows of *schema*; *table* is None if it does not exist."""
        raise NotImplementedError

    def _commit(
        self,
        table: Any,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool,
        note: dict[str, str],
    ) -> None:
        """Commit, or raise one of ``conflicts``."""
        raise NotImplementedError

    def _merge(
        self,
        table: Any,
        changes: Changes,
        columns: UpsertColumns,
        transactions: Sequence[AppTransaction],
        *,
        note: dict[str, str],
        file_bytes_max: int,
        runners: JobRunners | None,
    ) -> None:
        """Merge and commit, or raise one of ``conflicts``."""
        raise NotImplementedError

    def _referenced(self, table: Any) -> Collection[str]:
        """Return the paths of the files that *table* references."""
        raise NotImplementedError
