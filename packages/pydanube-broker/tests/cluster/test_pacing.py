"""The number of shards that a session takes over at the same time."""

from __future__ import annotations

from pydanube_broker.cluster.pacing import (
    FIRST_MAX,
    ROUND_S_MAX,
    SHARDS_MAX,
    TakeoverPace,
)


def test_more_shards_begin_while_the_event_loop_goes_round_quickly() -> None:
    pace = TakeoverPace()
    assert pace.limit == FIRST_MAX
    for _ in range(SHARDS_MAX):
        pace.on_round(ROUND_S_MAX)
    assert pace.limit == SHARDS_MAX


def test_a_slow_event_loop_takes_over_one_shard_at_a_time() -> None:
    pace = TakeoverPace()
    pace.on_round(2 * ROUND_S_MAX)
    assert pace.limit == FIRST_MAX // 2
    for _ in range(FIRST_MAX):
        pace.on_round(2 * ROUND_S_MAX)
    assert pace.limit == 1
    pace.on_round(0.0)
    assert pace.limit == 2


def test_handovers_are_fewer_while_the_event_loop_is_slow() -> None:
    pace = TakeoverPace()
    assert pace.handovers == 1.0
    pace.on_round(2 * ROUND_S_MAX)
    assert pace.handovers == 0.5
    for _ in range(SHARDS_MAX):
        pace.on_round(0.0)
    assert pace.handovers == 1.0
