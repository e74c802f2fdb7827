"""
A sink that writes messages to files, in a directory or in an object store.

Each batch becomes a file of its topic, or one of each partition, whose name has the
first and the last offset:
``default/orders/00000000000000000000-00000000000000000999.jsonl``.

The names say what was written.  A batch is written in the order of offsets, and the
partition of a message never changes.  Messages up to the last offset in the names of a
partition are therefore in its files, also if a batch was interrupted between two
partitions, and are left out when they are delivered again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube.model.errors import InvalidConfig
from pydanube.objects.addresses import parse_store_url
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube_connect.connector import Sink
from pydanube_connect.pure.failures import Rejected
from pydanube_connect.sinks.pure.file_names import (
    InvalidPartition,
    directory_of,
    last_offset_of,
    name_of,
    partition_of,
    partition_problem,
)
from pydanube_connect.sinks.pure.file_rows import (
    Column,
    ColumnType,
    Compression,
    FileEncoder,
    FileFormat,
    InvalidRow,
    column_problem,
)

NAMES_MAX = 1000
"""How many names are listed together."""
DIRECTORIES_MAX = 10_000
"""The most partitions whose last names are remembered."""

_Rows = dict[str, list[tuple[int, Any]]]
"""The offsets and rows of new files, by directory."""


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
            "CSV, which needs `columns`, or of Parquet."
        ),
    ] = FileFormat.LINES
    compression: Annotated[
        Compression | None,
        Meta(
            description="The compression of the files; by default zstd for Parquet, "
            "and none otherwise. `snappy` is for Parquet only."
        ),
    ] = None
    columns: Annotated[
        dict[str, ColumnType | Column],
        Meta(
            description="The columns, each with the type of the field of this name: "
            "text, integer, number, boolean, time or date; or `{field: a.b, type: "
            "integer}`, or `{message: offset}`, also `topic`, `publish_time`, `key` "
            "and `payload`. By default the messages as they are."
        ),
    ] = {}
    partition: Annotated[
        str,
        Meta(
            description="The path below the topic, such as `day={time:%Y-%m-%d}` with "
            "the time when a message was published, or `region={value.region}`."
        ),
    ] = ""


class FilesSink(Sink):
    """
    Writes messages to files, each batch to new ones.

    Delivery: exactly once, as long as one process at a time runs the connector, and the
    last file of each partition stays.
    """

    Options = FilesSinkOptions
    needs_order: ClassVar[bool] = True

    def __init__(self, options: FilesSinkOptions) -> None:
        super().__init__(options)
        self._opened: Objects | None = None
        self._encoder = FileEncoder(
            options.format, options.compression, options.columns
        )
        # The last name in each directory that was seen, and the last offset in files;
        # those that were used last are at the end.
        self._last: OrderedDict[str, tuple[str, int]] = OrderedDict()

    @classmethod
    def problems(cls, options: FilesSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        try:
            parse_store_url(options.url)
        except InvalidConfig as error:
            found["url"] = str(error)
        problem = column_problem(options.columns)
        if problem is None and options.format is FileFormat.CSV and not options.columns:
            problem = "files of CSV need columns, such as {id: integer, name: text}"
        if problem is not None:
            found["columns"] = problem
        is_parquet = options.format is FileFormat.PARQUET
        if options.compression is Compression.SNAPPY and not is_parquet:
            found["compression"] = "snappy is for Parquet; use gzip or zstd"
        problem = partition_problem(options.partition) if options.partition else None
        if problem is not None:
            found["partition"] = problem
        return found

    async def check(self) -> None:
        """List a file."""
        await self._objects.names("", count_max=1)

    @property
    def _objects(self) -> Objects:
        if self._opened is None:
            self._opened = open_objects(self.options.url, self.options.store)
        return self._opened

    async def write(self, messages: Sequence[Message]) -> None:
        """Write *messages* to a file of each partition; see ``Sink.write``."""
        rows, rejected = await asyncio.to_thread(self._rows_of, messages)
        for directory, found in rows.items():
            await self._write(directory, found)
        if rejected:
            raise Rejected(rejected)

    def _rows_of(self, messages: Sequence[Message]) -> tuple[_Rows, dict[int, str]]:
        """Return the rows of *messages*, and why some have none."""
        partition = self.options.partition
        rows: _Rows = defaultdict(list)
        rejected = {}
        for number, message in enumerate(messages):
            if message.deliver_at is not None:
                # Its offset is lower than that of messages which files have.
                rejected[number] = "the message was delayed, so it is out of order"
                continue
            try:
                row = self._encoder.row_of(message)
                place = partition_of(partition, message) if partition else ""
            except (InvalidRow, InvalidPartition) as error:
                rejected[number] = str(error)
            else:
                directory = directory_of(message.topic, place)
                rows[directory].append((message.offset, row))
        return rows, rejected

    async def _write(self, directory: str, rows: Sequence[tuple[int, Any]]) -> None:
        # Another process may have written since.
        last = await self._last_offset(directory)
        new = [(offset, row) for offset, row in rows if offset > last]
        if not new:
            return
        (first, _), (end, _) = new[0], new[-1]
        name = name_of(directory, first, end, self._encoder.suffix)
        content = [row for _, row in new]
        data = await asyncio.to_thread(self._encoder.encode, content)
        await self._objects.put(name, data)
        self._remember(directory, name, end)

    async def _last_offset(self, directory: str) -> int:
        """Return the last offset that files in *directory* have; -1: there are none."""
        found = after, last = self._last.get(directory, ("", -1))
        # Directories below may be those of an earlier 'partition'.
        own_max = f"{directory}:"
        while after < own_max:
            names = await self._objects.names(
                directory, after=after, count_max=NAMES_MAX
            )
            for name in names:
                last = last_offset_of(directory, name)
                if last >= found[1]:
                    found = name, last
            if len(names) < NAMES_MAX:
                break
            after = names[-1]
        self._remember(directory, *found)
        return found[1]

    def _remember(self, directory: str, name: str, last: int) -> None:
        self._last[directory] = name, last
        self._last.move_to_end(directory)
        if len(self._last) > DIRECTORIES_MAX:
            self._last.popitem(last=False)
