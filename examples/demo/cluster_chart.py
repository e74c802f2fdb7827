"""The chart of the cluster demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import style
from matplotlib.figure import Figure

from examples.demo.cluster_ledger import rates_by_owner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from examples.demo.cluster_ledger import Failover, TopicLedger

INTERVAL_S = 0.5
"""The width of a step of the rates."""


def draw_cluster(
    path: Path,
    topics: Sequence[TopicLedger],
    failovers: Sequence[Failover],
    *,
    end: float,
    headline: str,
) -> None:
    """Save a chart of the rates of brokers and of the failovers as a PNG at *path*."""
    with style.context("seaborn-v0_8-whitegrid"):
        figure = Figure(figsize=(14, 9), layout="constrained")
        rates, times = figure.subplots(2, 1)
        title = "pydanube: brokers are killed, and the others take their topics over"
        figure.suptitle(f"{title}\n{headline}", fontsize=14)
        _draw_rates(rates, topics, failovers, end)
        _draw_failovers(times, failovers)
        figure.savefig(path, dpi=130)


def _draw_rates(
    axes: Any, topics: Sequence[TopicLedger], failovers: Sequence[Failover], end: float
) -> None:
    found = rates_by_owner(topics, INTERVAL_S, end)
    if found:
        steps = [
            INTERVAL_S * number for number in range(len(next(iter(found.values()))))
        ]
        axes.stackplot(
            steps, list(found.values()), labels=list(found), step="post", alpha=0.7
        )
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(found))
        axes.set_xlim(min(each for t in topics for each in t.acknowledged), end)
    for failover in failovers:
        axes.axvline(failover.killed_at, color="black", linestyle="--")
        axes.annotate(
            f"{failover.broker} killed",
            (failover.killed_at, 1),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="right",
            va="top",
        )
    axes.set_title("Acknowledged messages per second, by the broker that stored them")
    axes.set(xlabel="seconds", ylabel="messages/s", ylim=(0, None))


def _draw_failovers(axes: Any, failovers: Sequence[Failover]) -> None:
    for offset, what in ((-0.1, "acknowledgement"), (0.1, "delivery")):
        points = [
            (number + offset, took_s)
            for number, failover in enumerate(failovers, start=1)
            for took_s in (
                failover.acknowledged_s if offset < 0 else failover.delivered_s
            )
        ]
        if points:
            label = f"first {what} of a topic"
            axes.scatter(*zip(*points, strict=True), label=label, alpha=0.6)
    if failovers:
        labels = [f"{each.broker}" for each in failovers]
        axes.set_xticks(range(1, len(failovers) + 1), labels)
        axes.legend(loc="lower right")
    axes.set_title(
        "From the kill of a broker to the next message of each of its topics"
    )
    axes.set(xlabel="killed broker", ylabel="seconds")
    axes.set_xlim(0.5, max(1, len(failovers)) + 0.5)
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()))
