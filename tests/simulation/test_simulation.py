"""Runs of the simulation: every promise is kept, and every run can be had again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.plan import plan_run
from simulation.world import simulate

SEEDS = Path(__file__).with_name("seeds.txt")
RUNS = 30
SOAK_RUNS = 300
TOGETHER = 15
SMALL = 0.1
A_BUSY_SEED = 3


def run(seed: int, scale: float = 1.0):
    report = simulate(plan_run(seed, scale=scale))
    assert report.is_good, "\n".join(
        [
            f"make sim SEED={seed} ARGS='--scale {scale}'",
            *map(str, report.broken),
            *list(report.trace.lines())[-30:],
        ]
    )
    return report


@pytest.mark.parametrize("seed", range(3))
def test_every_promise_is_kept_in_a_small_run(seed):
    run(seed, SMALL)


def test_a_seed_says_all_that_happens():
    first, again = run(A_BUSY_SEED, SMALL), run(A_BUSY_SEED, SMALL)
    assert list(first.trace.lines()) == list(again.trace.lines())
    assert first.digest == again.digest != run(A_BUSY_SEED + 1, SMALL).digest


@pytest.mark.slow
def test_a_run_does_not_depend_on_the_process_that_it_runs_in():
    digests = {_digest_in_a_process(A_BUSY_SEED, hash_seed) for hash_seed in "12"}
    assert digests == {run(A_BUSY_SEED).digest}


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        *range(0, RUNS, TOGETHER),
        *(
            pytest.param(first, marks=pytest.mark.soak)
            for first in range(RUNS, SOAK_RUNS, TOGETHER)
        ),
    ],
)
def test_every_promise_is_kept_whatever_happens(first):
    for seed in range(first, first + TOGETHER):
        run(seed)


@pytest.mark.slow
def test_bugs_of_the_past_stay_away():
    for line in SEEDS.read_text().splitlines():
        if line and not line.startswith("#"):
            seed, scale, _sentence = line.split(maxsplit=2)
            run(int(seed), float(scale))


def _digest_in_a_process(seed, hash_seed):
    program = (
        "from simulation.plan import plan_run; from simulation.world import simulate; "
        f"print(simulate(plan_run({seed})).digest)"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
