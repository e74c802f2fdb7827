"""
A source of the objects in a store, such as S3, which appear and do not change.

Objects are read in the order of their names.  The name of the last one, and how far it
was read, are stored with the messages, so each is published exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from enum import Enum
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube.objects.addresses import parse_store_url
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import duration_problems, size_problems
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.sinks.pure.file_rows import MESSAGE_COLUMNS
from pydanube_connect.sources.object_contents import (
    InvalidObject,
    ObjectCompression,
    blocks_of,
    codec_of,
    rows_of,
)
from pydanube_connect.sources.pure.lines import InvalidCsv, LineSplitter, csv_cells

NAMES_MAX = 1000
"""How many names are listed together."""
BATCH_LINES_MAX = 5000
_BOM = b"\xef\xbb\xbf"


class ObjectFormat(Enum):
    """The messages that an object becomes."""

    LINES = "lines"
    CSV = "csv"
    PARQUET = "parquet"
    WHOLE = "whole"


class ObjectsStart(Enum):
    """Where to begin in a store that is read first."""

    EARLIEST = "earliest"
    LATEST = "latest"


class ObjectsOptions(Section, frozen=True, kw_only=True):
    """The options of ``ObjectsSource``."""

    url: Annotated[
        str,
        Meta(
            description="The store, such as `s3://bucket/prefix`, `gcs://bucket`, "
            "`azblob://container` or `fs:///directory`."
        ),
    ]
    store: Annotated[
        dict[str, str],
        Meta(description="The options of the service, as OpenDAL names them."),
    ] = {}
    pattern: Annotated[
        str, Meta(description="The names to read, such as `logs/*.jsonl`.")
    ] = "*"
    format: Annotated[
        ObjectFormat,
        Meta(
            description="Whether each line is a message, each row of CSV below a row "
            "of names, each row of Parquet, or each object as a whole."
        ),
    ] = ObjectFormat.LINES
    compression: Annotated[
        ObjectCompression,
        Meta(
            description="The compression of lines and CSV; with `auto`, names that end "
            "in `.gz` and `.zst` say it."
        ),
    ] = ObjectCompression.AUTO
    delimiter: Annotated[
        str, Meta(description="The character between the cells of CSV.")
    ] = ","
    start: Annotated[
        ObjectsStart,
        Meta(description="Where to begin in a store that is read first."),
    ] = ObjectsStart.EARLIEST
    poll: Annotated[
        str, Meta(description="How long to wait when there are no new objects.")
    ] = "10s"
    message_bytes_max: Annotated[
        str,
        Meta(
            description="The maximum size of a message; a longer one becomes a dead "
            "letter."
        ),
    ] = "1MiB"


class ObjectPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a store is published; the position of the batches."""

    name: str = ""
    """The last object."""
    offset: int | None = None
    """The part of it that was read; None: all."""


class ObjectsSource(Source):
    """
    Publishes the objects of a store, such as S3: each line or row, or each as a whole.

    Delivery: exactly once, in the order of the names. New objects have names after all
    that were read, and objects do not change.
    """

    Options = ObjectsOptions

    @classmethod
    def problems(cls, options: ObjectsOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        try:
            parse_store_url(options.url)
        except InvalidConfig as error:
            found["url"] = str(error)
        found |= duration_problems(options, "poll")
        found |= size_problems(options, "message_bytes_max")
        if len(options.delimiter) != 1 or options.delimiter in '"\r\n':
            found["delimiter"] = f"{options.delimiter!r} is not a character such as ,"
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield what follows *position*."""
        options: ObjectsOptions = self.options
        poll_s = parse_duration(options.poll)
        reading = Reading(open_objects(options.url, options.store), options)
        if position is None:
            begin = ObjectPosition()
            if options.start is ObjectsStart.LATEST:
                begin = ObjectPosition(name=await reading.last_name())
            yield Batch([], msgspec.to_builtins(begin))
        else:
            begin = reading.parse(position)
        if begin.offset is not None:
            async for batch in reading.read(begin.name, begin.offset):
                yield batch
        name = begin.name
        while True:
            names = await reading.names_after(name)
            for each in names:
                if fnmatchcase(each, options.pattern):
                    async for batch in reading.read(each, 0):
                        yield batch
                name = each
            if len(names) < NAMES_MAX:
                await asyncio.sleep(poll_s)


class Reading:
    """The reading of a store."""

    def __init__(self, objects: Objects, options: ObjectsOptions) -> None:
        self._objects = objects
        self._options = options
        size = parse_quantity(options.message_bytes_max, BYTE_UNITS)
        self._bytes_max = int(size or 0)

    def parse(self, position: Any) -> ObjectPosition:
        """Return a position that was stored."""
        try:
            return msgspec.convert(position, ObjectPosition)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error

    async def names_after(self, name: str) -> list[str]:
        """Return the next names, sorted."""
        return await self._objects.names("", after=name, count_max=NAMES_MAX)

    async def last_name(self) -> str:
        """Return the last name of all."""
        last = ""
        while names := await self.names_after(last):
            last = names[-1]
        return last

    async def read(self, name: str, offset: int) -> AsyncIterator[Batch]:
        """
        Yield the messages of an object from *offset* on.

        An object that is not of the format is a record with a problem.
        """
        read = {
            ObjectFormat.LINES: self._read_lines,
            ObjectFormat.CSV: self._read_csv,
            ObjectFormat.PARQUET: self._read_rows,
            ObjectFormat.WHOLE: self._read_whole,
        }[self._options.format]
        try:
            async with aclosing(read(name, offset)) as batches:
                async for batch in batches:
                    yield batch
        except InvalidObject as error:
            attributes = {"object.name": name}
            invalid = Record(
                value=b"", attributes=attributes, problem=f"{name}: {error}"
            )
            yield _batch(name, [invalid], None)

    async def _read_whole(self, name: str, _: int) -> AsyncGenerator[Batch]:
        data = await self._objects.read(name, 0, self._bytes_max + 1)
        if data is not None:
            record = self._record(name, {}, bytes(data), 0)
            yield _batch(name, [record], None)

    async def _read_lines(self, name: str, offset: int) -> AsyncGenerator[Batch]:
        def record_of(begin: int, line: bytes) -> Record:
            attributes = {"object.offset": str(begin)}
            return self._record(name, attributes, line.removesuffix(b"\r"), begin)

        async for batch in self._read_text(name, offset, record_of):
            yield batch

    async def _read_csv(self, name: str, offset: int) -> AsyncGenerator[Batch]:
        header, end = await self._header(name)

        def record_of(begin: int, row: bytes) -> Record | None:
            row = row.removesuffix(b"\r")
            if not row and len(header) != 1:
                return None
            attributes = {"object.offset": str(begin)}
            found = self._record(name, attributes, row, begin)
            if found.problem is not None:
                return found
            try:
                cells = csv_cells(row, self._options.delimiter)
            except InvalidCsv as error:
                return found.replace(problem=f"the row at {begin} of {name}: {error}")
            if len(cells) != len(header):
                problem = (
                    f"the row at {begin} of {name} has {len(cells)} cells, and the "
                    f"first row has {len(header)}"
                )
                return found.replace(problem=problem)
            return found.replace(value=dict(zip(header, cells, strict=True)))

        async for batch in self._read_text(name, max(offset, end), record_of):
            yield batch

    async def _header(self, name: str) -> tuple[list[str], int]:
        """Return the first row, and where it ends."""
        splitter = LineSplitter(0, self._bytes_max, is_quoted=True)
        line = None
        async with aclosing(self._blocks(name, 0)) as blocks:
            async for block in blocks:
                line = next(splitter.feed(block), None)
                if line is not None:
                    break
        _, row, end = line or splitter.end() or (0, b"", 0)
        if len(row) > self._bytes_max:
            raise InvalidObject("its first row is longer than a message may be")
        try:
            header = csv_cells(
                row.removeprefix(_BOM).removesuffix(b"\r"), self._options.delimiter
            )
        except InvalidCsv as error:
            raise InvalidObject(f"its first row: {error}") from error
        if len(set(header)) < len(header):
            raise InvalidObject("two cells of its first row have the same name")
        return header, end

    async def _read_rows(self, name: str, offset: int) -> AsyncGenerator[Batch]:
        async with aclosing(rows_of(self._objects, name, offset)) as found:
            async for columns, rows, byte_count in found:
                record_of = _stored_message if _are_messages(columns) else _plain_row
                records = [
                    record_of(row, {"object.name": name, "object.row": str(number)})
                    for number, row in enumerate(rows, offset)
                ]
                offset += len(rows)
                yield _batch(name, records, offset, byte_count)
        yield _batch(name, [], None)

    async def _read_text(
        self, name: str, offset: int, record_of: Callable[[int, bytes], Record | None]
    ) -> AsyncGenerator[Batch]:
        is_csv = self._options.format is ObjectFormat.CSV
        splitter = LineSplitter(offset, self._bytes_max, is_quoted=is_csv)
        records: list[Record] = []
        first = offset
        async with aclosing(self._blocks(name, offset)) as blocks:
            async for block in blocks:
                for begin, line, end in splitter.feed(block):
                    record = record_of(begin, line)
                    if record is not None:
                        records.append(record)
                    if len(records) == BATCH_LINES_MAX:
                        yield _batch(name, records, end, (end - first) * is_csv)
                        records, first = [], end
                if records:
                    end = splitter.begin
                    yield _batch(name, records, end, (end - first) * is_csv)
                    records, first = [], end
        last = splitter.end()
        record = None if last is None else record_of(last[0], last[1])
        yield _batch(name, [] if record is None else [record], None)

    def _blocks(self, name: str, offset: int) -> AsyncGenerator[bytes]:
        codec = codec_of(name, self._options.compression)
        return blocks_of(self._objects, name, offset, codec)

    def _record(
        self, name: str, attributes: dict[str, str], value: bytes, begin: int
    ) -> Record:
        """Return the record of *value*, which is cut if it is too long."""
        problem = None
        if len(value) > self._bytes_max:
            problem = (
                f"the message at {begin} of {name} is longer than "
                f"{self._options.message_bytes_max}: raise 'message_bytes_max'"
            )
            value = value[: self._bytes_max]
        attributes = {"object.name": name, **attributes}
        return Record(value=value, attributes=attributes, problem=problem)


def _batch(
    name: str, records: Sequence[Record], offset: int | None, byte_count: int = 0
) -> Batch:
    position = ObjectPosition(name=name, offset=offset)
    return Batch(records, msgspec.to_builtins(position), byte_count=byte_count)


def _are_messages(columns: pa.Schema) -> bool:
    """Return whether rows with these *columns* are messages that a sink has stored."""
    return columns.names == MESSAGE_COLUMNS.names and all(
        columns.field(name).type == MESSAGE_COLUMNS.field(name).type
        for name in ("key", "payload", "attributes")
    )


def _plain_row(row: dict[str, Any], attributes: dict[str, str]) -> Record:
    return Record(value=row, attributes=attributes)


def _stored_message(row: dict[str, Any], attributes: dict[str, str]) -> Record:
    """Return the message that a sink has stored as *row*."""
    return Record(
        value=row["payload"],
        key=row["key"],
        attributes={**dict(row["attributes"] or ()), **attributes},
    )
