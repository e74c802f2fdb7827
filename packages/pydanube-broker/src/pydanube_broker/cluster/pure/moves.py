"""
The controller's changes of shards: it writes targets, and asks owners to leave.

The controller protects nothing: every step of a takeover and of a move compares what it
depends on, so two controllers at the same time, or one with an old view, only cause
moves that nobody needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pydanube_broker.cluster.pure.ownership import ChangeShard, ShardView, change_shard
from pydanube_broker.cluster.pure.placement import PlacedShard
from pydanube_broker.metadata.cluster_records import (
    ShardLoad,
    ShardRecord,
    ShardState,
)

NO_LOAD = ShardLoad()


def place(
    shard: int,
    record: ShardRecord,
    present: Collection[str],
    *,
    load: ShardLoad = NO_LOAD,
    zone: str = "",
    is_resting: bool = False,
) -> PlacedShard:
    """Return where a shard is or will be, given the sessions that are *present*."""
    session = heading_for(record, present)
    is_served = record.state is ShardState.OPEN and session == record.owner
    return PlacedShard(
        shard,
        session,
        is_moving=session is not None and not is_served,
        is_resting=is_resting,
        zone=zone,
        load=load,
    )


def heading_for(record: ShardRecord, present: Collection[str]) -> str | None:
    """Return the present session that owns the shard or will; None if there is none."""
    is_owned = record.owner in present
    if is_owned and record.state is ShardState.OPENING:
        return record.owner
    if record.target in present:
        return record.target
    if is_owned and record.state is ShardState.OPEN:
        return record.owner
    if is_owned and record.target is None:
        # The move was cancelled, and the owner has not reacted yet.
        return record.owner
    return None


def direct(
    view: ShardView, target: str, present: Collection[str]
) -> ChangeShard | None:
    """
    Return the change that makes *target* the next owner; None if nothing is to do.

    An owner that is taking the shard over is not interrupted.  One that serves it goes
    on until the target is prepared, which then writes closing.
    """
    record = view.record
    is_owned = record.owner in present and record.state is not ShardState.CLOSING
    if is_owned and record.state is ShardState.OPENING:
        return None
    if is_owned and record.owner == target:
        return None if record.target is None else change_shard(view, target=None)
    if record.target == target:
        # It is preparing, or a claim follows, or the owner is leaving already.
        return None
    return change_shard(view, target=target)


def cancel(view: ShardView) -> ChangeShard | None:
    """
    Return the change that asks the owner to keep the shard; None if it is not moving.

    If the owner has left already, the shard is released without a target.
    """
    is_moving = view.record.state in {ShardState.OPEN, ShardState.CLOSING}
    if not is_moving or view.record.target is None:
        return None
    return change_shard(view, target=None)


def is_drained(session: str, records: Iterable[ShardRecord]) -> bool:
    """
    Return whether a session can stop without interrupting anything.

    A session may stop while shards that left are recovered from its journal: they have
    left, so the objects of the journal are sufficient.
    """
    return all(record.owner != session for record in records)


def is_journal_needed(session: str, records: Iterable[ShardRecord]) -> bool:
    """
    Return whether objects of a session's journal must be kept.

    Ordering: The records must be read after the session's key was seen to be absent;
    only then nothing can name it any more.
    """
    return any(session in {record.owner, record.source} for record in records)
