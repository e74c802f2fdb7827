"""
Recovery of shards: their entries out of another session's journal, and adopting them.

A session reads the journal of another one once for all shards that it takes over from
it.  The journal also has entries of other shards, and perhaps entries of the same
shards with other epochs: of an earlier time, or of an adoption that was not finished.
ShardFold selects.  ``docs/format/cluster.md`` has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydanube.model.errors import CorruptJournal
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.storage.journal_copying import JournalCopy
from pydanube.storage.journal_sessions import JournalSession
from pydanube.storage.object_recovery import GroupConsumer, GroupReader
from pydanube.storage.recovery import Recovery, keep_unsealed
from pydanube.storage.state import JournalState, TopicState
from pydanube.storage.unsealed import find_unsealed, uploaded_of
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import (
    Entry,
    MetadataRevision,
    ShardForgotten,
    ShardLeft,
    SnapshotEnd,
    TopicAdopted,
)


class ShardFold:
    """
    The fold of the entries of some shards, each with one epoch.

    Entries of other shards and of other epochs are ignored.
    """

    def __init__(self, epochs: Mapping[int, Epoch]) -> None:
        """*epochs* has the epoch of the entries of each shard that is wanted."""
        self.recovery = Recovery()
        self.left: set[int] = set()
        """The shards that end with SHARD_LEFT."""
        self._epochs = dict(epochs)
        # The topics whose next entries are wanted.
        self._topics: set[TopicId] = set()

    @property
    def has_all_left(self) -> bool:
        """Whether the ends of all shards were found."""
        return self.left == self._epochs.keys()

    def apply(self, entry: Entry) -> None:
        """
        Take one entry.

        Raises:
            CorruptJournal: A batch does not continue its topic, or the session was
                told that nobody needs a shard that is wanted.
        """
        match entry:
            case TopicAdopted():
                if self._epochs.get(entry.shard) != entry.epoch:
                    self._topics.discard(entry.topic_id)
                    return
                self._topics.add(entry.topic_id)
            case ShardLeft(shard, epoch):
                if self._epochs.get(shard) != epoch:
                    return
                self.left.add(shard)
            case ShardForgotten(shard, epoch):
                if self._epochs.get(shard, epoch + 1) <= epoch:
                    raise CorruptJournal(
                        f"expected the entries of shard {shard} with epoch "
                        f"{self._epochs[shard]}; the session has removed them"
                    )
                return
            case MetadataRevision() | SnapshotEnd():
                return
            case _:
                if entry.topic_id not in self._topics:
                    return
        self.recovery.apply(entry)

    def topics_of(self, shard: int) -> dict[TopicId, TopicState]:
        """Return the recovered topics of *shard*."""
        return self.recovery.state.topics_of(shard, self._epochs[shard])


class ShardGroups(GroupConsumer):
    """The groups of one session, of which a ShardFold takes the entries."""

    def __init__(self, journal_id: bytes, fold: ShardFold) -> None:
        super().__init__(journal_id)
        self._shards = fold
        self._has_begun = False

    def _fold(
        self,
        session: JournalSession,
        number: int,
        entries: Iterator[Entry],
        byte_count: int,
        *,
        is_snapshot: bool,
    ) -> None:
        if is_snapshot and self._has_begun:
            # It repeats what the groups before it say.
            for entry in entries:
                if isinstance(entry, SnapshotEnd):
                    break
        elif not is_snapshot and not self._has_begun:
            raise CorruptJournal("expected a group with a snapshot")
        self._has_begun = True
        for entry in entries:
            self._shards.apply(entry)


async def recover_shards(
    objects: Objects,
    session: JournalSession,
    epochs: Mapping[int, Epoch],
    *,
    journal_id: bytes,
    reader_id: bytes,
    have_left: bool,
    retries: RetryPolicy,
) -> ShardFold:
    """
    Read the entries of shards in the journal of *session*.

    Unless they *have_left*, the journal is fenced in the name of the session
    *reader_id*: its owner cannot commit anything more, of no shard.

    Bounds: The unsealed messages of the shards are in memory, and the groups that they
        are in.

    Raises:
        CorruptJournal: An object is missing or damaged, or a shard has not left.
        ObjectsUnavailable: The journal cannot be read now.
    """
    fold = ShardFold(epochs)
    reader = GroupReader(
        ShardGroups(journal_id, fold),
        objects,
        session_id=reader_id,
        root=None,
        retries=retries,
    )
    if have_left:
        await reader.read_until(session, lambda: fold.has_all_left)
    else:
        await reader.read(session)
    keep_unsealed(fold.recovery)
    return fold


def entries_of_adoption(
    topic_id: TopicId,
    topic: TopicState,
    frames: Sequence[BatchFrame],
    segments: Sequence[SegmentEntry],
    epoch: Epoch,
) -> Iterator[Entry]:
    """
    Yield the entries that continue a recovered topic in another journal, as *epoch*.

    *segments* are those of the manifest, read after the claim.  Messages that are not
    in an uploaded segment are adopted, because other brokers cannot read the others.

    Raises:
        CorruptJournal: Messages are neither in a segment nor in *frames*.
    """
    unsealed, sealed_offset, end_offset = find_unsealed(
        topic_id,
        uploaded_of(segments),
        topic,
        frames,
        journal_begin="the source's first group",
    )
    adopted = replace(
        topic,
        epoch=epoch,
        end_offset=end_offset,
        sealed_offset=sealed_offset,
        has_left=False,
    )
    snapshot = list(JournalState({topic_id: adopted}).snapshot())
    return JournalCopy(snapshot=snapshot, frames={topic_id: unsealed}).entries()
