"""The results of runs, and their combination over rounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from pydanube_cli.bench.figures import FIGURES as CLIENT_FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run, or the reason why it failed."""

    workload: str
    line: str
    durability: str
    setting: str
    message_bytes: int
    round: int
    messages: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    """Figures by the names in FIGURES."""
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the run for JSON."""
        return asdict(self)


FIGURES = {
    **CLIENT_FIGURES,
    "server_cpu_s_per_million": "server CPU s/M",
    "server_peak_mb": "server peak MB",
    "lag_p99": "sender lag p99 µs",
}
"""The figures and their titles in a table."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread of *values*; None of none."""
        found = list(values)
        return cls(median(found), min(found), max(found)) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All rounds of one line with one workload and size."""

    workload: str
    line: str
    durability: str
    setting: str
    message_bytes: int
    rounds: int
    figures: dict[str, Spread]
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


def rows_of(runs: Iterable[Run]) -> list[Row]:
    """
    Combine the runs of each line, workload and size into a row, in their order.

    A failed run has no figures, and its row has the reason.
    """
    order: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        key = (run.workload, run.durability, run.message_bytes, run.line)
        order.setdefault(key, []).append(run)
    return [_row(group) for group in order.values()]


def _row(runs: list[Run]) -> Row:
    good = [run for run in runs if run.failure is None]
    spreads = {
        name: Spread.of(run.figures[name] for run in good if name in run.figures)
        for name in FIGURES
    }
    first = runs[0]
    return Row(
        workload=first.workload,
        line=first.line,
        durability=first.durability,
        setting=first.setting,
        message_bytes=first.message_bytes,
        rounds=len(runs),
        figures={name: spread for name, spread in spreads.items() if spread},
        failures=tuple(run.failure for run in runs if run.failure is not None),
    )


def by_table(rows: Iterable[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    """Group comparable rows: those of one workload and one durability class."""

    def key(row: Row) -> tuple[str, str]:
        return row.workload, row.durability

    ordered: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        ordered.setdefault(key(row), []).append(row)
    return [
        (table, sorted(group, key=lambda row: row.message_bytes))
        for table, group in ordered.items()
    ]
