"""
Moves of shards that administrators ask for, by any broker of the cluster.

A single move changes the record of the shard, as the controller does.  To balance the
cluster, the controller is asked, which moves shards at its pace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pydanube.model.clusters import BrokerLoad, ShardMove
from pydanube.model.errors import InvalidRequest
from pydanube_broker.cluster.pure.directions import ClusterView, Director, candidates
from pydanube_broker.cluster.pure.moves import direct, heading_for
from pydanube_broker.cluster.pure.ownership import ShardView
from pydanube_broker.cluster.pure.placement import PlacementLimits, weights
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.store import (
    MetadataStore,
    Put,
    Revision,
    Unchanged,
    retry_on_conflict,
)

T = TypeVar("T")

TOPICS_MAX = 100
"""How many topics of a shard are named."""


async def move_shard(
    store: MetadataStore, shard: int, broker_id: str | None = None
) -> ShardMove:
    """
    Ask the owner of a shard to leave it to *broker_id*, and return at once.

    Without *broker_id*, the active broker with the fewest shards gets it, except the
    present owner.  Nothing changes if the broker has the shard or will get it.

    Raises:
        InvalidRequest: There is no such broker, or it is draining, or the shard is
            being taken over at this moment.
    """
    return await retry_on_conflict(partial(_try_to_move, store, shard, broker_id))


async def _try_to_move(
    store: MetadataStore, shard: int, broker_id: str | None
) -> ShardMove:
    view = await read_view(store)
    each = view.shards[shard]
    source = heading_for(each.record, view.sessions)
    target = _target_of(view, broker_id, source)
    topics = await store.scan(keys.SHARD_TOPICS.within(shard))
    move = _describe(view, shard, source, target, [each.value for _, each in topics])
    if source == target:
        return move
    change = direct(each, target, view.sessions)
    if change is None:
        raise InvalidRequest(
            f"shard {shard} is being taken over by {move.source}; try again when "
            "danube cluster status shows no incoming shards"
        )
    key = keys.SHARDS.key(shard)
    await store.transaction(
        [Unchanged(key, Revision(change.revision))], [Put(key, change.record)]
    )
    return move


def _target_of(view: ClusterView, broker_id: str | None, source: str | None) -> str:
    """Return the session that should get a shard of *source*."""
    modes = {each.session: each.is_draining for each in candidates(view)}
    if broker_id is None:
        heading = Counter(
            heading_for(each.record, view.sessions) for each in view.shards.values()
        )
        others = [
            session
            for session, is_draining in modes.items()
            if not is_draining and session != source
        ]
        if not others:
            raise InvalidRequest("there is no other broker that could take the topic")
        return min(others, key=lambda session: (heading[session], session))
    for session, is_draining in modes.items():
        if view.sessions[session].broker_id == broker_id:
            if is_draining:
                raise InvalidRequest(
                    f"{broker_id} is drained or draining: let it serve topics again "
                    f"first (danube brokers undrain {broker_id})"
                )
            return session
    names = ", ".join(sorted(each.broker_id for each in view.sessions.values()))
    raise InvalidRequest(
        f"no broker {broker_id!r} of the cluster runs at the moment; these run: {names}"
    )


async def plan_rebalance(
    store: MetadataStore, limits: PlacementLimits
) -> list[ShardMove]:
    """Return the moves that balance the cluster, if its loads stay as they are."""
    view = await read_view(store)
    director = Director(replace(limits, moves_max=len(view.shards)))
    director.begin_balancing()
    topics = await topics_by_shard(store)
    return [
        _describe(
            view, each.shard, each.source, each.target, topics.get(each.shard, [])
        )
        for each in director.on_view(view, now=0.0).shards
    ]


async def rebalance_some(
    store: MetadataStore, limits: PlacementLimits, moves_max: int
) -> list[ShardMove]:
    """Begin the first *moves_max* moves that balance the cluster, and return them."""
    begun = []
    for planned in (await plan_rebalance(store, limits))[:moves_max]:
        # A shard that is being taken over meanwhile stays.
        with suppress(InvalidRequest):
            begun.append(await move_shard(store, planned.shard, planned.target))
    return begun


async def measure_balance(store: MetadataStore) -> list[BrokerLoad]:
    """Return the loads of the active brokers, by which the controller balances."""
    view = await read_view(store)
    placed = Director().placed(view, now=0.0)
    weight_of = weights(placed)
    topics = await topics_by_shard(store)
    return [
        BrokerLoad(
            broker_id=view.sessions[each.session].broker_id,
            load_percent=100 * sum(weight_of[shard] for shard in owned),
            topic_count=sum(len(topics.get(shard, ())) for shard in owned),
        )
        for each in candidates(view)
        if not each.is_draining
        for owned in [[p.shard for p in placed if p.session == each.session]]
    ]


async def request_rebalance(store: MetadataStore, wall_clock_us: int) -> None:
    """Ask the controller to balance the cluster now; a later controller also does."""
    await store.put(keys.REBALANCE, str(wall_clock_us))


async def topics_by_shard(store: MetadataStore) -> dict[int, list[str]]:
    """Return the names of all topics, by shard."""
    topics: dict[int, list[str]] = {}
    for path, stored in await store.scan_valid(keys.SHARD_TOPICS):
        shard = int(keys.SHARD_TOPICS.name_of(path).partition("/")[0])
        topics.setdefault(shard, []).append(stored.value)
    return topics


async def read_view(store: MetadataStore) -> ClusterView:
    """Return what the controller decides on, read part after part."""
    shards = await store.scan_valid(keys.SHARDS)
    return ClusterView(
        sessions=await _values(store, keys.SESSIONS),
        shards={
            int(keys.SHARDS.name_of(path)): ShardView(stored.value, stored.revision)
            for path, stored in shards
        },
        modes=await _values(store, keys.BROKER_MODES),
        loads=await _values(store, keys.LOADS),
        leaving=await _values(store, keys.LEAVING),
    )


async def _values(store: MetadataStore, prefix: Prefix[T]) -> Mapping[str, T]:
    found = await store.scan_valid(prefix)
    return {prefix.name_of(path): stored.value for path, stored in found}


def _describe(
    view: ClusterView, shard: int, source: str | None, target: str, topics: list[str]
) -> ShardMove:
    return ShardMove(
        shard=shard,
        source="" if source is None else view.sessions[source].broker_id,
        target=view.sessions[target].broker_id,
        topics=tuple(sorted(topics)[:TOPICS_MAX]),
        topic_count=len(topics),
    )
