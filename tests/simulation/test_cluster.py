"""Runs of clusters: no rule is violated, and a rule that is left out is found."""

from __future__ import annotations

import pytest

from simulation.cluster import simulate_cluster, violation_of
from simulation.cluster_rules import leaving_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 2, 20127))]
)
def test_nothing_acknowledged_is_lost_by_takeovers_and_moves(seed: int) -> None:
    simulate_cluster(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "seed", "found"),
    [
        ("fence_before_read", 1, "forked"),
        ("claim_compares_absence", 2, "accepts no messages"),
        ("epoch_comparison", 9, "gap"),
        ("serve_only_after_open", 14, "lost"),
    ],
)
def test_rule_that_is_left_out_is_found(rule: str, seed: int, found: str) -> None:
    with leaving_out(rule), pytest.raises((AssertionError, ExceptionGroup)) as caught:
        simulate_cluster(seed)
    assert found in violation_of(caught.value)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_by_takeovers_with_many_seeds() -> None:
    for seed in range(1000, 1500):
        simulate_cluster(seed)
