"""Runs of clusters: no rule is violated, and a rule that is left out is found."""

from __future__ import annotations

import re

import pytest

from simulation.cluster import simulate_cluster, violation_of
from simulation.cluster_rules import BROKEN_RULES, leaving_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 2, 20127))]
)
def test_nothing_acknowledged_is_lost_by_takeovers_and_moves(seed: int) -> None:
    simulate_cluster(seed)


@pytest.mark.slow
@pytest.mark.rotated
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("rule", "first", "found"),
    [
        ("fence_before_read", 2, "forked|lost"),
        ("claim_compares_absence", 1, "accepts no messages|lost"),
        ("epoch_comparison", 24, "gap"),
        # Only a long run finds it; the model of takeovers does so at once.
        pytest.param(
            *("serve_only_after_open", 67, "forked|lost"), marks=pytest.mark.soak
        ),
    ],
)
def test_rule_that_is_left_out_is_found(rule: str, first: int, found: str) -> None:
    # At present the first seed finds it.  Changes of takeovers move it to a later one.
    with leaving_out(BROKEN_RULES[rule]):
        violations = (violation_with(seed) for seed in range(first, first + 50))
        assert any(re.search(found, each) for each in violations)


def violation_with(seed: int) -> str:
    """Return what the run with *seed* has found; empty if nothing."""
    try:
        simulate_cluster(seed)
    except (AssertionError, ExceptionGroup) as error:
        return violation_of(error)
    return ""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_by_takeovers_with_many_seeds() -> None:
    for seed in range(1000, 1500):
        simulate_cluster(seed)
