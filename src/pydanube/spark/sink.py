"""
Which batch of whom is written: what a sink remembers so as to write it once.

``BatchKey`` stays the same when Spark runs a batch again; ``Sink`` is what can be
written to.  Nothing here knows Spark.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydanube.model.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pydanube.reader.option_parsing import ParsedOptions


@dataclass(frozen=True, slots=True)
class BatchKey:
    """One batch."""

    app: str
    """Whose it is: the option ``appId``, or else the query's id."""
    number: int
    query: str
    """The id of the query itself; empty where there is none."""

    def __str__(self) -> str:
        return f"{self.app}:{self.number}"


@dataclass(frozen=True, slots=True)
class TaskKey:
    """What one attempt of one task writes of a batch."""

    batch: BatchKey
    partition: int
    attempt: int


class Sink(Protocol):
    """
    Where the rows of a batch go.

    It is pickled into Spark's tasks, so it holds options and nothing that is open.
    """

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> Any:
        """
        Write *batches*, which have at least one row.

        What it returns is pickled, and given to ``commit`` or ``abort``.  If it
        raises, it leaves nothing behind that it can still remove.
        """
        ...

    def commit(self, key: BatchKey, outputs: Sequence[Any]) -> None:
        """Make a batch of *pieces* visible, unless it was before."""
        ...

    def abort(self, key: BatchKey, outputs: Sequence[Any]) -> None:
        """
        Remove *pieces*: their batch is given up, and may come again.

        A task that was killed may have left more, which only its sink can find.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Which batch the user says a write is."""

    app: str | None = None
    number: int | None = None

    @classmethod
    def parse(cls, given: ParsedOptions) -> BatchIdentity:
        """
        What ``appId`` and ``batchId`` say.

        Raises:
            InvalidConfig: There is a ``batchId`` and it is not said whose.
        """
        app = given.text("appId") or None
        number = given.count("batchId", 0, smallest=0) if "batchId" in given else None
        if number is not None and app is None:
            raise InvalidConfig("batchId: give appId too, which says whose batch it is")
        return cls(app, number)

    def check(self, *, is_stream: bool) -> None:
        """
        Refuse what does not go with the kind of write.

        Raises:
            InvalidConfig: A stream is given a number, or a batch no number.
        """
        if is_stream and self.number is not None:
            raise InvalidConfig("batchId: a stream numbers its batches by itself")
        if not is_stream and self.app is not None and self.number is None:
            raise InvalidConfig(
                "appId: a batch write needs batchId too; without it the second write "
                "would be taken for a repetition of the first"
            )

    def key(self, query: str, number: int, *, is_stream: bool) -> BatchKey:
        """The key of batch *number* of *query*, as the user wants to call it."""
        return BatchKey(
            app=query if self.app is None else self.app,
            number=number if self.number is None else self.number,
            query=query if is_stream else "",
        )


def digest(*parts: str) -> str:
    """A short name for *parts* that is fit for any system."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
