"""The settings of storage; the defaults suit a single machine."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

AtLeastOne = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(ge=0.001)]


class JournalConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How the journal is written."""

    file_bytes_max: Annotated[int, Meta(ge=KIB)] = 64 * MIB
    """Where the journal goes on in a new file; the group that crosses it is whole."""
    pending_bytes_max: AtLeastOne = 64 * MIB
    """How much may wait for the disk before publishers have to wait."""


class StorageConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How messages are kept: journal, then memory, then segments."""

    journal: JournalConfig = JournalConfig()
    """The write-ahead journal."""
    seal_bytes: AtLeastOne = 64 * MIB
    """How much of a topic makes a segment. Messages count as they are before
    compression, and 16 bytes more for each."""
    seal_age_s: Seconds = 600.0
    """How long a message may wait for its segment to fill."""
    seal_pace: Annotated[float, Meta(ge=0)] = 1.0
    """After a segment the sealer rests so many times as long as it took to write."""
    seal_interval_s: Interval = 1.0
    """How often the sealer looks what is due, unless it is woken."""
    tail_bytes_max: AtLeastOne = 512 * MIB
    """
    How much of all topics together may wait in memory to be sealed. Messages count as
    for ``seal_bytes``.

    From three quarters on the largest topics are sealed at once; at the limit
    publishers wait.
    """
    journal_bytes_max: AtLeastOne = GIB
    """From here on topics are sealed that keep old journal files from deletion."""
    row_group_bytes: AtLeastOne = 8 * MIB
    """How much of a topic makes a row group, the least that is read of a segment.
    Messages count as for ``seal_bytes``; a row group has at most 131,072 of them."""
    frame_bytes: AtLeastOne = MIB
    """How long a batch is that is read back from a segment, if messages allow it."""
    cache_bytes_max: Annotated[int, Meta(ge=0)] = 128 * MIB
    """How much of what was read from segments is kept for the next reader."""
    retention_interval_s: Interval = 60.0
    """How often topics are searched for segments that are too old or too many."""
    replaced_keep_s: Seconds = 60.0
    """How long a segment that was replaced stays for readers who have it open."""
    orphan_keep_s: Seconds = 7 * 86_400.0
    """How long an object stays that no topic consists of, such as one that a crash left
    before it became part of its topic."""
    reserve_bytes: Annotated[int, Meta(ge=0)] = 16 * MIB
    """How much disk space is set aside for a full disk. When the disk is full, nothing
    is published or staged, and this space serves deletions, retention, cursors and
    metadata; publishing goes on when twice as much is free. 0 sets nothing aside."""
    root: str = ""
    """Where segments stand in the object store: a prefix of their names."""


class StagingConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How batches are kept that are staged and not committed yet."""

    bytes_max: AtLeastOne = 16 * GIB
    """How much all staged parts together may take on the disk; more is refused."""
    expiry_s: Interval = 86_400.0
    """How long a part is kept that nobody writes or commits. It begins anew when the
    broker starts."""
    query_memory_s: Interval = 90 * 86_400.0
    """How long the last committed version of a query is remembered. Who commits it
    again after that, commits it twice."""
    queries_max: AtLeastOne = 10_000
    """How many queries are remembered; the one that committed longest ago is forgotten
    first."""
