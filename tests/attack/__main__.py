"""``make attack``: rounds of all campaigns in turn, for a given time."""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from attack.campaigns import CAMPAIGNS
from attack.target import Target, running_target

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_GROWTH_MAX = 1.2
"""The broker's memory after the attack, as a multiple of the memory before."""
MEMORY_RETURN_S = 15.0
"""The time that the broker has to return memory after the attack."""
PROGRESS_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds that *arguments* select; return the exit status."""
    options = _parser().parse_args(arguments)
    names = options.only or list(CAMPAIGNS)
    directory = Path(tempfile.mkdtemp(prefix="danube-attack-"))
    print(f"seed {options.seed}, campaigns {', '.join(names)}, files in {directory}")
    try:
        with running_target(directory) as target:
            asyncio.run(_attack(target, names, options))
    except AssertionError as finding:
        print(f"FOUND: {finding}\nThe broker's files are in {directory}.")
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing found so far")
    shutil.rmtree(directory)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", action="append", choices=list(CAMPAIGNS), help="one campaign"
    )
    parser.add_argument("--round", type=int, help="run only this round")
    return parser


async def _attack(
    target: Target, names: list[str], options: argparse.Namespace
) -> None:
    await target.warm_up()
    await target.check()
    before = target.memory_bytes()
    counts = Counter[str]()
    for name, number in _rounds(names, options.minutes, options.round):
        await _run_round(target, name, options.seed, number)
        counts[name] += 1
    await asyncio.sleep(MEMORY_RETURN_S)
    await target.check()
    after = target.memory_bytes()
    rounds = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"rounds: {rounds}")
    print(f"memory: {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
    if options.round is None:
        assert after <= before * MEMORY_GROWTH_MAX, "the broker kept memory"


def _rounds(
    names: list[str], minutes: float, only_round: int | None
) -> Iterator[tuple[str, int]]:
    if only_round is not None:
        yield from ((name, only_round) for name in names)
        return
    start = reported = time.monotonic()
    number = 0
    while True:
        for name in names:
            now = time.monotonic()
            if now - start > minutes * 60:
                return
            if now - reported > PROGRESS_S:
                reported = now
                print(f"{now - start:5.0f} s: {name}, round {number}", flush=True)
            yield name, number
        number += 1


async def _run_round(target: Target, name: str, seed: int, number: int) -> None:
    again = f"make attack ONLY={name} SEED={seed} ROUND={number}"
    try:
        await CAMPAIGNS[name](target, Random(f"{seed} {name} {number}"))
        await target.check()
    except AssertionError as finding:
        text = f"{finding}\nTo repeat this round: {again}"
        raise AssertionError(text) from finding
    except Exception as error:
        text = f"{name} itself failed: {error!r}\nTo repeat this round: {again}"
        raise AssertionError(text) from error
    # Free the sockets of this round before the next one.
    gc.collect()


if __name__ == "__main__":
    sys.exit(main())
