"""The chart of the demo."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

PACKAGES_SHOWN = 12
PROCESSES_SHOWN = 6


def draw(
    path: Path,
    *,
    lines: pa.Table,
    telemetry: pa.Table,
    batches: Sequence[tuple[int, float]],
    lag: Sequence[tuple[float, dict[str, int]]],
    headline: str,
) -> None:
    """
    Save the chart as a PNG at *path*.

    *batches* are the rows and seconds of micro-batches, *lag* is the lag of each query
    after a number of seconds.
    """
    with style.context("seaborn-v0_8-whitegrid"):
        figure = Figure(figsize=(14, 9), layout="constrained")
        axes = figure.subplots(2, 2)
        title = "pydanube: from topics to tables, nothing lost and nothing twice"
        figure.suptitle(f"{title}\n{headline}", fontsize=14)
        _draw_packages(axes[0, 0], lines)
        _draw_processes(axes[0, 1], telemetry)
        _draw_batches(axes[1, 0], batches)
        _draw_lag(axes[1, 1], lag)
        figure.savefig(path, dpi=130)


def lines_by_package(lines: pa.Table) -> dict[str, int]:
    """Return the lines of each top-level package or module, the largest first."""
    counts: dict[str, int] = defaultdict(int)
    for row in lines.select(["file", "lines"]).to_pylist():
        counts[row["file"].split("/")[0].removesuffix(".py")] += row["lines"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def cpu_by_process(telemetry: pa.Table) -> dict[str, dict[Any, float]]:
    """
    Return the CPU seconds of each program by window, the busiest program first.

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
    return {name: used[name] for name in by_total}


def _draw_packages(axes: Any, lines: pa.Table) -> None:
    counts = list(lines_by_package(lines).items())[:PACKAGES_SHOWN][::-1]
    bars = axes.barh(*zip(*counts, strict=True))
    axes.bar_label(bars, [f"{count:,}" for _, count in counts], padding=4)
    axes.set_title("Where the standard library's lines are")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.margins(x=0.12)


def _draw_processes(axes: Any, telemetry: pa.Table) -> None:
    used = cpu_by_process(telemetry)
    moments = sorted({at for of_name in used.values() for at in of_name})
    if not moments:
        return
    stacks: dict[str, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
    for number, (name, of_name) in enumerate(used.items()):
        for at, cpu_s in of_name.items():
            stacks[name if number < PROCESSES_SHOWN else "others"][at] += cpu_s
    seconds = [(at - moments[0]).total_seconds() for at in moments]
    step = seconds[1] - seconds[0] if len(seconds) > 1 else 1.0
    cores = [[stack[at] / step for at in moments] for stack in stacks.values()]
    axes.stackplot(seconds, cores, labels=list(stacks))
    axes.set_title("Processes that used this machine")
    # The legend is above the areas.
    top = 1.5 * max(map(sum, zip(*cores, strict=True)))
    axes.set(xlabel="seconds", ylabel="cores", ylim=(0, top))
    axes.legend(loc="upper left", ncols=2, frameon=True)


def _draw_batches(axes: Any, batches: Sequence[tuple[int, float]]) -> None:
    numbers = range(1, len(batches) + 1)
    bars = axes.bar(numbers, [rows / took_s for rows, took_s in batches], width=0.6)
    axes.bar_label(bars, [f"{rows:,} lines" for rows, _ in batches], padding=3)
    axes.set_title("Spark: lines per second in each micro-batch")
    axes.set(xlabel="micro-batch", xticks=numbers)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.margins(y=0.15)


def _draw_lag(axes: Any, lag: Sequence[tuple[float, dict[str, int]]]) -> None:
    names = sorted({name for _, backlogs in lag for name in backlogs})
    for name in names:
        seen = [(at_s, found[name]) for at_s, found in lag if name in found]
        axes.step(*zip(*seen, strict=True), where="post", label=name)
    axes.set_title("Lag of the queries, as the broker shows it")
    axes.set_yscale("symlog", linthresh=10)
    axes.set(xlabel="seconds", ylabel="messages", ylim=(0, None))
    axes.yaxis.set_major_formatter(EngFormatter())
    if names:
        axes.legend(loc="upper right")
