"""
Charts of the results: one for each workload and durability class.

Systems differ by orders of magnitude, so the scale is logarithmic.  Because the length
of a bar has no meaning on such a scale, a point shows the median, with a line from the
lowest to the highest round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.plan import WORKLOADS
from bench.report import title_of
from bench.rows import FIGURES, Row, by_table
from pydanube_cli.bench.figures import PERCENTS, Durability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

SHOWN = (*PERCENTS, "max_us")
MARKERS = ("o", "s", "D", "^", "x")
COLOURS = {
    "danube": "#1f6fb4",
    "danube-grpc": "#7fb3d9",
    "nats": "#2a9d5c",
    "redis": "#c8372d",
    "rabbitmq-quorum": "#e07b00",
    "rabbitmq-stream": "#f2b134",
    "kafka-aiokafka": "#5b4b8a",
    "kafka-confluent": "#9a86c9",
}
OTHER_COLOUR = "#666666"
ROW_INCHES = 0.42
DPI = 120


def draw(rows: Iterable[Row], directory: Path) -> dict[tuple[str, str], str]:
    """
    Write charts into *directory*; return file names by workload and durability class.

    Classes without results have no chart.
    """
    # The import takes a second, and is only needed for charts.
    from matplotlib.figure import Figure  # noqa: PLC0415

    files = {}
    for (workload, durability), group in by_table(rows):
        if not any(row.figures for row in group):
            continue
        figure = Figure(layout="constrained")
        if WORKLOADS[workload].shows_latency:
            _draw_latency(figure, group)
        else:
            _draw_throughput(figure, group)
        figure.suptitle(f"{title_of(workload)}\n{_class(durability)}", fontsize=11)
        name = f"{workload}-{durability.split()[0]}.png"
        figure.savefig(directory / name, dpi=DPI)
        files[workload, durability] = name
    return files


def _draw_throughput(figure: Any, rows: Sequence[Row]) -> None:
    """A panel for each message size."""
    sizes = sorted({row.message_bytes for row in rows})
    lines = list(dict.fromkeys(row.line for row in rows))[::-1]
    figure.set_size_inches(
        3.0 + 3.0 * max(len(sizes), 2), 1.7 + ROW_INCHES * len(lines)
    )
    for panel, size in zip(_panels(figure, len(sizes)), sizes, strict=True):
        of_size = {row.line: row for row in rows if row.message_bytes == size}
        values = []
        for at, line in enumerate(lines):
            row = of_size.get(line)
            spread = row.figures.get("per_second") if row else None
            if spread is None:
                _mark_failed(panel, at, row)
                continue
            colour = _colour(line)
            panel.plot([spread.low, spread.high], [at, at], color=colour, lw=2)
            panel.plot([spread.median], [at], "o", color=colour, ms=7)
            panel.annotate(
                _short(spread.median),
                (spread.median, at),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
            values += [spread.low, spread.high]
        _finish(panel, lines, values, _short)
        panel.set_title(f"{size:,} bytes", fontsize=9)
        panel.set_xlabel("messages/s", fontsize=9)


def _draw_latency(figure: Any, rows: Sequence[Row]) -> None:
    """A panel for each message size; each system has its percentiles on one line."""
    sizes = sorted({row.message_bytes for row in rows})
    lines = list(dict.fromkeys(row.line for row in rows))[::-1]
    figure.set_size_inches(
        3.0 + 5.0 * len(sizes), 2.0 + (ROW_INCHES + 0.1) * len(lines)
    )
    for panel, size in zip(_panels(figure, len(sizes)), sizes, strict=True):
        of_size = {row.line: row for row in rows if row.message_bytes == size}
        values: list[float] = []
        for at, line in enumerate(lines):
            row = of_size.get(line)
            if row is None or "p50_us" not in row.figures:
                _mark_failed(panel, at, row)
                continue
            medians = [row.figures[name].median for name in SHOWN]
            colour = _colour(line)
            panel.plot(medians, [at] * len(medians), color=colour, lw=1)
            for median, marker in zip(medians, MARKERS, strict=True):
                panel.plot([median], [at], marker, color=colour, ms=6)
            panel.annotate(
                _duration(medians[0]),
                (medians[0], at),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
            values += medians
        _finish(panel, lines, values, _duration)
        panel.set_title(f"{size:,} bytes", fontsize=9)
        panel.set_xlabel("medians of the rounds", fontsize=9)
    for name, marker in zip(SHOWN, MARKERS, strict=True):
        label = FIGURES[name].removesuffix(" µs")
        panel.plot([], [], marker, color="black", ms=5, label=label)
    figure.legend(loc="outside lower center", ncols=len(SHOWN), fontsize=8)


def _panels(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def _finish(
    panel: Any,
    lines: Sequence[str],
    values: Sequence[float],
    write: Callable[[float], str],
) -> None:
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: write(value))
    panel.xaxis.set_minor_formatter(lambda *_: "")
    if values:
        panel.set_xlim(min(values) / 2, max(values) * 2)
    panel.set_ylim(-0.6, len(lines) - 0.2)
    panel.set_yticks(range(len(lines)), lines, fontsize=9)
    panel.tick_params(axis="x", labelsize=8)
    panel.grid(axis="x", which="major", color="#dddddd")
    panel.set_axisbelow(True)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def _mark_failed(panel: Any, at: int, row: Row | None) -> None:
    status = "not measured" if row is None else "failed"
    panel.annotate(
        status,
        (0.02, at),
        xycoords=("axes fraction", "data"),
        color="#b00020",
        fontsize=8,
        va="center",
    )


def _colour(line: str) -> str:
    return COLOURS.get(line.partition("/")[0], OTHER_COLOUR)


def _class(durability: str) -> str:
    """Return the title of a durability class."""
    if durability == Durability.SYNCED:
        return durability
    return f"acknowledged from the {durability}"


def _duration(microseconds: float) -> str:
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= limit:
            return f"{microseconds / limit:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def _short(value: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"
