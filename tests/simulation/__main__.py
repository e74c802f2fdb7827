"""Runs of the simulation from the command line; see the package."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from simulation.cluster import simulate_cluster, violation_of
from simulation.cluster_rules import BROKEN_RULES as CLUSTER_RULES
from simulation.cluster_rules import leaving_out
from simulation.feature_rules import BROKEN_RULES as FEATURE_RULES
from simulation.features import some_features
from simulation.plan import plan_run
from simulation.served import simulate_features
from simulation.shrink import shrink
from simulation.world import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.plan import Plan
    from simulation.world import Report

ALL_RULES = {**CLUSTER_RULES, **FEATURE_RULES}
RUN_S_MAX = 300
"""A run that takes longer, in real time, is a failure."""
SCALES = (0.3, 1.0, 1.0, 1.0, 3.0)
"""The scales of the runs of a long session."""
_TAIL_LINES = 40

_Outcome: TypeAlias = tuple[str | None, dict[str, float]]
_Run: TypeAlias = Callable[[int], _Outcome]


def main(words: list[str] | None = None) -> int:
    """Run the command line *words*; return the exit status."""
    args = _parser().parse_args(words)
    if args.cluster and args.features:
        raise SystemExit("--features and --cluster are different simulations")
    rules = CLUSTER_RULES if args.cluster else FEATURE_RULES if args.features else {}
    if args.without is not None and args.without not in rules:
        raise SystemExit(
            f"no rule {args.without!r} here: --cluster has {', '.join(CLUSTER_RULES)}; "
            f"--features has {', '.join(FEATURE_RULES)}"
        )
    if args.cluster or args.features:
        only_alone = {
            "--scale": args.scale != 1.0,
            "--trace": args.trace,
            "--about": bool(args.about),
            "--shrink": args.shrink,
        }
        given = [option for option, is_given in only_alone.items() if is_given]
        if given:
            raise SystemExit(f"{given[0]} does not go with clusters: leave it out")
    run: _Run = run_briefly
    if args.cluster:
        run = partial(run_cluster_briefly, args.without)
    elif args.features:
        run = partial(run_features_briefly, args.without)
    if args.seed is None:
        return _run_long(run, args.jobs, args.first)
    if args.cluster or args.features:
        return _run_one_cluster(run, args.seed)
    return _run_one(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument(
        "seed", type=int, nargs="?", help="run this seed only; default: run for ever"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="a longer run")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--about", default="", help="print events that contain this text"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="find a smaller plan that fails"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="several brokers; see cluster.py"
    )
    parser.add_argument(
        "--features", action="store_true", help="whole brokers; see served.py"
    )
    parser.add_argument(
        "--without",
        metavar="RULE",
        help="leave out a rule of --cluster or --features; runs should fail then",
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent runs")
    parser.add_argument("--first", type=int, help="run for ever, from this seed on")
    return parser


# One run.


def _run_one(args: argparse.Namespace) -> int:
    plan = plan_run(args.seed, scale=args.scale)
    report = simulate(plan)
    if args.shrink and not report.is_good:
        report = simulate(_shrunk(plan, report.violations[0].rule))
    print(report.plan.summary())
    print()
    is_whole = args.trace or args.about
    lines = list(report.trace.lines(args.about))
    if not is_whole:
        lines = list(report.trace.lines_of("faults", "broker", "world"))
        if not report.is_good:
            lines = [*lines[:-1], "…", *list(report.trace.lines())[-_TAIL_LINES:]]
    for line in lines:
        print(line[:200])
    print()
    print(", ".join(f"{value:g} {name}" for name, value in report.counts.items()))
    print(f"digest {report.digest}")
    for violation in report.violations:
        print(f"VIOLATION {violation}")
    print("no rule was violated" if report.is_good else "rules were violated")
    return 0 if report.is_good else 1


def _shrunk(plan: Plan, rule: str) -> Plan:
    def fails(smaller: Plan) -> bool:
        print(".", end="", flush=True)
        return any(each.rule == rule for each in simulate(smaller).violations)

    try:
        return shrink(plan, fails)
    finally:
        print()


def _run_one_cluster(run: _Run, seed: int) -> int:
    failure, counts = run(seed)
    print(", ".join(f"{value:g} {name}" for name, value in counts.items()))
    print(failure or "no rule was violated")
    return 0 if failure is None else 1


# Runs for ever.


def _run_long(run: _Run, jobs: int, first: int | None) -> int:
    print("Ctrl-C stops.  To repeat a failed run: make sim SEED=…")
    began_at = time.monotonic()
    totals: Counter[str] = Counter()
    failures: list[str] = []
    # Shells ignore SIGINT in background processes; enable it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        ProcessPoolExecutor(
            jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        ) as pool,
    ):
        try:
            for failure, counts in _outcomes(pool, run, jobs, first):
                totals.update(counts)
                if failure is not None:
                    failures.append(failure)
                    print(f"\r{failure}\033[K")
                _show_progress(totals, len(failures), time.monotonic() - began_at)
        finally:
            pool.shutdown(cancel_futures=True)
            print()
            print(f"{len(failures)} of {totals['runs']} runs failed")
            for failure in failures:
                print(f"  {failure}")
    return 1 if failures else 0


def _outcomes(
    pool: ProcessPoolExecutor, run: _Run, jobs: int, first: int | None
) -> Iterator[_Outcome]:
    seeds = _seeds(first)
    running: set[Future[_Outcome]] = set()
    while True:
        while len(running) < 2 * jobs:
            running.add(pool.submit(run, next(seeds)))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _seeds(first: int | None) -> Iterator[int]:
    while True:
        yield secrets.randbelow(1 << 31) if first is None else first
        first = None if first is None else first + 1


def run_briefly(seed: int) -> _Outcome:
    """Run one seed of a long session; return its failure, in a line, and its counts."""
    scale = Random(seed).choice(SCALES)
    try:
        with _time_limit():
            report: Report = simulate(plan_run(seed, scale=scale))
    except _TooLong:
        return f"SEED={seed} ARGS='--scale {scale}'  does not end", {"runs": 1}
    failure = None
    if not report.is_good:
        failure = f"SEED={seed} ARGS='--scale {scale}'  {report.violations[0]}"
    return failure, {"runs": 1, **report.counts}


def run_cluster_briefly(without: str | None, seed: int) -> _Outcome:
    """Run a cluster with one seed; return its failure, in a line, and its counts."""

    def run() -> dict[str, float]:
        world = simulate_cluster(seed)
        acks = sum(map(len, world.ledger.acked.values()))
        return {"seconds": world.ended_at, "acks": acks, **world.faults}

    return _run_brokers(f"SEED={seed} ARGS='--cluster", without, run)


def run_features_briefly(without: str | None, seed: int) -> _Outcome:
    """Run whole brokers with one seed; see ``run_cluster_briefly``."""

    def run() -> dict[str, float]:
        world = simulate_features(seed, some_features)
        return {"seconds": world.ended_at, **world.faults}

    return _run_brokers(f"SEED={seed} ARGS='--features", without, run)


def _run_brokers(
    again: str, without: str | None, run: Callable[[], dict[str, float]]
) -> _Outcome:
    # Lost sessions and failed requests are not news here.
    logging.disable(logging.CRITICAL)
    # Collections take a fifth of the time; one after each run is enough.
    gc.disable()
    again += "'" if without is None else f" --without {without}'"
    try:
        with _time_limit(), leaving_out(ALL_RULES.get(without or "", {})):
            counts = run()
    except _TooLong:
        return f"{again}  does not end", {"runs": 1}
    except Exception as error:  # noqa: BLE001 (any exception is a finding)
        return f"{again}  {violation_of(error)}", {"runs": 1}
    finally:
        gc.collect()
    faults = sum(counts.values()) - counts["seconds"] - counts.get("acks", 0)
    return None, {"runs": 1, "faults": faults, **counts}


class _TooLong(KeyboardInterrupt):
    """A run takes too long; event loops do not catch a KeyboardInterrupt."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(RUN_S_MAX)
    try:
        yield
    finally:
        signal.alarm(0)


def _show_progress(totals: Counter[str], failure_count: int, seconds: float) -> None:
    line = (
        f"{totals['runs']} runs, {totals['runs'] / seconds:.1f}/s; "
        f"{totals['seconds'] / 3600:.1f} h of simulated time, "
        f"{totals['deliveries'] or totals['acks']:.0f} deliveries or acks, "
        f"{totals['faults']:.0f} faults, "
        f"{totals['power losses']:.0f} power losses; {failure_count} failures"
    )
    if os.isatty(sys.stdout.fileno()):
        print(f"\r{line}\033[K", end="", flush=True)
    elif totals["runs"] % 100 == 0:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
