"""Runs of the simulation: no rule is violated, and runs can be repeated."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from pydanube.client.connections import broker_pool
from simulation.plan import plan_run
from simulation.world import simulate

SEEDS = Path(__file__).with_name("seeds.txt")
RUNS = 5
SOAK_RUNS = 300
SEEDS_PER_TEST = 5
SMALL_SCALE = 0.1
BUSY_SEED = 3
MERGING_SEEDS = (81, 76)
"""With power losses, and without and with a remote store."""


def run(seed: int, scale: float = 1.0):
    report = simulate(plan_run(seed, scale=scale))
    assert report.is_good, "\n".join(
        [
            f"make sim SEED={seed} ARGS='--scale {scale}'",
            *map(str, report.violations),
            *list(report.trace.lines())[-30:],
        ]
    )
    return report


@pytest.mark.parametrize("seed", range(3))
def test_small_run_violates_no_rule(seed):
    run(seed, SMALL_SCALE)


def test_same_seed_gives_the_same_events():
    first, again = run(BUSY_SEED, SMALL_SCALE), run(BUSY_SEED, SMALL_SCALE)
    assert list(first.trace.lines()) == list(again.trace.lines())
    assert first.digest == again.digest != run(BUSY_SEED + 1, SMALL_SCALE).digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "scale"), [(BUSY_SEED, SMALL_SCALE), (MERGING_SEEDS[0], 1.0)]
)
def test_run_does_not_depend_on_its_process(seed, scale):
    # The hashes of texts are other ones in this process.
    lines = _lines_of_a_process(seed, scale, hash_seed="1")
    assert lines == list(run(seed, scale).trace.lines())


@pytest.mark.parametrize("seed", MERGING_SEEDS)
def test_segments_are_merged_while_faults_happen(seed):
    report = run(seed)
    # After a change of the plan, take other seeds.
    assert report.counts["merged"]
    assert report.counts["power losses"]
    assert report.counts["read again"]
    assert bool(report.plan.storage.remote.url) == (seed == MERGING_SEEDS[1])


def test_run_does_not_depend_on_what_threads_draw():
    first, is_over = run(BUSY_SEED, SMALL_SCALE), Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(_draw_until, is_over)
        try:
            again = run(BUSY_SEED, SMALL_SCALE)
        finally:
            is_over.set()
    assert list(again.trace.lines()) == list(first.trace.lines())


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        *range(0, RUNS, SEEDS_PER_TEST),
        *(
            pytest.param(first, marks=pytest.mark.soak)
            for first in range(RUNS, SOAK_RUNS, SEEDS_PER_TEST)
        ),
    ],
)
def test_runs_violate_no_rule(first):
    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "scale"),
    [
        (int(seed), float(scale))
        for line in SEEDS.read_text().splitlines()
        if line and not line.startswith("#")
        for seed, scale, _sentence in [line.split(maxsplit=2)]
    ],
)
def test_seeds_of_fixed_bugs_violate_no_rule(seed, scale):
    run(seed, scale)


def test_run_does_not_depend_on_levels_of_loggers():
    first = run(BUSY_SEED, SMALL_SCALE)
    chatty = logging.getLogger(broker_pool.__name__)
    before = chatty.level
    chatty.setLevel(logging.DEBUG)
    try:
        again = run(BUSY_SEED, SMALL_SCALE)
    finally:
        chatty.setLevel(before)
    assert list(again.trace.lines()) == list(first.trace.lines())


def _draw_until(is_over):
    while not is_over.is_set():
        random.random()


def _lines_of_a_process(seed, scale, hash_seed):
    program = (
        "from simulation.plan import plan_run; from simulation.world import simulate; "
        f"report = simulate(plan_run({seed}, scale={scale})); "
        "print(*report.trace.lines(), sep='\\n')"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
