"""Staged batches: parts that are stored and not yet published."""

from __future__ import annotations

from pydanube.model.errors import VersionBehind
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.ranges import Range

REPEATED_VERSIONS_MAX = 100
"""How far below the committed version a version may be to count as repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKey:
    """The identity of a part: its query, version and name."""

    query: str
    version: int
    name: str
    """Chosen by the writer; different for each attempt at the version."""
    part_id: str
    """Random, for attempts that have the same name nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A finished part, as the commit names it."""

    name: str
    part_id: str
    batch_count: int
    message_count: int
    byte_count: int
    """The bytes that it takes on the broker's disk, or in the object store."""
    pieces: tuple[StagedPart, ...] = ()
    """In a cluster: the parts of single topics that it consists of, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAcks:
    """Messages of one consumer that a transaction acknowledges."""

    topic: str
    subscription: str
    consumer_id: int
    """The consumer that has the messages; see ``ConsumerOpened``."""
    ranges: tuple[Range, ...]
    """In order, without overlaps."""
    note: str = ""
    """A text to keep with the cursor, if this moves it to the end of *ranges*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """The result of committing a version of a query."""

    message_count: int
    """The number of its messages; 0 if a later version has been committed since."""
    is_repeat: bool
    """Whether an earlier request has committed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingDescription:
    """The progress of a query, and its staged parts."""

    query: str
    committed_version: int | None
    """The last committed version; None if there is none."""
    is_finished: bool
    """Whether all messages of that version are in their topics."""
    part_count: int
    """
    The number of parts that are staged or being staged.

    In a cluster, those that are finished, and those that are being staged at the broker
    that answers.
    """
    byte_count: int
    """The bytes that they take, on the broker's disk or in the cluster's store."""


def is_repeat(query: str, version: int, committed: int | None) -> bool:
    """
    Return whether *query* has committed *version*, or a later one.

    Raises:
        VersionBehind: The version is so far below the committed one that its writer
            cannot have committed that.
    """
    if committed is None or version > committed:
        return False
    if committed - version > REPEATED_VERSIONS_MAX:
        raise VersionBehind(
            f"the query {query!r} has committed version {committed}, which is far "
            f"beyond version {version}: another writer uses the name, or the progress "
            "of this one was reset. Nothing was written; use another name (for Spark "
            "the option appId)"
        )
    return True
