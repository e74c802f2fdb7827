"""
Messages as the rows of a table.

The table is printed while messages arrive, so the widths of its columns are those that
the first batch needs; a longer cell later shifts its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.shown_text import excerpt, printable
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

COLUMNS: Mapping[str, Callable[[Message], str]] = {
    "Topic": lambda message: message.topic,
    "Offset": lambda message: str(message.offset),
    "Published": lambda message: message.publish_time.isoformat(
        timespec="milliseconds"
    ).replace("+00:00", "Z"),
    "Key": lambda message: text_of(message.key_bytes or b""),
    "Attributes": lambda message: printable(
        " ".join(f"{name}={value}" for name, value in message.attributes.items())
    ),
}
"""The columns before the payload, with the function that gives each cell."""


class MessageTable:
    """A renderer of messages as rows; the first batch comes with the headings."""

    def __init__(self, *, has_topics: bool, terminal_width: int | None) -> None:
        """
        Make a table with or without topics.

        With *terminal_width*, long cells are cut so that rows fit into the terminal.
        """
        self._columns = dict(COLUMNS)
        if not has_topics:
            del self._columns["Topic"]
        self._terminal_width = terminal_width
        self._widths: list[int] = []

    def __call__(self, batch: MessageBatch) -> list[bytes]:
        """Return the row of each message; the first also has the headings."""
        if self._widths:
            return [self._row(message) for message in batch]
        measured = [
            [*self._columns],
            *map(self._cells, islice(batch, MEASURED_MAX)),
        ]
        self._widths = [
            min(max(map(len, column)), COLUMN_CHARACTERS_MAX)
            for column in zip(*measured, strict=True)
        ]
        ruled = ["─" * width for width in self._widths]
        headings = [
            self._aligned([*self._columns]) + "Payload\n",
            self._aligned(ruled) + "─" * len("Payload") + "\n",
        ]
        first, *rest = (self._row(message) for message in batch)
        return ["".join(headings).encode() + first, *rest]

    def _row(self, message: Message) -> bytes:
        row = self._aligned(self._cells(message))
        payload = value_or_payload(message)
        if self._terminal_width is None:
            text = text_of(payload)
        else:
            room = max(self._terminal_width - len(row), PAYLOAD_CHARACTERS_MIN)
            # A payload may be much larger than what is shown.
            text = excerpt(text_of(payload[: (room + 1) * UTF8_BYTES_MAX]), room)
        return f"{row}{text}".rstrip().encode() + b"\n"

    def _cells(self, message: Message) -> list[str]:
        cells = [cell(message) or "\u2013" for cell in self._columns.values()]
        if self._terminal_width is None:
            return cells
        # All but the topic are short or may be cut.
        return [
            cell if name == "Topic" else excerpt(cell, CELL_CHARACTERS_MAX)
            for name, cell in zip(self._columns, cells, strict=True)
        ]

    def _aligned(self, cells: list[str]) -> str:
        """Return *cells* at the widths of their columns, with gaps after them."""
        return "".join(
            (cell.rjust(width) if name == "Offset" else cell.ljust(width)) + GAP
            for name, cell, width in zip(
                self._columns, cells, self._widths, strict=True
            )
        )
