"""What is said of staged batches: parts that are stored, and not yet published."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKey:
    """Which part of which version of which query."""

    query: str
    version: int
    name: str
    """Unique among the attempts at the version, as far as the writer knows."""
    part_id: str
    """Chosen by chance, for attempts that have the same name all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A part that is on the broker's disk, to be named for the commit."""

    name: str
    part_id: str
    batch_count: int
    message_count: int
    byte_count: int
    """What it takes on the broker's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """That a version of a query is committed."""

    message_count: int
    """How many messages it has; 0 where a later version has been committed since."""
    is_repeat: bool
    """Whether it was decided by an earlier request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingDescription:
    """How far a query is, and what is staged for it."""

    query: str
    committed_version: int | None
    """The last one that is decided; None if there is none."""
    is_finished: bool
    """Whether all messages of that version are in their topics."""
    part_count: int
    """Parts that are staged or being staged."""
    byte_count: int
    """What they take on the broker's disk."""
