"""
What a command answers: a table for people, JSON for machines.

A table is as wide as it must be where nobody looks at it, so that ``grep`` and
``less -S`` find whole lines.
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
    """For whom the answer is."""

    TABLE = "table"
    JSON = "json"


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    print_line(json.dumps(to_json_value(value), indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print *value* as one of many, on a line of its own."""
    print_line(json.dumps(to_json_value(value), ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under the names of *columns*; numbers stand at the right."""
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
    """Print a value after its name, one fact a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(_cell(value)[0]))
    _print(table)


def print_line(text: str = "") -> None:
    """Print a sentence."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Tell something that is not the answer, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def to_json_value(value: Any) -> Any:
    """*value* in the words of JSON: fields by name, tuples as lists."""
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
    """*text* with every character escaped that could do something to a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char == "\t"
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _cell(value: object) -> tuple[str, bool]:
    """How *value* is shown, and whether it is a number."""
    match value:
        case None | "" | ():
            return "\u2013", False
        case bool():
            return ("yes" if value else "no"), False
        case int():
            return f"{value:,}", True
        case str() if _NUMBER.fullmatch(value):
            # Such as an offset, which is to be copied, not to be estimated.
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
