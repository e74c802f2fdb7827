"""Whole brokers of a cluster keep the promises of their features through faults."""

from __future__ import annotations

import pytest

from simulation.features import FEATURES, Feature, some_features
from simulation.served import simulate_features


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEATURES, ids=[each.__name__ for each in FEATURES])
def test_feature_keeps_its_promises_through_faults(kind: type[Feature]) -> None:
    world = simulate_features(3, lambda world: [kind(world)])
    assert world.faults.total() > 5


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_features_keep_their_promises_with_many_seeds() -> None:
    for seed in range(2000, 2100):
        simulate_features(seed, some_features)
