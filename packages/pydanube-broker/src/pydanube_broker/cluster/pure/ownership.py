"""
One session's part in one shard: taking it over, serving it, and leaving it.

Theory.  The record of a shard changes only in transactions that compare its revision.
The machine compares the record with its own progress and says what to do next.  It
does not distinguish the outcomes of transactions: after each one, whether it was made,
refused or unknown, the caller reads the record again and passes it to on_view().

Rules, which tests/properties/test_takeover.py leaves out one after the other:

1. *Claim.*  The transaction compares the revision of the shard's record, that the
   session that owned the shard is gone, and that the own session is present.  It
   raises the epoch and freezes the journal of the source, so that nothing is removed
   from it any more.
2. *Fence* the journal of the source before it is read, unless the source ended its
   entries with SHARD_LEFT.
3. *Read* the manifest and the entries of the source's epoch, and no others.
4. *Adopt.*  Append all of them, with the sequences of producers, to the own journal,
   and wait until they are committed.
5. *Open* with a transaction.  Serve only when the record says open.
6. *Prepare* a move.  While the owner still serves, the target reads its journal, and
   then writes closing.  Nothing depends on this, except that the reading begins again
   if the owner has meanwhile removed groups that it has not read.
7. *Leave.*  When the record says closing, refuse new messages and append SHARD_LEFT.
   Release only when it is committed, because then everything before it is, too.  After
   SHARD_LEFT there is no way back but a new claim.

Outside this machine, three more rules hold.  Changes of a manifest compare the epoch.
A journal is removed only when its session is gone and no shard names it as owner or
source.  A message that was appended is refused only if its group is at or after the
fence: until then its outcome is unknown.

docs/format/cluster.md is the normative description.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.cluster_records import ShardRecord, ShardState


class Stage(Enum):
    """How far a session is with a shard."""

    IDLE = auto()
    """It does not own the shard."""
    FENCING = auto()
    READING = auto()
    ADOPTING = auto()
    ADOPTED = auto()
    """The adopted entries are committed; the record does not say open yet."""
    SERVING = auto()
    LEAVING = auto()
    """It refuses new messages, and waits until SHARD_LEFT is committed."""
    LEFT = auto()
    """SHARD_LEFT is committed; the record does not say released yet."""
    OVER = auto()
    """The session has ended."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """The record of a shard, as it was read."""

    record: ShardRecord
    revision: int
    is_owner_gone: bool = False
    """Whether the session that owns the shard was gone when the record was read."""
    is_wanted: bool = False
    """Whether this session should claim the shard if it can."""
    is_turn: bool = True
    """Whether this session may ask the owner to leave now."""


@dataclass(frozen=True, slots=True)
class ChangeShard:
    """Write *record* in a transaction, then read it again and call on_view()."""

    record: ShardRecord
    revision: int
    """The transaction compares that the record has this revision."""
    present: str | None = None
    """The transaction compares that this session is present."""
    gone: str | None = None
    """The transaction compares that this session is gone."""
    freeze: str | None = None
    """The transaction also freezes the journal of this session."""
    raises_epoch: bool = False
    """The transaction also writes the epoch to its own key."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the record again, and call on_view()."""


@dataclass(frozen=True, slots=True)
class PrepareMove:
    """Read what the journal of *session* has now, then call on_prepared()."""

    session: str
    epoch: int
    """The epoch of its claim of the shard."""


@dataclass(frozen=True, slots=True)
class FenceJournal:
    """Fence the journal of *session*, then call on_fenced()."""

    session: str


@dataclass(frozen=True, slots=True)
class ReadShard:
    """Read the manifest and the entries of *epoch*, then call on_read()."""

    session: str | None
    """The session whose journal has the entries; None if the shard is new."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Append what was read, as *epoch*; call on_adopted() when it is committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Accept messages, deliver, and seal, with *epoch*."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RefuseMessages:
    """Accept no more messages, but deliver and acknowledge those that were appended."""


@dataclass(frozen=True, slots=True)
class AppendLeft:
    """Append SHARD_LEFT; call on_left() when it is committed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop serving: deliver nothing, and answer no readers."""


Effect: TypeAlias = (
    ChangeShard
    | Look
    | PrepareMove
    | FenceJournal
    | ReadShard
    | Adopt
    | Serve
    | RefuseMessages
    | AppendLeft
    | Stop
)


@dataclass(frozen=True, slots=True)
class Ownership:
    """
    One session's part in one shard.

    It is immutable: each method returns the next state and what to do, in order.
    """

    session: str
    stage: Stage = Stage.IDLE
    epoch: int = 0
    """The epoch of the own claim, unless IDLE."""
    source: str | None = None
    """The source of the own claim."""
    source_epoch: int = 0

    prepared_epoch: int = 0
    """The owner's epoch for which a move was prepared; 0: for none."""

    @property
    def is_serving(self) -> bool:
        """Whether messages of the shard are delivered."""
        return self.stage in {Stage.SERVING, Stage.LEAVING}

    def on_view(self, view: ShardView) -> Step:
        """
        Take the shard's record.

        Ordering: The caller passes views in the order of their revisions.
        """
        if self.stage is Stage.OVER:
            return self, ()
        if view.record.owner == self.session:
            return self._on_owned(view)
        if self.stage is not Stage.IDLE:
            effects = (Stop(), Look()) if self.is_serving else (Look(),)
            return Ownership(self.session), effects
        if view.is_wanted and (view.record.owner is None or view.is_owner_gone):
            return self, (claim(view, self.session),)
        if view.is_wanted and view.record.state is ShardState.OPEN:
            return self._prepare(view)
        return self, ()

    def on_prepared(self, epoch: int) -> Step:
        """Take that the journal of the owner with *epoch* was read."""
        assert self.stage is Stage.IDLE
        return replace(self, prepared_epoch=epoch), (Look(),)

    def on_fenced(self) -> Step:
        """Take that the source's journal is fenced."""
        assert self.stage is Stage.FENCING
        return _read(self)

    def on_read(self) -> Step:
        """Take that everything was read."""
        assert self.stage is Stage.READING
        return replace(self, stage=Stage.ADOPTING), (Adopt(self.epoch),)

    def on_adopted(self) -> Step:
        """Take that everything adopted is committed."""
        assert self.stage is Stage.ADOPTING
        return replace(self, stage=Stage.ADOPTED), (Look(),)

    def on_left(self) -> Step:
        """Take that SHARD_LEFT is committed."""
        assert self.stage is Stage.LEAVING
        return replace(self, stage=Stage.LEFT), (Stop(), Look())

    def on_session_over(self) -> Step:
        """Take that the journal was fenced, or that the session has lost its lease."""
        effects = (Stop(),) if self.is_serving else ()
        return replace(self, stage=Stage.OVER), effects

    def _on_owned(self, view: ShardView) -> Step:
        record = view.record
        assert self.stage is Stage.IDLE or record.epoch == self.epoch
        match record.state, self.stage:
            case ShardState.OPENING, Stage.IDLE:
                return self._recover(record)
            case ShardState.OPENING, Stage.ADOPTED:
                return self, (self._open(view),)
            case ((ShardState.OPEN | ShardState.CLOSING), Stage.ADOPTED):
                # If the record says closing, the next view tells.
                serving = replace(self, stage=Stage.SERVING)
                return serving, (Serve(self.epoch), Look())
            case ShardState.CLOSING, (Stage.SERVING | Stage.LEFT):
                return self._on_closing(view)
        return self, ()

    def _prepare(self, view: ShardView) -> Step:
        record = view.record
        assert record.owner is not None
        if self.prepared_epoch != record.epoch:
            return self, (PrepareMove(record.owner, record.epoch),)
        if view.is_turn:
            return self, (change_shard(view, state=ShardState.CLOSING),)
        return self, ()

    def _on_closing(self, view: ShardView) -> Step:
        if self.stage is Stage.LEFT:
            change = change_shard(
                view, state=ShardState.RELEASED, owner=None, has_left=True
            )
            return self, (change,)
        if view.record.target in {None, self.session}:
            # The move was cancelled in time.
            return self, (change_shard(view, state=ShardState.OPEN, target=None),)
        leaving = replace(self, stage=Stage.LEAVING)
        return leaving, (RefuseMessages(), AppendLeft())

    def _recover(self, record: ShardRecord) -> Step:
        claimed = replace(
            self,
            epoch=record.epoch,
            source=record.source,
            source_epoch=record.source_epoch,
        )
        if record.source is None or record.has_left:
            return _read(claimed)
        return replace(claimed, stage=Stage.FENCING), (FenceJournal(record.source),)

    def _open(self, view: ShardView) -> ChangeShard:
        return change_shard(
            view,
            state=ShardState.OPEN,
            source=self.session,
            source_epoch=self.epoch,
            has_left=False,
            target=None,
        )


Step: TypeAlias = tuple[Ownership, tuple[Effect, ...]]


def claim(view: ShardView, session: str) -> ChangeShard:
    """Return the transaction with which *session* claims a shard."""
    before = view.record
    return ChangeShard(
        msgspec.structs.replace(
            before, state=ShardState.OPENING, epoch=before.epoch + 1, owner=session
        ),
        view.revision,
        present=session,
        gone=before.owner,
        freeze=None if before.has_left else before.source,
        raises_epoch=True,
    )


def _read(claimed: Ownership) -> Step:
    read = ReadShard(claimed.source, claimed.source_epoch)
    return replace(claimed, stage=Stage.READING), (read,)


def change_shard(view: ShardView, **fields: object) -> ChangeShard:
    """Return the transaction that changes *fields* of the record in *view*."""
    return ChangeShard(msgspec.structs.replace(view.record, **fields), view.revision)
