"""The displays of a run: a live table, plain lines, or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pydanube_spark.pipelines.pure.progress import QueryProgress, QueryState

NOTHING = "\u2013"

LOG_INTERVAL_S = 30.0
"""How often the progress of a query is written to a log."""

COLUMNS = (
    "Query",
    "Writes to",
    "State",
    "Batch",
    "Rows",
    "In/s",
    "Done/s",
    "Lag",
    "Took",
    "Broken",
    "Last error",
)


class LiveTable:
    """A table on a terminal that is redrawn with each change."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=False, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)

    def begin(self) -> None:
        self._live.start()

    def end(self) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def show(self, queries: Sequence[QueryProgress]) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in COLUMNS:
            is_number = column in ("Batch", "Rows", "In/s", "Done/s", "Lag", "Took")
            table.add_column(column, justify="right" if is_number else "left")
        for query in queries:
            table.add_row(*(Text(cell) for cell in cells_of(query)))
        self._live.update(table, refresh=True)


class LineDisplay:
    """One line of text for each change, for output that is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, str] = {}

    def begin(self) -> None:
        """Do nothing: only a table has a beginning and an end."""

    def end(self) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        self._write(text)

    def show(self, queries: Sequence[QueryProgress]) -> None:
        for query in queries:
            line = self._line_of(query)
            if self._shown.get(query.name) != line:
                self._shown[query.name] = line
                self._write(line)

    def _line_of(self, query: QueryProgress) -> str:
        parts = [query.state.value]
        if query.batch is not None:
            parts.append(f"batch {query.batch}")
            parts.append(f"{_number(query.rows)} rows")
            parts.append(f"{_number(query.processing_rate)} rows/s")
            if query.input_rate is not None:
                parts.append(f"{_number(query.input_rate)} rows/s in")
            if query.lag is not None:
                parts.append(f"lag {_number(query.lag)}")
            parts.append(f"took {query.duration_s or 0:.2f} s")
        if broken := _broken(query):
            parts.append(f"broken: {broken}")
        if query.error is not None:
            parts.append(f"last error: {query.error}")
        return f"{query.name}: {', '.join(parts)}"

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class LogDisplay(LineDisplay):
    """
    Lines with times, for a log.

    Changes of states and errors are shown at once, but the progress of a query only
    every *interval_s*, because a log has a limited size.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        interval_s: float = LOG_INTERVAL_S,
        clock: Callable[[], float] = lambda: time.time_ns() / 1e9,
    ) -> None:
        super().__init__(stream)
        self._interval_s = interval_s
        self._clock = clock
        self._known: dict[str, tuple[QueryState, int]] = {}
        self._due: dict[str, float] = {}

    def show(self, queries: Sequence[QueryProgress]) -> None:
        now = self._clock()
        for query in queries:
            known = query.state, query.failures
            is_new = self._known.get(query.name) != known
            if is_new or now >= self._due.get(query.name, now):
                self._known[query.name] = known
                self._due[query.name] = now + self._interval_s
                super().show([query])

    def _write(self, line: str) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        super()._write(f"{at} {line}")


class JsonDisplay(LineDisplay):
    """One JSON object per line, whose ``event`` is ``message`` or ``query``."""

    def say(self, text: str) -> None:
        self._write(_json({"event": "message", "text": text}))

    def _line_of(self, query: QueryProgress) -> str:
        return _json({"event": "query", **msgspec.to_builtins(query)})


def cells_of(query: QueryProgress) -> tuple[str, ...]:
    """Return the cells of *query* for ``COLUMNS``."""
    return (
        query.name,
        query.writes_to,
        query.state.value,
        _number(query.batch),
        _number(query.rows),
        _number(query.input_rate),
        _number(query.processing_rate),
        _number(query.lag),
        NOTHING if query.duration_s is None else f"{query.duration_s:.2f} s",
        _broken(query) or NOTHING,
        query.error or NOTHING,
    )


def _broken(query: QueryProgress) -> str:
    """Return the expectations that rows broke, with the number of rows."""
    return ", ".join(
        f"{name} {_number(count)}" for name, count in query.broken.items() if count
    )


Display = LiveTable | LineDisplay
"""Shows the messages and the progress of a run."""


def display_for(kind: str, stream: TextIO) -> Display:
    """Return the display for *stream*; *kind* is ``table``, ``json`` or ``log``."""
    if kind == "log":
        return LogDisplay(stream)
    if kind == "json":
        return JsonDisplay(stream)
    return LiveTable() if stream.isatty() else LineDisplay(stream)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
