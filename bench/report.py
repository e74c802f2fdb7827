"""Reports of a measurement as text, as Markdown, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.plan import WORKLOADS, Skip
from bench.rows import FIGURES, Row, Run, Spread, by_table, rows_of
from bench.run import Measurement
from pydanube_cli.bench.figures import PERCENTS
from pydanube_cli.bench.figures import headline as headline_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LATENCY_FIGURES = (*PERCENTS, "max_us", "lag_p99")
THROUGHPUT_FIGURES = ("per_second", "mb_per_second")
COSTS = ("client_cpu_s_per_million", "server_cpu_s_per_million", "server_peak_mb")

OLD_NAMES = {
    "messages_per_s": "per_second",
    "mb_per_s": "mb_per_second",
    "p50": "p50_us",
    "p90": "p90_us",
    "p99": "p99_us",
    "p99.9": "p999_us",
    "max": "max_us",
}
"""The names of figures in earlier results."""


def to_json(measurement: Measurement) -> str:
    """Return the measurement and its rows as JSON."""
    rows = [row.as_dict() for row in rows_of(measurement.runs)]
    return json.dumps(measurement.as_dict() | {"rows": rows}, indent=1)


def read(path: Path) -> Measurement:
    """Read a measurement from JSON."""
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    told.pop("rows")
    runs = [Run(**run) for run in told.pop("runs")]
    for run in runs:
        for old, new in OLD_NAMES.items():
            if old in run.figures:
                run.figures[new] = run.figures.pop(old)
    skips = [
        Skip(skip["line"], skip["reason"], tuple(skip["workloads"]))
        for skip in told.pop("skips")
    ]
    return Measurement(**told, runs=runs, skips=skips)


def to_text(measurement: Measurement) -> str:
    """Return the tables as text for a terminal."""
    parts = [machine_sentence(measurement)]
    for (workload, durability), rows in by_table(rows_of(measurement.runs)):
        parts.append(f"{title_of(workload)} [{durability}]")
        parts.append(_aligned(*_cells(rows, " ")))
    parts += [f"skipped: {skip_sentence(skip)}" for skip in measurement.skips]
    return "\n\n".join(parts) + "\n"


def to_markdown(measurement: Measurement, charts: dict[tuple[str, str], str]) -> str:
    """Return a page; *charts* are files by workload and durability class."""
    parts = [
        "# What was measured",
        machine_sentence(measurement),
        _conditions(measurement),
        *_markdown_systems(measurement),
    ]
    shown = ""
    for (workload, durability), rows in by_table(rows_of(measurement.runs)):
        if workload != shown:
            parts.append(f"## {title_of(workload)}")
            shown = workload
        parts.append(f"### {durability[0].upper()}{durability[1:]}")
        chart = charts.get((workload, durability))
        if chart is not None:
            parts.append(f"![{title_of(workload)}, {durability}]({chart})")
        head, lines = _cells(rows, "<br>")
        parts.append(_markdown_table(head, lines))
    if measurement.skips:
        parts.append("## Not measured")
        parts.append("\n".join(f"- {skip_sentence(s)}" for s in measurement.skips))
    return "\n\n".join(parts) + "\n"


def machine_sentence(measurement: Measurement) -> str:
    """Return the conditions of the measurement."""
    machine = measurement.machine
    return (
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gb']:.0f} GB of memory, {machine['disk']}, "
        f"{machine['system']}, Python {machine['python']}. One fdatasync of 400 "
        f"appended bytes takes {machine['fdatasync_us']:.0f} µs, memory is copied at "
        f"{machine['copy_gb_s']:.1f} GB/s; load before: {machine['load_before']:.1f}."
    )


def title_of(workload: str) -> str:
    """Return the title of a workload."""
    return WORKLOADS[workload].title


def headline(run: Run) -> str:
    """Return the result of a run in one line."""
    what = f"{run.line}, {run.message_bytes:,} B"
    if run.failure is not None:
        return f"{what}: FAILED: {run.failure}"
    text = headline_of(run.figures, shows_latency=WORKLOADS[run.workload].shows_latency)
    return f"{what}: {text} ({run.messages:,} messages)"


def _conditions(measurement: Measurement) -> str:
    whole = "" if measurement.is_complete else " The measurement was ended early."
    took = sorted(run.seconds for run in measurement.runs if run.failure is None)
    spread = f" Runs took {took[0]:.1f} to {took[-1]:.1f} s." if took else ""
    return (
        f"Median (lowest to highest) of {measurement.rounds} rounds, interleaved."
        f"{spread} Every run was checked for messages "
        f"that are lost, repeated or out of order.{whole}"
    )


def _markdown_systems(measurement: Measurement) -> list[str]:
    head = ["system", "versions", "driven with"]
    lines = [
        [name, version, measurement.how[name]]
        for name, version in measurement.versions.items()
    ]
    return [_markdown_table(head, lines)] if lines else []


def _cells(rows: Sequence[Row], between: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of a table."""
    order: tuple[str, ...] = THROUGHPUT_FIGURES + COSTS
    if WORKLOADS[rows[0].workload].shows_latency:
        order = LATENCY_FIGURES + COSTS
    names = [name for name in order if any(name in row.figures for row in rows)]
    head = ["system", "setting", "bytes", *(FIGURES[name] for name in names)]
    return head, [_line(row, names, between) for row in rows]


def _line(row: Row, names: Sequence[str], between: str) -> list[str]:
    figures = [_spread(name, row.figures.get(name)) for name in names]
    failed = ""
    if row.failures:
        failed = (
            f"{between}FAILED {len(row.failures)} of {row.rounds}: {row.failures[0]}"
        )
    setting = f"{row.setting}{failed}".replace("\n", " ")
    return [row.line, setting, f"{row.message_bytes:,}", *figures]


def _spread(name: str, spread: Spread | None) -> str:
    if spread is None:
        return "-"
    write = _microseconds if name in LATENCY_FIGURES else _number
    if spread.low == spread.high:
        return write(spread.median)
    return f"{write(spread.median)} ({write(spread.low)} to {write(spread.high)})"


def _microseconds(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float) -> str:
    """Return *value* with three significant digits."""
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if value >= limit:
            scaled = value / (1e6 if unit == " M" else 1e3)
            return f"{scaled:.{max(0, 3 - len(str(int(scaled))))}f}{unit}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def skip_sentence(skip: Skip) -> str:
    """Return what is not measured, with the reason."""
    what = f" ({', '.join(skip.workloads)})" if skip.workloads else ""
    return f"{skip.line}{what}: {skip.reason}"


def _aligned(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        texts = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(texts).rstrip()

    return "\n".join(map(line, [head, *lines]))


def _markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"

    rule = f"|{'---|' * len(head)}"
    return "\n".join([line(head), rule, *map(line, lines)])
