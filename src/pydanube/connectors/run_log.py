"""The last lines of each connector: what it logs, and changes of its state."""

from __future__ import annotations

import logging
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


class RunLog(logging.Handler):
    """Keeps the last lines of connectors; a handler of the logger of connectors."""

    def __init__(self, redactions: Mapping[str, Callable[[str], str]]) -> None:
        """*redactions* remove the secrets of each connector from its lines."""
        super().__init__(logging.INFO)
        self._redactions = redactions
        self._lines: dict[str, deque[LogLine]] = {
            name: deque(maxlen=LINES_MAX) for name in redactions
        }

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, if it is of a connector."""
        name = current_connector.get()
        lines = None if name is None else self._lines.get(name)
        if name is None or lines is None:
            return
        text = self._redactions[name](record.getMessage())
        lines.append(
            LogLine(
                number=lines[-1].number + 1 if lines else 1,
                time=int(record.created * 1_000_000),
                level=record.levelname.lower(),
                text=excerpt(text, LINE_CHARACTERS_MAX),
            )
        )

    def lines_of(self, name: str, after: int = 0) -> list[LogLine]:
        """Return the lines of the connector *name* after the number *after*."""
        return [each for each in self._lines[name] if each.number > after]
