"""
A sink that writes messages to files, in a directory or in an object store.

Each batch becomes a file of its topic, whose name has the first and the last offset:
``default/orders/00000000000000000000-00000000000000000999.jsonl``.  The names say what
was written, so a message that is delivered again is left out.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, ClassVar

import pyarrow as pa
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube.model.errors import InvalidConfig
from pydanube.objects.addresses import parse_store_url
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube_connect.connector import Sink
from pydanube_connect.pure.failures import Rejected

NAMES_MAX = 1000
"""How many names are listed together."""
OFFSET_DIGITS = 20

_NAME = re.compile(rf"[0-9]{{{OFFSET_DIGITS}}}-([0-9]{{{OFFSET_DIGITS}}})\.[a-z]+")
_COLUMNS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
    ]
)


class FileFormat(Enum):
    """The content of the files."""

    LINES = "lines"
    PARQUET = "parquet"


SUFFIXES = {FileFormat.LINES: "jsonl", FileFormat.PARQUET: "parquet"}


class FilesSinkOptions(Section, frozen=True, kw_only=True):
    """The options of ``FilesSink``."""

    url: Annotated[
        str,
        Meta(
            description="The directory, such as `fs:///var/export`, or the object "
            "store, such as `s3://bucket/prefix`."
        ),
    ]
    store: Annotated[
        dict[str, str],
        Meta(description="The options of the object store, as OpenDAL names them."),
    ] = {}
    format: Annotated[
        FileFormat,
        Meta(
            description="Whether each payload is a line, or the messages are rows of "
            "Parquet with their offset, publish time, key and attributes."
        ),
    ] = FileFormat.LINES


class FilesSink(Sink):
    """
    Writes messages to files, each batch to a new one.

    Delivery: exactly once, as long as one process at a time runs the connector, and the
    last file of each topic stays.
    """

    Options = FilesSinkOptions
    needs_order: ClassVar[bool] = True

    def __init__(self, options: FilesSinkOptions) -> None:
        super().__init__(options)
        self._opened: Objects | None = None
        # The last name of each topic that was seen, and the last offset in files.
        self._last: dict[str, tuple[str, int]] = {}

    @classmethod
    def problems(cls, options: FilesSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        try:
            parse_store_url(options.url)
        except InvalidConfig as error:
            return {"url": str(error)}
        return {}

    async def check(self) -> None:
        """List a file."""
        await self._objects.names("", count_max=1)

    @property
    def _objects(self) -> Objects:
        if self._opened is None:
            self._opened = open_objects(self.options.url, self.options.store)
        return self._opened

    async def write(self, messages: Sequence[Message]) -> None:
        """Write *messages* to a file of each topic; see ``Sink.write``."""
        by_topic: dict[str, list[Message]] = defaultdict(list)
        rejected = {}
        for number, message in enumerate(messages):
            if message.deliver_at is not None:
                # Its offset is lower than that of messages which files have.
                rejected[number] = "the message was delayed, so it is out of order"
            elif self.options.format is FileFormat.LINES and b"\n" in message.payload:
                rejected[number] = "the payload has a line break: use 'format: parquet'"
            else:
                by_topic[message.topic].append(message)
        for topic, found in by_topic.items():
            await self._write(topic, found)
        if rejected:
            raise Rejected(rejected)

    async def _write(self, topic: str, messages: Sequence[Message]) -> None:
        file_format: FileFormat = self.options.format
        # Another process may have written since.
        last = await self._last_offset(topic)
        new = [each for each in messages if each.offset > last]
        if not new:
            return
        name = name_of(topic, new[0].offset, new[-1].offset, file_format)
        encode = encode_lines if file_format is FileFormat.LINES else encode_parquet
        await self._objects.put(name, await asyncio.to_thread(encode, new))
        self._last[topic] = name, new[-1].offset

    async def _last_offset(self, topic: str) -> int:
        """Return the last offset that files of *topic* have; -1: there are none."""
        prefix = f"{topic.lstrip('/')}/"
        name, last = self._last.get(topic, ("", -1))
        while names := await self._objects.names(
            prefix, after=name, count_max=NAMES_MAX
        ):
            name = names[-1]
            last = max([last, *map(last_offset_of, names)])
        self._last[topic] = name, last
        return last


def name_of(topic: str, first: int, last: int, file_format: FileFormat) -> str:
    """Return the name of the file with the offsets *first* to *last* of *topic*."""
    offsets = f"{first:0{OFFSET_DIGITS}}-{last:0{OFFSET_DIGITS}}"
    return f"{topic.lstrip('/')}/{offsets}.{SUFFIXES[file_format]}"


def last_offset_of(name: str) -> int:
    """Return the last offset in the file *name*; -1: it is not a file of a sink."""
    found = _NAME.fullmatch(name.rpartition("/")[2])
    return -1 if found is None else int(found[1])


def encode_lines(messages: Sequence[Message]) -> Buffer:
    """Return the payloads of *messages*, each on a line."""
    return b"".join(line for each in messages for line in (each.payload, b"\n"))


def encode_parquet(messages: Sequence[Message]) -> pa.Buffer:
    """Return *messages* as a Parquet file."""
    import pyarrow.parquet as pq  # noqa: PLC0415  # It takes long to import.

    table = pa.Table.from_pydict(
        {
            "offset": [each.offset for each in messages],
            "publish_time": [each.publish_time for each in messages],
            "key": [each.key_bytes for each in messages],
            "payload": [each.payload for each in messages],
            "attributes": [list(each.attributes.items()) for each in messages],
        },
        schema=_COLUMNS,
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
