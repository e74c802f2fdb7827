"""
Which broker should own which shard.

Each shard has a weight: its parts of the bytes, the connections and the number of
shards of the cluster.  All weights add up to 1, so with *n* active brokers each of them
should have shards of a weight of 1/n, its *share*.

plan() first gives shards without an owner to the brokers with the lowest weights, all
at once, because nobody serves them.  Then it moves shards away from draining brokers,
and then from brokers with high weights to those with low ones.  A broker that
nearly lost its session gets fewer shards, and none to balance.  Moves interrupt
publishers, so there are few at a time, and balancing has a hysteresis: it begins when a
broker differs from its share by ``begin_ratio``, and ends when none can be brought
closer, or all are within ``end_ratio``.  A move must bring both brokers closer to each
other without exchanging their roles; so with a steady load, plan() comes to an end.

The result depends on the arguments only: ties are broken by the lowest session id and
the lowest shard number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.cluster_records import ShardLoad

BYTES_WEIGHT = 0.5
CONNECTIONS_WEIGHT = 0.25
BYTES_PER_S_MIN = 1_000_000.0
"""A cluster with less traffic is balanced mainly by the number of shards."""
CONNECTIONS_MIN = 100
"""The same for connections."""

MOVES_MAX = 32
IMBALANCE_PERCENT_MAX = 20

STRAINED_FACTOR = 2.0
"""A strained broker gets a shard as if its own ones had so many times their weight."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session that may own shards."""

    session: str
    zone: str = ""
    is_draining: bool = False
    is_strained: bool = False
    """Whether it nearly lost its session lately, so that it should take less."""


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """A shard, where it is or will be, and its load."""

    shard: int
    session: str | None
    """The session that owns it or is going to; None if there is none."""
    is_moving: bool = False
    """Whether that session does not serve the shard yet."""
    is_resting: bool = False
    """Whether it was moved a short time ago, so that it is not moved to balance."""
    zone: str = ""
    """The zone of its last owner."""
    load: ShardLoad = field(default_factory=ShardLoad)


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """When and how fast shards are moved."""

    moves_max: int = MOVES_MAX
    """
    The most shards that move at the same time.

    Shards without an owner are not limited, but others wait until these are served.
    """
    begin_ratio: float = IMBALANCE_PERCENT_MAX / 100
    """Balancing begins when a broker differs from its share by more than this part."""
    end_ratio: float = 0.05
    """Balancing ends when no broker differs from its share by more than this part."""

    @classmethod
    def of(cls, *, moves_max: int, imbalance_percent_max: int) -> PlacementLimits:
        """Return the limits of these settings; balancing ends at a quarter."""
        begin_ratio = imbalance_percent_max / 100
        return cls(moves_max, begin_ratio, begin_ratio / 4)


@dataclass(frozen=True, slots=True)
class Move:
    """A shard that should get another owner."""

    shard: int
    source: str | None
    """The session that has it; None if it has no owner."""
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves to begin now."""

    moves: tuple[Move, ...]
    is_balancing: bool
    """To be passed to the next call of plan()."""


def weights(shards: Iterable[PlacedShard]) -> dict[int, float]:
    """Return the weight of each shard."""
    loads = {each.shard: each.load for each in shards}
    byte_rate = sum(load.bytes_per_s for load in loads.values())
    connections = sum(load.connections for load in loads.values())
    per_byte = BYTES_WEIGHT / max(byte_rate, BYTES_PER_S_MIN)
    per_connection = CONNECTIONS_WEIGHT / max(connections, CONNECTIONS_MIN)
    remainder = 1.0 - per_byte * byte_rate - per_connection * connections
    return {
        shard: per_byte * load.bytes_per_s
        + per_connection * load.connections
        + remainder / len(loads)
        for shard, load in loads.items()
    }


def plan(
    shards: Iterable[PlacedShard],
    candidates: Iterable[Candidate],
    limits: PlacementLimits = PlacementLimits(),  # noqa: B008  # It is frozen.
    *,
    is_balancing: bool = False,
) -> Plan:
    """
    Return the moves to begin now.

    A shard whose session is not among *candidates* has no owner.  *is_balancing* is
    that of the plan before.
    """
    planning = _Planning(shards, candidates)
    if not planning.active:
        return Plan((), is_balancing)
    planning.assign()
    planning.budget = limits.moves_max - planning.moving_count
    planning.drain()
    ratio = limits.end_ratio if is_balancing else limits.begin_ratio
    is_balancing = planning.imbalance() > ratio + _ROUNDING
    if is_balancing:
        is_balancing = planning.balance(limits.end_ratio)
    return Plan(tuple(planning.moves), is_balancing)


class _Planning:
    """The weights of all brokers, as the moves that are planned will change them."""

    def __init__(
        self, shards: Iterable[PlacedShard], candidates: Iterable[Candidate]
    ) -> None:
        by_session = {each.session: each for each in candidates}
        self.shards = sorted(shards, key=lambda each: each.shard)
        self.weights = weights(self.shards)
        self.draining = {s for s, each in by_session.items() if each.is_draining}
        self.active = sorted(by_session.keys() - self.draining)
        self.moves: list[Move] = []
        self.budget = 0
        self._zones = {s: each.zone for s, each in by_session.items()}
        self._strained = {s for s, each in by_session.items() if each.is_strained}
        self._owned: dict[str, list[PlacedShard]] = {s: [] for s in by_session}
        self._scores = dict.fromkeys(by_session, 0.0)
        self._ownerless: list[PlacedShard] = []
        for each in self.shards:
            if each.session in by_session:
                self._owned[each.session].append(each)
                self._scores[each.session] += self.weights[each.shard]
            else:
                self._ownerless.append(each)
        self.moving_count = sum(
            each.is_moving for owned in self._owned.values() for each in owned
        )

    def assign(self) -> None:
        """Give every shard without an owner to a broker, the heaviest one first."""
        for each in sorted(self._ownerless, key=self._heaviest_first):
            self._move(each, None, self._lowest(each.zone, self.weights[each.shard]))

    def drain(self) -> None:
        """Move shards away from draining brokers."""
        for session in sorted(self.draining):
            movable = [each for each in self._owned[session] if not each.is_moving]
            for each in sorted(movable, key=self._heaviest_first):
                if self.budget <= 0:
                    return
                self.budget -= 1
                weight = self.weights[each.shard]
                self._move(each, session, self._lowest(self._zones[session], weight))

    def imbalance(self) -> float:
        """Return the largest difference of a broker from its share, in shares."""
        scores = [self._scores[session] for session in self.active]
        share = sum(scores) / len(scores)
        if share == 0.0:
            return 0.0
        return max(abs(score - share) for score in scores) / share

    def balance(self, end_ratio: float) -> bool:
        """Move shards until the budget is used; return whether more should follow."""
        while self.imbalance() > end_ratio + _ROUNDING:
            move = self._best_move()
            if move is None:
                return self._can_move_later()
            if self.budget <= 0:
                return True
            self.budget -= 1
            each, source, target = move
            self._move(each, source, target)
        return False

    def _can_move_later(self) -> bool:
        """Return whether some shard may not be moved now, but later."""
        return any(
            each.is_moving or each.is_resting
            for session in self.active
            for each in self._owned[session]
        )

    def _best_move(self) -> tuple[PlacedShard, str, str] | None:
        """
        Return the heaviest shard that brings two brokers closer to each other.

        Pairs of brokers are tried from the largest difference on.
        """
        ascending = sorted(self.active, key=lambda each: (self._scores[each], each))
        for source in reversed(ascending):
            for target in ascending:
                if target in self._strained:
                    continue
                difference = self._scores[source] - self._scores[target]
                fitting = [
                    each
                    for each in self._owned[source]
                    if not (each.is_moving or each.is_resting)
                    and self.weights[each.shard] <= difference / 2 + _ROUNDING
                ]
                if difference > _ROUNDING and fitting:
                    return min(fitting, key=self._heaviest_first), source, target
        return None

    def _heaviest_first(self, each: PlacedShard) -> tuple[float, int]:
        return -self.weights[each.shard], each.shard

    def _lowest(self, zone: str, weight: float) -> str:
        """
        Return the active broker that should get a shard of *weight*.

        It is the one with the lowest weight; a broker of *zone* is preferred if it
        has less than one such shard more.
        """
        costs = {session: self._cost(session, weight) for session in self.active}
        lowest = min(costs.values())
        close = [
            session
            for session in self.active
            if self._zones[session] == zone
            and costs[session] < lowest + weight - _ROUNDING
        ]
        return min(close or self.active, key=lambda each: (costs[each], each))

    def _cost(self, session: str, weight: float) -> float:
        """Return the weight of a broker as it counts when it should get a shard."""
        score = self._scores[session]
        if session in self._strained:
            return (score + weight) * STRAINED_FACTOR - weight
        return score

    def _move(self, each: PlacedShard, source: str | None, target: str) -> None:
        weight = self.weights[each.shard]
        if source is not None:
            self._owned[source].remove(each)
            self._scores[source] -= weight
        # A shard that is planned to move is not moved again in the same plan.
        moving = PlacedShard(each.shard, target, is_moving=True, load=each.load)
        self._owned[target].append(moving)
        self._scores[target] += weight
        self.moves.append(Move(each.shard, source, target))
