"""
Messages as the rows of a table.

The table is printed while messages arrive, so the widths of its columns are those that
the first batch needs; a longer cell later shifts its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.shown_text import excerpt, printable
from pydanube_cli.messages.message_fields import MessageField
from pydanube_cli.messages.message_formats import text_of, value_or_payload

GAP = "  "
MEASURED_MAX = 1000
"""The number of messages from which the widths are derived."""
CELL_CHARACTERS_MAX = 40
"""The longest key and attributes on a terminal."""
PAYLOAD_CHARACTERS_MIN = 20
"""On a terminal, at least this much of a payload is shown."""
COLUMN_CHARACTERS_MAX = 80
"""The widest column; longer cells shift their rows."""
UTF8_BYTES_MAX = 4

Column = tuple[str, Callable[[Message], str]]
"""A heading, and the function that gives each cell."""


def _time(message: Message) -> str:
    text = message.publish_time.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _attributes(message: Message) -> str:
    pairs = message.attributes.items()
    return printable(" ".join(f"{name}={value}" for name, value in pairs))


COLUMNS: tuple[Column, ...] = (
    ("Topic", lambda message: message.topic),
    ("Offset", lambda message: str(message.offset)),
    ("Published", _time),
    ("Key", lambda message: text_of(message.key_bytes or b"")),
    ("Attributes", _attributes),
)
"""The columns before the payload."""


class MessageTable:
    """A renderer of messages as rows; the first batch comes with the headings."""

    def __init__(
        self,
        *,
        has_topics: bool,
        terminal_width: int | None,
        fields: Sequence[MessageField] = (),
    ) -> None:
        """
        Make a table with or without topics.

        With *terminal_width*, long cells are cut so that rows fit into the terminal.
        *fields* are columns in place of the attributes and the payload.
        """
        self._columns = [each for each in COLUMNS if has_topics or each[0] != "Topic"]
        self._last_heading, self._last = "Payload", value_or_payload
        if fields:
            self._columns.pop()
            *others, last = fields
            self._columns += [(each.text, each.cell) for each in others]
            self._last_heading, self._last = last.text, last.content
        self._terminal_width = terminal_width
        self._widths: list[int] = []

    def __call__(self, batch: MessageBatch) -> list[bytes]:
        """Return the row of each message; the first also has the headings."""
        if self._widths:
            return [self._row(message) for message in batch]
        measured = [
            self._headings(),
            *map(self._cells, islice(batch, MEASURED_MAX)),
        ]
        self._widths = [
            min(max(map(len, column)), COLUMN_CHARACTERS_MAX)
            for column in zip(*measured, strict=True)
        ]
        ruled = ["─" * width for width in self._widths]
        headings = [
            self._aligned(self._headings()) + f"{self._last_heading}\n",
            self._aligned(ruled) + "─" * len(self._last_heading) + "\n",
        ]
        first, *rest = (self._row(message) for message in batch)
        return ["".join(headings).encode() + first, *rest]

    def _row(self, message: Message) -> bytes:
        row = self._aligned(self._cells(message))
        payload = self._last(message)
        if self._terminal_width is None:
            text = text_of(payload)
        else:
            room = max(self._terminal_width - len(row), PAYLOAD_CHARACTERS_MIN)
            # A payload may be much larger than what is shown.
            text = excerpt(text_of(payload[: (room + 1) * UTF8_BYTES_MAX]), room)
        return f"{row}{text}".rstrip().encode() + b"\n"

    def _headings(self) -> list[str]:
        return [heading for heading, _ in self._columns]

    def _cells(self, message: Message) -> list[str]:
        cells = [cell(message) or "\u2013" for _, cell in self._columns]
        if self._terminal_width is None:
            return cells
        # All but the topic are short or may be cut.
        return [
            cell if heading == "Topic" else excerpt(cell, CELL_CHARACTERS_MAX)
            for heading, cell in zip(self._headings(), cells, strict=True)
        ]

    def _aligned(self, cells: list[str]) -> str:
        """Return *cells* at the widths of their columns, with gaps after them."""
        return "".join(
            (cell.rjust(width) if heading == "Offset" else cell.ljust(width)) + GAP
            for heading, cell, width in zip(
                self._headings(), cells, self._widths, strict=True
            )
        )
