"""
The messages of a topic that are only in the journal, found when the topic is opened.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.errors import CorruptJournal
from pydanube.model.ids import Offset, TopicId
from pydanube.model.segments import SegmentEntry
from pydanube.wire.batches import BatchFrame
from pydanube_broker.storage.journal.state import TopicState


def uploaded_of(segments: Sequence[SegmentEntry]) -> tuple[SegmentEntry, ...]:
    """Return *segments* up to the first one that is not uploaded."""
    local = (at for at, each in enumerate(segments) if not each.is_uploaded)
    return tuple(segments[: next(local, len(segments))])


def find_unsealed(
    topic_id: TopicId,
    segments: Sequence[SegmentEntry],
    state: TopicState | None,
    frames: Sequence[BatchFrame],
    *,
    journal_begin: str,
) -> tuple[list[BatchFrame], Offset, Offset]:
    """
    Return those of *frames* that are not in *segments*, and sealed and end offset.

    *state* and *frames* are what the journal has of the topic; *journal_begin* names
    its first file in errors.

    Raises:
        CorruptJournal: Messages are in neither of them.
    """
    sealed_offset = end_offset = segments[-1].end if segments else 0
    if state is not None:
        # The manifest is ahead if a crash came before the journal's entry; the
        # journal is ahead if retention has dropped segments.
        sealed_offset = max(sealed_offset, state.sealed_offset)
        end_offset = max(end_offset, state.end_offset)
    unsealed = [
        # A segment of another broker may end inside one of our batches.
        frame if frame.base >= sealed_offset else frame.slice(sealed_offset, end)
        for frame in frames
        if (end := frame.end) > sealed_offset
    ]
    begin = unsealed[0].base if unsealed else end_offset
    if begin > sealed_offset:
        raise CorruptJournal(
            f"topic {topic_id}: messages {sealed_offset} to {begin} are neither in the "
            f"journal, which begins with {journal_begin}, nor in a segment"
        )
    return unsealed, Offset(sealed_offset), Offset(end_offset)
