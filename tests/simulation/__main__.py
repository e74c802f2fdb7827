"""Runs of the simulation from the command line; see the package."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

from simulation.plan import plan_run
from simulation.shrink import shrink
from simulation.world import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.plan import Plan
    from simulation.world import Report

RUN_S_MAX = 300
"""A run that takes longer, in real time, is a failure."""
SCALES = (0.3, 1.0, 1.0, 1.0, 3.0)
"""The scales of the runs of a long session."""
_TAIL_LINES = 40


def main(words: list[str] | None = None) -> int:
    """Run the command line *words*; return the exit status."""
    args = _parser().parse_args(words)
    if args.seed is None:
        return _run_long(args.jobs, args.first)
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


# Runs for ever.


def _run_long(jobs: int, first: int | None) -> int:
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
            for failure, counts in _outcomes(pool, jobs, first):
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
    pool: ProcessPoolExecutor, jobs: int, first: int | None
) -> Iterator[tuple[str | None, dict[str, float]]]:
    seeds = _seeds(first)
    running: set[Future[tuple[str | None, dict[str, float]]]] = set()
    while True:
        while len(running) < 2 * jobs:
            running.add(pool.submit(run_briefly, next(seeds)))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _seeds(first: int | None) -> Iterator[int]:
    while True:
        yield secrets.randbelow(1 << 31) if first is None else first
        first = None if first is None else first + 1


def run_briefly(seed: int) -> tuple[str | None, dict[str, float]]:
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
        f"{totals['deliveries']:.0f} deliveries, {totals['faults']:.0f} faults, "
        f"{totals['power losses']:.0f} power losses; {failure_count} failures"
    )
    if os.isatty(sys.stdout.fileno()):
        print(f"\r{line}\033[K", end="", flush=True)
    elif totals["runs"] % 100 == 0:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
