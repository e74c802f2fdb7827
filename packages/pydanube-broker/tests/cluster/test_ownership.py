"""The steps of a takeover and of a move, one by one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pydanube_broker.cluster.pure.ownership import (
    Adopt,
    AppendLeft,
    ChangeShard,
    FenceJournal,
    Look,
    Ownership,
    PrepareMove,
    ReadShard,
    RefuseMessages,
    Serve,
    ShardView,
    Stage,
    Stop,
)
from pydanube_broker.metadata.cluster_records import ShardRecord, ShardState

OLD, NEW = "old", "new"
OPEN = ShardRecord(
    state=ShardState.OPEN, epoch=4, owner=OLD, source=OLD, source_epoch=4
)
NEW_SHARD = ShardRecord()


def changed(record: ShardRecord, **fields: object) -> ShardRecord:
    return msgspec.structs.replace(record, **fields)


def view(
    record: ShardRecord, *, revision: int = 7, gone: bool = False, wanted: bool = False
) -> ShardView:
    return ShardView(record, revision, is_owner_gone=gone, is_wanted=wanted)


def only(effects):
    (effect,) = effects
    return effect


def open_shard(record: ShardRecord, *, is_fenced: bool) -> Ownership:
    """Take the shard over from *record*, and check each step on the way to Serve."""
    machine = Ownership(NEW)
    machine, effects = machine.on_view(view(record, gone=True, wanted=True))
    claim = only(effects)
    machine, effects = machine.on_view(view(claim.record))
    if is_fenced:
        assert machine.stage is Stage.FENCING
        assert only(effects) == FenceJournal(OLD)
        machine, effects = machine.on_fenced()
    assert only(effects) == ReadShard(record.source, record.source_epoch)
    machine, effects = machine.on_read()
    assert only(effects) == Adopt(record.epoch + 1)
    machine, effects = machine.on_adopted()
    assert only(effects) == Look()
    machine, effects = machine.on_view(view(claim.record))
    opened = only(effects)
    assert opened.record == changed(
        claim.record,
        state=ShardState.OPEN,
        source=NEW,
        source_epoch=record.epoch + 1,
        has_left=False,
        target=None,
    )
    assert machine.stage is Stage.ADOPTED
    assert not machine.is_serving
    machine, effects = machine.on_view(view(opened.record))
    assert effects == (Serve(record.epoch + 1), Look())
    assert machine.is_serving
    return machine


def test_shard_of_a_lost_session_is_fenced_before_it_is_read() -> None:
    open_shard(OPEN, is_fenced=True)


def test_shard_that_has_left_is_read_without_a_fence() -> None:
    released = changed(OPEN, state=ShardState.RELEASED, owner=None, has_left=True)
    machine = Ownership(NEW)
    machine, effects = machine.on_view(view(released, wanted=True))
    machine, effects = machine.on_view(view(only(effects).record))
    assert only(effects) == ReadShard(OLD, 4)
    open_shard(released, is_fenced=False)


def test_new_shard_has_nothing_to_fence() -> None:
    open_shard(NEW_SHARD, is_fenced=False)


def test_claim_compares_both_sessions_and_freezes_the_journal() -> None:
    _, effects = Ownership(NEW).on_view(view(OPEN, gone=True, wanted=True))
    assert only(effects) == ChangeShard(
        changed(OPEN, state=ShardState.OPENING, epoch=5, owner=NEW),
        revision=7,
        present=NEW,
        gone=OLD,
        freeze=OLD,
        raises_epoch=True,
    )


def test_claim_of_a_released_shard_freezes_nothing() -> None:
    released = changed(OPEN, state=ShardState.RELEASED, owner=None, has_left=True)
    _, effects = Ownership(NEW).on_view(view(released, wanted=True))
    claim = only(effects)
    assert (claim.gone, claim.freeze) == (None, None)


def test_shard_of_others_is_not_claimed() -> None:
    before = Ownership(NEW)
    assert before.on_view(view(OPEN, gone=True, wanted=False)) == (before, ())


def test_target_reads_the_owners_journal_and_then_asks_it_to_leave() -> None:
    machine = Ownership(NEW)
    machine, effects = machine.on_view(view(OPEN, wanted=True))
    assert only(effects) == PrepareMove(OLD, 4)
    machine, effects = machine.on_prepared(4)
    assert effects == (Look(),)
    waiting = replace(view(OPEN, wanted=True), is_turn=False)
    assert machine.on_view(waiting) == (machine, ())
    machine, effects = machine.on_view(view(OPEN, wanted=True))
    asked = changed(OPEN, state=ShardState.CLOSING)
    assert only(effects) == ChangeShard(asked, revision=7)
    assert machine.on_view(view(asked, wanted=True)) == (machine, ())


def test_move_from_a_later_owner_is_prepared_again() -> None:
    machine, _ = Ownership(NEW).on_prepared(4)
    later = changed(OPEN, owner="third", epoch=5)
    _, effects = machine.on_view(view(later, wanted=True))
    assert only(effects) == PrepareMove("third", 5)


def test_takeover_that_another_session_did_not_finish_begins_at_the_source() -> None:
    opening = changed(OPEN, state=ShardState.OPENING, epoch=5, owner="third")
    _, effects = Ownership(NEW).on_view(view(opening, gone=True, wanted=True))
    claim = only(effects)
    assert (claim.record.source, claim.record.source_epoch) == (OLD, 4)
    assert (claim.record.epoch, claim.gone, claim.freeze) == (6, "third", OLD)
    open_shard(opening, is_fenced=True)


def test_shard_is_released_after_left_is_committed() -> None:
    closing = changed(OPEN, state=ShardState.CLOSING, target=NEW)
    machine = Ownership(OLD, Stage.SERVING, 4)
    machine, effects = machine.on_view(view(closing))
    assert effects == (RefuseMessages(), AppendLeft())
    # What was appended before is still acknowledged and delivered.
    assert machine.is_serving
    assert machine.on_view(view(closing)) == (machine, ())
    machine, effects = machine.on_left()
    assert effects == (Stop(), Look())
    machine, effects = machine.on_view(view(closing))
    release = only(effects)
    assert release.record == changed(
        closing, state=ShardState.RELEASED, owner=None, has_left=True
    )
    machine, effects = machine.on_view(view(release.record))
    assert (machine, effects) == (Ownership(OLD), (Look(),))


def test_move_is_cancelled_before_left_is_appended() -> None:
    closing = changed(OPEN, state=ShardState.CLOSING, target=None)
    machine = Ownership(OLD, Stage.SERVING, 4)
    same, effects = machine.on_view(view(closing))
    assert same == machine
    assert only(effects).record == OPEN


def test_move_is_not_cancelled_after_left_is_appended() -> None:
    closing = changed(OPEN, state=ShardState.CLOSING, target=None)
    machine = Ownership(OLD, Stage.LEFT, 4)
    _, effects = machine.on_view(view(closing))
    assert only(effects).record.state is ShardState.RELEASED


def test_session_stops_if_another_one_owns_the_shard() -> None:
    machine = Ownership(NEW, Stage.SERVING, 3)
    assert machine.on_view(view(OPEN)) == (Ownership(NEW), (Stop(), Look()))


def test_session_that_is_over_does_nothing_more() -> None:
    machine, effects = Ownership(OLD, Stage.SERVING, 4).on_session_over()
    assert effects == (Stop(),)
    assert machine.on_session_over() == (machine, ())
    claimable = changed(OPEN, state=ShardState.RELEASED, owner=None)
    assert machine.on_view(view(claimable, wanted=True)) == (machine, ())
