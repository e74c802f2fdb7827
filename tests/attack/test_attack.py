"""A few rounds of each attack campaign find nothing."""

from __future__ import annotations

import asyncio
import sys
from random import Random

import pytest

from attack.campaigns import CAMPAIGNS
from attack.target import running_target

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROUNDS = 5


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """One broker for all campaigns, as in ``make attack``."""
    with running_target(tmp_path_factory.mktemp("attack")) as target:
        yield target


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_attack_finds_nothing(target, name):
    attack = CAMPAIGNS[name]
    rounds = getattr(sys.modules[attack.__module__], "TEST_ROUNDS", ROUNDS)

    async def run_rounds() -> None:
        for number in range(rounds):
            await attack(target, Random(f"0 {name} {number}"))
            await target.check()

    asyncio.run(run_rounds())
