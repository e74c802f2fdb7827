"""
What both kinds of tables can do, and how far an application is in one.

A mark is written in the transaction that adds the rows that it stands for, so both are
there or neither.  Whoever repeats himself after a crash finds his mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydanube.model.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from pydanube.tables.data_files import DataFile, TableLocation
    from pydanube.tables.table_options import WriteOptions

COMMIT_ATTEMPTS_MAX = 10
"""So often a transaction is tried that others were faster than."""
RETRY_WAIT_S = 0.1
"""How long to wait before the second attempt; before each further one longer."""


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """That an application is at *version* now."""

    app: str
    version: int
    after: int | None = None
    """Where it must have been; -1: nowhere. None: anywhere below."""

    def is_reached(self, now: int | None) -> bool:
        """
        Whether the application is there already, when it is at *now*.

        Raises:
            Conflict: It is not where it must have been.
        """
        if self.after is None:
            return now is not None and now >= self.version
        if (-1 if now is None else now) != self.after:
            raise Conflict(
                f"{self.app} is at {now} in the table, not at {self.after}: somebody "
                "else writes there as the same; end one of the two"
            )
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What compaction did, or would do."""

    files_before: int
    """Small files that were joined."""
    files_after: int
    bytes_before: int
    bytes_after: int


NO_COMPACTION = CompactionResult(
    files_before=0, files_after=0, bytes_before=0, bytes_after=0
)


class LakeTable(Protocol):
    """
    One table, named and not opened; travels by pickle.

    Every method opens the table anew, so it sees what others have done.
    """

    @property
    def name(self) -> str:
        """For people."""
        ...

    def schema(self) -> pa.Schema | None:
        """The table's columns, or None if it does not exist."""
        ...

    def properties(self) -> Mapping[str, str]:
        """What the table was created with, and what was set since."""
        ...

    def app_versions(self, apps: Iterable[str]) -> dict[str, int | None]:
        """Where each of *apps* is in the table; None if it is not known there."""
        ...

    def check(self, schema: pa.Schema, options: WriteOptions) -> None:
        """
        Refuse rows of *schema* that ``prepare`` would refuse; change nothing.

        Raises:
            InvalidRequest: They do not fit; the message names the columns.
        """
        ...

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> TableLocation:
        """
        Create the table if it is missing, with *properties*; add the columns that it
        lacks; say where files go.

        A repeat changes nothing.

        Raises:
            InvalidRequest: Rows of *schema* do not fit into the table.
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
        Make *files* part of the table, in one transaction with *marks*.

        With *replace* they are all that it has then.  False if the marks were reached
        before: then nothing is changed.  *note* is shown in the table's history.

        Durability: As the table's storage has it, on return.

        Raises:
            Conflict: A mark is not where it must have been, or others were faster,
                again and again.
        """
        ...

    def unreferenced(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Those of *files* that are not part of the table."""
        ...

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        """
        Join files that are much smaller than *file_bytes*; the rows stay the same.

        Raises:
            Conflict: Others were faster, again and again.
        """
        ...

    def clean(
        self, *, older_than_s: float, now: float, plan_only: bool = False
    ) -> list[str]:
        """
        Delete files that the table has no use for, and name them.

        That is what failed attempts have left behind and, in a Delta table, what was
        replaced so long ago.

        Bounds: Only files that are older than *older_than_s*: younger ones may
            belong to somebody who has not committed yet.
        """
        ...
