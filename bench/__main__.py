"""The command ``python -m bench``; ``make bench`` also installs what it needs."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.charts import draw
from bench.options import parser_of_command
from bench.plan import QUICK, WORKLOADS, estimated_s, plan_lines, plan_trials
from bench.report import (
    headline,
    machine_sentence,
    read,
    skip_sentence,
    to_json,
    to_markdown,
    to_text,
)
from bench.rows import rows_of
from bench.run import interruptible, joined, measure, measurement_of
from bench.sustained import Sample, Sustained, sustain
from bench.systems import find_system

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from bench.plan import Line, Trial
    from bench.run import Measurement

OUTPUT = Path("bench-results")
RESULTS = "results.json"
PAGE = "results.md"
SUSTAINED = "sustained.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with *arguments* and return the exit code."""
    asked = parser_of_command().parse_args(arguments)
    if asked.read is not None:
        measurement = joined([read(path) for path in asked.read])
        if asked.output is not None:
            asked.output.mkdir(parents=True, exist_ok=True)
            _write(measurement, asked.output)
        _show(measurement, asked.format, {})
        return 0
    if asked.quick:
        asked.rounds = asked.rounds or 1
        asked.seconds = asked.seconds or 0.5
        asked.sizes = asked.sizes or [100]
    rounds, seconds = asked.rounds or 5, asked.seconds or 5.0
    systems = [find_system(name) for name in asked.systems]
    lines, skips = plan_lines(systems, asked.durability)
    names = asked.workloads or (QUICK if asked.quick else WORKLOADS)
    workloads = [WORKLOADS[name] for name in names]
    trials, more = plan_trials(
        lines, workloads, asked.sizes, rounds, one_line=asked.quick
    )
    skips += more
    for skip in skips:
        _print_status(f"skipped: {skip_sentence(skip)}")
    if asked.list:
        _list(lines, trials, seconds)
        return 0
    with _directories(asked.output or OUTPUT, asked.data_dir) as (output, data):
        if asked.minutes:
            runs = _sustain(lines, asked, output, data)
            return 1 if any(run.failure for run in runs) else 0
        measurement = measurement_of(data, lines, skips, seconds=seconds, rounds=rounds)
        _print_status(machine_sentence(measurement))
        if measurement.machine["load_before"] > 0.5:
            _print_status(
                "The machine is not idle: figures will be lower, and will spread."
            )
        _print_status(
            f"{len(trials)} trials, about {_duration(estimated_s(trials, seconds))}"
        )
        _measure(measurement, trials, data)
        charts = _write(measurement, output)
        _show(measurement, asked.format, charts)
        _print_status(f"Written: {output}/{RESULTS}, {PAGE} and {len(charts)} charts")
    failed = any(run.failure for run in measurement.runs)
    return 130 if not measurement.is_complete else int(failed)


def _list(lines: Sequence[Line], trials: Sequence[Trial], seconds: float) -> None:
    for line in lines:
        _print(f"{line.name}  [{line.variant.durability}]  {line.variant.setting}")
        _print(f"    {line.system.version()}; {line.system.how}")
    _print(f"{len(trials)} trials, about {_duration(estimated_s(trials, seconds))}")


@contextmanager
def _directories(output: Path, data: Path | None) -> Iterator[tuple[Path, Path]]:
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="danube-bench-", dir=data, ignore_cleanup_errors=True
    ) as name:
        yield output, Path(name)


def _measure(measurement: Measurement, trials: Sequence[Trial], data: Path) -> None:
    numbers = iter(range(1, len(trials) + 1))

    def on_trial(trial: Trial) -> None:
        _print_status(
            f"{next(numbers)}/{len(trials)} {trial.workload.title}, "
            f"round {trial.round}: {trial.line.name} [{trial.line.variant.durability}]"
        )

    try:
        measure(
            measurement,
            trials,
            data,
            on_trial=on_trial,
            on_run=lambda run: _print_status(f"    {headline(run)}"),
        )
    except KeyboardInterrupt:
        _print_status("Ended early; what was measured so far is written.")


def _write(measurement: Measurement, output: Path) -> dict[tuple[str, str], str]:
    (output / RESULTS).write_text(to_json(measurement), encoding="utf-8")
    charts = draw(rows_of(measurement.runs), output)
    page = to_markdown(measurement, charts)
    (output / PAGE).write_text(page, encoding="utf-8")
    return charts


def _show(
    measurement: Measurement, how: str, charts: dict[tuple[str, str], str]
) -> None:
    match how:
        case "json":
            _print(to_json(measurement))
        case "markdown":
            _print(to_markdown(measurement, charts))
        case _:
            _print(to_text(measurement))


def _sustain(
    lines: Sequence[Line], asked: argparse.Namespace, output: Path, data: Path
) -> list[Sustained]:
    runs: list[Sustained] = []
    size = (asked.sizes or [100])[0]
    try:
        with interruptible():
            for line in lines:
                if "both" in line.variant.cannot:
                    continue
                _print_status(f"{line.name} [{line.variant.durability}], {size:,} B")
                run = Sustained(line.name, line.variant.setting, size)
                runs.append(run)
                sustain(
                    run,
                    line,
                    minutes=asked.minutes,
                    directory=data,
                    on_sample=_print_sample,
                )
                _print_sustained(run)
    except KeyboardInterrupt:
        _print_status("Ended early; what was measured so far is written.")
    told = [run.as_dict() for run in runs]
    (output / SUSTAINED).write_text(json.dumps(told, indent=1), encoding="utf-8")
    if asked.format == "json":
        _print(json.dumps(told, indent=1))
    return runs


def _print_sample(sample: Sample) -> None:
    _print_status(
        f"    {sample.at_s:5.0f} s  {sample.messages_per_s:12,.0f} messages/s"
        f"  server {sample.server_mb:8,.0f} MB"
    )


def _print_sustained(run: Sustained) -> None:
    if run.failure is not None:
        _print_status(f"    FAILED: {run.failure}")
        return
    _print_status(
        f"    first short run {run.short_per_s:,.0f} messages/s, the last part "
        f"{run.last_per_s:,.0f}: {run.ratio:.2f} of it"
    )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _print_status(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
