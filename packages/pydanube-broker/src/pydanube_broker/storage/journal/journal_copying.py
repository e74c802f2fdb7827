"""
Copying a journal: its state, and the batches that are not sealed.

A copy is the same for journals of all kinds.  It becomes entries of another journal, or
the files of a local one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from pydanube.model.ids import Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BatchFrame
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.journal_format import (
    Batch,
    Entry,
    FileHeader,
    ProducerDeleted,
    ProducerSaved,
    SnapshotEnd,
    TopicAdopted,
    TopicOpened,
)
from pydanube_broker.storage.journal.journal_writer import encode_entries
from pydanube_broker.storage.journal.recovery import file_name
from pydanube_broker.storage.journal.state import JournalState


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalCopy:
    """The content of a journal at one moment."""

    snapshot: Sequence[Entry]
    """The entries of ``JournalState.snapshot``."""
    frames: Mapping[TopicId, Sequence[BatchFrame]]
    """The batches of each topic that are not sealed."""
    sealed_offsets: Mapping[TopicId, Offset] = field(default_factory=dict)
    """The offsets up to which topics are sealed, if the journal does not know them."""

    def entries(self) -> Iterator[Entry]:
        """Yield entries whose fold is the state, with the batches."""
        later: list[Entry] = []
        saved = {
            (entry.topic_id, entry.name)
            for entry in self.snapshot
            if isinstance(entry, ProducerSaved)
        }
        for entry in self.snapshot:
            if not isinstance(entry, TopicOpened | TopicAdopted):
                # After the batches, which would change the producers.
                later.append(entry)
                continue
            topic_id, sealed_offset = entry.topic_id, entry.sealed_offset
            frames = self.frames.get(topic_id, ())
            begin = frames[0].base if frames else entry.end_offset
            yield replace(
                entry,
                end_offset=Offset(begin),
                sealed_offset=max(
                    sealed_offset, self.sealed_offsets.get(topic_id, sealed_offset)
                ),
            )
            yield from (Batch(topic_id, frame) for frame in frames)
            names = {each.header.producer for each in frames if each.header.producer_id}
            # Batches bring producers back that were forgotten.
            later += (
                ProducerDeleted(topic_id, name)
                for name in sorted(names)
                if (topic_id, name) not in saved
            )
        yield from later


def encode_files(
    entries: Iterable[Entry], *, number: int, journal_id: bytes, bytes_max: int
) -> Iterator[tuple[str, bytes]]:
    """
    Yield the files of a local journal with *entries*: their names and contents.

    The first file has *number*, and the next one begins after about *bytes_max*.

    Bounds: One file is held in memory.

    Raises:
        CorruptJournal: The entries do not fit together.
    """
    state, left = JournalState(), iter(entries)
    is_last = False
    while not is_last:
        header = FileHeader(number, journal_id)
        buffers: list[Buffer] = [header.encode()]
        snapshot = list(state.snapshot())
        head, position = encode_entries(
            [*snapshot, SnapshotEnd(len(snapshot))], len(buffers[0]), 0, header.seed
        )
        buffers += head
        is_last = True
        for entry in left:
            state.apply(entry)
            added, position = encode_entries([entry], position, 0, header.seed)
            buffers += added
            if position >= bytes_max:
                is_last = False
                break
        yield file_name(number), b"".join(buffers)
        number += 1
