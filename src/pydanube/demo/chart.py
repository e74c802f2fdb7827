"""The chart of the demo."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from pydanube.demo.publishing import LagSample
    from pydanube.demo.queries import BatchLog

INK = "#1f2a37"
MUTED = "#64748b"
GRID = "#e2e8f0"
COLOURS = ("#1d4ed8", "#0891b2", "#059669", "#d97706", "#db2777", "#7c3aed", "#94a3b8")

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "font.size": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}

PACKAGES_SHOWN = 12
PROCESSES_SHOWN = 6
SHARE_SHOWN = 0.01


def draw(
    path: Path,
    *,
    lines: pa.Table,
    telemetry: pa.Table,
    batches: BatchLog,
    lag: Sequence[LagSample],
    headline: str,
) -> None:
    """Save the chart as a PNG at *path*."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(14, 9), layout="constrained")
        try:
            figure.get_layout_engine().set(w_pad=0.18, h_pad=0.18)
            figure.suptitle(
                "pydanube: from topics to tables, nothing lost and nothing twice\n",
                x=0.012,
                ha="left",
                fontsize=16,
                fontweight="bold",
            )
            figure.text(0.0125, 0.937, headline, color=MUTED, fontsize=10.5)
            _draw_packages(axes[0, 0], lines)
            _draw_processes(axes[0, 1], telemetry)
            _draw_batches(axes[1, 0], batches)
            _draw_lag(axes[1, 1], lag)
            figure.savefig(path, dpi=130)
        finally:
            plt.close(figure)


def lines_by_package(lines: pa.Table) -> dict[str, int]:
    """Return the lines of each top-level package or module, the largest first."""
    counts: dict[str, int] = defaultdict(int)
    for row in lines.select(["file", "lines"]).to_pylist():
        counts[row["file"].split("/")[0].removesuffix(".py")] += row["lines"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def cpu_by_process(telemetry: pa.Table) -> dict[str, list[tuple[Any, float]]]:
    """
    Return the CPU seconds of each program in each window, the busiest program first.

    A window counts the growth of the counters since the window before.
    """
    last_seen: dict[str, float] = {}
    used: dict[str, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
    order = [("window_start", "ascending"), ("cpu_s_first", "ascending")]
    for row in telemetry.sort_by(order).to_pylist():
        before = last_seen.get(row["source"], row["cpu_s_first"])
        last_seen[row["source"]] = row["cpu_s_last"]
        grown = max(0.0, row["cpu_s_last"] - before)
        used[row["name"]][row["window_start"]] += grown
    by_total = sorted(used, key=lambda name: (-sum(used[name].values()), name))
    return {name: sorted(used[name].items()) for name in by_total}


def _draw_packages(axes: Any, lines: pa.Table) -> None:
    counts = list(lines_by_package(lines).items())[:PACKAGES_SHOWN][::-1]
    names = [name for name, _ in counts]
    values = [count for _, count in counts]
    bars = axes.barh(names, values, color=COLOURS[0], height=0.68)
    axes.bar_label(bars, [f"{value:,}" for value in values], padding=4, color=MUTED)
    axes.set_title("Where the standard library's lines are")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.margins(x=0.12)


def _draw_processes(axes: Any, telemetry: pa.Table) -> None:
    used = cpu_by_process(telemetry)
    totals = {name: sum(share for _, share in series) for name, series in used.items()}
    least = SHARE_SHOWN * sum(totals.values())
    shown = [name for name in used if totals[name] > least][:PROCESSES_SHOWN]
    moments = sorted({at for series in used.values() for at, _ in series})
    if not moments:
        return
    seconds = [(at - moments[0]).total_seconds() for at in moments]
    step = seconds[1] - seconds[0] if len(seconds) > 1 else 1.0
    stacks: dict[str, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
    for name, series in used.items():
        for at, value in series:
            stacks[name if name in shown else "others"][at] += value
    axes.stackplot(
        seconds,
        [[stack[at] / step for at in moments] for stack in stacks.values()],
        labels=list(stacks),
        colors=COLOURS,
        alpha=0.9,
        linewidth=0,
    )
    axes.set_title("What kept this machine busy meanwhile")
    axes.set_ylabel("cores")
    axes.set_xlabel("seconds")
    axes.margins(x=0)
    axes.legend(loc="upper left", ncols=2)


def _draw_batches(axes: Any, batches: BatchLog) -> None:
    numbers = range(1, len(batches.rows) + 1)
    rates = [
        rows / duration
        for rows, duration in zip(batches.rows, batches.duration_s, strict=True)
    ]
    bars = axes.bar(numbers, rates, color=COLOURS[2], width=0.6)
    labels = [f"{rows:,} lines" for rows in batches.rows]
    axes.bar_label(bars, labels, padding=3, color=MUTED)
    axes.set_title("Spark: lines per second in each micro-batch")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xticks(list(numbers))
    axes.set_xlabel("micro-batch")
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.15)


def _draw_lag(axes: Any, lag: Sequence[LagSample]) -> None:
    names = sorted({name for each in lag for name in each.backlogs})
    for colour, name in zip((COLOURS[0], COLOURS[3]), names, strict=False):
        seen = [each for each in lag if name in each.backlogs]
        x = [each.at_s for each in seen]
        y = [each.backlogs[name] for each in seen]
        axes.step(x, y, where="post", color=colour, linewidth=2, label=name)
        axes.fill_between(x, y, step="post", color=colour, alpha=0.08)
    axes.set_title("Lag of the queries, as the broker shows it")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel("messages")
    axes.set_xlabel("seconds")
    if names:
        axes.legend(loc="upper right")
