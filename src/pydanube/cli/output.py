"""
The output of commands: tables for people, JSON for programs.

Tables that do not go to a terminal are as wide as they need to be, so that ``grep``
and ``less -S`` see whole lines.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNWATCHED_WIDTH = 1000

_NUMBER = re.compile(r"[\d,]+(\.\d+)?")


class OutputFormat(Enum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    print_line(json.dumps(to_json_value(value), indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print *value* as JSON on one line."""
    print_line(json.dumps(to_json_value(value), ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under the headings *columns*, with numbers aligned right."""
    cells = [[_cell(value) for value in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        is_number = bool(cells) and all(row[index][1] for row in cells)
        table.add_column(
            column, justify="right" if is_number else "left", overflow="fold"
        )
    for row in cells:
        table.add_row(*(Text(text) for text, _ in row))
    _print(table)


def print_fields(facts: Iterable[tuple[str, object]]) -> None:
    """Print pairs of a name and a value, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(_cell(value)[0]))
    _print(table)


def print_result(value: object, text: str, output_format: OutputFormat) -> None:
    """Print *value* as JSON, or *text*."""
    if output_format is OutputFormat.JSON:
        print_json(value)
    else:
        print_line(text)


def print_line(text: str = "") -> None:
    """Print a line on standard output, and flush."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Print a line on standard error, such as progress or a warning."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def to_json_value(value: Any) -> Any:
    """
    Return *value* with dataclasses as objects, tuples as lists and enums as values.
    """
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: to_json_value(getattr(value, each.name))
            for each in fields(value)
        }
    if isinstance(value, dict):
        return {str(name): to_json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    return value


def printable(text: str) -> str:
    """
    Return *text* with control characters escaped, so that it cannot affect a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char == "\t"
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


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


def _print(table: Table) -> None:
    width = None if sys.stdout.isatty() else UNWATCHED_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print_line(line.rstrip())
