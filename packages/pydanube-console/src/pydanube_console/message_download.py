"""
The download of messages from a topic, as JSON lines or CSV.

Bounds: A download has at most ``MESSAGES_MAX`` messages, reads as much as a search, and
holds one batch in memory; ``DOWNLOADS_MAX`` run at the same time.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

import msgspec

from pydanube.client.client import Client
from pydanube.client.messages.messages import Message
from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import PositionLike
from pydanube_cli.messages.message_fields import MessageField, MessageParts
from pydanube_cli.messages.message_formats import iso_time, json_line
from pydanube_console.message_search import ALL, MessageFilter, Search

MESSAGES_MAX = 100_000
DOWNLOADS_MAX = 4
CHUNK_BYTES = 64 * 1024


class DownloadForm(Enum):
    """The form of a download."""

    JSON_LINES = "jsonl"
    """One object for each message, as ``danube read -o json`` prints it."""
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The messages that are downloaded, and the form of the file."""

    topic: str
    """The topic or partition."""
    form: DownloadForm
    start: PositionLike = "earliest"
    wanted: MessageFilter = ALL
    fields: Sequence[MessageField] = ()
    """The columns of CSV after topic, offset, time and key; by default the attributes,
    as JSON, and the payload."""

    @property
    def file_name(self) -> str:
        """The name that a browser gives to the file."""
        name = self.topic.strip("/").replace("/", "-")
        return f"{name}.{self.form.value}"

    @property
    def media_type(self) -> str:
        """The type of the file."""
        is_csv = self.form is DownloadForm.CSV
        return "text/csv; charset=utf-8" if is_csv else "application/x-ndjson"

    async def content(self, client: Client) -> AsyncGenerator[bytes, None]:
        """
        Yield the file in parts.

        Raises: As ``Client.read``.
        """
        search = Search()
        chunk = bytearray(self._head())
        count = 0
        matches = search.matches(
            client, self.topic, start=self.start, wanted=self.wanted
        )
        async with aclosing(matches):
            async for message in matches:
                chunk += self._line(message)
                count += 1
                if len(chunk) >= CHUNK_BYTES:
                    yield bytes(chunk)
                    chunk.clear()
                if count == MESSAGES_MAX:
                    break
        yield bytes(chunk)

    def _head(self) -> bytes:
        if self.form is not DownloadForm.CSV:
            return b""
        shown = [each.text for each in self.fields] or ["attributes", "payload"]
        return _row(["topic", "offset", "publish_time", "key", *shown])

    def _line(self, message: Message) -> bytes:
        if self.form is not DownloadForm.CSV:
            return json_line(message)
        parts = MessageParts(message)
        shown = [_text(each.content_in(parts)) for each in self.fields] or [
            msgspec.json.encode(message.attributes).decode(),
            _text(message.payload),
        ]
        return _row(
            [
                message.topic,
                str(message.offset),
                iso_time(message.publish_time),
                _text(message.key_bytes or b""),
                *shown,
            ]
        )


def parse_form(text: str) -> DownloadForm:
    """
    Return the form that *text* names.

    Raises:
        InvalidRequest: There is no such form.
    """
    try:
        return DownloadForm(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is no form of a download: use jsonl or csv"
        ) from None


def _row(cells: Sequence[str]) -> bytes:
    line = io.StringIO(newline="")
    csv.writer(line).writerow(cells)
    return line.getvalue().encode(errors="replace")


def _text(content: bytes) -> str:
    return content.decode(errors="backslashreplace")
