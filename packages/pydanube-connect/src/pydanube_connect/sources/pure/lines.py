"""The lines of a text that arrives in blocks, and the rows of CSV.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

QUOTE = b'"'


class InvalidCsv(Exception):
    """A text that is not a row of CSV."""


class LineSplitter:
    """
    The lines of a text that arrives in blocks, each with the position where it begins.

    With *is_quoted*, as in CSV, line breaks between quotation marks end no line.

    Bounds: Of a line that is longer than *bytes_max*, one more byte is kept.
    """

    def __init__(self, begin: int, bytes_max: int, *, is_quoted: bool = False) -> None:
        self._begin = begin
        self._bytes_max = bytes_max
        self._is_quoted = is_quoted
        self._line = bytearray()
        self._size = 0
        self._is_open = False

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes, int]]:
        """Yield the lines that end in *block*: begin, text, and the end."""
        *parts, last = block.split(b"\n")
        for part in parts:
            self._add(part)
            if self._is_open:
                self._keep(b"\n")
                continue
            end = self._begin + self._size + 1
            yield self._begin, bytes(self._line), end
            self._restart(end)
        self._add(last)

    def end(self) -> tuple[int, bytes, int] | None:
        """Return the last line, if it does not end with a line break."""
        if not self._size:
            return None
        return self._begin, bytes(self._line), self._begin + self._size

    @property
    def begin(self) -> int:
        """Where the line begins that has not ended."""
        return self._begin

    def _add(self, part: bytes) -> None:
        if self._is_quoted and part.count(QUOTE) % 2:
            self._is_open = not self._is_open
        self._keep(part)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        room = self._bytes_max + 1 - len(self._line)
        if room > 0:
            self._line += part[:room]

    def _restart(self, begin: int) -> None:
        self._begin, self._size = begin, 0
        self._line.clear()
        self._is_open = False


def csv_cells(row: bytes, delimiter: str) -> list[str]:
    """
    Return the cells of a row.

    Raises:
        InvalidCsv: It is not a row.
    """
    try:
        text = row.decode()
    except UnicodeDecodeError as error:
        raise InvalidCsv(f"the row is not UTF-8: {error}") from error
    pattern = _cell_pattern(delimiter)
    cells: list[str] = []
    at = 0
    while True:
        found = pattern.match(text, at)
        if found is None:
            raise InvalidCsv(
                f"the cell {len(cells) + 1} of the row has quotation marks that do "
                "not enclose it"
            )
        quoted, plain, end = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end()
        if not end:
            return cells


@lru_cache
def _cell_pattern(delimiter: str) -> re.Pattern[str]:
    end = re.escape(delimiter)
    # Possessive: hostile rows are read once.
    return re.compile(rf'(?:"((?:[^"]++|"")*+)"|([^"{end}]*+))({end}|\Z)')
