"""
The operations of a lakehouse table, and its idempotent writes.

An application's version is committed in the same transaction as the rows that it stands
for.  A writer that repeats a commit after a crash finds the version there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydanube.model.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from pydanube.tables.data_files import DataFile, TableLocation
    from pydanube.tables.table_options import WriteOptions

T = TypeVar("T")

COMMIT_ATTEMPTS_MAX = 10
"""The number of attempts of a transaction that conflicts with others."""
RETRY_WAIT_S = 0.1
"""The wait before the second attempt; it grows linearly with each attempt."""


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """
    The record that an application has reached *version*, committed with its rows.

    It is Delta's application transaction; an Iceberg table stores it as a property.
    """

    app: str
    version: int
    after: int | None = None
    """The version it must have had; -1: none. None: any lower version."""

    def is_reached(self, now: int | None) -> bool:
        """
        Return whether the application, which is at *now*, has reached this version.

        Raises:
            Conflict: It is at another version than *after*.
        """
        if self.after is None:
            return now is not None and now >= self.version
        if (-1 if now is None else now) != self.after:
            raise Conflict(
                f"{self.app} is at {now} in the table, not at {self.after}: another "
                "writer uses the same application id; stop one of the two"
            )
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The effect of a compaction, or of a planned one."""

    files_before: int
    """The number of small files that were merged."""
    files_after: int
    bytes_before: int
    bytes_after: int


NO_COMPACTION = CompactionResult(
    files_before=0, files_after=0, bytes_before=0, bytes_after=0
)


def retry_conflicts(
    name: str,
    attempt: Callable[[], T],
    conflicts: tuple[type[Exception], ...],
    wait: Callable[[float], None],
) -> T:
    """
    Return the result of *attempt*, which is repeated while it raises *conflicts*.

    Raises:
        Conflict: COMMIT_ATTEMPTS_MAX attempts on the table *name* conflicted.
    """
    last: Exception | None = None
    for number in range(COMMIT_ATTEMPTS_MAX):
        wait(RETRY_WAIT_S * number)
        try:
            return attempt()
        except conflicts as error:
            last = error
    raise Conflict(
        f"{name}: {COMMIT_ATTEMPTS_MAX} attempts to commit conflicted with other "
        f"writers, the last one with: {last}"
    )


class LakeTable(Protocol):
    """
    The name of a table, which can be pickled.

    Every method loads the table anew, so it sees the commits of other writers.
    """

    @property
    def name(self) -> str:
        """Return the name for messages."""
        ...

    def schema(self) -> pa.Schema | None:
        """Return the table's columns, or None if it does not exist."""
        ...

    def properties(self) -> Mapping[str, str]:
        """Return the table's properties."""
        ...

    def app_versions(self, apps: Iterable[str]) -> dict[str, int | None]:
        """Return the version of each of *apps*; None if it has not written."""
        ...

    def check(self, schema: pa.Schema, options: WriteOptions) -> None:
        """
        Check that ``prepare`` would accept rows of *schema*; change nothing.

        Raises:
            InvalidRequest: The rows do not fit; the message names the columns.
        """
        ...

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
        ...

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
        ...

    def unreferenced(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return those of *files* that the table does not reference."""
        ...

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        """
        Merge files that are much smaller than *file_bytes*; the rows stay the same.

        Raises:
            Conflict: Every attempt conflicted with other commits.
        """
        ...

    def clean(
        self, *, older_than_s: float, now: float, plan_only: bool = False
    ) -> list[str]:
        """
        Delete files that the table does not reference, and return their paths.

        Failed attempts leave such files, and in a Delta table so do replaced ones.

        Bounds: Only files that are older than *older_than_s*: younger ones may
            belong to a writer that has not committed yet.
        """
        ...
