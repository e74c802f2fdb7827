"""
The protocol of sinks, and the batch keys with which they write each batch once.

A batch that Spark repeats has the same ``BatchKey``.  Nothing here depends on Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube_spark.reader.pure.option_parsing import ParsedOptions


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The identity of a batch."""

    app: str
    """The application id: the option ``appId``, or else the query's id."""
    number: int
    query: str
    """The query's id; empty for a batch write."""

    def __str__(self) -> str:
        return f"{self.app}:{self.number}"


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The identity of one attempt of one task of a batch."""

    batch: BatchKey
    partition: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of one task in a staging table of their own."""

    staging: str
    row_count: int


class Sink(Protocol):
    """
    A system that rows of batches are written to.

    Sinks are pickled into Spark's tasks, so they hold options and no connections.
    """

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> Any:
        """
        Write *batches*, which have at least one row.

        The result is pickled and passed to ``commit`` or ``abort``.  If the method
        fails, it removes what it has written as far as it can.
        """
        ...

    def commit(self, key: BatchKey, outputs: Sequence[Any]) -> None:
        """Make a batch of *outputs* visible, unless it is already committed."""
        ...

    def abort(self, key: BatchKey, outputs: Sequence[Any]) -> None:
        """
        Remove *outputs* of a batch that failed; Spark may repeat the batch.

        Killed tasks may have left more, which only the sink can find.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The application id and batch number that the user has set, if any."""

    app: str | None = None
    number: int | None = None

    @classmethod
    def parse(cls, given: ParsedOptions) -> BatchIdentity:
        """
        Parse ``appId`` and ``batchId``.

        Raises:
            InvalidConfig: ``batchId`` is set without ``appId``.
        """
        app = given.text("appId") or None
        number = given.count("batchId", 0, smallest=0) if "batchId" in given else None
        if number is not None and app is None:
            raise InvalidConfig("batchId: set appId, too")
        return cls(app, number)

    def check(self, *, is_stream: bool) -> None:
        """
        Raise if the options do not fit a stream or a batch write.

        Raises:
            InvalidConfig: A stream has a batch number, or a batch write has an
                application id without a number.
        """
        if is_stream and self.number is not None:
            raise InvalidConfig("batchId: a stream numbers its batches itself")
        if not is_stream and self.app is not None and self.number is None:
            raise InvalidConfig(
                "appId: a batch write needs batchId, too; without it the second write "
                "would count as a repetition of the first"
            )

    def key(self, query: str, number: int, *, is_stream: bool) -> BatchKey:
        """Return the key of batch *number* of *query*; the user's options override."""
        return BatchKey(
            app=query if self.app is None else self.app,
            number=number if self.number is None else self.number,
            query=query if is_stream else "",
        )


def digest(*parts: str) -> str:
    """Return a short hash of *parts* that is a valid name in all systems."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
