"""The report of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field

WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """The parts found of one topic, and how the topic continues."""

    topic: str
    topic_id: int
    is_rebuilt: bool
    """True if its record is missing in the metadata store."""
    segments: int
    rebuilt_segments: int
    """The number of segments whose records are missing in the metadata store."""
    base: int | None
    """The offset of the first message; None if there is no message."""
    end: int
    """The offset after the last message."""
    salvaged: int
    """The number of messages of the old journal that become segments."""
    next_offset: int
    """The offset of the next message; greater than *end* if messages may be lost."""
    subscriptions: dict[str, int]
    """The rebuilt subscriptions and their cursors."""


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """The state of a data directory's parts, and the work that is needed."""

    directory: str
    cluster_id: str | None
    metadata: str
    """``whole``, or the problem."""
    journal: str
    objects: str
    needs_from_segments: bool
    needs_accept_loss: bool
    topics: list[TopicReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Objects that are not segments of a topic; they stay in place."""
    written: bool = False
    """True if the directory was changed."""
