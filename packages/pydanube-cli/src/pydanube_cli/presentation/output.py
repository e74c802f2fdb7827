"""
The output of commands: tables for people, JSON for programs.

Tables that do not go to a terminal are as wide as they need to be, so that ``grep``
and ``less -S`` see whole lines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Any

import typer
from rich.cells import cell_len

from pydanube.model.json_values import to_json_value
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.shown_text import printable
from pydanube_cli.presentation.text_columns import GAP, WIDTH_MIN, lay_out, wrap

_NUMBER = re.compile(r"[\d,]+(\.\d+)?")

Columns = Mapping[str, str | Callable[[Any], object]]
"""The headings of a table, with the attribute or function that gives each cell."""


class OutputFormat(Enum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"


class Result:
    """The result of a command: *value* for programs, and *parts* for people."""

    def __init__(
        self, value: object, *parts: str | Table | Fields, exit_code: int = 0
    ) -> None:
        self.value = value
        self.parts = parts
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the headings *columns*, with numbers aligned right."""

    columns: Iterable[str]
    rows: Iterable[Iterable[object]]

    @classmethod
    def of(cls, items: Iterable[object], columns: Columns) -> Table:
        """Return a table with a row for each of *items*."""
        return cls(columns, ([*cells_of(item, columns)] for item in items))

    def show(self) -> None:
        """Print the table."""
        head, *rest = self._groups(_terminal_width())
        for line in head:
            print_line(_bold(line))
        for line in chain.from_iterable(rest):
            print_line(line)

    def lines(self, width: int | None) -> list[str]:
        """Return the lines of the table, at most *width* wide if that is possible."""
        return list(chain.from_iterable(self._groups(width)))

    def _groups(self, width: int | None) -> list[list[str]]:
        """Return the lines of the heading, of the rule, and of each row."""
        cells = [[_cell(value) for value in row] for row in self.rows]
        columns = list(self.columns)
        are_numbers = [
            bool(cells) and all(row[index][1] for row in cells)
            for index in range(len(columns))
        ]
        texts = [[text for text, _ in row] for row in cells]
        head, *rows = lay_out([columns, *texts], width, are_numbers)
        rule_width = max(cell_len(line) for lines in (head, *rows) for line in lines)
        return [head, ["\u2500" * rule_width], *rows]


@dataclass(frozen=True, slots=True)
class Fields:
    """Pairs of a name and a value, one per line."""

    facts: Iterable[tuple[str, object]]

    @classmethod
    def of(cls, item: object, columns: Columns) -> Fields:
        """Return the fields of *item*."""
        return cls(zip(columns, cells_of(item, columns), strict=True))

    def show(self) -> None:
        """Print the pairs."""
        facts = [(name, _cell(value)[0]) for name, value in self.facts]
        indent = max((cell_len(name) for name, _ in facts), default=0) + len(GAP)
        width = _terminal_width()
        for name, text in facts:
            padding = " " * (indent - cell_len(name))
            room = width and max(width - indent, WIDTH_MIN)
            first, *more = wrap(text, room) if room else [text]
            print_line(_bold(name) + padding + first)
            for line in more:
                print_line(" " * indent + line)


def print_result(result: Result, output_format: OutputFormat) -> None:
    """
    Print *result*.

    Raises:
        typer.Exit: The result has an exit code.
    """
    if output_format is OutputFormat.JSON:
        print_json(result.value)
    else:
        show(*result.parts)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def show(*parts: str | Table | Fields) -> None:
    """Print lines and tables."""
    for part in parts:
        if isinstance(part, str):
            print_line(part)
        else:
            part.show()


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    print_line(json.dumps(to_json_value(value), indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print *value* as JSON on one line."""
    print_line(json.dumps(to_json_value(value), ensure_ascii=False))


def print_line(text: str = "") -> None:
    """Print a line on standard output, and flush."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Print a line on standard error, such as progress or a warning."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def cells_of(item: object, columns: Columns) -> Iterator[object]:
    """Return the cells of *item*, a mapping or an object, in a table with *columns*."""
    for each in columns.values():
        if callable(each):
            yield each(item)
        elif isinstance(item, Mapping):
            yield item[each]
        else:
            yield attrgetter(each)(item)


def _cell(value: object) -> tuple[str, bool]:
    """Return the text for *value*, and whether it is a number."""
    match value:
        case None | "" | ():
            return "\u2013", False
        case bool():
            return ("yes" if value else "no"), False
        case int():
            return f"{value:,}", True
        case str() if _NUMBER.fullmatch(value):
            # A number as text, such as an offset: no thousands separators, so it can be
            # copied.
            return value, True
        case Enum():
            return str(value.value), False
        case _:
            return printable(str(value)), False


def _terminal_width() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _bold(text: str) -> str:
    """Return *text* in bold type, if standard output is a terminal that has it."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in {"dumb", "unknown"}
    if is_plain or not text or not sys.stdout.isatty():
        return text
    return f"\x1b[1m{text}\x1b[0m"
