"""
The controller's decisions: the next owners of shards, and the modes of brokers.

The controller sees everything late.  It decides on what it has seen, and its changes
compare the revisions of what they depend on; if one is refused, a newer view follows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import msgspec

from pydanube.model.clusters import BrokerMode
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.cluster.pure.moves import (
    NO_LOAD,
    direct,
    heading_for,
    is_drained,
    place,
)
from pydanube_broker.cluster.pure.ownership import ChangeShard, ShardView
from pydanube_broker.cluster.pure.placement import (
    Candidate,
    PlacedShard,
    PlacementLimits,
    plan,
)
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    LoadRecord,
    SessionRecord,
    ShardLoad,
    ShardState,
)

REST_S = 60.0
"""A shard that got a new owner is not moved again within this time to balance."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that the controller decides on, as it was seen last."""

    sessions: Mapping[str, SessionRecord]
    """The present sessions."""
    shards: Mapping[int, ShardView]
    modes: Mapping[str, BrokerModeRecord]
    """By broker; one without a record is active."""
    loads: Mapping[str, LoadRecord]
    """By session."""
    leaving: Collection[str] = ()
    """The sessions that are about to end."""


@dataclass(frozen=True, slots=True)
class DirectShard:
    """Make *change* of a shard, so that *target* owns it next."""

    shard: int
    source: str | None
    """The session that has it; None if it has no owner."""
    target: str
    change: ChangeShard


@dataclass(frozen=True, slots=True)
class Directions:
    """The changes to make now."""

    shards: tuple[DirectShard, ...]
    drained: tuple[str, ...]
    """The brokers that are drained now."""
    is_balancing: bool


class Director:
    """
    The decisions of one controller, in the order of what it sees.

    It remembers when shards got their owners, their loads, and whether it is balancing.
    A new controller begins without memory, and may at most move shards a bit earlier.
    """

    def __init__(
        self, limits: PlacementLimits | None = None, rest_s: float = REST_S
    ) -> None:
        self._limits = limits or PlacementLimits()
        self._rest_s = rest_s
        self._is_balancing = False
        # The last owner that served each shard, its zone, and since when.
        self._owners: dict[int, tuple[str, str, float]] = {}
        # The last known load of each shard; a new owner reports it late.
        self._loads: dict[int, ShardLoad] = {}
        self._active: set[str] = set()

    def begin_balancing(self) -> None:
        """Balance although the loads differ little, and move shards that rest, too."""
        self._is_balancing = True
        self._end_rests()

    def on_view(self, view: ClusterView, now: float) -> Directions:
        """Take what was seen, and return what to change."""
        self._note_owners(view, now)
        sessions = candidates(view)
        self._note_active({each.session for each in sessions if not each.is_draining})
        planned = plan(
            self.placed(view, now),
            sessions,
            self._limits,
            is_balancing=self._is_balancing,
        )
        self._is_balancing = planned.is_balancing
        shards = []
        for move in planned.moves:
            change = direct(view.shards[move.shard], move.target, view.sessions)
            if change is not None:
                shards.append(DirectShard(move.shard, move.source, move.target, change))
        return Directions(tuple(shards), _drained(view), planned.is_balancing)

    def placed(self, view: ClusterView, now: float) -> list[PlacedShard]:
        """Return where all shards are or will be, with their loads."""
        return [self._place(view, shard, now) for shard in view.shards]

    def next_rest_end(self, now: float) -> float | None:
        """Return when the next shard may be moved again; None if all may."""
        ends = (since + self._rest_s for _, _, since in self._owners.values())
        return min((end for end in ends if end > now), default=None)

    def _note_owners(self, view: ClusterView, now: float) -> None:
        is_first = not self._owners
        for shard, each in view.shards.items():
            record = each.record
            if record.state is not ShardState.OPEN or record.owner is None:
                continue
            known = self._owners.get(shard)
            if known is None or known[0] != record.owner:
                session = view.sessions.get(record.owner)
                zone = "" if session is None else session.zone
                since = -math.inf if is_first else now
                self._owners[shard] = record.owner, zone, since

    def _note_active(self, active: set[str]) -> None:
        if active - self._active:
            # A new broker should get its share soon.
            self._end_rests()
        self._active = active

    def _end_rests(self) -> None:
        self._owners = {
            shard: (owner, zone, -math.inf)
            for shard, (owner, zone, _) in self._owners.items()
        }

    def _place(self, view: ClusterView, shard: int, now: float) -> PlacedShard:
        record = view.shards[shard].record
        if record.owner is not None and record.owner in view.loads:
            reported = view.loads[record.owner].shards.get(shard)
            if reported is not None:
                self._loads[shard] = reported
        _, zone, since = self._owners.get(shard, ("", "", -math.inf))
        return place(
            shard,
            record,
            view.sessions,
            load=self._loads.get(shard, NO_LOAD),
            zone=zone,
            is_resting=now < since + self._rest_s,
        )


def candidates(view: ClusterView) -> list[Candidate]:
    """
    Return the sessions that may own shards: the newest one of each broker.

    An older session of the same broker is one that the store has not noticed the end
    of; its shards wait for that, and go elsewhere.
    """
    newest: dict[str, str] = {}
    for session, record in sorted(
        view.sessions.items(), key=lambda item: (item[1].started_at, item[0])
    ):
        newest[record.broker_id] = session
    return [
        Candidate(
            session,
            zone=view.sessions[session].zone,
            is_draining=(
                session in view.leaving
                or _mode_of(view, broker) is not BrokerMode.ACTIVE
            ),
            is_strained=session in view.loads and view.loads[session].is_strained,
        )
        for broker, session in newest.items()
    ]


def drained_record(record: BrokerModeRecord, now: int) -> BrokerModeRecord:
    """Return the record of a broker that was draining, and is drained now."""
    return msgspec.structs.replace(record, mode=BrokerMode.DRAINED, changed_at=now)


def _mode_of(view: ClusterView, broker: str) -> BrokerMode:
    record = view.modes.get(broker)
    return BrokerMode.ACTIVE if record is None else record.mode


def _drained(view: ClusterView) -> tuple[str, ...]:
    """Return the draining brokers that own nothing, and will not."""
    records = [each.record for each in view.shards.values()]
    heading = {heading_for(record, view.sessions) for record in records}
    sessions: dict[str, list[str]] = {}
    for session, record in view.sessions.items():
        if _mode_of(view, record.broker_id) is BrokerMode.DRAINING:
            sessions.setdefault(record.broker_id, []).append(session)
    return tuple(
        broker
        for broker, its_sessions in sorted(sessions.items())
        if heading.isdisjoint(its_sessions)
        and all(is_drained(session, records) for session in its_sessions)
    )
