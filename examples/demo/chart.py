"""The chart of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, ScalarFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from examples.demo.publishing import Sent

POINTS_MAX = 40
"""The most points of the curve of the publishing rate."""


def draw(
    path: Path,
    *,
    sent: Mapping[str, Sequence[Sent]],
    batches: Sequence[tuple[int, float]],
    lag: Sequence[tuple[float, dict[str, int]]],
    headline: str,
) -> None:
    """
    Save the chart as a PNG at *path*.

    *sent* are the batches that were published by what they contained, the largest
    amount first.  *batches* are the rows and seconds of micro-batches, *lag* is the lag
    of each query after a number of seconds.
    """
    with style.context("seaborn-v0_8-whitegrid"):
        figure = Figure(figsize=(14, 9), layout="constrained")
        axes = figure.subplots(2, 2)
        title = "pydanube: from topics to tables, nothing lost and nothing twice"
        figure.suptitle(f"{title}\n{headline}", fontsize=14)
        _draw_rate(axes[0, 0], *next(iter(sent.items())))
        _draw_latency(axes[0, 1], sent)
        _draw_batches(axes[1, 0], batches)
        _draw_lag(axes[1, 1], lag)
        figure.savefig(path, dpi=130)


def publishing_rate(sent: Sequence[Sent]) -> list[tuple[float, float]]:
    """Return the messages per second of groups of *sent*, each with its end in s."""
    size = -(-len(sent) // POINTS_MAX) or 1
    rates, end_s = [], 0.0
    for at in range(0, len(sent), size):
        group = sent[at : at + size]
        took_s = sum(each.took_s for each in group)
        end_s += took_s
        rates.append((end_s, sum(each.messages for each in group) / took_s))
    return rates


def _draw_rate(axes: Any, what: str, sent: Sequence[Sent]) -> None:
    ends, rates = zip(*publishing_rate(sent), strict=True)
    axes.fill_between([0.0, *ends], [rates[0], *rates], step="pre", alpha=0.6)
    axes.set_title(f"Publishing {what}, each on disk when acknowledged")
    axes.set(xlabel="seconds", ylabel="messages/s", ylim=(0, None))
    axes.yaxis.set_major_formatter(EngFormatter())


def _draw_latency(axes: Any, sent: Mapping[str, Sequence[Sent]]) -> None:
    for what, batches in sent.items():
        took_ms = sorted(1000 * each.took_s for each in batches)
        percent = [100 * number / len(took_ms) for number in range(1, len(took_ms) + 1)]
        count = sum(each.messages for each in batches) // len(batches)
        axes.step(took_ms, percent, where="post", label=f"batches of {count:,} {what}")
    axes.set_title("From publishing a batch to its acknowledgement")
    axes.set_xscale("log")
    axes.set(xlabel="milliseconds", ylabel="% of the batches", ylim=(0, 101))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    _put_legend_below(axes)


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
        _put_legend_below(axes)


def _put_legend_below(axes: Any) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
