"""Placement: nothing is lost, loads become level, and a steady load moves nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_broker.cluster.pure.placement import (
    Candidate,
    PlacedShard,
    PlacementLimits,
    plan,
    weights,
)
from pydanube_broker.metadata.cluster_records import ShardLoad

ROUNDS_MAX = 200
LIMITS = PlacementLimits()

LOADS = st.builds(
    ShardLoad,
    bytes_per_s=st.sampled_from([0.0, 1e3, 1e5, 1e6, 5e6, 5e7]),
    connections=st.sampled_from([0, 1, 10, 1000]),
)


@st.composite
def clusters(draw):
    candidates = [
        Candidate(f"s{at}", draw(st.sampled_from(["", "y", "z"])), draw(st.booleans()))
        for at in range(draw(st.integers(1, 5)))
    ]
    sessions = st.sampled_from([each.session for each in candidates])
    shards = [
        PlacedShard(
            at,
            draw(st.none() | st.just("gone") | sessions),
            is_moving=draw(st.booleans()),
            is_resting=draw(st.booleans()),
            zone=draw(st.sampled_from(["", "y"])),
            load=draw(LOADS),
        )
        for at in range(draw(st.integers(0, 24)))
    ]
    return shards, candidates


def cluster(owners: str, **loads: ShardLoad) -> list[PlacedShard]:
    """Return a shard for each letter, which is the session that owns it."""
    return [
        PlacedShard(at, None if each == "-" else each, **loads)
        for at, each in enumerate(owners)
    ]


def candidates(names: str, **kwargs: bool) -> list[Candidate]:
    return [Candidate(each, **kwargs) for each in names]


def carried_out(shards, moves):
    targets = {move.shard: move.target for move in moves}
    return [
        replace(each, session=targets.get(each.shard, each.session), is_moving=False)
        for each in shards
    ]


def settle(shards, brokers, *, is_balancing=False):
    """Carry out plans until there are no more moves; return shards and all moves."""
    moves = []
    for _ in range(ROUNDS_MAX):
        result = plan(shards, brokers, is_balancing=is_balancing)
        if not result.moves:
            return shards, moves
        shards, is_balancing = carried_out(shards, result.moves), result.is_balancing
        moves += result.moves
    pytest.fail("there are always more moves")


@given(clusters())
def test_no_shard_returns_to_a_broker_that_it_has_left(world):
    shards, brokers = world
    shards = [replace(each, is_moving=False, is_resting=False) for each in shards]
    visited = {each.shard: [each.session] for each in shards}
    for move in settle(shards, brokers, is_balancing=True)[1]:
        assert move.target not in visited[move.shard]
        visited[move.shard].append(move.target)


def counts(shards):
    return Counter(each.session for each in shards)


@given(clusters(), st.booleans())
def test_plan_moves_each_shard_once_and_only_to_active_brokers(world, is_balancing):
    shards, brokers = world
    by_shard = {each.shard: each for each in shards}
    active = {each.session for each in brokers if not each.is_draining}
    present = {each.session for each in brokers}
    moves = plan(shards, brokers, LIMITS, is_balancing=is_balancing).moves
    assert len({move.shard for move in moves}) == len(moves)
    for move in moves:
        before = by_shard[move.shard]
        assert move.target in active
        assert move.target != before.session
        if before.session in present:
            assert move.source == before.session
            assert not before.is_moving
        else:
            assert move.source is None
    if active:
        served = {each.shard for each in shards if each.session in present}
        assert {move.shard for move in moves if move.source is None} == (
            by_shard.keys() - served
        )


@given(clusters())
def test_plan_keeps_to_its_budget(world):
    shards, brokers = world
    present = {each.session for each in brokers}
    moving = sum(each.is_moving for each in shards if each.session in present)
    moves = plan(shards, brokers, PlacementLimits(moves_max=3)).moves
    begun = sum(move.source is not None for move in moves)
    assert begun <= max(0, 3 - moving)


@given(clusters(), st.randoms())
def test_plan_does_not_depend_on_the_order_of_its_arguments(world, random):
    shards, brokers = world
    expected = plan(shards, brokers)
    random.shuffle(shards)
    random.shuffle(brokers)
    assert plan(shards, brokers) == expected


@given(clusters())
def test_steady_load_comes_to_rest(world):
    shards, brokers = world
    # Shards rest for a limited time only.
    shards = [replace(each, is_moving=False, is_resting=False) for each in shards]
    settled, _ = settle(shards, brokers, is_balancing=True)
    # A controller that starts later does not know what the one before did.
    for is_balancing in (False, True):
        assert plan(settled, brokers, is_balancing=is_balancing).moves == ()
    draining = {each.session for each in brokers if each.is_draining}
    if len(draining) < len(brokers):
        assert not draining & {each.session for each in settled}


@given(clusters())
def test_weights_add_up_to_one(world):
    shards, _ = world
    total = sum(weights(shards).values())
    assert total == pytest.approx(1.0 if shards else 0.0)


@given(st.lists(st.floats(-0.08, 0.08), min_size=60, max_size=60))
def test_fluctuations_cause_no_moves(changes):
    even = cluster("abc" * 20, load=ShardLoad(bytes_per_s=1e7, connections=10))
    changed = [
        replace(each, load=ShardLoad(bytes_per_s=1e7 * (1 + change), connections=10))
        for each, change in zip(even, changes, strict=True)
    ]
    assert plan(changed, candidates("abc")).moves == ()


def test_third_broker_gets_its_share_and_no_more_moves_than_that():
    shards, moves = settle(cluster("ab" * 128), candidates("abc"))
    assert len(moves) <= 256 // 3 + 1
    assert {move.target for move in moves} == {"c"}
    assert min(counts(shards)[name] for name in "abc") >= 80


def test_shards_of_a_lost_broker_are_all_assigned_at_once():
    shards = cluster("abz" * 20)
    moves = plan(shards, candidates("ab")).moves
    assert [move.source for move in moves] == [None] * 20
    assert counts(carried_out(shards, moves)) == {"a": 30, "b": 30}


def test_drain_empties_a_broker_at_the_pace_of_the_budget():
    brokers = [Candidate("a"), Candidate("b"), Candidate("c", is_draining=True)]
    shards = cluster("abc" * 10)
    first = plan(shards, brokers, PlacementLimits(moves_max=2))
    assert [move.source for move in first.moves] == ["c", "c"]
    settled, moves = settle(shards, brokers)
    assert counts(settled) == {"a": 15, "b": 15}
    assert len(moves) == 10


def test_shard_that_is_moving_uses_the_budget_and_counts_at_its_target():
    shards = [
        *cluster("aaaa"),
        *(PlacedShard(at, "b", is_moving=True) for at in range(4, 7)),
    ]
    limits = PlacementLimits(moves_max=3)
    assert plan(shards, candidates("abc"), limits).moves == ()
    limits = PlacementLimits(moves_max=4)
    (move,) = plan(shards, candidates("abc"), limits).moves
    assert (move.source, move.target) == ("a", "c")


def test_hot_shard_is_not_moved_if_that_only_moves_the_heat():
    hot = ShardLoad(bytes_per_s=1e9)
    shards = [PlacedShard(0, "a", load=hot), PlacedShard(1, "b")]
    assert plan(shards, candidates("ab")).moves == ()


def test_cold_shards_leave_the_broker_of_a_hot_one():
    hot = ShardLoad(bytes_per_s=1e9)
    shards = [PlacedShard(0, "a", load=hot), *cluster("-aaabbb")[1:]]
    settled, _ = settle(shards, candidates("ab"))
    assert counts(settled) == {"a": 1, "b": 6}


def test_shard_that_was_moved_lately_stays():
    shards = [replace(each, is_resting=True) for each in cluster("aaaa")]
    assert plan(shards, candidates("ab")).moves == ()
    drained = [Candidate("a", is_draining=True), Candidate("b")]
    assert len(plan(shards, drained).moves) == 4


def test_balancing_begins_late_and_ends_close():
    # a has 10 % more than its share.
    shards = cluster("a" * 22 + "b" * 18)
    brokers = candidates("ab")
    assert plan(shards, brokers).moves == ()
    assert len(plan(shards, brokers, is_balancing=True).moves) == 1


def test_plan_goes_on_while_the_budget_is_too_small():
    shards = cluster("a" * 20)
    first = plan(shards, candidates("ab"), PlacementLimits(moves_max=4))
    assert len(first.moves) == 4
    assert first.is_balancing
    last = plan(shards, candidates("ab"), PlacementLimits(moves_max=20))
    assert len(last.moves) == 10
    assert not last.is_balancing


def test_broker_of_the_same_zone_is_preferred_among_close_ones():
    brokers = [Candidate("a", "y"), Candidate("b", "z"), Candidate("c", "z")]
    shards = [PlacedShard(at, None, zone="z") for at in range(3)]
    moves = plan(shards, brokers).moves
    assert [move.target for move in moves] == ["b", "c", "a"]


def test_nothing_moves_without_an_active_broker():
    shards = cluster("a-")
    assert plan(shards, candidates("a", is_draining=True)).moves == ()
    assert plan(shards, []).moves == ()


def test_a_strained_broker_gets_fewer_of_the_shards_without_an_owner() -> None:
    brokers = [Candidate("a", is_strained=True), Candidate("b")]
    shards, _ = settle(cluster("-" * 12), brokers)
    assert counts(shards) == {"a": 4, "b": 8}


def test_strained_brokers_share_all_shards_if_there_are_no_others() -> None:
    shards, _ = settle(cluster("-" * 12), candidates("ab", is_strained=True))
    assert counts(shards) == {"a": 6, "b": 6}


def test_nothing_moves_to_a_strained_broker_to_balance() -> None:
    brokers = [Candidate("a"), Candidate("b", is_strained=True)]
    assert plan(cluster("a" * 12), brokers, is_balancing=True).moves == ()
    shards, _ = settle(cluster("b" * 12), brokers)
    assert counts(shards) == {"a": 6, "b": 6}
