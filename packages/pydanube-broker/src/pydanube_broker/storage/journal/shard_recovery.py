"""
Recovery of shards: their entries out of another session's journal, and adopting them.

A session reads the journal of another one once for all shards that it takes over from
it.  Of a shard that moves, it reads most before the owner leaves, and continues there.
The journal also has entries of other shards, and perhaps entries of the same shards
with other epochs: of an earlier time, or of an adoption that was not finished.
ShardFold separates them.  ``docs/format/cluster.md`` has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from pydanube.model.errors import CorruptJournal
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import (
    Entry,
    MetadataRevision,
    ShardForgotten,
    ShardLeft,
    SnapshotEnd,
    TopicAdopted,
)
from pydanube_broker.storage.journal.journal_copying import JournalCopy
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from pydanube_broker.storage.journal.object_recovery import GroupConsumer, GroupReader
from pydanube_broker.storage.journal.recovery import Recovery, keep_unsealed
from pydanube_broker.storage.journal.state import JournalState, TopicState
from pydanube_broker.storage.journal.unsealed import find_unsealed, uploaded_of

ShardEpoch: TypeAlias = tuple[int, Epoch]
_UNKNOWN: ShardEpoch = (-1, Epoch(0))
_NO_RETRIES = RetryPolicy(0.0, 0.0, retries_max=0)
"""The caller repeats a step that failed."""


class ShardFold:
    """The fold of the entries of a journal, separate for each epoch of each shard."""

    def __init__(self) -> None:
        self.left: set[ShardEpoch] = set()
        """The shards that have ended with SHARD_LEFT."""
        self._recoveries: dict[ShardEpoch, Recovery] = {}
        # What the next entries of each topic belong to.
        self._current: dict[TopicId, ShardEpoch] = {}
        # The last epoch of each shard whose entries the session has removed.
        self._forgotten: dict[int, Epoch] = {}

    def apply(self, entry: Entry) -> None:
        """
        Take one entry.

        Raises:
            CorruptJournal: A batch does not continue its topic.
        """
        match entry:
            case TopicAdopted():
                wanted = entry.shard, entry.epoch
                self._current[entry.topic_id] = wanted
                self._recoveries.setdefault(wanted, Recovery()).apply(entry)
            case ShardLeft(shard, epoch):
                self.left.add((shard, epoch))
                self._recoveries.setdefault((shard, epoch), Recovery()).apply(entry)
            case ShardForgotten(shard, epoch):
                self._forgotten[shard] = epoch
                for key in [*self._recoveries]:
                    if key[0] == shard and key[1] <= epoch:
                        del self._recoveries[key]
            case MetadataRevision() | SnapshotEnd():
                return
            case _:
                recovery = self._recoveries.get(
                    self._current.get(entry.topic_id, _UNKNOWN)
                )
                if recovery is not None:
                    recovery.apply(entry)

    def all_recoveries(self) -> Iterator[Recovery]:
        """Yield what there is of each epoch of each shard."""
        for recovery in self._recoveries.values():
            keep_unsealed(recovery)
            yield recovery

    def recovery_of(self, shard: int, epoch: Epoch) -> Recovery:
        """
        Return the topics of *shard* with *epoch*, and their unsealed batches.

        Raises:
            CorruptJournal: The session was told that nobody needs them.
        """
        if self._forgotten.get(shard, -1) >= epoch:
            raise CorruptJournal(
                f"expected the entries of shard {shard} with epoch {epoch}; the "
                "session has removed them"
            )
        recovery = self._recoveries.get((shard, epoch), Recovery())
        keep_unsealed(recovery)
        return recovery


class ShardGroups(GroupConsumer):
    """The groups of one session, of which a ShardFold takes the entries."""

    def __init__(self, journal_id: bytes, fold: ShardFold) -> None:
        super().__init__(journal_id)
        self.next_number: int | None = None
        """The number of the next group; None: the first one."""
        self._shards = fold

    def _fold(
        self,
        session: JournalSession,
        number: int,
        entries: Iterator[Entry],
        byte_count: int,
        *,
        is_snapshot: bool,
    ) -> None:
        if is_snapshot and self.next_number is not None:
            # It repeats what the groups before it say.
            for entry in entries:
                if isinstance(entry, SnapshotEnd):
                    break
        elif not is_snapshot and self.next_number is None:
            raise CorruptJournal("expected a group with a snapshot")
        self.next_number = number + 1
        for entry in entries:
            self._shards.apply(entry)


class SourceReading:
    """
    One reading of the journal of a session, for all shards that are taken over from it.

    Each call continues where the last one ended.  Groups never change once they exist,
    so what was read before a claim counts after it.  After CorruptJournal the reading
    is useless; begin another one.

    Bounds: All unsealed messages of the journal are in memory, and the groups that they
        are in.

    Raises: All methods that read:
        CorruptJournal: An object is missing or damaged.
        ObjectsUnavailable: The journal cannot be read now.
    """

    def __init__(
        self, objects: Objects, *, journal_id: bytes, reader_id: bytes
    ) -> None:
        """*reader_id* is the session in whose name the journal is fenced."""
        self.fold = ShardFold()
        self.is_fenced = False
        self._groups = ShardGroups(journal_id, self.fold)
        self._reader = GroupReader(
            self._groups, objects, session_id=reader_id, root=None, retries=_NO_RETRIES
        )

    def can_continue(self, session: JournalSession) -> bool:
        """
        Return whether the reading continues where *session* begins, or after that.

        Otherwise groups were removed that it has not read.  A fence in the place of a
        removed group would be taken for the end of the journal.
        """
        next_number = self._groups.next_number
        return next_number is None or session.first <= next_number

    async def read_ahead(self, session: JournalSession) -> None:
        """Read the groups that exist now; the session goes on."""
        await self._reader.read_available(self._rest_of(session))

    async def read_until_left(
        self, session: JournalSession, shard: int, epoch: Epoch
    ) -> None:
        """Read until *shard* has left; the session goes on."""
        wanted = shard, epoch
        if wanted not in self.fold.left and not self.is_fenced:
            is_done = partial(self.fold.left.__contains__, wanted)
            await self._reader.read_until(self._rest_of(session), is_done)

    async def read_to_end(self, session: JournalSession) -> None:
        """Read everything, and fence it: its owner cannot commit anything more."""
        if not self.is_fenced:
            await self._reader.read(self._rest_of(session))
            self.is_fenced = True

    def _rest_of(self, session: JournalSession) -> JournalSession:
        assert self.can_continue(session)
        return replace(session, first=self._groups.next_number or session.first)


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
