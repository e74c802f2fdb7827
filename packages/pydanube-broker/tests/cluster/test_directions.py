"""What the controller changes, given what it has seen."""

from __future__ import annotations

from pydanube.model.clusters import BrokerMode
from pydanube_broker.cluster.pure.directions import (
    REST_S,
    ClusterView,
    Director,
    candidates,
)
from pydanube_broker.cluster.pure.ownership import ShardView
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    LoadRecord,
    SessionRecord,
    ShardLoad,
    ShardRecord,
    ShardState,
)


def session(broker: str, started_at: int = 0) -> SessionRecord:
    return SessionRecord(broker_id=broker, addresses={}, started_at=started_at)


def opened(owner: str) -> ShardRecord:
    return ShardRecord(state=ShardState.OPEN, epoch=1, owner=owner, source=owner)


def view(
    records: list[ShardRecord],
    sessions: dict[str, SessionRecord],
    modes: dict[str, BrokerMode] | None = None,
    loads: dict[str, LoadRecord] | None = None,
) -> ClusterView:
    return ClusterView(
        sessions=sessions,
        shards={at: ShardView(record, 7) for at, record in enumerate(records)},
        modes={
            broker: BrokerModeRecord(mode=mode, changed_at=0)
            for broker, mode in (modes or {}).items()
        },
        loads=loads or {},
    )


BOTH = {"a-1": session("a"), "b-1": session("b")}


def targets(director: Director, seen: ClusterView, now: float = 0.0) -> dict[int, str]:
    return {each.shard: each.target for each in director.on_view(seen, now).shards}


def test_shards_without_an_owner_get_targets() -> None:
    found = targets(Director(), view([ShardRecord()] * 4, BOTH))
    assert sorted(found.values()) == ["a-1", "a-1", "b-1", "b-1"]


def test_only_the_newest_session_of_a_broker_gets_shards() -> None:
    sessions = {"a-1": session("a", 1), "a-2": session("a", 2)}
    seen = view([opened("a-1")], sessions)
    assert [each.session for each in candidates(seen)] == ["a-2"]
    assert targets(Director(), seen) == {0: "a-2"}


def test_a_draining_broker_loses_its_shards_and_is_drained_then() -> None:
    modes = {"a": BrokerMode.DRAINING}
    before = view([opened("a-1"), opened("b-1")], BOTH, modes)
    directions = Director().on_view(before, 0.0)
    assert [each.target for each in directions.shards] == ["b-1"]
    assert directions.drained == ()
    after = view([opened("b-1"), opened("b-1")], BOTH, modes)
    assert Director().on_view(after, 0.0).drained == ("a",)


def test_a_broker_to_which_a_shard_is_going_is_not_drained() -> None:
    heading = ShardRecord(target="a-1")
    seen = view([heading, opened("b-1")], BOTH, {"a": BrokerMode.DRAINING})
    assert Director().on_view(seen, 0.0).drained == ()


def test_a_shard_rests_after_it_got_an_owner() -> None:
    director = Director()
    one = {"a-1": session("a")}
    assert targets(director, view([opened("a-1")] * 2, one)) == {}
    # Shard 0 returns from elsewhere, and shard 1 does, too.
    director.on_view(view([opened("b-1")] * 2, BOTH), 10.0)
    back = view([opened("a-1")] * 2, BOTH)
    assert targets(director, back, 20.0) == {}
    assert director.next_rest_end(20.0) == 20.0 + REST_S
    assert len(targets(director, back, 20.0 + REST_S)) == 1


def test_a_new_controller_need_not_wait_before_it_balances() -> None:
    seen = view([opened("a-1")] * 2, BOTH)
    assert len(targets(Director(), seen)) == 1


def test_loads_decide_which_shard_moves() -> None:
    heavy, light = ShardLoad(bytes_per_s=9e6), ShardLoad(bytes_per_s=1e6)
    loads = {"a-1": LoadRecord(measured_at=0, shards={0: heavy, 1: light, 2: light})}
    found = targets(Director(), view([opened("a-1")] * 3, BOTH, loads=loads))
    assert 0 not in found
    assert found == {1: "b-1", 2: "b-1"}


def test_new_owner_of_a_shard_has_its_load_before_it_reports_one() -> None:
    heavy, light = ShardLoad(bytes_per_s=1e9), ShardLoad(bytes_per_s=1e7)
    director = Director()
    loads = {
        "a-1": LoadRecord(measured_at=0, shards=dict.fromkeys(range(4), heavy)),
        "b-1": LoadRecord(measured_at=0, shards=dict.fromkeys(range(4, 8), light)),
    }
    records = [opened("a-1")] * 4 + [opened("b-1")] * 4
    moved = targets(director, view(records, BOTH, loads=loads))
    assert moved
    for shard, target in moved.items():
        records[shard] = opened(target)
    # The reports are those from before the moves.
    assert targets(director, view(records, BOTH, loads=loads), REST_S) == {}


def test_new_broker_gets_its_share_although_shards_rest() -> None:
    director, all_three = Director(), BOTH | {"c-1": session("c")}
    one = {"a-1": session("a")}
    records = [opened("a-1")] * 3 + [opened("b-1")] * 3
    director.on_view(view([opened("a-1")] * 6, one), 0.0)
    assert targets(director, view(records, BOTH), 1.0) == {}
    found = targets(director, view(records, all_three), 2.0)
    assert list(found.values()) == ["c-1", "c-1"]
    assert {shard // 3 for shard in found} == {0, 1}
