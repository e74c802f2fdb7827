"""The last lines of each connector: what it logs, and changes of its state."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar

import msgspec

from pydanube.model.shown_text import excerpt

LINES_MAX = 1000
"""How many lines of each connector are kept."""
LINE_CHARACTERS_MAX = 4000

current_connector: ContextVar[str | None] = ContextVar("connector", default=None)
"""The name of the connector that a task or a thread works for."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a connector."""

    number: int
    """Rises by one with each line of the connector."""
    time: int
    """In microseconds since 1970."""
    level: str
    text: str


class RunLog(logging.Filter):
    """
    Keeps the last lines of connectors.

    As a filter of their logger, it lets every line pass: a handler, or another level,
    would change where the lines go.
    """

    def __init__(self, redactions: Mapping[str, Callable[[str], str]]) -> None:
        """*redactions* remove the secrets of each connector from its lines."""
        super().__init__()
        self._redactions: dict[str, Callable[[str], str]] = {}
        self._lines: dict[str, deque[LogLine]] = {}
        for name, redact in redactions.items():
            self.open(name, redact)

    def open(self, name: str, redact: Callable[[str], str]) -> None:
        """Keep the lines of the connector *name*."""
        self._redactions[name] = redact
        self._lines[name] = deque(maxlen=LINES_MAX)

    def close(self, name: str) -> None:
        """Forget the lines of the connector *name*."""
        del self._redactions[name], self._lines[name]

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the line, if it is of a connector; return True."""
        name = current_connector.get()
        if name in self._lines:
            self.add(name, record.getMessage(), level=record.levelname.lower())
        return True

    def add(self, name: str, text: str, *, level: str = "info") -> None:
        """Add a line of the connector *name*."""
        lines = self._lines[name]
        lines.append(
            LogLine(
                number=lines[-1].number + 1 if lines else 1,
                time=time.time_ns() // 1000,
                level=level,
                text=excerpt(self._redactions[name](text), LINE_CHARACTERS_MAX),
            )
        )

    def lines_of(self, name: str, after: int = 0) -> list[LogLine]:
        """Return the lines of the connector *name* after the number *after*."""
        return [each for each in self._lines[name] if each.number > after]
