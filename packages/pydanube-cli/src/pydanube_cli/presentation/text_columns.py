"""
Texts in columns, as wide as the terminal.

A table that is too wide is first wrapped between words, in the widest columns; a word
is broken only if even that does not make the table narrow enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

GAP = "  "
"""The space between two columns."""

WIDTH_MIN = 4
"""No column is made narrower, even if the table is wider than the terminal."""

# A unit stays on the line of its number.
_SPACE = re.compile(r"(?<!\d) | (?!(?:[KMGT]i)?B(?: |$))")


def lay_out(
    rows: Sequence[Sequence[str]], width: int | None, right_aligned: Sequence[bool]
) -> list[list[str]]:
    """
    Return the lines of each of *rows*, whose cells are in columns.

    The lines are at most *width* cells of the terminal wide, if that is possible; with
    None they are as long as they need to be.  Spaces at their ends are left out.
    """
    columns = list(zip(*rows, strict=True))
    natural = [max(map(cell_len, column)) for column in columns]
    if width is not None:
        room = width - len(GAP) * (len(columns) - 1)
        words = [max(map(_longest_word, column)) for column in columns]
        natural = column_widths(natural, words, room)
    return [list(_lines_of(row, natural, right_aligned)) for row in rows]


def column_widths(natural: Sequence[int], words: Sequence[int], room: int) -> list[int]:
    """
    Return the widths of columns that have *room* together.

    Args:
        natural: The width of each column whose cells are not wrapped.
        words: The width of the longest word of each column.
        room: The sum that the widths should not exceed.
    """
    if sum(words) > room:
        return _shrunk(words, [min(each, WIDTH_MIN) for each in words], room)
    return _shrunk(natural, words, room)


def wrap(text: str, width: int) -> list[str]:
    """Return *text* in lines of at most *width*, broken between words if possible."""
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in _SPACE.split(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width:
            lines[-1] = longer
            continue
        lines += chop_cells(word, width)
    return [line for line in lines if line] or [""]


def _shrunk(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return *widths*, the widest of which are reduced, to *least* if necessary."""
    shrunk = list(widths)
    excess = sum(shrunk) - room
    while excess > 0:
        free = [at for at, each in enumerate(shrunk) if each > least[at]]
        if not free:
            break
        widest = max(free, key=lambda at: (shrunk[at], at))
        shrunk[widest] -= 1
        excess -= 1
    return shrunk


def _lines_of(
    row: Sequence[str], widths: Sequence[int], right_aligned: Sequence[bool]
) -> Iterator[str]:
    cells = [wrap(text, width) for text, width in zip(row, widths, strict=True)]
    for line in zip_longest(*cells, fillvalue=""):
        yield GAP.join(_padded(line, widths, right_aligned)).rstrip()


def _padded(
    line: Sequence[str], widths: Sequence[int], right_aligned: Sequence[bool]
) -> Iterable[str]:
    for text, width, is_right in zip(line, widths, right_aligned, strict=True):
        padding = " " * (width - cell_len(text))
        yield padding + text if is_right else text + padding


def _longest_word(text: str) -> int:
    return max(map(cell_len, _SPACE.split(text)))
