"""What a run came to, and what several rounds of it come to together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.figures import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run, or why there is none."""

    workload: str
    line: str
    durability: str
    setting: str
    message_bytes: int
    round: int
    messages: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    """By the names in FIGURES."""
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The run for JSON."""
        return asdict(self)


FIGURES = {
    "messages_per_s": "messages/s",
    "mb_per_s": "MB/s",
    "p50": "p50 µs",
    "p90": "p90 µs",
    "p99": "p99 µs",
    "p99.9": "p99.9 µs",
    "max": "max µs",
    "client_cpu_s_per_million": "client CPU s/M",
    "server_cpu_s_per_million": "server CPU s/M",
    "server_peak_mb": "server peak MB",
    "lag_p99": "sender lag p99 µs",
}
"""What is measured, and what it is called in a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All rounds of one line at one workload and size."""

    workload: str
    line: str
    durability: str
    setting: str
    message_bytes: int
    rounds: int
    figures: dict[str, Spread]
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self)


def rows_of(runs: Iterable[Run]) -> list[Row]:
    """
    The runs of each line, workload and size as one row, in the order of their coming.

    A run that did not get everything gives no figures, and its row says so.
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
    """Rows that may be compared: of one workload and one durability class."""

    def key(row: Row) -> tuple[str, str]:
        return row.workload, row.durability

    ordered: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        ordered.setdefault(key(row), []).append(row)
    return [
        (table, sorted(group, key=lambda row: row.message_bytes))
        for table, group in ordered.items()
    ]
